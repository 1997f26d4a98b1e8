//! SET, ACC and SET_ROWS: what is written is a window, or rows, of the destination.

use ggml_rs::DType::{self, BF16, F16, F32, I32, Q8_0};
use ggml_rs::quantize::{dequantize, quantize};
use ggml_rs::{Error, Graph, Result, RowIdsOptions, Tensor};

use crate::common::forward::{Given, index, places};
use crate::cut::Cut;
use crate::parent::{Place, bytes_of, compare, everywhere, run, values_of, whole};

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

/// Writes and compares all elements. In place nothing but the window may change; otherwise nothing at all does.
fn check(name: &str, types: &[DType], in_place: bool, adds: bool, write: Write) {
    for &dtype in types {
        for spot in SPOTS {
            let (a_ne, b_ne, start, step) = spot;
            for cut in Cut::all(b_ne, 1) {
                let (a, b) = (whole(dtype, &a_ne, 1), whole(dtype, &cut.parent, 5));
                let (before, b_values) = (a.values(), b.values());
                let mut expected = before.clone();
                for (to, from) in window(spot).into_iter().zip(cut.places()) {
                    let old = if adds { expected[to] } else { 0.0 };
                    expected[to] = old + b_values[from];
                }
                let bytes = bytes_of(&a).len() / before.len();
                for mut place in everywhere() {
                    let what = format!("{name} of {dtype}, {spot:?}, {cut:?}, {place}");
                    let outcome = both(&mut place, &a, &b, |a, b| {
                        let nb = step.map(|n| n * bytes);
                        write(a, cut.view(b)?, nb, index(a_ne, start) * bytes)
                    });
                    match outcome {
                        Ok((result, after)) => {
                            assert_eq!(values_of(dtype, &result), expected, "{what}");
                            let after_is = if in_place { &expected } else { &before };
                            assert_eq!(&values_of(dtype, &after), after_is, "{what}");
                        }
                        Err(Error::Unsupported(_)) => {
                            let packed = cut.name != "transposed"
                                && cut.name != "a transposed window"
                                && cut.name != "reversed dimensions";
                            let has_kernel = match place.is_metal {
                                true => dtype == F32 || !adds,
                                false => matches!(dtype, F32 | I32),
                            };
                            assert!(!packed || !has_kernel, "{what} is refused");
                        }
                        Err(error) => panic!("{what}: {error}"),
                    }
                }
            }
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
    check(
        "set",
        &[F32, I32, F16, BF16],
        false,
        false,
        |a, b, nb, at| a.set(b, nb, at),
    );
    check(
        "set_inplace",
        &[F32, I32, F16, BF16],
        true,
        false,
        |a, b, nb, at| a.set_inplace(b, nb, at),
    );
}

#[test]
fn windows_are_added_to() {
    check("acc", &[F32], false, true, |a, b, nb, at| a.acc(b, nb, at));
    check("acc_inplace", &[F32], true, true, |a, b, nb, at| {
        a.acc_inplace(b, nb, at)
    });
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
    const IDS: [i32; 3] = [4, 0, 3];
    for to in [F32, F16, BF16, Q8_0] {
        for from in [F32, F16] {
            let (n, block) = (64, to.block_len());
            for dst in Cut::all([n, 5, 2, 2], block) {
                for source in Cut::all([n, 3, 2, 2], 1) {
                    let a = match to {
                        Q8_0 => {
                            Given::float(to, &dst.parent, vec![1.0; dst.parent.iter().product()])
                        }
                        _ => whole(to, &dst.parent, 1),
                    };
                    let b = whole(from, &source.parent, 8);
                    let (a_values, b_values) = (a.values(), b.values());
                    let mut expected: Vec<f64> =
                        dst.places().into_iter().map(|i| a_values[i]).collect();
                    let from_places = source.places();
                    for (k, row) in from_places.chunks(n).enumerate() {
                        let (i, matrix) = (k % 3, k / 3);
                        let values: Vec<f32> = row.iter().map(|&i| b_values[i] as f32).collect();
                        let stored = dequantize(to, &quantize(to, &values, n).unwrap()).unwrap();
                        let at = n * (IDS[i] as usize + 5 * matrix);
                        for (to, value) in expected[at..at + n].iter_mut().zip(stored) {
                            *to = value.into();
                        }
                    }
                    for mut place in everywhere() {
                        let what = format!("{from} to {to}, {source:?} into {dst:?}, {place}");
                        let packed = dst.axes[0] == 0 && source.axes[0] == 0;
                        let has_kernel = !place.is_metal || from == F32 || to == F16;
                        match set_rows(&mut place, [&a, &b], &IDS, dst, source) {
                            // One of the last bits of a scale, which devices round differently.
                            Ok(after) => compare(
                                &a,
                                &dst,
                                &after,
                                &expected,
                                if to == Q8_0 { 1e-3 } else { 0.0 },
                            )
                            .unwrap_or_else(|why| panic!("{what}: {why}")),
                            Err(Error::Unsupported(_) | Error::Layout(_)) => {
                                assert!(!packed || !has_kernel, "{what} is refused");
                            }
                            Err(error) => panic!("{what}: {error}"),
                        }
                    }
                }
            }
        }
    }
}

fn set_rows(
    place: &mut Place,
    [a, b]: [&Given; 2],
    ids: &[i32],
    dst: Cut,
    source: Cut,
) -> Result<Vec<u8>> {
    let rows = dst.shape()[1];
    let (graph, (a_in, b_in, ids_in, after)) = Graph::build(|g| {
        let (x, a_in) = g.input("a", a.dtype(), &*a.dims)?;
        let (y, b_in) = g.input("b", b.dtype(), &*b.dims)?;
        let options = RowIdsOptions::new(rows).distinct();
        let (chosen, ids_in) = g.row_ids_with("ids", [ids.len()], options)?;
        let written = dst.view(x)?.set_rows(source.view(y)?, chosen)?;
        let [nb0, ..] = written.strides();
        g.output("one", written.view([a.dtype().block_len()], [nb0; 3], 0)?)?;
        Ok((a_in, b_in, ids_in, g.output("after", x)?))
    })?;
    let mut plan = place.plan(graph)?;
    plan.set_bytes(&a_in, &bytes_of(a))?;
    plan.set_bytes(&b_in, &bytes_of(b))?;
    plan.set_i32(&ids_in, ids)?;
    place.run(&mut plan)?;
    plan.read_bytes(&after)
}
