//! Ops that read views of every layout, against what they make of packed values in f64.

use ggml_rs::DType::{F16, F32};
use ggml_rs::graph::{
    Conv1d, Conv2d, Conv3d, FlashAttn, GatedDeltaNet, GluOp, Pool, Pool1d, Pool2d, Scale,
    SortOrder, TriPart,
};
use ggml_rs::{Error, Result, SoftMax, Tensor};

use super::cut::Cut;
use super::parent::{Place, at_least, everywhere, reference, run_result};
use crate::common::forward::Given;

type Build = for<'g> fn(&[Tensor<'g>]) -> Result<Tensor<'g>>;

/// An op, the shapes of its operands, and how far a device may be from f64.
struct Reads(&'static str, &'static [[usize; 4]], f64, Build);

/// Sums and functions in float.
const FLOAT: f64 = 5e-5;
/// A table of halves, or operands read as halves.
const HALF: f64 = 3e-2;

const ARRANGE: &[Reads] = &[
    Reads("concat 0", &[[5, 3, 2, 2], [4, 3, 2, 2]], 0.0, |x| {
        x[0].concat(x[1], 0)
    }),
    Reads("concat 2", &[[5, 3, 2, 2], [5, 3, 3, 2]], 0.0, |x| {
        x[0].concat(x[1], 2)
    }),
    Reads("pad", &[[5, 3, 2, 2]], 0.0, |x| x[0].pad([1, 2, 0, 1])),
    Reads("pad_ext", &[[5, 3, 2, 2]], 0.0, |x| {
        x[0].pad_ext([1, 0, 2, 0], [0, 1, 0, 3])
    }),
    Reads("pad_circular", &[[5, 3, 2, 2]], 0.0, |x| {
        x[0].pad_circular([1, 2, 0, 1])
    }),
    Reads("pad_reflect_1d", &[[5, 3, 2, 2]], 0.0, |x| {
        x[0].pad_reflect_1d(2, 1)
    }),
    Reads("roll", &[[5, 3, 2, 2]], 0.0, |x| x[0].roll([1, -1, 0, 1])),
    Reads("repeat", &[[5, 3, 2, 2]], 0.0, |x| {
        x[0].repeat([10, 3, 4, 2])
    }),
    Reads("repeat_back", &[[10, 3, 4, 2], [5, 3, 2, 2]], FLOAT, |x| {
        x[0].repeat_back(x[1])
    }),
    Reads("tri", &[[5, 5, 2, 2]], 0.0, |x| x[0].tri(TriPart::Lower)),
    Reads("diag", &[[5, 1, 2, 2]], 0.0, |x| x[0].diag()),
    Reads("diag_mask_inf", &[[5, 4, 2, 2]], 0.0, |x| {
        x[0].diag_mask_inf(1)
    }),
    Reads("argsort", &[[7, 3, 2, 2]], 0.0, |x| {
        x[0].argsort(SortOrder::Ascending)?.to_tensor()
    }),
    Reads("argmax", &[[7, 6, 1, 1]], 0.0, |x| x[0].argmax()),
    Reads("upscale", &[[4, 3, 2, 2]], FLOAT, |x| {
        x[0].upscale(2, Scale::Nearest)
    }),
    Reads("upscale bilinear", &[[4, 3, 2, 2]], FLOAT, |x| {
        x[0].upscale(2, Scale::Bilinear)
    }),
    Reads("timestep_embedding", &[[5, 1, 1, 1]], 1e-3, |x| {
        x[0].timestep_embedding(8, 100)
    }),
    Reads("win_part", &[[4, 5, 3, 1]], 0.0, |x| x[0].win_part(2)),
];

