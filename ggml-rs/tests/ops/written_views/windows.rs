//! SET, ACC and SET_ROWS: what is written is a window, or rows, of the destination.

use ggml_rs::DType::{self, BF16, F16, F32, I32, Q8_0};
use ggml_rs::quantize::{dequantize, quantize};
use ggml_rs::{Error, Graph, Result, RowIdsOptions, Tensor};

use super::cut::Cut;
use super::parent::{Place, bytes_of, compare, everywhere, run, values_of, whole};
use crate::common::forward::{Given, index, places};

type Write = for<'g> fn(Tensor<'g>, Tensor<'g>, [usize; 3], usize) -> Result<Tensor<'g>>;

/// A destination, the shape of the window in it, where it begins, and how many elements of the destination lie between
/// neighbours of the window, from dimension 1 on.
type Spot = ([usize; 4], [usize; 4], [usize; 4], [usize; 3]);

/// Windows of the destination's own rows, of every second row, and of another order of dimensions.
const SPOTS: [Spot; 4] = [
    ([9, 4, 3, 2], [7, 2, 2, 1], [1, 1, 1, 1], [9, 36, 108]),
    ([9, 4, 3, 2], [7, 2, 3, 2], [2, 0, 0, 0], [18, 36, 108]),
    ([9, 4, 3, 2], [8, 3, 4, 1], [0, 0, 0, 1], [36, 9, 108]),
    (
        [1100, 2, 1, 1],
        [1030, 1, 1, 1],
        [60, 1, 0, 0],
        [1100, 2200, 2200],
    ),
];

/// The elements of the destination that the window takes, in ne order.
fn window((a, b, start, step): Spot) -> Vec<usize> {
    let first = index(a, start);
    places(b)
        .map(|i| first + i[0] + i[1] * step[0] + i[2] * step[1] + i[3] * step[2])
        .collect()
}

/// One of the ops that write a window.
struct Op {
    name: &'static str,
    in_place: bool,
    adds: bool,
    write: Write,
}

impl Op {
    /// Writes views of every layout into every window.
    fn check(&self, types: &[DType]) {
        let mut places: Vec<Place> = everywhere().collect();
        for &dtype in types {
            for spot in SPOTS {
                for cut in Cut::all(spot.1, 1) {
                    for place in &mut places {
                        self.check_one(place, dtype, spot, &cut);
                    }
                }
            }
        }
    }

