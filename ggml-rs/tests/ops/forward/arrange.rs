//! Joining, padding, masking, copying, and what runs along rows, against their definitions.

use ggml_rs::DType::{self, BF16, F16, F32, I32, Q8_0};
use ggml_rs::graph::TriPart;
use ggml_rs::{Result, Tensor};

use crate::common;
use crate::common::forward::{Case, Given, index, places};

type Op = for<'g> fn(Tensor<'g>) -> Result<Tensor<'g>>;

/// Small integers, which every type holds.
fn whole(dtype: DType, dims: &[usize], from: i32) -> Given {
    let len = dims.iter().product::<usize>() as i32;
    let values = (0..len).map(|i| (from + i * 7) % 61 - 20);
    match dtype {
        I32 => Given::i32(dims, values.collect()),
        _ => Given::float(dtype, dims, values.map(|x| x as f32).collect()),
    }
}

/// What `f` says for each place of a shape.
fn each(dims: [usize; 4], f: impl Fn([usize; 4]) -> f64) -> Vec<f64> {
    places(dims).map(f).collect()
}

fn exact(name: impl Into<String>, given: Vec<Given>, expected: Vec<f64>, metal: bool) -> Case {
    Case {
        name: name.into(),
        given,
        expected,
        tolerance: 0.0,
        metal,
    }
}

#[test]
fn tensors_are_joined_along_each_axis() {
    for dtype in [F32, F16, BF16, I32] {
        for axis in 0..4 {
            let a_ne = [4, 3, 2, 2];
            let mut b_ne = a_ne;
            b_ne[axis] += 1;
            let mut out = a_ne;
            out[axis] += b_ne[axis];
            let given = || vec![whole(dtype, &a_ne, 0), whole(dtype, &b_ne, 5)];
            let (a, b) = (given()[0].values(), given()[1].values());
            let expected = each(out, |mut i| {
                if i[axis] < a_ne[axis] {
                    return a[index(a_ne, i)];
                }
                i[axis] -= a_ne[axis];
                b[index(b_ne, i)]
            });
            let name = format!("concat of {dtype} along {axis}");
            exact(name, given(), expected, true).check(|x| x[0].concat(x[1], axis));
        }
    }
}

#[test]
fn blocks_and_columns_are_joined() {
    let blocks = || {
        vec![
            Given::random(Q8_0, &[64, 2], 1, 1.0),
            Given::random(Q8_0, &[32, 2], 2, 1.0),
        ]
    };
    let (a, b) = (blocks()[0].values(), blocks()[1].values());
    let rows = a
        .chunks(64)
        .zip(b.chunks(32))
        .flat_map(|(a, b)| [a, b].concat());
    exact("concat of q8_0", blocks(), rows.collect(), true).check(|x| x[0].concat(x[1], 0));
    let given = || vec![whole(F32, &[3, 2], 0), whole(F32, &[3, 2], 9)];
    let (a, b) = (given()[0].values(), given()[1].values());
    let expected = each([4, 3, 1, 1], |i| {
        let from = if i[0] < 2 { &a } else { &b };
        from[i[1] + 3 * (i[0] % 2)]
    });
    exact("concat of transposed matrices", given(), expected, true)
        .check(|x| x[0].transpose()?.concat(x[1].transpose()?, 0));
}

#[test]
fn copies_are_summed_and_rows_become_diagonals() {
    let (from, to) = ([6, 4, 2, 2], [3, 2, 1, 2]);
    let given = || vec![whole(F32, &from, 0), whole(F32, &to, 0)];
    let values = given()[0].values();
    let mut sums = vec![0.0; 12];
    for i in places(from) {
        sums[index(to, std::array::from_fn(|d| i[d] % to[d]))] += values[index(from, i)];
    }
    exact("repeat_back", given(), sums, false).check(|x| x[0].repeat_back(x[1]));

    let row = || vec![whole(F32, &[5, 1, 2, 2], 1)];
    let values = row()[0].values();
    let diagonal = each([5, 5, 2, 2], |i| match i[0] == i[1] {
        true => values[index([5, 1, 2, 2], [i[0], 0, i[2], i[3]])],
        false => 0.0,
    });
    exact("diag", row(), diagonal, true).check(|x| x[0].diag());
}

