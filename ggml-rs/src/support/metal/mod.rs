//! The Metal backend of ggml 0.26.0: what its `supports_op` lets through although no kernel takes it.

mod arrange;
mod attention;
mod conv;
mod elementwise;
mod image;
mod normalize;
mod recurrent;
mod reduce;
mod refused;
mod rows;

use ggml_sys as sys;

pub(super) use refused::reason as refused;

use super::{Verdict, require};
use crate::dtype::DType::{BF16, F16, F32, MXFP4};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub fn check(node: &Node) -> Verdict {
    if node.op == Op::View {
        return Ok(());
    }
    let mut layouts = node.src.iter().chain([&node.dst]);
    let in_range = layouts.all(|layout| layout.ne.iter().all(|&n| n <= i32::MAX as usize));
    require(
        in_range,
        "a dimension exceeds 2^31 - 1, the range of the kernels' arguments",
    )?;
    match (node.op, node.src.as_slice()) {
        (Op::MulMat, [a, b]) => mul_mat(a, b),
        (Op::MulMatId, [a, b, ids]) => {
            mul_mat_id(a, b, ids)?;
            keeps_source(node, a, b, ids)
        }
        (Op::Dup | Op::Cont | Op::Cpy, [a, ..]) => copy(a, &node.dst),
        (Op::Sum | Op::Pool1d | Op::Cumsum | Op::Argmax | Op::CountEqual, _) => reduce::check(node),
        (
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::LeakyRelu | Op::Glu(_) | Op::Acc | Op::Set,
            _,
        ) => elementwise::check(node),
        (
            Op::Norm
            | Op::RmsNorm
            | Op::L2Norm
            | Op::GroupNorm
            | Op::SoftMax
            | Op::Rope
            | Op::RopeBack,
            _,
        ) => normalize::check(node),
        (Op::Repeat | Op::Pad | Op::PadReflect1d | Op::Roll | Op::Diag | Op::Tri, _) => {
            arrange::check(node)
        }
        (Op::GetRows | Op::GetRowsBack | Op::SetRows | Op::AddId | Op::Argsort | Op::TopK, _) => {
            rows::check(node)
        }
        (
            Op::Im2col
            | Op::Col2im1d
            | Op::ConvTranspose1d
            | Op::Conv2d
            | Op::Conv2dDw
            | Op::Conv3d
            | Op::ConvTranspose2d
            | Op::Pool2d,
            _,
        ) => conv::check(node),
        (
            Op::FlashAttnExt
            | Op::LightningIndexer
            | Op::Dsv4HcComb
            | Op::Dsv4HcPre
            | Op::Dsv4HcPost,
            _,
        ) => attention::check(node),
        (Op::TimestepEmbedding, _) => image::check(node),
        (
            Op::SsmConv
            | Op::SsmScan
            | Op::RwkvWkv6
            | Op::RwkvWkv7
            | Op::GatedDeltaNet
            | Op::SolveTri,
            _,
        ) => recurrent::check(node),
        (Op::OutProd, _) => out_prod(node),
        // The rest is checked in full by ggml's.
        _ => Ok(()),
    }
}

/// OUT_PROD's own supports_op is exact but for this: f16 of one operand makes both f16.
fn out_prod(node: &Node) -> Verdict {
    const SOURCES: [usize; 2] = [2, 3];
    let halves = SOURCES.map(|source| node.params[source] == sys::GGML_PREC_F16);
    require(
        halves[0] == halves[1],
        "set_src_precision(F16) is asked for one operand, and the kernels stage both alike: ask for F16 of both, which is \
         set_staging(Half), or of none",
    )
}

fn mul_mat(a: &Layout, b: &Layout) -> Verdict {
    let multiplies = a.dtype.dequantizes() || matches!(a.dtype, F32 | F16 | BF16);
    require(
        multiplies,
        format!(
            "there is no kernel for a of type {}: cast a to f32",
            a.dtype
        ),
    )?;
    require(
        matches!(b.dtype, F32 | F16),
        format!(
            "there is no kernel for b of type {}: cast b to f32",
            b.dtype
        ),
    )?;
    require(
        a.has_packed_rows() && b.has_packed_rows(),
        "kernels read packed rows only",
    )?;
    require(
        b.ne[2..].iter().all(|&n| n <= i16::MAX as usize),
        "b has more than 2^15 - 1 matrices in a dimension, which kernels count in 16 bits",
    )
}

/// The numbers of experts per token for which there is a kernel that sorts a batch by expert.
const EXPERTS_PER_TOKEN: [usize; 9] = [1, 2, 4, 5, 6, 8, 10, 16, 22];
/// Tokens from which on they run as a batch.
const BATCH: usize = 32;
/// That kernel runs one thread per expert, and keeps the ids of as many tokens in threadgroup memory as u16.
const THREADS: usize = 1024;
const THREADGROUP_BYTES: usize = 32768;

