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

/// The most elements, rows and columns: to cut them into parts, kernels add the number of threads to theirs, in `int`.
const MOST: usize = INT_MAX - ggml_sys::GGML_MAX_N_THREADS as usize;

pub fn check(node: &Node) -> Verdict {
    let (dst, src) = (&node.dst, node.src.as_slice());
    let in_range = dst.elements() <= MOST && src.iter().all(is_counted);
    require(
        in_range || node.op == Op::View,
        "a dimension, the number of rows or the number of results exceeds 2^31 - 513: kernels count them in int, with the threads \
         among which they are cut up",
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

/// Columns and rows of an operand, each in `int`. Elements may be more: large weights have them.
fn is_counted(layout: &Layout) -> bool {
    layout.ne.iter().all(|&n| n <= MOST) && layout.ne[1..].iter().product::<usize>() <= MOST
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

#[cfg(test)]
mod tests {
    use super::testing::{layout, node};
    use super::*;
    use crate::graph::node::{Op, Unary};

    /// The rows of a thread, as kernels compute them; `None` where an `int` overflows.
    fn part(rows: i32, threads: i32, thread: i32) -> Option<[i32; 2]> {
        let each = rows.checked_add(threads)?.checked_sub(1)? / threads;
        let first = each.checked_mul(thread)?;
        Some([first, first.checked_add(each)?.min(rows)])
    }

    #[test]
    fn every_row_that_is_taken_is_some_threads() {
        let most = i32::try_from(MOST).unwrap();
        for rows in [1, 511, 512, 513, most - 1, most] {
            for threads in 1..=512 {
                let mut next = 0;
                for thread in 0..threads {
                    let [first, end] = part(rows, threads, thread).unwrap();
                    assert!(
                        first == next || first >= rows,
                        "{rows} rows, {threads} threads"
                    );
                    next = next.max(end);
                }
                assert_eq!(next, rows, "{threads} threads");
            }
        }
        // What was taken before.
        assert_eq!(part(i32::MAX, 2, 0), None);
        assert_eq!(part(most + 1, 512, 0), None);
    }

    #[test]
    fn more_rows_than_threads_can_be_added_to_are_refused() {
        let silu = |ne: &[usize]| {
            let a = layout(F16, ne);
            check(&node(Op::Unary(Unary::Silu), a, &[a]))
        };
        silu(&[1, MOST]).unwrap();
        silu(&[MOST]).unwrap();
        for ne in [&[1, MOST + 1][..], &[MOST + 1], &[1, i32::MAX as usize]] {
            assert!(silu(ne).unwrap_err().contains("2^31 - 513"), "{ne:?}");
        }
        // One result, of more rows than an int counts.
        let rows = layout(F32, &[1, 1 << 16, 1 << 16]);
        let loss = node(Op::CrossEntropyLoss, layout(F32, &[1]), &[rows, rows]);
        assert!(check(&loss).unwrap_err().contains("rows"));
        // Weights may have more elements.
        let (table, ids) = (layout(F16, &[1 << 14, 1 << 18]), layout(DType::I32, &[3]));
        check(&node(
            Op::GetRows,
            layout(F32, &[1 << 14, 3]),
            &[table, ids],
        ))
        .unwrap();
    }
}
