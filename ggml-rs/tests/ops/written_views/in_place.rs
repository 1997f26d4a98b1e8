//! Every op that writes over its operand, on views of every layout, against what the same op makes of packed values in f64.

use ggml_rs::DType::{self, F16, F32};
use ggml_rs::{CustomTask, Error, Result, Rope, RopeMode, SoftMax, Tasks, Tensor};

use super::cut::Cut;
use super::parent::{at_least, compare, everywhere, reference, run};
use crate::common::forward::{Given, rounding};

type Build = for<'g> fn(&[Tensor<'g>]) -> Result<Tensor<'g>>;

/// What an op takes beside the tensor that it writes over.
#[derive(Clone, Copy, PartialEq)]
enum Other {
    None,
    /// A tensor of the same shape.
    Same,
    /// A row.
    Row,
    /// One element.
    One,
    /// A position for each `ne[2]`.
    Positions,
}

impl Other {
    fn given(self, [n0, n1, n2, n3]: [usize; 4], dtype: DType) -> Option<Given> {
        let random = |dims: &[usize]| Some(Given::random(dtype, dims, 11, 1.0));
        match self {
            Self::None => None,
            Self::Same => random(&[n0, n1, n2, n3]),
            Self::Row => random(&[n0]),
            Self::One => random(&[1]),
            Self::Positions => Some(Given::i32(
                &[n2],
                (0..n2 as i32).map(|i| 3 * i + 1).collect(),
            )),
        }
    }
}

/// An op in place, and the same op that makes a tensor of its own.
struct Op(&'static str, Other, Build, Build);

fn turned<'g>(mode: RopeMode) -> Rope<'g> {
    Rope {
        mode,
        ..Rope::default()
    }
}

fn masked<'g>(mask: Tensor<'g>) -> SoftMax<'g> {
    SoftMax {
        mask: Some(mask),
        scale: 0.5,
        ..SoftMax::default()
    }
}

macro_rules! unary {
    ($($in_place:ident $plain:ident,)*) => {
        [$(Op(stringify!($in_place), Other::None, |x| x[0].$in_place(), |x| x[0].$plain())),*]
    };
}

/// One operand, element by element.
fn functions() -> Vec<Op> {
    let mut ops: Vec<Op> = unary!(
        abs_inplace abs, sgn_inplace sgn, neg_inplace neg, step_inplace step, tanh_inplace tanh, elu_inplace elu,
        relu_inplace relu, sigmoid_inplace sigmoid, gelu_inplace gelu, gelu_erf_inplace gelu_erf,
        gelu_quick_inplace gelu_quick, silu_inplace silu, exp_inplace exp, expm1_inplace expm1,
        softplus_inplace softplus, floor_inplace floor, ceil_inplace ceil, round_inplace round, trunc_inplace trunc,
        sqr_inplace sqr, sqrt_inplace sqrt, log_inplace log, sin_inplace sin, cos_inplace cos,
    )
    .into();
    ops.extend([
        Op(
            "scale_inplace",
            Other::None,
            |x| x[0].scale_inplace(3.0),
            |x| x[0].scale(3.0),
        ),
        Op(
            "scale_bias_inplace",
            Other::None,
            |x| x[0].scale_bias_inplace(3.0, 0.5),
            |x| x[0].scale_bias(3.0, 0.5),
        ),
        Op(
            "leaky_relu_inplace",
            Other::None,
            |x| x[0].leaky_relu_inplace(0.1),
            |x| x[0].leaky_relu(0.1),
        ),
        Op(
            "clamp_inplace",
            Other::None,
            |x| x[0].clamp_inplace(-0.5, 0.25),
            |x| x[0].clamp(-0.5, 0.25),
        ),
        Op(
            "fill_inplace",
            Other::None,
            |x| x[0].fill_inplace(7.0),
            |x| x[0].fill(7.0),
        ),
    ]);
    ops
}

/// Two operands, element by element.
fn arithmetic() -> Vec<Op> {
    let mut ops = Vec::new();
    for other in [Other::Same, Other::Row] {
        ops.extend([
            Op(
                "add_inplace",
                other,
                |x| x[0].add_inplace(x[1]),
                |x| x[0].add(x[1]),
            ),
            Op(
                "sub_inplace",
                other,
                |x| x[0].sub_inplace(x[1]),
                |x| x[0].sub(x[1]),
            ),
            Op(
                "mul_inplace",
                other,
                |x| x[0].mul_inplace(x[1]),
                |x| x[0].mul(x[1]),
            ),
            Op(
                "div_inplace",
                other,
                |x| x[0].div_inplace(x[1]),
                |x| x[0].div(x[1]),
            ),
        ]);
    }
    ops.push(Op(
        "add1_inplace",
        Other::One,
        |x| x[0].add1_inplace(x[1]),
        |x| x[0].add1(x[1]),
    ));
    ops
}

