//! Which ops have a backward, and what it takes. What it makes is in `gradients`.

use ggml_sys as sys;

use super::Raw;
use crate::dtype::DType::{self, BF16, F16, F32};
use crate::graph::node::{Glu, Node, Op, Unary};
use crate::layout::Layout;

/// What a gradient of a node's result means for its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// It flows to these sources; all floats that the op reads are F32.
    Flows(&'static [usize]),
    /// The same, and sources and result may be F16 or BF16 too: gradients are F32 all the same.
    Casts(&'static [usize]),
    /// The result is constant wherever it is defined: no gradient flows.
    Flat,
    /// There is none, and what to do instead.
    Missing(&'static str),
}

const NONE: Rule = Rule::Missing("the op has no backward");

/// Whether a gradient flows through an op.
pub(crate) fn has_backward(op: Op) -> bool {
    matches!(rule(op), Rule::Flows(_) | Rule::Casts(_))
}

/// The rule of an op.
pub(crate) fn rule(op: Op) -> Rule {
    use Rule::{Casts, Flat, Flows, Missing};
    match op {
        // An input, a reshape, a view, a permute, a transpose.
        Op::View | Op::Dup | Op::Cont | Op::Cpy => Casts(&[0]),
        Op::MulMat => Casts(&[0, 1]),
        Op::Add
        | Op::Add1
        | Op::Acc
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Set
        | Op::OutProd
        | Op::Concat
        | Op::AddId => Flows(&[0, 1]),
        Op::MulMatId => Casts(&[0, 1]),
        Op::Sqr
        | Op::Sqrt
        | Op::Log
        | Op::Sin
        | Op::Cos
        | Op::Sum
        | Op::SumRows
        | Op::Mean
        | Op::Repeat
        | Op::RepeatBack
        | Op::Norm
        | Op::RmsNorm
        | Op::GroupNorm
        | Op::L2Norm
        | Op::Scale
        | Op::GetRows
        | Op::DiagMaskInf
        | Op::DiagMaskZero
        | Op::Rope
        | Op::Clamp
        | Op::Pool2d
        | Op::Pad
        | Op::LeakyRelu
        | Op::CrossEntropyLoss => Flows(&[0]),
        Op::Im2col => Casts(&[1]),
        Op::SetRows | Op::SoftMax => Flows(&[0, 2]),
        Op::Unary(function) => unary(function),
        Op::Glu(
            Glu::Reglu
            | Glu::Geglu
            | Glu::Swiglu
            | Glu::SwigluOai
            | Glu::GegluErf
            | Glu::GegluQuick
            | Glu::SwigluClamp,
        ) => Flows(&[0, 1]),
        Op::Fill | Op::Argmax | Op::Argsort | Op::TopK | Op::CountEqual | Op::Arange => Flat,
        Op::FlashAttnExt => Missing(
            "flash attention has no backward: write attention as mul_mat, soft_max_ext and mul_mat",
        ),
        Op::Pool1d => Missing(
            "extrema and pools of one dimension have no backward: pool_2d with a window of height 1 has one",
        ),
        Op::MapCustom1 | Op::MapCustom2 | Op::MapCustom3 | Op::Custom => {
            Missing("a custom op has no backward")
        }
        _ => NONE,
    }
}

fn unary(function: Unary) -> Rule {
    match function {
        Unary::Sgn | Unary::Step | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => {
            Rule::Flat
        }
        Unary::Xielu => NONE,
        Unary::Abs
        | Unary::Neg
        | Unary::Tanh
        | Unary::Elu
        | Unary::Relu
        | Unary::Sigmoid
        | Unary::Gelu
        | Unary::GeluQuick
        | Unary::GeluErf
        | Unary::Silu
        | Unary::Hardswish
        | Unary::Hardsigmoid
        | Unary::Exp
        | Unary::Expm1
        | Unary::Softplus => Rule::Flows(&[0]),
    }
}

/// Whether an op's backward computes from its result.
pub(super) fn reads_result(op: Op) -> bool {
    matches!(
        op,
        Op::Div
            | Op::Sqrt
            | Op::Norm
            | Op::RmsNorm
            | Op::GroupNorm
            | Op::L2Norm
            | Op::SoftMax
            | Op::Unary(Unary::Exp | Unary::Sigmoid | Unary::Tanh | Unary::Elu)
    )
}

/// The places whose tensors make a node one that needs a gradient, if they need one themselves.
///
/// More than those that a gradient flows to: what a rule takes for a constant counts too, so that it is found and refused.
pub(super) fn counted(op: Option<Op>) -> impl Iterator<Item = usize> {
    let ignored: &[usize] = match op {
        Some(op) if rule(op) == Rule::Flat => &ALL,
        Some(Op::Im2col) => &[0],
        Some(Op::Cpy | Op::GetRows | Op::Rope | Op::SetRows) => &[1],
        Some(Op::AddId | Op::MulMatId) => &[2],
        _ => &[],
    };
    ALL.into_iter().filter(|place| !ignored.contains(place))
}

/// Every place for a source.
const ALL: [usize; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

/// Why a node of an op that has a backward has none all the same; `needs` says which of its places need a gradient.
///
/// Each refusal is of what a gradient takes for granted.
pub(super) fn refusal(tensor: Raw, node: &Node, needs: impl Fn(usize) -> bool) -> Option<String> {
    let rule = rule(node.op);
    if let Rule::Missing(why) = rule {
        return Some(why.to_owned());
    }
    types(node, rule, &needs)
        .or_else(|| constants(node.op, rule, &needs))
        .or_else(|| parameters(tensor, node, &needs))
}

fn types(node: &Node, rule: Rule, needs: &impl Fn(usize) -> bool) -> Option<String> {
    let floats = [F32, F16, BF16];
    let casts = matches!(rule, Rule::Casts(_));
    let fits = |dtype: DType| dtype == F32 || casts && floats.contains(&dtype);
    let refused = |role: &str, dtype: DType| {
        Some(format!(
            "{role} is {dtype}: gradients go through {}",
            if casts { "f32, f16 and bf16" } else { "f32" }
        ))
    };
    if !fits(node.dst.dtype) {
        return refused("the result", node.dst.dtype);
    }
    for (i, source) in node.slots.iter().enumerate() {
        let Some(source) = source else { continue };
        let ids = matches!(source.dtype, DType::I32 | DType::I64);
        // Frozen operands of products may have any type; those of other ops are read as F32, but for ids and masks.
        let read = match node.op {
            Op::MulMat | Op::MulMatId | Op::Cpy => needs(i),
            Op::SoftMax => i == 0 || needs(i),
            Op::Im2col => needs(i),
            _ => !ids,
        };
        if read && !fits(source.dtype) {
            return refused(&format!("operand {i}"), source.dtype);
        }
    }
    None
}

/// Operands that are taken as constants: counted, or written to, and without a gradient.
fn constants(op: Op, rule: Rule, needs: &impl Fn(usize) -> bool) -> Option<String> {
    let (Rule::Flows(flows) | Rule::Casts(flows)) = rule else {
        return None;
    };
    let written = (op == Op::Cpy).then_some(1);
    let place = counted(Some(op))
        .chain(written)
        .find(|&place| !flows.contains(&place) && needs(place))?;
    let what = match (op, place) {
        (Op::Cpy, 1) => "what cpy writes to".to_owned(),
        (Op::SoftMax, 1) => "the mask".to_owned(),
        (Op::Rope, 2) => "the tensor of frequency factors".to_owned(),
        (Op::CrossEntropyLoss, 1) => "the tensor of labels".to_owned(),
        _ => format!("operand {place}"),
    };
    Some(format!(
        "{what} has no gradient, and depends on a marked tensor"
    ))
}

fn parameters(tensor: Raw, node: &Node, needs: &impl Fn(usize) -> bool) -> Option<String> {
    let [a, ..] = node.src.as_slice() else {
        return None;
    };
    match node.op {
        // SAFETY: the builder keeps its tensors alive.
        Op::View if unsafe { tensor.as_ref() }.op == sys::GGML_OP_VIEW => {
            view(a, &node.dst, node.view_offset())
        }
        Op::Pad if node.params[8] != 0 => Some("circular padding has no backward".to_owned()),
        Op::GroupNorm if a.ne[2] % node.params[0].max(1) as usize != 0 => {
            Some("the last group has fewer channels: a backward needs whole groups".to_owned())
        }
        Op::Im2col if !matches!(a.dtype, F32 | F16) => {
            Some("the kernel must be f32 or f16".to_owned())
        }
        Op::SetRows => node
            .slot(1)
            .filter(|ids| ids.dtype != DType::I32 && needs(0))
            .map(|_| "the rows' gradient needs ids of i32".to_owned()),
        Op::OutProd => node.slot(1).and_then(|b| {
            (a.dtype != F32 || b.dtype != F32).then(|| "operands must be f32".to_owned())
        }),
        Op::MulMatId if needs(1) && a.ne[3] != 1 => {
            Some("experts in four dimensions have no backward".to_owned())
        }
        // Ids of these are compared in f32.
        Op::AddId if needs(1) && node.slot(1).is_some_and(|b| b.ne[1] > EXACT) => {
            Some("more rows than an f32 counts exactly".to_owned())
        }
        Op::GetRows if a.ne[2] * a.ne[3] > 1 && a.ne[1] > EXACT => {
            Some("more rows, of several matrices, than an f32 counts exactly".to_owned())
        }
        _ => None,
    }
}

/// Whole numbers up to here are exact in f32, in which ids are compared.
const EXACT: usize = 1 << 24;

/// A gradient is added to the part that was viewed, row by row and by several threads, in a contiguous tensor.
fn view(of: &Layout, dst: &Layout, offset: usize) -> Option<String> {
    if !of.is_contiguous() {
        return Some(
            "a view of a tensor that is not contiguous: call cont() before view()".to_owned(),
        );
    }
    if of.elements() > i32::MAX as usize / 4 {
        return Some(
            "a view of more than 2 GiB of floats, in which gradients have no offsets".to_owned(),
        );
    }
    // A view of a view may leave it, as long as it stays in their base.
    let last = dst.extent().and_then(|extent| extent.checked_add(offset));
    if last.is_none_or(|last| Some(last) > of.extent()) {
        return Some(
            "the view reaches beyond what it is a view of: view the tensor that holds all of it"
                .to_owned(),
        );
    }
    let mut end = dst.nb[0].saturating_mul(dst.ne[0]);
    for d in 1..4 {
        if dst.ne[d] == 1 {
            continue;
        }
        if dst.nb[d] < end {
            return Some("the view's rows overlap, or run backwards".to_owned());
        }
        end = dst.nb[d].saturating_mul(dst.ne[d]);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ops::testing::layout;

    #[test]
    fn overlapping_views_are_refused() {
        let base = layout(F32, &[8, 4]);
        let part = |ne: [usize; 4], nb: [usize; 4]| view(&base, &Layout { dtype: F32, ne, nb }, 0);
        assert_eq!(part([4, 4, 1, 1], [4, 32, 128, 128]), None);
        assert!(part([4, 4, 1, 1], [4, 4, 16, 16]).is_some());
        assert!(part([4, 2, 2, 1], [4, 64, 32, 128]).is_some());
    }

    #[test]
    fn views_that_leave_what_they_view_are_refused() {
        let (base, part) = (layout(F32, &[8, 4]), layout(F32, &[8]));
        assert_eq!(view(&base, &part, 96), None);
        for offset in [100, usize::MAX] {
            assert!(view(&base, &part, offset).is_some(), "{offset}");
        }
    }
}
