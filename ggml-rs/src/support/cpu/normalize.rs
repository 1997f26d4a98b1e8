//! Norms, softmax, cross entropy and rotary positions.

use super::{Verdict, dtype, even_rows, packed, packed_rows, require};
use crate::dtype::DType::{F16, F32, I32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        // These two read element by element where rows are not packed.
        (Op::Norm | Op::L2Norm, [a]) => dtype(a.dtype == F32, "a", a),
        (Op::RmsNorm, [a]) => packed(a, &[F32]),
        (Op::RmsNormBack, [gradient, x]) => {
            same_shape(gradient, x)?;
            packed(gradient, &[F32])?;
            dtype(x.dtype == F32, "x", x)?;
            packed_rows("x", x)
        }
        (Op::GroupNorm, [a]) => group_norm(a, node.params[0]),
        (Op::SoftMax, [a, ..]) => soft_max(node, a),
        (Op::SoftMaxBack, [gradient, y]) => {
            require(
                node.f32_param(1) == 0.0,
                "there is no gradient with a slope",
            )?;
            require(
                gradient.is_contiguous() && y.is_contiguous(),
                "the gradient and y are not both contiguous",
            )?;
            rows_alike(gradient, y)
        }
        (Op::CrossEntropyLoss, [logits, labels]) => rows_alike(logits, labels),
        (Op::CrossEntropyLossBack, [gradient, logits, labels]) => {
            dtype(gradient.dtype == F32, "the gradient", gradient)?;
            require(
                gradient.elements() == 1,
                "the gradient has several elements",
            )?;
            require(
                logits.is_contiguous() && labels.is_contiguous(),
                "logits and labels are not both contiguous",
            )?;
            rows_alike(logits, labels)
        }
        (Op::Rope | Op::RopeBack, [a, positions, ..]) => rope(a, positions, node.slot(2)),
        _ => super::operands(),
    }
}

fn same_shape(a: &Layout, b: &Layout) -> Verdict {
    require(a.ne == b.ne, "the shapes differ")
}

/// Two F32 operands of one shape whose rows are stepped through by `nb[1]`.
fn rows_alike(a: &Layout, b: &Layout) -> Verdict {
    same_shape(a, b)?;
    for (role, layout) in [("a", a), ("b", b)] {
        dtype(layout.dtype == F32, role, layout)?;
        packed_rows(role, layout)?;
        even_rows(role, layout)?;
    }
    Ok(())
}

/// The kernel rounds up what a group has, with numbers that are added as int.
fn group_norm(a: &Layout, groups: i32) -> Verdict {
    packed(a, &[F32])?;
    let channels = a.ne[2];
    let counted = channels <= 1 << 30 && usize::try_from(groups).is_ok_and(|n| n <= channels);
    require(
        groups > 0 && counted,
        format!("{groups} groups of {channels} channels"),
    )
}

fn soft_max(node: &Node, a: &Layout) -> Verdict {
    packed(a, &[F32])?;
    if let Some(mask) = node.slot(1) {
        dtype(matches!(mask.dtype, F16 | F32), "the mask", mask)?;
        packed_rows("the mask", mask)?;
        let fits = mask.ne[0] == a.ne[0] && mask.ne[1] >= a.ne[1];
        require(fits, "the mask has shorter or fewer rows")?;
    }
    if let Some(sinks) = node.slot(2) {
        dtype(sinks.dtype == F32, "sinks", sinks)?;
        packed_rows("sinks", sinks)?;
        require(
            sinks.ne[0] == a.ne[2],
            "there is not one sink for each head",
        )?;
    }
    Ok(())
}