const ELEMENTS: &[Reads] = &[
    Reads("add", &[[8, 3, 2, 2], [8, 3, 2, 2]], FLOAT, |x| {
        x[0].add(x[1])
    }),
    Reads("mul by rows", &[[8, 3, 2, 2], [8, 1, 2, 1]], FLOAT, |x| {
        x[0].mul(x[1])
    }),
    Reads(
        "div by elements",
        &[[8, 3, 2, 2], [1, 3, 1, 2]],
        FLOAT,
        |x| x[0].div(x[1]),
    ),
    Reads(
        "sub of odd rows",
        &[[7, 3, 2, 2], [7, 1, 1, 1]],
        FLOAT,
        |x| x[0].sub(x[1]),
    ),
    Reads("add1", &[[8, 3, 2, 2], [1, 1, 1, 1]], FLOAT, |x| {
        x[0].add1(x[1])
    }),
    Reads("scale", &[[8, 3, 2, 2]], FLOAT, |x| x[0].scale(2.0)),
    Reads("clamp", &[[8, 3, 2, 2]], FLOAT, |x| x[0].clamp(-0.5, 0.5)),
    Reads("gelu", &[[8, 3, 2, 2]], HALF, |x| x[0].gelu()),
    Reads("exp", &[[7, 3, 2, 2]], FLOAT, |x| x[0].exp()),
    Reads("sqr", &[[7, 3, 2, 2]], FLOAT, |x| x[0].sqr()),
    Reads("leaky_relu", &[[7, 3, 2, 2]], FLOAT, |x| {
        x[0].leaky_relu(0.1)
    }),
    Reads("silu_back", &[[7, 3, 2, 2], [7, 3, 2, 2]], FLOAT, |x| {
        x[0].silu_back(x[1])
    }),
    Reads("swiglu", &[[8, 3, 2, 2]], FLOAT, |x| {
        x[0].glu(GluOp::Swiglu)
    }),
    Reads("swiglu split", &[[8, 3, 2, 2], [8, 3, 2, 2]], FLOAT, |x| {
        x[0].glu_split(x[1], GluOp::Swiglu)
    }),
];

const ROWS: &[Reads] = &[
    Reads("sum", &[[8, 3, 2, 2]], FLOAT, |x| x[0].sum()),
    Reads("sum_rows", &[[8, 3, 2, 2]], FLOAT, |x| x[0].sum_rows()),
    Reads("mean", &[[8, 3, 2, 2]], FLOAT, |x| x[0].mean()),
    Reads("cumsum", &[[8, 3, 2, 2]], FLOAT, |x| x[0].cumsum()),
    Reads("norm", &[[8, 3, 2, 2]], FLOAT, |x| x[0].norm(1e-3)),
    Reads("rms_norm", &[[8, 3, 2, 2]], FLOAT, |x| x[0].rms_norm(1e-3)),
    Reads("rms_norm_back", &[[8, 3, 2, 2], [8, 3, 2, 2]], FLOAT, |x| {
        x[0].rms_norm_back(x[1], 1e-3)
    }),
    Reads("l2_norm", &[[8, 3, 2, 2]], FLOAT, |x| x[0].l2_norm(1e-3)),
    Reads("group_norm", &[[4, 3, 6, 1]], FLOAT, |x| {
        x[0].group_norm(2, 1e-3)
    }),
    Reads("soft_max", &[[8, 3, 2, 2]], FLOAT, |x| x[0].soft_max()),
    Reads("soft_max_ext", &[[8, 3, 2, 2], [8, 4, 1, 2]], FLOAT, |x| {
        x[0].soft_max_ext(SoftMax {
            mask: Some(x[1]),
            ..SoftMax::default()
        })
    }),
    Reads(
        "soft_max_ext_back",
        &[[8, 3, 2, 2], [8, 3, 2, 2]],
        FLOAT,
        |x| x[0].soft_max_ext_back(x[1], 0.5),
    ),
    Reads(
        "cross_entropy_loss",
        &[[8, 3, 2, 2], [8, 3, 2, 2]],
        FLOAT,
        |x| x[0].cross_entropy_loss(x[1]),
    ),
];

