//! CPY, DUP and CONT: every pair of types, into and from every layout, in one shape and from one shape to another.

use ggml_rs::DType::{self, BF16, F16, F32, I32, MXFP4, Q8_0};
use ggml_rs::Error;

use super::cut::Cut;
use super::parent::{Place, bytes_of, compare, everywhere, run, values_of, whole};
use crate::common::forward::{Given, rounding};

/// The shapes of a source and its destination.
const SHAPES: [([usize; 4], [usize; 4]); 7] = [
    ([8, 7, 1, 1], [8, 7, 1, 1]),
    ([7, 8, 1, 1], [8, 7, 1, 1]),
    ([33, 3, 2, 2], [33, 3, 2, 2]),
    ([33, 3, 2, 2], [11, 4, 3, 3]),
    ([5, 1, 3, 1], [1, 15, 1, 1]),
    ([300, 5, 1, 1], [3, 2, 5, 50]),
    ([2, 3, 5, 50], [1500, 1, 1, 1]),
];

/// The pairs of types that Metal copies; the CPU copies these as well.
const PAIRS: [(DType, DType); 10] = [
    (F32, F32),
    (F32, F16),
    (F32, BF16),
    (F32, I32),
    (F16, F32),
    (F16, F16),
    (BF16, F32),
    (BF16, BF16),
    (I32, F32),
    (I32, I32),
];

/// Copies from a view of one parent into a view of another.
#[track_caller]
fn copies(place: &mut Place, (from, to): (DType, DType), source: Cut, dst: Cut) {
    let parent = whole(to, &dst.parent, 3);
    let given = whole(from, &source.parent, 0);
    let after = run(place, &[&parent, &given], |x| {
        source.view(x[1])?.cpy(dst.view(x[0])?)
    });
    let values = given.values();
    let expected: Vec<f64> = source.places().into_iter().map(|i| values[i]).collect();
    let right = after
        .map_err(|error| error.to_string())
        .and_then(|after| compare(&parent, &dst, &after, &expected, 0.0));
    if let Err(why) = right {
        panic!("{place}: {from} to {to}, {source:?} into {dst:?}: {why}");
    }
}