    /// Compares all elements. In place nothing but the window may change; otherwise nothing of the operand does.
    fn check_one(&self, place: &mut Place, dtype: DType, spot: Spot, cut: &Cut) {
        let (a_ne, _, start, step) = spot;
        let (a, b) = (whole(dtype, &a_ne, 1), whole(dtype, &cut.parent, 5));
        let (before, b_values) = (a.values(), b.values());
        let mut expected = before.clone();
        for (to, from) in window(spot).into_iter().zip(cut.places()) {
            let old = if self.adds { expected[to] } else { 0.0 };
            expected[to] = old + b_values[from];
        }
        let what = format!("{} of {dtype}, {spot:?}, {cut:?}, {place}", self.name);
        let outcome = both(place, &a, &b, |a, b| {
            let [bytes, ..] = a.strides();
            let nb = step.map(|n| n * bytes);
            (self.write)(a, cut.view(b)?, nb, index(a_ne, start) * bytes)
        });
        match outcome {
            Ok((result, after)) => {
                assert_eq!(values_of(dtype, &result), expected, "{what}");
                let after_is = if self.in_place { expected } else { before };
                assert_eq!(values_of(dtype, &after), after_is, "{what}");
            }
            Err(Error::Unsupported(_)) => {
                let has_kernel = match place.is_metal {
                    true => dtype == F32 || !self.adds,
                    false => matches!(dtype, F32 | I32),
                };
                assert!(cut.axes[0] != 0 || !has_kernel, "{what} is refused");
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// The result, and the first operand afterwards.
fn both(
    place: &mut Place,
    a: &Given,
    b: &Given,
    write: impl for<'g> Fn(Tensor<'g>, Tensor<'g>) -> Result<Tensor<'g>>,
) -> Result<(Vec<u8>, Vec<u8>)> {
    let (graph, (a_in, b_in, result, after)) = Graph::build(|g| {
        let (x, a_in) = g.input("a", a.dtype(), &*a.dims)?;
        let (y, b_in) = g.input("b", b.dtype(), &*b.dims)?;
        let written = write(x, y)?;
        Ok((
            a_in,
            b_in,
            g.output("result", written)?,
            g.output("after", x)?,
        ))
    })?;
    let mut plan = place.plan(graph)?;
    plan.set_bytes(&a_in, &bytes_of(a))?;
    plan.set_bytes(&b_in, &bytes_of(b))?;
    place.run(&mut plan)?;
    Ok((plan.read_bytes(&result)?, plan.read_bytes(&after)?))
}

#[test]
fn windows_are_replaced() {
    let types = [F32, I32, F16, BF16];
    Op {
        name: "set",
        in_place: false,
        adds: false,
        write: |a, b, nb, at| a.set(b, nb, at),
    }
    .check(&types);
    Op {
        name: "set_inplace",
        in_place: true,
        adds: false,
        write: |a, b, nb, at| a.set_inplace(b, nb, at),
    }
    .check(&types);
}

#[test]
fn windows_are_added_to() {
    Op {
        name: "acc",
        in_place: false,
        adds: true,
        write: |a, b, nb, at| a.acc(b, nb, at),
    }
    .check(&[F32]);
    Op {
        name: "acc_inplace",
        in_place: true,
        adds: true,
        write: |a, b, nb, at| a.acc_inplace(b, nb, at),
    }
    .check(&[F32]);
}

/// A contiguous window in the middle of a larger tensor is written to in place.
#[test]
fn what_is_around_a_window_of_a_window_stays() {
    // Matrices 1 and 2 of four.
    let cut = Cut {
        name: "matrices",
        parent: [9, 4, 4, 1],
        start: [0, 0, 1, 0],
        window: [9, 4, 2, 1],
        axes: [0, 1, 2, 3],
    };
    let (a, b) = (whole(F32, &cut.parent, 1), whole(F32, &[5, 3], 4));
    for adds in [false, true] {
        let (before, b_values) = (a.values(), b.values());
        let mut expected: Vec<f64> = cut.places().into_iter().map(|i| before[i]).collect();
        for (to, value) in window(([9, 4, 2, 1], [5, 3, 1, 1], [2, 1, 1, 0], [9, 36, 72]))
            .into_iter()
            .zip(b_values)
        {
            expected[to] = if adds { expected[to] } else { 0.0 } + value;
        }
        let offset = 4 * index([9, 4, 2, 1], [2, 1, 1, 0]);
        for mut place in everywhere() {
            let after = run(&mut place, &[&a, &b], |x| {
                let a = cut.view(x[0])?;
                match adds {
                    true => a.acc_inplace(x[1], [36, 144, 288], offset),
                    false => a.set_inplace(x[1], [36, 144, 288], offset),
                }
            });
            compare(&a, &cut, &after.unwrap(), &expected, 0.0).unwrap();
        }
    }
}

/// Rows of floats and of blocks, by ids, into every layout with packed rows and from every one.
#[test]
fn rows_are_written_by_ids() {
    let mut places: Vec<Place> = everywhere().collect();
    for to in [F32, F16, BF16, Q8_0] {
        for from in [F32, F16] {
            for dst in Cut::all([N, ROWS, 2, 2], to.block_len()) {
                for source in Cut::all([N, IDS.len(), 2, 2], 1) {
                    for place in &mut places {
                        check_rows(place, (from, &source), (to, &dst));
                    }
                }
            }
        }
    }
}

/// The length of a row, the rows of a matrix, and which of them are written.
const N: usize = 64;
const ROWS: usize = 5;
const IDS: [i32; 3] = [4, 0, 3];

fn check_rows(place: &mut Place, (from, source): (DType, &Cut), (to, dst): (DType, &Cut)) {
    let (a, b) = (whole(to, &dst.parent, 1), whole(from, &source.parent, 8));
    let before = a.values();
    let mut expected: Vec<f64> = dst.places().into_iter().map(|i| before[i]).collect();
    for (k, row) in source.packed(&b).values().chunks(N).enumerate() {
        let (i, matrix) = (k % IDS.len(), k / IDS.len());
        let values: Vec<f32> = row.iter().map(|&x| x as f32).collect();
        let stored = dequantize(to, &quantize(to, &values, N).unwrap()).unwrap();
        let at = N * (IDS[i] as usize + ROWS * matrix);
        for (to, value) in expected[at..at + N].iter_mut().zip(stored) {
            *to = value.into();
        }
    }
    let what = format!("{from} to {to}, {source:?} into {dst:?}, {place}");
    // The last bits of a scale, which devices round differently.
    let tolerance = if to == Q8_0 { 1e-3 } else { 0.0 };
    match set_rows(place, [&a, &b], dst, source) {
        Ok(after) => compare(&a, dst, &after, &expected, tolerance)
            .unwrap_or_else(|why| panic!("{what}: {why}")),
        Err(Error::Unsupported(_) | Error::Layout(_)) => {
            let packed = dst.axes[0] == 0 && source.axes[0] == 0;
            let has_kernel = !place.is_metal || from == F32 || to == F16;
            assert!(!packed || !has_kernel, "{what} is refused");
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

fn set_rows(place: &mut Place, [a, b]: [&Given; 2], dst: &Cut, source: &Cut) -> Result<Vec<u8>> {
    let (graph, (a_in, b_in, ids_in, after)) = Graph::build(|g| {
        let (x, a_in) = g.input("a", a.dtype(), &*a.dims)?;
        let (y, b_in) = g.input("b", b.dtype(), &*b.dims)?;
        let options = RowIdsOptions::new(ROWS).distinct();
        let (chosen, ids_in) = g.row_ids_with("ids", [IDS.len()], options)?;
        let written = dst.view(x)?.set_rows(source.view(y)?, chosen)?;
        let [nb0, ..] = written.strides();
        g.output("one", written.view([a.dtype().block_len()], [nb0; 3], 0)?)?;
        Ok((a_in, b_in, ids_in, g.output("after", x)?))
    })?;
    let mut plan = place.plan(graph)?;
    plan.set_bytes(&a_in, &bytes_of(a))?;
    plan.set_bytes(&b_in, &bytes_of(b))?;
    plan.set_i32(&ids_in, &IDS)?;
    place.run(&mut plan)?;
    plan.read_bytes(&after)
}
