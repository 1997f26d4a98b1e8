//! Why Metal's `supports_op` refuses a node: its conditions in `ggml-metal-device.m` again, in its order, each with the operand,
//! the limit and a way out. Asked only once `supports_op` has refused, so that nothing here decides what runs.

mod arrange;
mod attention;
mod conv;
mod elementwise;
mod products;

use super::super::WAY_OUT as SCHEDULER;
use crate::dtype::DType::{self, BF16, F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

/// The condition that a node breaks; `None` where it breaks none, and the GPU itself lacks something.
pub(in super::super) fn reason(node: &Node) -> Option<String> {
    let src = node.src.as_slice();
    match node.op {
        Op::View | Op::Repeat | Op::ConvTranspose1d | Op::Rope | Op::RopeBack | Op::Arange => None,
        Op::Argmax | Op::Argsort | Op::TopK | Op::Diag | Op::OptStepAdamw | Op::OptStepSgd => None,
        Op::SsmScan | Op::SsmConv | Op::RwkvWkv6 | Op::RwkvWkv7 => None,
        Op::Scale
        | Op::Fill
        | Op::Clamp
        | Op::Sqr
        | Op::Sqrt
        | Op::Sin
        | Op::Cos
        | Op::Log
        | Op::Unary(_)
        | Op::Glu(_)
        | Op::LeakyRelu
        | Op::SiluBack
        | Op::Add
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::AddId
        | Op::Acc => elementwise::reason(node),
        Op::Sum
        | Op::SumRows
        | Op::Mean
        | Op::Cumsum
        | Op::SoftMax
        | Op::GroupNorm
        | Op::L2Norm
        | Op::Norm
        | Op::RmsNorm
        | Op::Tri
        | Op::Roll
        | Op::CountEqual
        | Op::Concat
        | Op::Pad
        | Op::PadReflect1d
        | Op::TimestepEmbedding
        | Op::Upscale
        | Op::Set
        | Op::Cpy
        | Op::Dup
        | Op::Cont
        | Op::GetRows
        | Op::SetRows => arrange::reason(node),
        Op::ConvTranspose2d
        | Op::Col2im1d
        | Op::Conv3d
        | Op::Im2col
        | Op::Conv2d
        | Op::Conv2dDw
        | Op::Pool1d
        | Op::Pool2d => conv::reason(node),
        Op::FlashAttnExt
        | Op::LightningIndexer
        | Op::Dsv4HcComb
        | Op::Dsv4HcPre
        | Op::Dsv4HcPost
        | Op::GatedDeltaNet
        | Op::SolveTri => attention::reason(node),
        Op::MulMat | Op::MulMatId | Op::OutProd => products::reason(node, src),
        Op::MapCustom1 | Op::MapCustom2 | Op::MapCustom3 | Op::Custom => {
            Some(format!("a closure runs on the CPU alone: {SCHEDULER}"))
        }
        _ => Some(format!("there is no kernel for the op: {SCHEDULER}")),
    }
}

/// The first condition that is broken.
fn first<const N: usize>(conditions: [Option<String>; N]) -> Option<String> {
    conditions.into_iter().flatten().next()
}

/// An operand of a type without a kernel.
fn typed(role: &str, layout: &Layout, takes: &[DType]) -> Option<String> {
    (!takes.contains(&layout.dtype)).then(|| {
        let names: Vec<_> = takes.iter().map(|dtype| dtype.name()).collect();
        format!(
            "{role} is {}, and kernels take {}: {}",
            layout.dtype,
            names.join(", "),
            cast(role, layout, takes)
        )
    })
}

/// How an operand gets a type that kernels take.
fn cast(role: &str, layout: &Layout, takes: &[DType]) -> String {
    let floats = matches!(layout.dtype, F32 | F16 | BF16) || layout.dtype.dequantizes();
    match takes {
        [to, ..] if floats && to.is_float() => format!("cast {role} to {to}, or {SCHEDULER}"),
        _ => SCHEDULER.to_owned(),
    }
}

/// A result of a type without a kernel.
fn result(layout: &Layout, takes: &[DType]) -> Option<String> {
    (!takes.contains(&layout.dtype)).then(|| {
        let names: Vec<_> = takes.iter().map(|dtype| dtype.name()).collect();
        format!(
            "the result is {}, and kernels write {}: {SCHEDULER}",
            layout.dtype,
            names.join(", ")
        )
    })
}

/// An operand whose rows are no row of elements in memory.
fn spread(role: &str, layout: &Layout) -> Option<String> {
    (!layout.has_contiguous_rows()).then(|| {
        format!(
            "the rows of {role} are not packed (its elements are {} bytes apart): call cont() on it first",
            layout.nb[0]
        )
    })
}

fn loose(role: &str, layout: &Layout) -> Option<String> {
    (!layout.is_contiguous()).then(|| format!("{role} is not contiguous: call cont() on it first"))
}

/// A size that no kernel is made for.
fn size(holds: bool, what: &str, n: usize, limit: &str) -> Option<String> {
    (!holds).then(|| format!("{what} is {n}, and kernels take {limit}: {SCHEDULER}"))
}

/// One operand of F32 with packed rows.
fn float_rows(role: &str, layout: &Layout) -> Option<String> {
    first([typed(role, layout, &[F32]), spread(role, layout)])
}

#[cfg(test)]
mod tests;