/// Numbers were checked when the node was written. Pairs are copied, and factors read, up to the end of a row.
fn rope(a: &Layout, positions: &Layout, factors: Option<&Layout>) -> Verdict {
    packed(a, &[F32, F16])?;
    require(a.ne[0].is_multiple_of(2), "rows are odd")?;
    dtype(positions.dtype == I32, "positions", positions)?;
    packed_rows("positions", positions)?;
    let Some(factors) = factors else {
        return Ok(());
    };
    dtype(factors.dtype == F32, "factors", factors)?;
    packed_rows("factors", factors)?;
    require(
        factors.ne[0] >= a.ne[0] / 2,
        "there is not a factor for each pair of a row",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType::BF16;

    #[test]
    fn norms_take_f32() {
        let one = |op, a: Layout| check(&node(op, a, &[a]));
        let (a, spread) = (layout(F32, &[4, 6]), transposed(layout(F32, &[6, 4])));
        for op in [Op::Norm, Op::L2Norm, Op::RmsNorm] {
            one(op, a).unwrap();
            assert_eq!(one(op, spread).is_ok(), op != Op::RmsNorm, "{op:?}");
            assert!(one(op, layout(F16, &[4, 6])).is_err(), "{op:?}");
        }
        let back = |x| check(&node(Op::RmsNormBack, a, &[a, x]));
        back(a).unwrap();
        for x in [spread, layout(F16, &[4, 6]), layout(F32, &[4])] {
            assert!(back(x).is_err(), "{x:?}");
        }
    }

    #[test]
    fn groups_are_counted_in_int() {
        let groups = |channels: usize, groups: i32| {
            let a = layout(F32, &[1, 1, channels]);
            let mut node = node(Op::GroupNorm, a, &[a]);
            node.params[0] = groups;
            check(&node)
        };
        groups(6, 3).unwrap();
        for (channels, count) in [(6, 0), (6, -1), (6, 7), ((1 << 30) + 1, 1)] {
            assert!(groups(channels, count).is_err(), "{count} of {channels}");
        }
    }

    #[test]
    fn a_mask_and_sinks_have_their_places() {
        let a = layout(F32, &[8, 4, 6]);
        let soft_max = |mask: Option<Layout>, sinks: Option<Layout>| {
            let mut node = node(Op::SoftMax, a, &[a]);
            node.src.extend([mask, sinks].into_iter().flatten());
            node.slots = vec![Some(a), mask, sinks];
            check(&node)
        };
        let (mask, sinks) = (layout(F16, &[8, 4]), layout(F32, &[6]));
        soft_max(None, None).unwrap();
        soft_max(Some(mask), None).unwrap();
        soft_max(None, Some(sinks)).unwrap();
        soft_max(Some(mask), Some(sinks)).unwrap();
        for (mask, sinks) in [
            (Some(layout(BF16, &[8, 4])), None),
            (Some(layout(F16, &[8, 3])), None),
            (Some(transposed(layout(F32, &[4, 8]))), None),
            (None, Some(layout(F32, &[4]))),
            (None, Some(layout(F16, &[6]))),
        ] {
            assert!(soft_max(mask, sinks).is_err(), "{mask:?} {sinks:?}");
        }
    }

    #[test]
    fn losses_and_gradients_step_from_row_to_row() {
        let plain = layout(F32, &[4, 1, 2]);
        // Contiguous, and nb[1] is not the distance of its rows.
        let around_one = Layout {
            nb: [4, 96, 16, 32],
            ..plain
        };
        let one = layout(F32, &[1]);
        for op in [Op::CrossEntropyLoss, Op::SoftMaxBack] {
            let two = |b| check(&node(op, plain, &[plain, b]));
            two(plain).unwrap();
            for refused in [around_one, layout(F16, &[4, 1, 2]), one] {
                assert!(two(refused).is_err(), "{op:?} {refused:?}");
            }
        }
        let gaps = Layout {
            nb: [4, 32, 128, 256],
            ..layout(F32, &[4, 4])
        };
        assert!(check(&node(Op::SoftMaxBack, gaps, &[gaps, layout(F32, &[4, 4])])).is_err());
        let back = |gradient, b| {
            check(&node(
                Op::CrossEntropyLossBack,
                plain,
                &[gradient, plain, b],
            ))
        };
        back(one, plain).unwrap();
        assert!(back(plain, plain).is_err());
        assert!(back(layout(I32, &[1]), plain).is_err());
        assert!(back(one, around_one).is_err());
        let mut slope = node(Op::SoftMaxBack, plain, &[plain, plain]);
        slope.params[1] = 8f32.to_bits() as i32;
        assert!(check(&slope).is_err());
    }

    #[test]
    fn pairs_are_turned_in_packed_rows() {
        let a = layout(F32, &[8, 4, 6]);
        let rope = |a: Layout, factors: Option<Layout>| {
            let operands: Vec<_> = [Some(a), Some(layout(I32, &[6])), factors]
                .into_iter()
                .flatten()
                .collect();
            check(&node(Op::Rope, a, &operands))
        };
        rope(a, None).unwrap();
        rope(a, Some(layout(F32, &[4]))).unwrap();
        for (a, factors) in [
            (layout(BF16, &[8, 4, 6]), None),
            (transposed(layout(F32, &[4, 8, 6])), None),
            (layout(F32, &[7, 4, 6]), None),
            (a, Some(layout(F32, &[3]))),
            (a, Some(layout(F16, &[4]))),
        ] {
            assert!(rope(a, factors).is_err(), "{a:?} {factors:?}");
        }
    }
}
