//! What a backward refuses, before it makes a node; the graph stays as it was.

use ggml_rs::DType::{BF16, F16, F32, I32, Q8_0};
use ggml_rs::{
    BackwardOptions, Builder, Conv2d, Error, Graph, Result, Rope, SoftMax, Staging, Tensor,
};

/// The error of `g.backward` of a loss made from a marked tensor of [8, 4].
fn error(build: impl for<'g> Fn(Builder<'g>, Tensor<'g>) -> Result<Tensor<'g>>) -> Error {
    let mut refused = None;
    Graph::build(|g| {
        let (x, _) = g.input("x", F32, [8, 4])?;
        let x = x.set_param()?;
        let loss = build(g, x)?;
        refused = Some(
            g.backward(loss)
                .expect_err("a backward that must be refused"),
        );
        // The builder goes on working, and so does another backward.
        let good = x.mul(x)?.sum()?;
        let gradients = g.backward(good)?;
        assert_eq!(gradients.len(), 1);
        g.output("dx", gradients.of(x)?)
    })
    .unwrap();
    refused.unwrap()
}

#[track_caller]
fn says(error: Error, op: &str, why: &str) {
    let text = error.to_string();
    let Error::NotDifferentiable(found) = error else {
        panic!("{text}");
    };
    assert_eq!(found.op, op, "{text}");
    assert!(text.contains(why), "{text}");
    assert!(text.contains("refused.rs:"), "{text}");
}

#[test]
fn ops_without_a_backward_are_named() {
    says(error(|_, x| x.max()), "POOL_1D", "extrema");
    let named = error(|_, x| x.max_rows()?.named("the largest")?.sum());
    assert!(named.to_string().contains("POOL_1D"), "{named}");
    says(
        error(|g, x| {
            let (kernel, _) = g.input("kernel", BF16, [3, 3, 1, 1])?;
            kernel
                .conv_2d(x.reshape([8, 4, 1, 1])?, Conv2d::default())?
                .sum()
        }),
        "IM2COL",
        "f32 or f16",
    );
    says(
        error(|_, x| x.cumsum()?.named("sums")?.sum()),
        "CUMSUM",
        "[sums]",
    );
}

/// What a rule takes for a constant counts too where nothing else of its node is trained: its part of the gradient would be missing.
#[test]
fn constants_are_refused_beside_frozen_operands() {
    type Op = for<'g> fn(Builder<'g>, Tensor<'g>, Tensor<'g>) -> Result<Tensor<'g>>;
    let ops: [(&str, &str, Op); 3] = [
        ("CROSS_ENTROPY_LOSS", "labels", |_, frozen, w| {
            frozen.cross_entropy_loss(w)
        }),
        ("SOFT_MAX", "mask", |_, frozen, w| {
            let options = SoftMax {
                mask: Some(w),
                ..SoftMax::default()
            };
            frozen.soft_max_ext(options)?.sum()
        }),
        ("ROPE", "frequency factors", |g, frozen, w| {
            let (positions, _) = g.input("positions", I32, [1])?;
            let [_, nb @ ..] = w.strides();
            let options = Rope {
                freq_factors: Some(w.view([4], nb, 0)?),
                ..Rope::default()
            };
            frozen.reshape([8, 4, 1])?.rope(positions, options)?.sum()
        }),
    ];
    for (op, why, build) in ops {
        for deep in [false, true] {
            let error = error(|g, w| {
                let (frozen, _) = g.input("frozen", F32, [8, 4])?;
                // Behind an op without a backward ggml has no rule to try either.
                let constant = if deep { w.cumsum()? } else { w };
                build(g, frozen, constant)?.add(w.mul(w)?.sum()?)
            });
            says(error, op, why);
        }
    }
}

/// ggml asserts on the types of what it counts, whether a gradient arrives there or not.
#[test]
fn other_types_are_refused_behind_a_flat_op() {
    says(
        error(|_, x| {
            let x = x.reshape([32])?;
            let flat = x.cast(Q8_0)?.cast(F32)?.floor()?.sum()?;
            flat.add(x.sum()?)
        }),
        "CPY",
        "q8_0",
    );
}

#[test]
fn losses_are_one_float() {
    assert!(matches!(error(|_, x| x.scale(2.0)), Error::Shape(_)));
    assert!(matches!(error(|_, x| x.sum()?.cast(F16)), Error::DType(_)));
    let unmarked = error(|g, _| g.input("y", F32, [3])?.0.sum());
    assert!(matches!(unmarked, Error::Param(_)), "{unmarked}");
}

#[test]
fn writes_in_place_are_refused_where_they_change_a_gradient() {
    // The value that the product read is overwritten before the backward reads it again.
    says(
        error(|g, x| {
            let (y, _) = g.input("y", F32, [8, 4])?;
            let loss = x.mul(y)?.sum()?;
            x.scale(3.0)?.cpy(y)?;
            Ok(loss)
        }),
        "CPY",
        "reads again",
    );
    // What is read lies where something else was written.
    says(
        error(|g, x| {
            let y = g.empty("y", F32, [8, 4])?;
            x.scale(3.0)?.cpy(y)?;
            x.mul(y)?.sum()
        }),
        "CPY",
        "another tensor",
    );
    says(
        error(|_, x| x.scale(2.0)?.relu_inplace()?.sum()),
        "RELU",
        "in place",
    );
}

