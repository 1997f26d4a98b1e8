//! Convolutions as one op. They have no gradient: [`Tensor::conv_2d`] and its like do.

use ggml_sys as sys;

use super::{Conv2d, Conv3d, count};
use crate::dtype::DType::{F16, F32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl<'g> Tensor<'g> {
    /// [`Tensor::conv_2d`] as one op: kernel `self` [kw, kh, c, oc] of F32 or F16, and `b` [w, h, c, n] of F32 in any
    /// layout, give [ow, oh, oc, n]. With an F16 kernel the CPU rounds the image to F16.
    ///
    /// # Errors
    /// As [`Tensor::conv_2d`].
    #[doc(alias = "ggml_conv_2d_direct")]
    #[track_caller]
    pub fn conv_2d_direct(self, b: Tensor<'g>, options: Conv2d) -> Result<Self> {
        let at = here();
        check_conv_2d(self.layout(), b.layout(), options).at(at)?;
        let [[s0, s1], [p0, p1], [d0, d1]] = options.raw();
        // SAFETY: the tensors are alive, and the check is stricter than ggml_conv_2d_direct's assertion.
        self.make("conv_2d", |context| unsafe {
            let (a, b) = (self.as_ptr(), b.as_ptr());
            sys::ggml_conv_2d_direct(context, a, b, s0, s1, p0, p1, d0, d1)
        })
    }

    /// [`Tensor::conv_2d_dw`] as one op: kernel `self` [kw, kh, 1, c] of F32 or F16 and `b` [w, h, c, n] of F32 give
    /// [ow, oh, c, n].
    ///
    /// Where the channels of `b` lie next to each other (`nb[2]` is the smallest stride), those of the result do, and those
    /// of the kernel must.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `ne[2]` of the kernel is 1 and `ne[3]` the channels, and the kernel fits;
    /// otherwise as [`Tensor::conv_2d`].
    #[doc(alias = "ggml_conv_2d_dw_direct")]
    #[track_caller]
    pub fn conv_2d_dw_direct(self, b: Tensor<'g>, options: Conv2d) -> Result<Self> {
        let at = here();
        check_conv_2d_dw(self.layout(), b.layout(), options).at(at)?;
        let [[s0, s1], [p0, p1], [d0, d1]] = options.raw();
        // SAFETY: the tensors are alive, and the check mirrors ggml_conv_2d_dw_direct's assertions.
        self.make("conv_2d_dw", |context| unsafe {
            let (a, b) = (self.as_ptr(), b.as_ptr());
            sys::ggml_conv_2d_dw_direct(context, a, b, s0, s1, p0, p1, d0, d1)
        })
    }

    /// [`Tensor::conv_3d`] as one op: kernel `self` [kw, kh, kd, c * oc] of F32 or F16, and `b` [w, h, d, c * n] of F32, give
    /// [ow, oh, od, oc * n].
    ///
    /// # Errors
    /// As [`Tensor::conv_3d`].
    #[doc(alias = "ggml_conv_3d_direct")]
    #[track_caller]
    pub fn conv_3d_direct(self, b: Tensor<'g>, channels: usize, options: Conv3d) -> Result<Self> {
        let at = here();
        let [c, n, oc] = check_conv_3d(self.layout(), b.layout(), channels, options).at(at)?;
        let [[s0, s1, s2], [p0, p1, p2], [d0, d1, d2]] = options.raw();
        // SAFETY: the tensors are alive, and the check mirrors ggml_conv_3d_direct's assertions.
        self.make("conv_3d", |context| unsafe {
            let (a, b) = (self.as_ptr(), b.as_ptr());
            sys::ggml_conv_3d_direct(context, a, b, s0, s1, s2, p0, p1, p2, d0, d1, d2, c, n, oc)
        })
    }
}

fn check_types(refusal: &Refusal, a: Layout, b: Layout) -> Checked {
    if !matches!(a.dtype, F32 | F16) || b.dtype != F32 {
        return Err(refusal.dtype("the kernel must be F32 or F16, and b F32"));
    }
    Ok(())
}

/// Mirrors `ggml_conv_2d_direct`; kernels read `a` as contiguous values.
fn check_conv_2d(a: Layout, b: Layout, options: Conv2d) -> Checked {
    let refusal = Refusal {
        op: "conv_2d_direct",
        operands: &[("a", a), ("b", b)],
    };
    if a.ne[2] != b.ne[2] {
        return Err(refusal.shape("ne[2] of a and b, the channels, must be the same"));
    }
    check_types(&refusal, a, b)?;
    if !a.is_contiguous() {
        return Err(refusal.layout("the kernel must be contiguous: call cont() first"));
    }
    let [ow, oh] = options.outputs(&refusal, [b.ne[0], b.ne[1]], [a.ne[0], a.ne[1]])?;
    refusal.check_result(F32, [ow, oh, a.ne[3], b.ne[3]])
}

/// Mirrors `ggml_conv_2d_dw_direct`.
fn check_conv_2d_dw(a: Layout, b: Layout, options: Conv2d) -> Checked {
    let refusal = Refusal {
        op: "conv_2d_dw_direct",
        operands: &[("a", a), ("b", b)],
    };
    if a.ne[2] != 1 || a.ne[3] != b.ne[2] {
        return Err(refusal.shape("ne[2] of a must be 1, and ne[3] the channels, ne[2] of b"));
    }
    check_types(&refusal, a, b)?;
    let [ow, oh] = options.outputs(&refusal, [b.ne[0], b.ne[1]], [a.ne[0], a.ne[1]])?;
    refusal.check_result(F32, [ow, oh, b.ne[2], b.ne[3]])
}

/// Mirrors `ggml_conv_3d_direct`; channels, images and output channels as ggml takes them.
fn check_conv_3d(a: Layout, b: Layout, channels: usize, options: Conv3d) -> Checked<[i32; 3]> {
    let refusal = Refusal {
        op: "conv_3d_direct",
        operands: &[("a", a), ("b", b)],
    };
    let whole = |n: usize| channels > 0 && n.is_multiple_of(channels);
    if !whole(a.ne[3]) || !whole(b.ne[3]) {
        return Err(refusal.shape(format!(
            "ne[3] of a and b must be multiples of {channels} channels"
        )));
    }
    check_types(&refusal, a, b)?;
    if !a.is_contiguous() {
        return Err(refusal.layout("the kernel must be contiguous: call cont() first"));
    }
    let (oc, n) = (a.ne[3] / channels, b.ne[3] / channels);
    let size = |x: Layout| [x.ne[0], x.ne[1], x.ne[2]];
    let [ow, oh, od] = options.outputs(&refusal, size(b), size(a))?;
    let outputs = oc
        .checked_mul(n)
        .ok_or_else(|| refusal.shape("the result overflows"))?;
    refusal.check_result(F32, [ow, oh, od, outputs])?;
    Ok([
        count(&refusal, "channels", channels)?,
        count(&refusal, "volumes", n)?,
        count(&refusal, "output channels", oc)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::BF16;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn kernels_are_contiguous_and_of_the_images_channels() {
        let b = layout(F32, &[8, 8, 3, 2]);
        let check = |a| check_conv_2d(a, b, Conv2d::default());
        check(layout(F16, &[3, 2, 3, 5])).unwrap();
        assert!(matches!(
            check(layout(F16, &[3, 2, 4, 5])),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check(layout(BF16, &[3, 2, 3, 5])),
            Err(Refused::DType(_))
        ));
        assert!(matches!(
            check(transposed(layout(F16, &[3, 2, 3, 5]))),
            Err(Refused::Layout(_))
        ));
        assert!(matches!(
            check(layout(F16, &[9, 2, 3, 5])),
            Err(Refused::Shape(_))
        ));
    }

    #[test]
    fn every_channel_has_a_kernel() {
        let b = layout(F32, &[8, 8, 3, 2]);
        let check = |a: &[usize]| check_conv_2d_dw(layout(F32, a), b, Conv2d::default());
        check(&[3, 3, 1, 3]).unwrap();
        assert!(matches!(check(&[3, 3, 3, 3]), Err(Refused::Shape(_))));
        assert!(matches!(check(&[3, 3, 1, 2]), Err(Refused::Shape(_))));
    }

    #[test]
    fn volumes_have_whole_channels() {
        let (a, b) = (layout(F32, &[3, 2, 2, 6]), layout(F32, &[8, 7, 4, 9]));
        let check = |channels| check_conv_3d(a, b, channels, Conv3d::default());
        assert_eq!(check(3), Ok([3, 3, 2]));
        for channels in [0, 2, 9] {
            assert!(matches!(check(channels), Err(Refused::Shape(_))));
        }
    }
}