const PRODUCTS: &[Reads] = &[
    Reads("mul_mat", &[[32, 3, 2, 2], [32, 5, 2, 2]], HALF, |x| {
        x[0].mul_mat(x[1])
    }),
    Reads(
        "mul_mat of one",
        &[[32, 3, 1, 1], [32, 1, 1, 1]],
        HALF,
        |x| x[0].mul_mat(x[1]),
    ),
    Reads(
        "mul_mat of many",
        &[[64, 33, 1, 2], [64, 40, 2, 2]],
        HALF,
        |x| x[0].mul_mat(x[1]),
    ),
    Reads("out_prod", &[[6, 3, 1, 2], [5, 3, 2, 2]], FLOAT, |x| {
        x[0].out_prod(x[1])
    }),
    Reads("solve_tri", &[[4, 4, 2, 1], [3, 4, 2, 1]], HALF, |x| {
        x[0].solve_tri(x[1])
    }),
    Reads(
        "flash_attn_ext",
        &[[32, 3, 4, 2], [32, 5, 2, 2], [32, 5, 2, 2]],
        HALF,
        |x| x[0].flash_attn_ext(x[1], x[2], FlashAttn::new(0.2)),
    ),
    Reads("ssm_conv", &[[7, 6, 2, 1], [3, 6, 1, 1]], FLOAT, |x| {
        x[0].ssm_conv(x[1])
    }),
    Reads(
        "gated_delta_net",
        &[
            [32, 2, 3, 1],
            [32, 2, 3, 1],
            [32, 2, 3, 1],
            [1, 2, 3, 1],
            [1, 2, 3, 1],
            [32, 32, 2, 1],
        ],
        1e-3,
        |x| {
            x[0].gated_delta_net(GatedDeltaNet {
                k: x[1],
                v: x[2],
                g: x[3],
                beta: x[4],
                state: x[5],
                states: 1,
            })
        },
    ),
    Reads("dsv4_hc_pre", &[[32, 4, 3, 1], [4, 3, 1, 1]], FLOAT, |x| {
        x[0].dsv4_hc_pre(x[1])
    }),
    Reads(
        "dsv4_hc_post",
        &[[32, 3, 1, 1], [32, 4, 3, 1], [4, 3, 1, 1], [4, 4, 3, 1]],
        FLOAT,
        |x| x[0].dsv4_hc_post(x[1], x[2], Some(x[3])),
    ),
];

const WINDOWS: &[Reads] = &[
    Reads("im2col", &[[2, 3, 2, 1], [5, 6, 2, 2]], HALF, |x| {
        x[0].im2col(x[1], Conv2d::default(), F16)
    }),
    Reads("conv_1d", &[[3, 2, 4, 1], [9, 2, 1, 1]], HALF, |x| {
        x[0].conv_1d(x[1], Conv1d::default())
    }),
    Reads(
        "conv_2d_direct",
        &[[2, 3, 2, 4], [5, 6, 2, 2]],
        FLOAT,
        |x| x[0].conv_2d_direct(x[1], Conv2d::default()),
    ),
    Reads(
        "conv_2d_dw_direct",
        &[[2, 3, 1, 4], [5, 6, 4, 2]],
        FLOAT,
        |x| x[0].conv_2d_dw_direct(x[1], Conv2d::default()),
    ),
    Reads(
        "conv_3d_direct",
        &[[2, 2, 2, 6], [4, 4, 3, 2]],
        FLOAT,
        |x| x[0].conv_3d_direct(x[1], 2, Conv3d::default()),
    ),
    Reads(
        "conv_transpose_1d",
        &[[3, 4, 2, 1], [5, 2, 1, 1]],
        FLOAT,
        |x| x[0].conv_transpose_1d(x[1], 2),
    ),
    Reads(
        "conv_transpose_2d_p0",
        &[[2, 2, 3, 2], [4, 3, 2, 1]],
        HALF,
        |x| x[0].conv_transpose_2d_p0(x[1], 2),
    ),
    Reads("pool_1d", &[[8, 3, 1, 1]], FLOAT, |x| {
        x[0].pool_1d(Pool1d::new(Pool::Average, [2]))
    }),
    Reads("pool_2d", &[[8, 6, 2, 2]], FLOAT, |x| {
        x[0].pool_2d(Pool2d::new(Pool::Max, [2, 3]))
    }),
    Reads("col2im_1d", &[[6, 5, 1, 1]], FLOAT, |x| {
        x[0].col2im_1d(1, 2, 0)
    }),
];

