//! Permuted gradients, views, and tensors of other types between a parameter and the loss.

use ggml_rs::DType::{BF16, F16, F32, I32};
use ggml_rs::graph::{GluOp, Rope, SoftMax};
use ggml_rs::{
    Builder, Conv2d, Device, Graph, Plan, PlanOptions, Result, RowIds, RowIdsOptions, Tensor,
};

use super::slopes::{Frozen, Run, Values, WIDE, check};

/// Something whose gradient arrives permuted, so that `op` before it gets it so.
fn turned(op: Tensor<'_>) -> Result<Tensor<'_>> {
    op.permute([1, 0, 2, 3])
}

#[test]
fn permuted_gradients_reach_every_op() {
    type Op = for<'g> fn(Tensor<'g>) -> Result<Tensor<'g>>;
    let ops: [(&str, Op); 25] = [
        ("cont", |a| a.permute([0, 2, 1, 3])?.cont()),
        ("reshape", |a| a.reshape([6, 2, 2])),
        ("scale", |a| a.scale(2.0)),
        ("repeat", |a| a.repeat([4, 6, 6])),
        ("silu", |a| a.silu()),
        ("gelu_erf", |a| a.gelu_erf()),
        ("mul", |a| a.mul(a)),
        ("sum_rows", |a| a.sum_rows()),
        ("mean_rows", |a| a.mean_rows()),
        ("rms_norm", |a| a.rms_norm(1e-3)),
        ("soft_max", |a| a.soft_max()),
        ("neg", |a| a.neg()),
        ("pad", |a| a.pad([1, 2, 0, 0])),
        ("two uses", |a| {
            a.transpose()?.cont()?.transpose()?.cont()?.add(a)
        }),
        // Divisors are at least 2.
        ("div", |a| a.div(a.sqr()?.scale_bias(1.0, 2.0)?)),
        ("concat", |a| a.concat(a.sqr()?, 1)),
        ("norm", |a| a.norm(1e-2)),
        ("l2_norm", |a| a.l2_norm(1e-3)),
        ("group_norm", |a| {
            a.reshape([2, 3, 2, 2])?.group_norm(2, 1e-2)
        }),
        ("glu", |a| a.glu(GluOp::Swiglu)),
        ("geglu_erf", |a| a.glu(GluOp::GegluErf)),
        // All values lie inside.
        ("clamp", |a| a.clamp(-3.0, 3.0)),
        ("sum", |a| a.mul(a.sum()?)),
        ("get a part", |a| {
            let [_, nb @ ..] = a.strides();
            a.sqr()?.view([4, 2, 2], nb, nb[0])
        }),
        ("log", |a| a.sqr()?.scale_bias(1.0, 1.0)?.log()),
    ];
    for (name, op) in ops {
        check(name, &[&[4, 3, 2]], WIDE, &|_, p, _| turned(op(p[0])?));
        // The weights' product sees the permuted tensor itself.
        check(
            &format!("{name}, permuted operand"),
            &[&[4, 3, 2]],
            WIDE,
            &|_, p, _| turned(op(p[0].mul(p[0])?.permute([0, 2, 1, 3])?.cont()?)?),
        );
    }
    permuted_gradients_reach_parts();
    permuted_gradients_reach_rows();
    check("mul_mat", &[&[4, 3, 2], &[4, 5, 2]], WIDE, &|_, p, _| {
        turned(p[0].mul_mat(p[1])?)
    });
    check("two views", &[&[4, 6]], WIDE, &|_, p, _| {
        let [_, nb @ ..] = p[0].strides();
        let first = p[0].view([4, 3], nb, 0)?;
        let second = p[0].view([4, 3], nb, 3 * nb[0])?;
        turned(first.mul(second)?)
    });
    check("a view and a permuted use", &[&[4, 4]], WIDE, &|_, p, _| {
        let [_, nb @ ..] = p[0].strides();
        let view = p[0].view([4, 2], nb, nb[0])?.sum_rows()?.sum()?;
        p[0].transpose()?.cont()?.mul(view)
    });
}

fn permuted_gradients_reach_parts() {
    type Op = for<'g> fn(Tensor<'g>, Tensor<'g>) -> Result<Tensor<'g>>;
    let ops: [(&str, Op); 6] = [
        ("set", |a, b| {
            let [_, nb @ ..] = a.strides();
            a.sqr()?.set(b, nb, 20)
        }),
        ("acc", |a, b| {
            let [_, nb @ ..] = a.strides();
            a.sqr()?.acc(b, nb, 20)
        }),
        ("sub", |a, b| a.sub(b.sum()?)),
        ("add", |a, b| a.add(b.sum()?)),
        ("add1", |a, b| a.add1(b.sum()?)),
        ("out_prod", |a, b| a.repeat([4, 2, 2])?.out_prod(b)),
    ];
    for (name, op) in ops {
        let dims: &[usize] = if name == "out_prod" {
            &[4, 1, 2]
        } else {
            &[4, 3, 2]
        };
        check(name, &[dims, &[2, 2, 2]], WIDE, &|_, p, _| {
            turned(op(p[0], p[1])?)
        });
    }
}

