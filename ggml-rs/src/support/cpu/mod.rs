//! The CPU backend of ggml 0.26.0: what its kernels assert, or take for granted. One file a family of ops.

mod arrange;
mod attention;
mod conv;
mod copy;
mod custom;
mod elementwise;
mod image;
mod normalize;
mod optimizer;
mod products;
mod recurrent;
mod reduce;
mod rows;

use super::{Verdict, require};
use crate::dtype::DType::{self, BF16, F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

/// Kernels count elements and rows in `int`.
const INT_MAX: usize = i32::MAX as usize;

pub fn check(node: &Node) -> Verdict {
    let (dst, src) = (&node.dst, node.src.as_slice());
    let in_range =
        dst.elements() <= INT_MAX && src.iter().all(|src| src.ne.iter().all(|&n| n <= INT_MAX));
    require(
        in_range || node.op == Op::View,
        "a dimension or the number of results exceeds 2^31 - 1, which kernels count in int",
    )?;
    match node.op {
        Op::View => Ok(()),
        Op::OutProd | Op::MulMat | Op::MulMatId => products::check(node),
        Op::Dup | Op::Cont | Op::Cpy => copy::check(node),
        Op::Add
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Add1
        | Op::Acc
        | Op::Set
        | Op::Scale
        | Op::Clamp
        | Op::Sqr
        | Op::Sqrt
        | Op::Log
        | Op::Sin
        | Op::Cos
        | Op::LeakyRelu
        | Op::Fill
        | Op::SiluBack
        | Op::Unary(_)
        | Op::Glu(_) => elementwise::check(node),
        Op::Norm
        | Op::RmsNorm
        | Op::RmsNormBack
        | Op::GroupNorm
        | Op::L2Norm
        | Op::SoftMax
        | Op::SoftMaxBack
        | Op::CrossEntropyLoss
        | Op::CrossEntropyLossBack
        | Op::Rope
        | Op::RopeBack => normalize::check(node),
        Op::Repeat
        | Op::RepeatBack
        | Op::Concat
        | Op::Pad
        | Op::PadReflect1d
        | Op::Roll
        | Op::Diag
        | Op::DiagMaskInf
        | Op::DiagMaskZero
        | Op::Tri => arrange::check(node),
        Op::Sum | Op::SumRows | Op::Cumsum | Op::Mean | Op::Argmax | Op::CountEqual => {
            reduce::check(node)
        }
        Op::GetRows | Op::GetRowsBack | Op::SetRows | Op::AddId | Op::Argsort | Op::TopK => {
            rows::check(node)
        }
        Op::Im2col
        | Op::Im2colBack
        | Op::Im2col3d
        | Op::Col2im1d
        | Op::ConvTranspose1d
        | Op::Conv2d
        | Op::Conv2dDw
        | Op::Conv3d
        | Op::ConvTranspose2d
        | Op::Pool1d
        | Op::Pool2d
        | Op::Pool2dBack => conv::check(node),
        Op::Upscale
        | Op::TimestepEmbedding
        | Op::Arange
        | Op::WinPart
        | Op::WinUnpart
        | Op::GetRelPos
        | Op::AddRelPos => image::check(node),
        Op::FlashAttnExt
        | Op::FlashAttnBack
        | Op::LightningIndexer
        | Op::Dsv4HcComb
        | Op::Dsv4HcPre
        | Op::Dsv4HcPost => attention::check(node),
        Op::SsmConv
        | Op::SsmScan
        | Op::RwkvWkv6
        | Op::RwkvWkv7
        | Op::GatedLinearAttn
        | Op::GatedDeltaNet
        | Op::SolveTri => recurrent::check(node),
        Op::MapCustom1 | Op::MapCustom2 | Op::MapCustom3 | Op::Custom => custom::check(node),
        Op::OptStepAdamw | Op::OptStepSgd => optimizer::check(node),
    }
}

/// The answer to a node with another number of operands than its op has.
fn operands() -> Verdict {
    Err("the op has an unexpected number of operands".to_owned())
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, F32 | F16 | BF16)
}

/// Whether the CPU backend has a row function from f32 to this quantized type: those that search a grid
/// have none.
fn quantizes(dtype: DType) -> bool {
    use DType::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
    dtype.dequantizes()
        && !matches!(
            dtype,
            IQ1_M | IQ1_S | IQ2_S | IQ2_XS | IQ2_XXS | IQ3_S | IQ3_XXS
        )
}

fn dtype(holds: bool, role: &str, layout: &Layout) -> Verdict {
    require(
        holds,
        format!("{role} of type {} is not supported", layout.dtype),
    )
}

fn packed_rows(role: &str, layout: &Layout) -> Verdict {
    require(
        layout.has_packed_rows(),
        format!("the rows of {role} are not packed"),
    )
}

/// Rows that a kernel steps through by `nb[1]`, whatever the other dimensions are.
fn even_rows(role: &str, layout: &Layout) -> Verdict {
    require(
        layout.is_contiguous_1(),
        format!("the rows of {role} do not lie at one distance"),
    )
}

/// One operand of one of these types, with packed rows.
fn packed(a: &Layout, dtypes: &[DType]) -> Verdict {
    dtype(dtypes.contains(&a.dtype), "a", a)?;
    packed_rows("a", a)
}

#[cfg(test)]
pub(super) mod testing {
    pub use crate::graph::ops::testing::{layout, transposed};

    use crate::graph::node::{Node, Op};
    use crate::layout::Layout;

    /// A node without parameters.
    pub fn node(op: Op, dst: Layout, src: &[Layout]) -> Node {
        Node {
            op,
            dst,
            src: src.to_vec(),
            slots: src.iter().copied().map(Some).collect(),
            params: [0; 16],
            float_operands: false,
        }
    }
}