/// Which layout each operand has: every one with all others plain, all of one kind, and of two operands every pair.
fn choices(operands: usize, layouts: usize) -> Vec<Vec<usize>> {
    let mut choices = vec![vec![0; operands]];
    for layout in 1..layouts {
        choices.push(vec![layout; operands]);
        for operand in 0..operands {
            let mut one = vec![0; operands];
            one[operand] = layout;
            choices.push(one);
        }
        if operands == 2 {
            choices.extend((1..layouts).map(|other| vec![layout, other]));
        }
    }
    choices
}

/// Whether the device took the views. What it took must be right.
fn is_read(
    place: &mut Place,
    op: &Reads,
    views: &[Cut],
    given: &[Given],
    expected: &[f64],
) -> bool {
    let &Reads(name, _, tolerance, build) = op;
    let what = format!("{name}, {views:?}, {place}");
    let found = run_result(place, given, |x| {
        let views: Result<Vec<_>> = views.iter().zip(x).map(|(cut, &x)| cut.view(x)).collect();
        build(&views?)
    });
    let found = match found {
        Ok(found) => found,
        Err(Error::Unsupported(_) | Error::Layout(_)) => return false,
        Err(error) => panic!("{what}: {error}"),
    };
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let same =
            found == expected || (found - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(same, "{what}: element {i} is {found}, not {expected}");
    }
    true
}

/// Reads all layouts on all devices. How many were taken, in order CPU, Metal.
fn check(ops: &[Reads]) -> [usize; 2] {
    let mut places: Vec<Place> = everywhere().collect();
    let mut taken = [0, 0];
    for op in ops {
        let shapes = op.1;
        let cuts: Vec<Vec<Cut>> = shapes.iter().map(|&shape| Cut::all(shape, 1)).collect();
        for choice in choices(shapes.len(), cuts[0].len()) {
            let views: Vec<Cut> = cuts.iter().zip(&choice).map(|(cuts, &i)| cuts[i]).collect();
            let given: Vec<Given> = (1..)
                .zip(&views)
                .map(|(seed, cut)| Given::random(F32, &cut.parent, seed, 1.0))
                .collect();
            let packed: Vec<Given> = views
                .iter()
                .zip(&given)
                .map(|(cut, given)| cut.packed(given))
                .collect();
            let expected = reference(op.3, &packed);
            for place in &mut places {
                let read = is_read(place, op, &views, &given, &expected);
                taken[usize::from(place.is_metal)] += usize::from(read);
                let plain = choice.iter().all(|&layout| layout == 0);
                assert!(
                    read || !plain || place.is_metal,
                    "{} is refused by {place}",
                    op.0
                );
            }
        }
    }
    taken
}

#[test]
fn tensors_are_rearranged() {
    at_least(check(ARRANGE), [500, 446]);
}

#[test]
fn elements_are_computed() {
    at_least(check(ELEMENTS), [316, 246]);
}

#[test]
fn rows_are_reduced() {
    at_least(check(ROWS), [220, 142]);
}

#[test]
fn products_are_summed() {
    at_least(check(PRODUCTS), [410, 294]);
}

#[test]
fn windows_are_convolved() {
    at_least(check(WINDOWS), [106, 164]);
}