fn ids<'g>(g: Builder<'g>, frozen: &mut Frozen, values: &[i32]) -> Result<RowIds<'g>> {
    let options = RowIdsOptions::new(4).distinct();
    let (ids, input) = g.row_ids_with("ids", [values.len()], options)?;
    frozen.push((input, Values::Ids(values.to_vec())));
    Ok(ids)
}

fn permuted_gradients_reach_rows() {
    check("get_rows", &[&[5, 4]], WIDE, &|g, p, frozen| {
        turned(p[0].get_rows(ids(g, frozen, &[3, 1])?)?)
    });
    check("set_rows", &[&[5, 4], &[5, 2]], WIDE, &|g, p, frozen| {
        turned(p[0].sqr()?.set_rows(p[1], ids(g, frozen, &[3, 1])?)?)
    });
    check("rope", &[&[8, 3, 2]], WIDE, &|g, p, frozen| {
        let (positions, input) = g.input("positions", I32, [2])?;
        frozen.push((input, Values::Ids(vec![3, 7])));
        turned(p[0].rope(positions, Rope::default())?)
    });
    check(
        "mul_mat_id",
        &[&[5, 3, 4], &[5, 1, 3]],
        WIDE,
        &|g, p, frozen| {
            let (ids, input) = g.expert_ids("ids", 2, 3, 4)?;
            frozen.push((input, Values::Ids(vec![3, 1, 0, 3, 2, 1])));
            turned(p[0].mul_mat_id(p[1], ids)?)
        },
    );
    check("add_id", &[&[5, 2, 3], &[5, 4]], WIDE, &|g, p, frozen| {
        let (ids, input) = g.expert_ids("ids", 2, 3, 4)?;
        frozen.push((input, Values::Ids(vec![3, 1, 0, 3, 2, 1])));
        turned(p[0].add_id(p[1], ids)?)
    });
}

#[test]
fn operands_of_products_may_repeat_their_elements() {
    // One column, whose strides are 0.
    check("one column", &[&[4], &[4, 5]], WIDE, &|_, p, _| {
        p[1].mul_mat(p[0].view([4, 1, 1, 1], [0, 0, 0], 0)?)
    });
    check("one row", &[&[4, 3], &[4]], WIDE, &|_, p, _| {
        let [_, nb @ ..] = p[0].strides();
        p[1].view([4, 1, 1, 1], nb, 0)?.mul_mat(p[0])
    });
    check("frozen columns", &[&[4, 5]], WIDE, &|g, p, frozen| {
        let (b, input) = g.input("b", F32, [4, 6])?;
        frozen.push((input, Values::Floats(crate::common::values(24, 3))));
        p[0].mul_mat(b.view([4, 3, 2, 1], [0, 16, 0], 0)?)
    });
    check("frozen matrices", &[&[4, 3, 2]], WIDE, &|g, p, frozen| {
        let (a, input) = g.input("a", F32, [4, 10])?;
        frozen.push((input, Values::Floats(crate::common::values(40, 3))));
        a.view([4, 5, 2, 1], [16, 0, 0], 0)?.mul_mat(p[0])
    });
    check("out_prod of columns", &[&[5], &[4]], WIDE, &|_, p, _| {
        let b = p[1].view([4, 1, 1, 1], [0, 0, 0], 0)?;
        p[0].out_prod(b)
    });
    check("out_prod", &[&[5, 3]], WIDE, &|g, p, frozen| {
        let (b, input) = g.input("b", F32, [4, 3])?;
        frozen.push((input, Values::Floats(crate::common::values(12, 3))));
        p[0].out_prod(b.view([4, 3, 1, 1], [0, 0, 0], 0)?)
    });
}

#[test]
fn a_view_of_infinity_has_a_finite_gradient() {
    let values = vec![f32::INFINITY, 1.0, 2.0, f32::NAN, 3.0, 4.0];
    let mut run = Run::new(&[(&[6], values)], &|_, p, _| {
        let [_, nb @ ..] = p[0].strides();
        p[0].view([2], nb, 4)
    })
    .unwrap();
    let gradient = run.gradients().remove(0);
    assert!(gradient[1] != 0.0 && gradient[2] != 0.0);
    for i in [0, 3, 4, 5] {
        assert_eq!(gradient[i], 0.0, "{gradient:?}");
    }
}