#[test]
fn what_is_around_is_zero_or_goes_round() {
    let a_ne = [4, 3, 2, 2];
    let (before, after) = ([2, 1, 0, 2], [1, 5, 3, 0]);
    let given = || vec![whole(F32, &a_ne, 1)];
    let values = given()[0].values();
    let padded = |before: [usize; 4], after: [usize; 4], circular: bool| {
        let out: [usize; 4] = std::array::from_fn(|d| before[d] + a_ne[d] + after[d]);
        each(out, |i| {
            let at = |d: usize| i[d] as isize - before[d] as isize;
            let inside = (0..4).all(|d| (0..a_ne[d] as isize).contains(&at(d)));
            let round = |d: usize| at(d).rem_euclid(a_ne[d] as isize) as usize;
            match inside || circular {
                true => values[index(a_ne, std::array::from_fn(round))],
                false => 0.0,
            }
        })
    };
    let case = |name: &str, expected| exact(name, given(), expected, true);
    case("pad", padded([0; 4], after, false)).check(|x| x[0].pad(after));
    case("pad_circular", padded([0; 4], after, true)).check(|x| x[0].pad_circular(after));
    case("pad_ext", padded(before, after, false)).check(|x| x[0].pad_ext(before, after));
    case("pad_ext_circular", padded(before, after, true))
        .check(|x| x[0].pad_ext_circular(before, after));
    // The kernels take any strides.
    let columns = each([3 + 1, 4, 2, 2], |i| match i[0] < 3 {
        true => values[index(a_ne, [i[1], i[0], i[2], i[3]])],
        false => 0.0,
    });
    case("pad of a transposed tensor", columns).check(|x| x[0].transpose()?.pad([1, 0, 0, 0]));
}

#[test]
fn rows_are_mirrored_and_rolled() {
    let a_ne = [4, 3, 2, 2];
    let given = || vec![whole(F32, &a_ne, 1)];
    let values = given()[0].values();
    let mirrored = each([9, 3, 2, 2], |i| {
        // 3 in front, 2 behind.
        let at = (i[0] as isize - 3).unsigned_abs();
        let at = if at > 3 { 6 - at } else { at };
        values[index(a_ne, [at, i[1], i[2], i[3]])]
    });
    exact("pad_reflect_1d", given(), mirrored, true).check(|x| x[0].pad_reflect_1d(3, 2));
    for shifts in [[1, 0, 0, 0], [-3, 2, 1, -1], [3, -1, 0, 1], [0; 4]] {
        let rolled = each(a_ne, |i| {
            let from = |d: usize| {
                let n = a_ne[d] as isize;
                (i[d] as isize - shifts[d] as isize).rem_euclid(n) as usize
            };
            values[index(a_ne, std::array::from_fn(from))]
        });
        exact(format!("roll by {shifts:?}"), given(), rolled, true).check(|x| x[0].roll(shifts));
    }
}

#[test]
fn the_future_is_masked() {
    let a_ne = [6, 4, 2, 2];
    let given = || vec![whole(F32, &a_ne, 1)];
    let values = given()[0].values();
    for n_past in [0, 2, 9] {
        let masked = |value: f64| {
            each(a_ne, |i| match i[0] > n_past + i[1] {
                true => value,
                false => values[index(a_ne, i)],
            })
        };
        let (inf, zero) = (masked(f64::NEG_INFINITY), masked(0.0));
        let case = |name: &str, expected: &Vec<f64>| {
            exact(
                format!("{name} after {n_past}"),
                given(),
                expected.clone(),
                false,
            )
        };
        case("diag_mask_inf", &inf).check(|x| x[0].diag_mask_inf(n_past));
        case("diag_mask_inf_inplace", &inf).check(|x| x[0].diag_mask_inf_inplace(n_past));
        case("diag_mask_zero", &zero).check(|x| x[0].diag_mask_zero(n_past));
        case("diag_mask_zero_inplace", &zero).check(|x| x[0].diag_mask_zero_inplace(n_past));
    }
}