fn mul_mat_id(a: &Layout, b: &Layout, ids: &Layout) -> Verdict {
    mul_mat(a, b)?;
    let [used, tokens, ..] = ids.ne;
    let experts = a.ne[2];
    require(
        tokens < BATCH || EXPERTS_PER_TOKEN.contains(&used),
        format!("there is no kernel for a batch with {used} experts per token"),
    )?;
    require(
        tokens < BATCH || (experts <= THREADS && experts * used * 2 <= THREADGROUP_BYTES),
        format!("{experts} experts, {used} per token, are more than a threadgroup sorts"),
    )
}

/// Whether a batch keeps the source precision that it is asked for: above half there is F32 alone, a rescale against overflow. Mat-vec
/// kernels convert nothing, halves stay what they are, and weights of these types come with activations of bf16.
fn keeps_source(node: &Node, a: &Layout, b: &Layout, ids: &Layout) -> Verdict {
    const SOURCE_B: usize = 3;
    const STAGING: usize = 4;
    let batched = a.ne[0] >= 64 && ids.ne[1] >= BATCH;
    let staged = match node.params[STAGING] {
        sys::GGML_STAGING_HALF => !matches!(a.dtype, BF16 | MXFP4),
        sys::GGML_STAGING_FLOAT_SRC0 => true,
        _ => false,
    };
    let bf16 = node.params[SOURCE_B] == sys::GGML_PREC_BF16;
    require(
        !(bf16 && batched && staged && b.dtype == F32),
        "set_src_precision(Bf16, 1) is asked for, and the kernel holds b as f16: ask for F32, which rescales b against overflow, or \
         call set_staging(FloatActivations)",
    )
}

/// Elements may lie anywhere; a block of the destination is made of one row of the source.
fn copy(a: &Layout, dst: &Layout) -> Verdict {
    let block = dst.dtype.block_len();
    require(
        a.ne[0].is_multiple_of(block),
        format!(
            "a: its rows of {} are no whole blocks of {} ({block} elements): reshape it to rows that are",
            a.ne[0], dst.dtype
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{self, I32};
    use crate::shape::Shape;

    fn layout(dtype: DType, dims: &[usize]) -> Layout {
        Layout::contiguous(dtype, Shape::new(dims).unwrap()).unwrap()
    }

    #[test]
    fn gaps_of_supports_op_are_closed() {
        let one = |op, a: Layout| {
            check(&Node {
                op,
                dst: a,
                src: vec![a],
                slots: Vec::new(),
                params: [0; 16],
                float_operands: false,
            })
        };
        for op in [Op::Sum, Op::Pool1d] {
            assert!(one(op, layout(F32, &[8])).is_ok());
            assert!(one(op, layout(F32, &[1 << 20, 1 << 11])).is_err());
        }
        assert!(one(Op::Repeat, layout(DType::Q8_0, &[32])).is_err());
        let product = |a: Layout, b: Layout| {
            check(&Node {
                op: Op::MulMat,
                dst: a,
                src: vec![a, b],
                slots: Vec::new(),
                params: [0; 16],
                float_operands: false,
            })
        };
        assert!(product(layout(BF16, &[8, 4]), layout(F32, &[8, 4])).is_ok());
        assert!(product(layout(F32, &[8, 4]), layout(BF16, &[8, 4])).is_err());
        assert!(product(layout(I32, &[8, 4]), layout(F32, &[8, 4])).is_err());
        for dots_only in [DType::Q8_1, DType::Q8_K] {
            assert!(product(layout(dots_only, &[256, 4]), layout(F32, &[256, 4])).is_err());
        }
        let many = layout(F32, &[8, 4, 1 << 15]);
        assert!(product(many, many).unwrap_err().contains("16 bits"));
    }

    #[test]
    fn a_block_is_made_of_one_row() {
        let to = |a: Layout, dst: Layout| copy(&a, &dst);
        let blocks = layout(DType::Q8_0, &[64, 2]);
        to(layout(F32, &[64, 2]), blocks).unwrap();
        to(layout(F32, &[32, 4]), blocks).unwrap();
        to(blocks, layout(F16, &[16, 8])).unwrap();
        let reason = to(layout(F32, &[16, 8]), blocks).unwrap_err();
        assert!(
            reason.contains("rows of 16 are no whole blocks of q8_0"),
            "{reason}"
        );
    }

    #[test]
    fn experts_have_the_kernels_that_sort_them() {
        let routed = |experts: usize, used: usize, tokens: usize| {
            mul_mat_id(
                &layout(F32, &[64, 8, experts]),
                &layout(F32, &[64, 1, tokens]),
                &layout(I32, &[used, tokens]),
            )
        };
        routed(8, 2, 32).unwrap();
        routed(8, 3, 31).unwrap();
        for (experts, used, tokens, why) in [
            (8, 3, 32, "3 experts per token"),
            (1025, 2, 32, "1025 experts"),
            (1000, 22, 32, "more than a threadgroup sorts"),
            (8, 2, 32768, "16 bits"),
        ] {
            let reason = routed(experts, used, tokens).unwrap_err();
            assert!(reason.contains(why), "{reason}");
        }
    }
}
