//! Convolutions and pooling.

use super::{INT_MAX, Verdict, dtype, packed_rows, require};
use crate::dtype::DType::{BF16, F16, F32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::Im2col, [_, b]) => im2col(b, &node.dst, node.params[6] == 1),
        (Op::Im2colBack, [a, kernel]) => im2col_back(a, kernel),
        (Op::Im2col3d, [_, b]) => im2col_3d(b, &node.dst),
        (Op::Col2im1d, [a]) => col2im_1d(a),
        (Op::ConvTranspose1d, [a, b]) => conv_transpose_1d(a, b),
        (Op::ConvTranspose2d, [a, b]) => conv_transpose_2d(a, b),
        (Op::Conv2d, [a, b]) => patches(a, b, a.ne[0] * a.ne[1] * a.ne[2], a.ne[3]),
        (Op::Conv3d, [a, b]) => conv_3d(node, a, b),
        (Op::Conv2dDw, [a, b]) => conv_2d_dw(a, b),
        (Op::Pool1d, [a]) => pool_1d(a),
        (Op::Pool2d, [a]) => pool_2d(a),
        (Op::Pool2dBack, [a, image]) => pool_2d_back(a, image),
        _ => super::operands(),
    }
}

/// Rows of an image are taken to lie one after the other, and steps between images and channels are kept in int.
fn im2col(b: &Layout, dst: &Layout, planar: bool) -> Verdict {
    let fits = matches!((b.dtype, dst.dtype), (F32, F32 | F16) | (F16, F16));
    require(
        fits,
        format!(
            "patches of {} from {} are not supported",
            dst.dtype, b.dtype
        ),
    )?;
    packed_rows("b", b)?;
    let rows = !planar || b.ne[1] == 1 || b.nb[1] == b.nb[0] * b.ne[0];
    require(rows, "the rows of an image of b have gaps")?;
    let steps = b.nb[1..].iter().all(|&nb| nb <= INT_MAX);
    require(steps, "b steps by more than 2^31 - 1 bytes")
}

fn im2col_back(a: &Layout, kernel: &Layout) -> Verdict {
    dtype(a.dtype == F32, "a", a)?;
    dtype(matches!(kernel.dtype, F32 | F16), "the kernel", kernel)?;
    require(a.is_contiguous(), "a is not contiguous")?;
    // Steps between images are kept in int.
    require(
        a.elements() <= INT_MAX / 4,
        "a has more than 2^31 - 1 bytes",
    )
}

fn im2col_3d(b: &Layout, dst: &Layout) -> Verdict {
    dtype(b.dtype == F32, "b", b)?;
    dtype(matches!(dst.dtype, F32 | F16), "the result", dst)?;
    packed_rows("b", b)
}

fn col2im_1d(a: &Layout) -> Verdict {
    dtype(matches!(a.dtype, F32 | F16 | BF16), "a", a)?;
    require(a.is_contiguous(), "a is not contiguous")
}

fn transposed_types(a: &Layout, b: &Layout) -> Verdict {
    dtype(matches!(a.dtype, F32 | F16), "a", a)?;
    dtype(b.dtype == F32, "b", b)?;
    packed_rows("a", a)?;
    packed_rows("b", b)?;
    // Both are rearranged into one scratch, in which places are counted in int.
    require(
        a.elements() <= INT_MAX && b.elements() <= INT_MAX,
        "an operand has more than 2^31 - 1 elements",
    )
}

fn conv_transpose_1d(a: &Layout, b: &Layout) -> Verdict {
    transposed_types(a, b)
}

/// The kernel's rows are taken to lie one after the other.
fn conv_transpose_2d(a: &Layout, b: &Layout) -> Verdict {
    transposed_types(a, b)?;
    require(
        a.ne[1] == 1 || a.nb[1] == a.nb[0] * a.ne[0],
        "the rows of a have gaps",
    )
}

/// What the direct convolutions have as scratch.
const SCRATCH: usize = 16 << 20;

/// Patches and results share the scratch, in which at least one of each must fit.
fn patches(a: &Layout, b: &Layout, row: usize, outputs: usize) -> Verdict {
    dtype(matches!(a.dtype, F32 | F16), "a", a)?;
    dtype(b.dtype == F32, "b", b)?;
    require(a.is_contiguous(), "a is not contiguous")?;
    let bytes = row
        .saturating_mul(a.dtype.block_bytes())
        .saturating_add(outputs.saturating_mul(4));
    require(
        bytes <= SCRATCH,
        format!("a patch and its results have {bytes} bytes, more than the scratch"),
    )
}

fn conv_3d(node: &Node, a: &Layout, b: &Layout) -> Verdict {
    let [channels, outputs] =
        [9, 11].map(|i| usize::try_from(node.params[i]).unwrap_or(usize::MAX));
    let row = (a.ne[0] * a.ne[1] * a.ne[2]).saturating_mul(channels);
    patches(a, b, row, outputs)
}

/// There are two kernels, for images and for images whose channels lie next to each other; neither looks at strides. ggml
/// gives the result the strides of the second where `nb[2]` of `b` is the size of an element and the smallest stride.
fn conv_2d_dw(a: &Layout, b: &Layout) -> Verdict {
    dtype(matches!(a.dtype, F32 | F16), "a", a)?;
    dtype(b.dtype == F32, "b", b)?;
    let by_channel = b.nb[0] > b.nb[2] && b.nb[1] > b.nb[0] && b.nb[2] == 4;
    if !by_channel {
        return require(
            a.is_contiguous() && b.is_contiguous(),
            "a and b are neither contiguous nor by channel",
        );
    }
    let together = |x: &Layout, [c, w, h, n]: [usize; 4]| {
        let mut next = x.dtype.block_bytes();
        [c, w, h, n].into_iter().all(|dim| {
            let holds = x.nb[dim] == next;
            next *= x.ne[dim];
            holds
        })
    };
    let kernel = a.nb[0] >= a.nb[2]
        && together(
            &Layout {
                nb: [a.nb[0], a.nb[1], a.nb[1] * a.ne[1], a.nb[3]],
                ..*a
            },
            [3, 0, 1, 2],
        );
    require(
        !b.is_contiguous() && together(b, [2, 0, 1, 3]) && kernel,
        "b is by channel, with gaps, or a is not by channel",
    )
}