#[test]
fn triangles_are_kept() {
    type Keeps = fn(usize, usize) -> bool;
    let parts: [(TriPart, Keeps); 4] = [
        (TriPart::Lower, |i, j| i < j),
        (TriPart::LowerDiag, |i, j| i <= j),
        (TriPart::Upper, |i, j| i > j),
        (TriPart::UpperDiag, |i, j| i >= j),
    ];
    let a_ne = [5, 5, 2, 2];
    let given = || vec![whole(F32, &a_ne, 1)];
    let values = given()[0].values();
    for (part, keeps) in parts {
        let expected = each(a_ne, |i| match keeps(i[0], i[1]) {
            true => values[index(a_ne, i)],
            false => 0.0,
        });
        exact(format!("tri {part:?}"), given(), expected, true).check(|x| x[0].tri(part));
    }
}

#[test]
fn copies_keep_the_order_of_elements() {
    let a_ne = [4, 3, 2, 1];
    for (dtype, metal) in [(F32, true), (F16, true), (BF16, true), (I32, true)] {
        let given = || vec![whole(dtype, &a_ne, 1)];
        let values = given()[0].values();
        let columns = each([3, 4, 2, 1], |i| values[index(a_ne, [i[1], i[0], i[2], 0])]);
        let ops: [(&str, Op, &Vec<f64>); 4] = [
            ("dup", |a| a.dup(), &values),
            (
                "dup of a transposed tensor",
                |a| a.transpose()?.dup(),
                &columns,
            ),
            ("dup_inplace", |a| a.dup_inplace(), &values),
            (
                "cont_reshaped",
                |a| a.transpose()?.cont_reshaped([6, 4]),
                &columns,
            ),
        ];
        for (name, op, expected) in ops {
            let name = format!("{name} of {dtype}");
            exact(name, given(), expected.clone(), metal).check(|x| op(x[0]));
        }
    }
}

#[test]
fn rows_are_summed_up_and_searched() {
    let dims = [70, 3, 2, 2];
    let given = || vec![whole(F32, &dims, 1)];
    let sums = given()[0]
        .values()
        .chunks(70)
        .flat_map(|row| {
            let mut sum = 0.0;
            row.iter()
                .map(move |x| {
                    sum += x;
                    sum
                })
                .collect::<Vec<_>>()
        })
        .collect();
    exact("cumsum", given(), sums, true).check(|x| x[0].cumsum());

    let rows = || {
        let mut values = common::values(4 * 70, 3);
        for (row, at) in [0, 69, 31, 32].into_iter().enumerate() {
            values[70 * row + at] = 2.0;
        }
        vec![Given::float(F32, &[70, 4], values)]
    };
    exact("argmax", rows(), vec![0.0, 69.0, 31.0, 32.0], true).check(|x| x[0].argmax());
}

#[test]
fn equal_elements_are_counted() {
    let a: Vec<i32> = (0..70 * 5).map(|i| i % 7).collect();
    let b: Vec<i32> = (0..70 * 5).map(|i| i % 5).collect();
    let equal = a.iter().zip(&b).filter(|(a, b)| a == b).count();
    let given = || {
        vec![
            Given::i32(&[70, 5], a.clone()),
            Given::i32(&[70, 5], b.clone()),
        ]
    };
    exact("count_equal", given(), vec![equal as f64], true).check(|x| x[0].count_equal(x[1]));
    // Of tensors with more dimensions, the CPU would read the wrong rows, and some beyond the end.
    let deep = || {
        vec![
            Given::i32(&[14, 5, 5], a.clone()),
            Given::i32(&[14, 5, 5], b.clone()),
        ]
    };
    exact("count_equal of matrices", deep(), vec![equal as f64], true)
        .check(|x| x[0].reshape([14, 25])?.count_equal(x[1].reshape([14, 25])?));
}