/// Found by random sequences: what goes through a constant alone was not looked at, and its gradient was lost.
#[test]
fn constants_that_depend_on_a_marked_tensor_are_refused() {
    says(
        error(|g, x| {
            let (scores, _) = g.input("scores", F32, [8, 4])?;
            let mask = Some(x);
            let options = SoftMax {
                mask,
                ..SoftMax::default()
            };
            scores.soft_max_ext(options)?.sum()?.add(x.sum()?)
        }),
        "SOFT_MAX",
        "the mask has no gradient",
    );
    says(
        error(|g, x| {
            let (a, _) = g.input("a", F32, [8, 2, 3])?;
            let (positions, _) = g.input("positions", I32, [3])?;
            let freq_factors = Some(x.reshape([32])?);
            let options = Rope {
                freq_factors,
                ..Rope::default()
            };
            a.rope(positions, options)?.sum()?.add(x.sum()?)
        }),
        "ROPE",
        "factors has no gradient",
    );
    says(
        error(|g, x| {
            let (logits, _) = g.input("logits", F32, [8, 4])?;
            logits.cross_entropy_loss(x)?.add(x.sum()?)
        }),
        "CROSS_ENTROPY_LOSS",
        "labels has no gradient",
    );
}

/// Found by random sequences: ggml's assertion was reached through the mask.
#[test]
fn an_op_in_place_is_refused_whatever_operand_is_marked() {
    says(
        error(|g, x| {
            let (scores, _) = g.input("scores", F32, [8, 4])?;
            let mask = Some(x);
            let options = SoftMax {
                mask,
                ..SoftMax::default()
            };
            scores.soft_max_ext_inplace(options)?.sum()?.add(x.sum()?)
        }),
        "SOFT_MAX",
        "in place",
    );
}

/// Found by random sequences: ggml compared the gradient that the kernel does not have with its shape.
#[test]
fn a_kernel_that_gives_its_shape_alone_has_no_gradient() {
    Graph::build(|g| {
        let (kernel, _) = g.input("kernel", F32, [3, 2, 1, 2])?;
        let (image, _) = g.input("image", F32, [6, 5, 1, 2])?;
        let (kernel, image) = (kernel.set_param()?, image.set_param()?);
        let patches = kernel.im2col(image, Conv2d::default(), F32)?;
        let gradients = g.backward(patches.sum()?)?;
        assert!(matches!(gradients.of(kernel), Err(Error::Param(_))));
        g.output("dx", gradients.of(image)?)
    })
    .unwrap();
}

#[test]
fn a_write_is_allowed_where_its_result_is_read() {
    Graph::build(|g| {
        let (x, _) = g.input("x", F32, [8, 4])?;
        let x = x.set_param()?;
        let y = g.empty("y", F32, [8, 4])?;
        let loss = x.scale(3.0)?.cpy(y)?.mul(x)?.sum()?;
        g.output("dx", g.backward(loss)?.of(x)?)
    })
    .unwrap();
}

#[test]
fn views_that_overlap_are_refused() {
    says(
        error(|_, x| x.view([4, 4], [4, 16, 64], 0)?.cont()?.sum()),
        "VIEW",
        "overlap",
    );
    says(
        error(|_, x| {
            let t = x.transpose()?;
            let [_, nb @ ..] = x.strides();
            t.view([2, 2], nb, 0)?.cont()?.sum()
        }),
        "VIEW",
        "contiguous",
    );
}

/// A gradient has the shape of what was viewed, so there is no place in it for the rest of the base.
#[test]
fn views_beyond_what_they_view_are_refused() {
    let view = |from: usize, to: usize, offset: usize| {
        error(move |_, x| {
            let x = x.reshape([32])?;
            let [_, nb @ ..] = x.strides();
            x.view([from], nb, 0)?.view([to], nb, offset)?.sum()
        })
    };
    says(view(2, 4, 0), "VIEW", "beyond");
    says(view(4, 4, 16), "VIEW", "beyond");
}

#[test]
fn only_inputs_of_floats_are_marked() {
    Graph::build(|g| {
        let (x, _) = g.input("x", F32, [4])?;
        let (h, _) = g.input("h", F16, [4])?;
        let (i, _) = g.input("i", I32, [4])?;
        assert!(matches!(x.scale(2.0)?.set_param(), Err(Error::Param(_))));
        assert!(matches!(h.set_param(), Err(Error::DType(_))));
        assert!(matches!(i.set_param(), Err(Error::DType(_))));
        g.output("x", x)
    })
    .unwrap();
}

#[test]
fn gradients_belong_to_marked_tensors() {
    Graph::build(|g| {
        let (x, _) = g.input("x", F32, [4])?;
        let (y, _) = g.input("y", F32, [4])?;
        let (unused, _) = g.input("unused", F32, [4])?;
        let (x, unused) = (x.set_param()?, unused.set_param()?);
        let gradients = g.backward(x.mul(y)?.sum()?)?;
        assert_eq!(gradients.len(), 1);
        assert!(matches!(gradients.of(y), Err(Error::Param(_))));
        assert!(matches!(gradients.of(unused), Err(Error::Param(_))));
        g.output("dx", gradients.of(x)?)
    })
    .unwrap();
}

#[test]
fn both_operands_of_a_product_are_staged_alike() {
    Graph::build(|g| {
        let (x, _) = g.input("x", F32, [4, 4])?;
        let x = x.set_param()?;
        let loss = x.mul_mat(x)?.sum()?;
        let options = BackwardOptions::default();
        let one = g.backward_with(loss, options.staging(Staging::FloatWeights));
        assert!(matches!(one, Err(Error::Param(_))));
        let half = g.backward_with(loss, options.staging(Staging::Half))?;
        g.output("dx", half.of(x)?)
    })
    .unwrap();
}