/// The kernel steps from row to row by `nb[1]`, whatever the higher dimensions' strides are.
fn pool_1d(a: &Layout) -> Verdict {
    dtype(matches!(a.dtype, F32 | F16), "a", a)?;
    require(
        a.is_packed(),
        "the strides of a are not those of a new tensor",
    )
}

/// The kernel steps from plane to plane by `nb[2]`, up to the end of the tensor.
fn pool_2d(a: &Layout) -> Verdict {
    pool_1d(a)
}

/// The kernel reads the image by the strides of the result, and in its type.
fn pool_2d_back(a: &Layout, image: &Layout) -> Verdict {
    for (role, layout) in [("a", a), ("the image", image)] {
        dtype(layout.dtype == F32, role, layout)?;
        require(layout.is_contiguous(), format!("{role} is not contiguous"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType;

    fn on(op: Op, dst: Layout, src: &[Layout]) -> Verdict {
        let mut node = node(op, dst, src);
        node.params[6] = 1;
        check(&node)
    }

    #[test]
    fn images_have_rows_without_gaps() {
        let (a, b) = (layout(F32, &[3, 3, 4, 2]), layout(F32, &[8, 8, 4]));
        let patches = layout(F32, &[36, 6, 6]);
        on(Op::Im2col, patches, &[a, b]).unwrap();
        let gaps = Layout {
            nb: [4, 64, 512, 2048],
            ..b
        };
        let huge = Layout {
            nb: [4, 32, 1 << 31, 1 << 33],
            ..b
        };
        for b in [gaps, huge, transposed(b), layout(BF16, &[8, 8, 4])] {
            assert!(on(Op::Im2col, patches, &[a, b]).is_err(), "{b:?}");
        }
        let halves = layout(F16, &[8, 8, 4]);
        on(Op::Im2col, layout(F16, &[36, 6, 6]), &[a, halves]).unwrap();
        assert!(on(Op::Im2col, patches, &[a, halves]).is_err());
    }

    #[test]
    fn direct_convolutions_have_room_for_a_patch() {
        let b = layout(F32, &[8, 8, 4]);
        let conv = |a: Layout| on(Op::Conv2d, layout(F32, &[6, 6, 2]), &[a, b]);
        conv(layout(F16, &[3, 3, 4, 2])).unwrap();
        assert!(conv(layout(BF16, &[3, 3, 4, 2])).is_err());
        assert!(conv(transposed(layout(F32, &[3, 3, 4, 2]))).is_err());
        let wide = layout(F32, &[1024, 1024, 4, 1]);
        assert!(conv(wide).unwrap_err().contains("scratch"));
    }

    #[test]
    fn channels_lie_next_to_each_other_in_both_or_in_none() {
        let (a, b) = (layout(F32, &[3, 3, 1, 4]), layout(F32, &[8, 8, 4, 2]));
        let by_channel = |x: Layout, nb: [usize; 4]| Layout { nb, ..x };
        let b_c = by_channel(b, [16, 128, 4, 1024]);
        let a_c = by_channel(a, [16, 48, 16, 4]);
        let conv = |a: Layout, b: Layout| on(Op::Conv2dDw, layout(F32, &[6, 6, 4, 2]), &[a, b]);
        conv(a, b).unwrap();
        conv(a_c, b_c).unwrap();
        assert!(conv(a, b_c).is_err() && conv(a_c, b).is_err());
        assert!(conv(a_c, by_channel(b, [16, 256, 4, 2048])).is_err());
    }

    #[test]
    fn transposed_kernels_have_rows_without_gaps() {
        let (a, b) = (layout(F16, &[3, 2, 5, 4]), layout(F32, &[8, 7, 4]));
        let dst = layout(F32, &[10, 8, 5]);
        on(Op::ConvTranspose2d, dst, &[a, b]).unwrap();
        let gaps = Layout {
            nb: [2, 12, 24, 120],
            ..a
        };
        assert!(on(Op::ConvTranspose2d, dst, &[gaps, b]).is_err());
        let bf16 = layout(BF16, &[3, 5, 4]);
        let b = layout(F32, &[8, 4]);
        assert!(on(Op::ConvTranspose1d, dst, &[bf16, b]).is_err());
        on(Op::ConvTranspose1d, dst, &[layout(F16, &[3, 5, 4]), b]).unwrap();
    }

    #[test]
    fn pools_step_over_whole_planes() {
        let a = layout(F16, &[8, 8, 4]);
        on(Op::Pool2d, layout(F32, &[4, 4, 4]), &[a]).unwrap();
        let gaps = Layout {
            nb: [2, 16, 256, 1024],
            ..a
        };
        for a in [gaps, layout(DType::BF16, &[8, 8, 4])] {
            assert!(on(Op::Pool2d, layout(F32, &[4, 4, 4]), &[a]).is_err());
        }
        let (image, pooled) = (layout(F32, &[8, 8, 4]), layout(F32, &[4, 4, 4]));
        on(Op::Pool2dBack, image, &[pooled, image]).unwrap();
        assert!(on(Op::Pool2dBack, image, &[pooled, a]).is_err());
    }
}