/// Along rows.
fn rows() -> Vec<Op> {
    let mut ops = vec![
        Op(
            "norm_inplace",
            Other::None,
            |x| x[0].norm_inplace(1e-3),
            |x| x[0].norm(1e-3),
        ),
        Op(
            "rms_norm_inplace",
            Other::None,
            |x| x[0].rms_norm_inplace(1e-3),
            |x| x[0].rms_norm(1e-3),
        ),
        Op(
            "l2_norm_inplace",
            Other::None,
            |x| x[0].l2_norm_inplace(1e-3),
            |x| x[0].l2_norm(1e-3),
        ),
        Op(
            "group_norm_inplace",
            Other::None,
            |x| x[0].group_norm_inplace(2, 1e-3),
            |x| x[0].group_norm(2, 1e-3),
        ),
        Op(
            "soft_max_inplace",
            Other::None,
            |x| x[0].soft_max_inplace(),
            |x| x[0].soft_max(),
        ),
        Op(
            "soft_max_ext_inplace",
            Other::Same,
            |x| x[0].soft_max_ext_inplace(masked(x[1])),
            |x| x[0].soft_max_ext(masked(x[1])),
        ),
        Op(
            "soft_max_ext_back_inplace",
            Other::Same,
            |x| x[0].soft_max_ext_back_inplace(x[1], 0.5),
            |x| x[0].soft_max_ext_back(x[1], 0.5),
        ),
        Op(
            "diag_mask_inf_inplace",
            Other::None,
            |x| x[0].diag_mask_inf_inplace(1),
            |x| x[0].diag_mask_inf(1),
        ),
        Op(
            "diag_mask_zero_inplace",
            Other::None,
            |x| x[0].diag_mask_zero_inplace(1),
            |x| x[0].diag_mask_zero(1),
        ),
    ];
    ops.extend([
        Op(
            "rope_inplace",
            Other::Positions,
            |x| x[0].rope_inplace(x[1], turned(RopeMode::Normal)),
            |x| x[0].rope(x[1], turned(RopeMode::Normal)),
        ),
        Op(
            "rope_inplace neox",
            Other::Positions,
            |x| x[0].rope_inplace(x[1], turned(RopeMode::Neox)),
            |x| x[0].rope(x[1], turned(RopeMode::Neox)),
        ),
        Op(
            "rope_inplace of a part",
            Other::Positions,
            |x| {
                x[0].rope_inplace(
                    x[1],
                    Rope {
                        dims: Some(4),
                        offset: 2,
                        ..Rope::default()
                    },
                )
            },
            |x| {
                x[0].rope(
                    x[1],
                    Rope {
                        dims: Some(4),
                        offset: 2,
                        ..Rope::default()
                    },
                )
            },
        ),
    ]);
    ops
}

/// How often a device took a view that is not plain, in order CPU, Metal.
type Taken = [usize; 2];