#[test]
fn elements_of_every_layout_are_copied_into_every_layout() {
    for mut place in everywhere() {
        for pair in PAIRS {
            for (from, to) in SHAPES {
                let destinations = Cut::all(to, 1);
                for (i, source) in Cut::all(from, 1).into_iter().enumerate() {
                    for (j, &dst) in destinations.iter().enumerate() {
                        // All with all of F32; of other pairs, each with one and with plain ones.
                        let all = pair == (F32, F32) && place.is_apart();
                        if all || i == j || (place.is_apart() && (i == 0 || j == 0)) {
                            copies(&mut place, pair, source, dst);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_large_transposed_copy_stays_in_its_tensor() {
    let (from, to) = ([1032, 1031, 1, 1], [1031, 1032, 1, 1]);
    let transposed = Cut::transposed(from);
    for mut place in everywhere().filter(Place::is_apart) {
        copies(&mut place, (F32, F32), Cut::plain(to), transposed);
        copies(&mut place, (F32, F32), transposed, Cut::plain(to));
    }
}

/// A copy to where it is changes nothing.
#[test]
fn a_view_is_copied_to_where_it_is() {
    for mut place in everywhere() {
        for dtype in [F32, F16, BF16, I32] {
            for shape in [[8, 7, 1, 1], [33, 3, 2, 2]] {
                for cut in Cut::all(shape, 1) {
                    let parent = whole(dtype, &cut.parent, 1);
                    let after = run(&mut place, &[&parent], |x| cut.view(x[0])?.dup_inplace());
                    let same = after.unwrap() == bytes_of(&parent);
                    assert!(same, "{place}: {dtype}, {cut:?}");
                }
            }
        }
    }
}

/// The types whose blocks Metal makes of floats.
const QUANTIZED: [DType; 9] = [
    Q8_0,
    DType::Q1_0,
    DType::Q2_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::IQ4_NL,
    DType::TQ2_0,
];

/// Blocks made of a view are those made of the same values in packed rows. The CPU takes packed rows only, and says so.
#[test]
fn blocks_are_made_of_rows_of_every_layout() {
    for mut place in everywhere() {
        for dtype in QUANTIZED {
            let shape = [2 * dtype.block_len(), 3, 2, 1];
            for (i, source) in Cut::all(shape, 1).into_iter().enumerate() {
                let given = Given::random(F32, &source.parent, 5, 4.0);
                let plain = zeros(dtype, shape);
                let packed = source.packed(&given);
                let blocks = run(&mut place, &[&plain, &packed], |x| x[1].cpy(x[0]));
                let expected = values_of(dtype, &blocks.unwrap());
                for (j, dst) in Cut::all(shape, dtype.block_len()).into_iter().enumerate() {
                    if place.is_apart() || i == j {
                        quantizes(&mut place, (&source, &given), (&dst, dtype), &expected);
                    }
                }
            }
        }
    }
}

fn zeros(dtype: DType, ne: [usize; 4]) -> Given {
    Given::float(dtype, &ne, vec![0.0; ne.iter().product()])
}

/// Copies a view of floats into a view of blocks.
#[track_caller]
fn quantizes(
    place: &mut Place,
    (source, given): (&Cut, &Given),
    (dst, dtype): (&Cut, DType),
    expected: &[f64],
) {
    let parent = zeros(dtype, dst.parent);
    let after = run(place, &[&parent, given], |x| {
        source.view(x[1])?.cpy(dst.view(x[0])?)
    });
    let what = format!("{place}: {dtype}, {source:?} into {dst:?}");
    match after {
        Ok(after) => compare(&parent, dst, &after, expected, 0.0)
            .unwrap_or_else(|why| panic!("{what}: {why}")),
        Err(Error::Unsupported(_)) => assert!(!place.is_metal, "{what}"),
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Against the values themselves: half a step of a block of Q8_0, and 127 steps of a scale that is rounded to half.
#[test]
fn transposed_floats_are_quantized() {
    let cut = Cut::transposed([63, 64, 1, 1]);
    let given = Given::random(F32, &[63, 64], 9, 1.0);
    let values = given.values();
    let expected: Vec<f64> = cut.places().into_iter().map(|i| values[i]).collect();
    let to = [64, 63, 1, 1];
    let parent = Given::float(Q8_0, &to, vec![0.0; 64 * 63]);
    for mut place in everywhere().filter(|place| place.is_metal) {
        let after = run(&mut place, &[&parent, &given], |x| {
            cut.view(x[1])?.cpy(x[0])
        });
        compare(
            &parent,
            &Cut::plain(to),
            &after.unwrap(),
            &expected,
            0.5 / 127.0 + 1.0 / 2048.0,
        )
        .unwrap();
    }
}

/// All types with a kernel that reads them, into floats and halves of every layout and of another shape. The CPU reads them into
/// contiguous floats.
#[test]
fn blocks_are_read_into_floats_of_every_layout() {
    let types = || DType::ALL.into_iter().filter(|dtype| dtype.dequantizes());
    for mut place in everywhere() {
        for dtype in types() {
            let source = [dtype.block_len().max(64), 3, 2, 1];
            let given = Given::random(dtype, &source, 7, 1.0);
            let values = given.values();
            let [n0, n1, n2, n3] = source;
            for shape in [source, [n1, n0, n2, n3]] {
                for (i, dst) in Cut::all(shape, 1).into_iter().enumerate() {
                    if place.is_apart() || i == 1 {
                        dequantizes(&mut place, (&given, &values), F32, &dst);
                        dequantizes(&mut place, (&given, &values), F16, &dst);
                    }
                }
            }
        }
    }
}

/// Copies blocks into a view.
#[track_caller]
fn dequantizes(place: &mut Place, (given, values): (&Given, &[f64]), to: DType, dst: &Cut) {
    let parent = whole(to, &dst.parent, 2);
    let after = run(place, &[&parent, given], |x| x[1].cpy(dst.view(x[0])?));
    let what = format!("{place}: {} into {to} {dst:?}", given.dtype());
    match after {
        Ok(after) => compare(&parent, dst, &after, values, rounding(to))
            .unwrap_or_else(|why| panic!("{what}: {why}")),
        Err(Error::Unsupported(_)) => {
            let taken = place.is_metal || (dst.name == "plain" && to == F32);
            assert!(!taken, "{what}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// The shape of the report: 834 of 4,032 values were wrong.
#[test]
fn blocks_are_read_into_transposed_floats() {
    let dst = Cut::transposed([63, 64, 1, 1]);
    let given = Given::random(MXFP4, &[64, 63], 4, 1.0);
    let parent = whole(F32, &dst.parent, 0);
    for mut place in everywhere().filter(|place| place.is_metal) {
        let after = run(&mut place, &[&parent, &given], |x| {
            x[1].cpy(dst.view(x[0])?)
        });
        compare(&parent, &dst, &after.unwrap(), &given.values(), 0.0).unwrap();
    }
}