#[test]
fn views_of_half_tensors_find_their_place() {
    for dtype in [F16, BF16] {
        // Powers of two pass through half precision, so the loss is exact.
        let values: Vec<f32> = (0..12).map(|i| 2.0_f32.powi(i % 3)).collect();
        let mut run = Run::new(&[(&[4, 3], values)], &|_, p, _| {
            let half = p[0].cast(dtype)?;
            let [_, nb @ ..] = half.strides();
            half.view([2, 2], nb, nb[0] + 2)?.cast(F32)
        })
        .unwrap();
        let gradient = run.gradients().remove(0);
        let weights = crate::common::values(4, 77);
        let mut expected = vec![0.0; 12];
        for (place, weight) in [5, 6, 9, 10].into_iter().zip(weights) {
            expected[place] = weight;
        }
        assert_eq!(gradient, expected, "{dtype}");
    }
}

#[test]
fn half_weights_made_of_floats_have_a_gradient() {
    // Values that half precision holds, and steps too: differences are exact.
    let params = [(
        &[32, 4][..],
        (0..128).map(|i| (i % 9) as f32 / 8.0 - 0.5).collect(),
    )];
    super::slopes::check_at("cast", &params, &|g, p, frozen| {
        let (x, input) = g.input("x", F32, [32, 3])?;
        frozen.push((
            input,
            Values::Floats((0..96).map(|i| (i % 5) as f32 / 4.0).collect()),
        ));
        p[0].cast(F16)?.mul_mat(x)
    });
}

#[test]
fn softmax_with_a_mask_slopes_and_sinks() {
    check(
        "soft_max_ext",
        &[&[6, 3, 4, 2], &[4]],
        WIDE,
        &|g, p, frozen| {
            let (mask, input) = g.input("mask", F32, [6, 3])?;
            let values = (0..18).map(|i| {
                if i % 5 == 4 {
                    f32::NEG_INFINITY
                } else {
                    -0.1 * i as f32
                }
            });
            frozen.push((input, Values::Floats(values.collect())));
            p[0].soft_max_ext(SoftMax {
                mask: Some(mask),
                sinks: Some(p[1]),
                scale: 0.7,
                max_bias: 4.0,
            })
        },
    );
}

#[test]
fn a_frozen_kernel_of_halves_passes_gradients_to_its_image() {
    for dtype in [F32, F16] {
        let mut run = Run::new(&[(&[5, 4, 2], vec![0.5; 40])], &|g, p, frozen| {
            let (kernel, input) = g.input("kernel", dtype, [3, 3, 2, 2])?;
            let values = (0..36).map(|i| (i % 7) as f32 - 3.0).collect();
            frozen.push((input, Values::Floats(values)));
            let options = Conv2d::default().padding([1, 1]);
            kernel.conv_2d(p[0], options)
        })
        .unwrap();
        let found = run.gradients().remove(0);
        // Each output's weight times the kernel's value there: [5, 4] outputs of two channels.
        let weights = crate::common::values(40, 77);
        for (place, found) in found.iter().enumerate() {
            let (x, y, c) = (place % 5, place / 5 % 4, place / 20);
            let mut expected = 0.0;
            for (o, i, j) in (0..18).map(|n| (n / 9, n % 3, n / 3 % 3)) {
                // Output (u, v) reads the image at (u + i - 1, v + j - 1).
                let (u, v) = ((x + 1).wrapping_sub(i), (y + 1).wrapping_sub(j));
                if u < 5 && v < 4 {
                    let kernel = ((i + 3 * j + 9 * c + 18 * o) % 7) as f32 - 3.0;
                    expected += kernel * weights[u + 5 * v + 20 * o];
                }
            }
            assert!(
                (found - expected).abs() < 1e-5,
                "{dtype} at {place}: {found}, not {expected}"
            );
        }
    }
}

/// Activations kept as [D, T, B] cost no more than as [D, T*B]: the gradients of weights and biases are summed over all
/// trailing dimensions at once.
#[test]
fn trailing_dimensions_are_summed_at_once() {
    let computed = |dims: &[usize]| {
        let (graph, ()) = Graph::build(|g| {
            let (x, _) = g.input("x", F32, dims)?;
            let weight = |name, dims: [usize; 2]| {
                let (weight, _) = g.input(name, F32, dims)?;
                weight.set_param()
            };
            let (w, b) = (weight("w", [8, 6])?, weight("b", [6, 1])?);
            let (scale, v) = (weight("scale", [6, 1])?, weight("v", [6, 2])?);
            let hidden = w
                .mul_mat(x)?
                .add(b)?
                .gelu_erf()?
                .rms_norm(1e-5)?
                .mul(scale)?;
            let loss = v.mul_mat(hidden)?.sum()?;
            let gradients = g.backward(loss)?;
            for weight in [w, b, scale, v] {
                g.output("", gradients.of(weight)?)?;
            }
            Ok(())
        })
        .unwrap();
        let backend = Device::cpu().unwrap().open().unwrap();
        let plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.assigned().map(|node| node.op).collect::<Vec<_>>()
    };
    let flat = computed(&[8, 24]);
    assert_eq!(computed(&[8, 6, 4]), flat);
    assert_eq!(computed(&[8, 3, 4, 2]), flat);
}