/// Whatever is taken is right, and plain tensors of F32 are taken by the CPU.
fn check(op: &Op, dtype: DType, shape: [usize; 4], taken: &mut Taken) {
    let &Op(name, other, in_place, plain) = op;
    for cut in Cut::all(shape, 1) {
        let parent = Given::random(dtype, &cut.parent, 21, 2.0);
        let packed = cut.packed(&parent);
        let other = other.given(shape, dtype);
        let operands: Vec<_> = [packed].into_iter().chain(other).collect();
        let expected = reference(plain, &operands);
        let given: Vec<_> = [&parent].into_iter().chain(&operands[1..]).collect();
        for mut place in everywhere() {
            let what = format!("{name} of {dtype}, {cut:?}, {place}");
            let after = run(&mut place, &given, |x| {
                let mut operands = x.to_vec();
                operands[0] = cut.view(x[0])?;
                in_place(&operands)
            });
            match after {
                Ok(after) => {
                    // The CPU looks GELU up in a table of halves.
                    let table = name.starts_with("gelu");
                    let tolerance = 4.0
                        * if table {
                            rounding(F16)
                        } else {
                            rounding(dtype)
                        };
                    compare(&parent, &cut, &after, &expected, tolerance)
                        .unwrap_or_else(|why| panic!("{what}: {why}"));
                    taken[usize::from(place.is_metal)] += usize::from(cut.name != "plain");
                }
                Err(Error::Unsupported(_) | Error::Layout(_)) => {
                    assert!(
                        cut.name != "plain" || dtype != F32 || place.is_metal,
                        "{what} is refused"
                    );
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
}

const SHAPES: [[usize; 4]; 2] = [[6, 5, 4, 2], [36, 2, 2, 1]];

#[test]
fn functions_of_elements_change_their_view_alone() {
    let mut taken = [0, 0];
    for op in functions() {
        for dtype in [F32, F16] {
            for shape in SHAPES {
                check(&op, dtype, shape, &mut taken);
            }
        }
    }
    at_least(taken, [576, 576]);
}

#[test]
fn arithmetic_changes_its_view_alone() {
    let mut taken = [0, 0];
    for op in arithmetic() {
        for dtype in [F32, F16] {
            for shape in SHAPES {
                check(&op, dtype, shape, &mut taken);
            }
        }
    }
    at_least(taken, [192, 192]);
}

#[test]
fn ops_along_rows_change_their_view_alone() {
    let mut taken = [0, 0];
    for op in rows() {
        for shape in SHAPES {
            check(&op, F32, shape, &mut taken);
        }
    }
    at_least(taken, [120, 72]);
}

/// Matrices 1 and 2 of four.
const MATRICES: Cut = Cut {
    name: "matrices",
    parent: [6, 5, 4, 1],
    start: [0, 0, 1, 0],
    window: [6, 5, 2, 1],
    axes: [0, 1, 2, 3],
};

/// A closure gets contiguous memory or none.
#[test]
fn closures_change_their_view_alone() {
    fn double(task: &mut CustomTask<'_>) {
        for row in task.rows() {
            for value in task.row_mut::<f32>(row).unwrap() {
                *value *= 2.0;
            }
        }
    }
    for mut place in everywhere().filter(|place| !place.is_metal) {
        for cut in Cut::all([6, 5, 2, 1], 1).into_iter().chain([MATRICES]) {
            let parent = Given::random(F32, &cut.parent, 3, 1.0);
            let values = parent.values();
            let expected: Vec<f64> = cut.places().into_iter().map(|i| 2.0 * values[i]).collect();
            let after = run(&mut place, &[&parent], |x| {
                cut.view(x[0])?.map_custom1_inplace(Tasks::Threads, double)
            });
            match after {
                Ok(after) => compare(&parent, &cut, &after, &expected, 0.0).unwrap(),
                Err(Error::Layout(_)) => assert!(!["plain", "matrices"].contains(&cut.name)),
                Err(error) => panic!("{cut:?}: {error}"),
            }
        }
    }
}

/// A weight owns its memory, so that steps, which find all elements by the places of the weight's, never see a view.
#[test]
fn views_are_no_weights() {
    for mut place in everywhere() {
        for cut in Cut::all([6, 5, 2, 1], 1).into_iter().chain([MATRICES]) {
            let parent = Given::random(F32, &cut.parent, 3, 1.0);
            let gradient = Given::random(F32, &cut.shape(), 4, 1.0);
            let options = Given::float(F32, &[2], vec![0.5, 0.25]);
            let refused = run(&mut place, &[&parent, &gradient, &options], |x| {
                cut.view(x[0])?.set_param()?.opt_step_sgd(x[1], x[2])
            });
            assert!(
                matches!(refused, Err(Error::Param(_))),
                "{cut:?}, {place}: {refused:?}"
            );
        }
    }
}

/// A gradient of any other layout than the weight's is refused.
#[test]
fn steps_read_gradients_that_are_packed() {
    for mut place in everywhere() {
        for cut in Cut::all([6, 5, 2, 1], 1).into_iter().chain([MATRICES]) {
            let weights = Given::random(F32, &cut.shape(), 3, 1.0);
            let gradient = Given::random(F32, &cut.parent, 4, 1.0);
            let options = Given::float(F32, &[2], vec![0.5, 0.25]);
            let (values, slopes) = (weights.values(), gradient.values());
            let expected: Vec<f64> = cut
                .places()
                .into_iter()
                .zip(values)
                .map(|(i, value)| (1.0 - 0.5 * 0.25) * value - 0.5 * slopes[i])
                .collect();
            let after = run(&mut place, &[&weights, &gradient, &options], |x| {
                x[0].set_param()?.opt_step_sgd(cut.view(x[1])?, x[2])
            });
            let what = format!("{cut:?}, {place}");
            match after {
                Ok(after) => compare(&weights, &Cut::plain(cut.shape()), &after, &expected, 1e-6)
                    .unwrap_or_else(|why| panic!("{what}: {why}")),
                Err(Error::Layout(_)) => {
                    assert!(cut.name != "plain", "{what}")
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
    }
}
