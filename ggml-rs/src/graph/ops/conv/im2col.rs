//! Images cut into the patches that a kernel meets, and back.

use ggml_sys as sys;

use super::{Conv1d, Conv2d, Conv3d, check_step, count};
use crate::dtype::DType::{self, BF16, F16, F32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};
use crate::shape::{IntoShape, Shape};

impl<'g> Tensor<'g> {
    /// The patches that the kernel `self` [kw, kh, c, ...] meets in the image `b` [w, h, c, n]: [kw * kh * c, ow, oh, n] of
    /// F16 or F32, zero where the kernel hangs over. Only the shape of the kernel matters.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless channels agree and the kernel fits; [`Error::Param`](crate::Error::Param)
    /// for a stride or dilation of 0 or beyond 2^24; [`Error::DType`](crate::Error::DType) unless `b` is F32, or F16 with F16
    /// patches.
    #[doc(alias = "ggml_im2col")]
    #[track_caller]
    pub fn im2col(self, b: Tensor<'g>, options: Conv2d, dtype: DType) -> Result<Self> {
        let at = here();
        check_im2col(self.layout(), b.layout(), options, dtype).at(at)?;
        let [[s0, s1], [p0, p1], [d0, d1]] = options.raw();
        // SAFETY: the tensors are alive, and the check mirrors ggml_im2col's assertions for two dimensions.
        self.make("im2col", |context| unsafe {
            let (a, b) = (self.as_ptr(), b.as_ptr());
            sys::ggml_im2col(context, a, b, s0, s1, p0, p1, d0, d1, true, dtype.raw())
        })
    }

    /// [`Tensor::im2col`] in one dimension: kernel [k, c, ...], signal [l, c, n], patches [k * c, ol, n].
    ///
    /// # Errors
    /// As [`Tensor::im2col`].
    #[doc(alias = "ggml_im2col")]
    #[track_caller]
    pub fn im2col_1d(self, b: Tensor<'g>, options: Conv1d, dtype: DType) -> Result<Self> {
        let at = here();
        check_im2col_1d(self.layout(), b.layout(), options, dtype).at(at)?;
        let [[s], [p], [d]] = options.raw();
        // SAFETY: the tensors are alive, and the check mirrors ggml_im2col's assertions for one dimension.
        self.make("im2col", |context| unsafe {
            let (a, b) = (self.as_ptr(), b.as_ptr());
            sys::ggml_im2col(context, a, b, s, 0, p, 0, d, 0, false, dtype.raw())
        })
    }

    /// The gradient of [`Tensor::im2col`]: what the patches `self` [kw * kh * c, ow, oh, n] of F32 add up to in an image of
    /// the given shape [w, h, c, n].
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `self` has the shape of the image's patches;
    /// [`Error::DType`](crate::Error::DType) unless `self` is F32 and the kernel F32 or F16;
    /// [`Error::Layout`](crate::Error::Layout) unless `self` is contiguous; otherwise as [`Tensor::im2col`].
    #[doc(alias = "ggml_im2col_back")]
    #[track_caller]
    pub fn im2col_back(
        self,
        kernel: Tensor<'g>,
        image: impl IntoShape,
        options: Conv2d,
    ) -> Result<Self> {
        let at = here();
        let image = image.into_shape()?;
        let like = Layout::contiguous(F32, image)?;
        let patches = check_im2col(kernel.layout(), like, options, F32).at(at)?;
        check_back(self.layout(), kernel.layout(), patches).at(at)?;
        let [[s0, s1], [p0, p1], [d0, d1]] = options.raw();
        self.im2col_back_node(kernel, image, [s0, s1, p0, p1, d0, d1], true)
    }

    /// The gradient of [`Tensor::im2col_1d`]: what the patches `self` [k * c, ol, n] of F32 add up to in a signal of the
    /// given shape [l, c, n].
    ///
    /// # Errors
    /// As [`Tensor::im2col_back`].
    #[doc(alias = "ggml_im2col_back")]
    #[track_caller]
    pub fn im2col_1d_back(
        self,
        kernel: Tensor<'g>,
        signal: impl IntoShape,
        options: Conv1d,
    ) -> Result<Self> {
        let at = here();
        let signal = signal.into_shape()?;
        let like = Layout::contiguous(F32, signal)?;
        let patches = check_im2col_1d(kernel.layout(), like, options, F32).at(at)?;
        check_back(self.layout(), kernel.layout(), patches).at(at)?;
        let [[s], [p], [d]] = options.raw();
        self.im2col_back_node(kernel, signal, [s, 0, p, 0, d, 0], false)
    }

    /// The same for the parameters of an IM2COL node, which were checked when that was made.
    pub(in crate::graph) fn im2col_back_like(
        self,
        kernel: Tensor<'g>,
        image: Shape,
        params: &[i32; 16],
    ) -> Result<Self> {
        let &[s0, s1, p0, p1, d0, d1, planar, ..] = params;
        self.im2col_back_node(kernel, image, [s0, s1, p0, p1, d0, d1], planar == 1)
    }

    #[track_caller]
    fn im2col_back_node(
        self,
        kernel: Tensor<'g>,
        image: Shape,
        params: [i32; 6],
        planar: bool,
    ) -> Result<Self> {
        let mut ne = image.ne().map(|n| n as i64);
        let [s0, s1, p0, p1, d0, d1] = params;
        // SAFETY: the tensors are alive, `ne` has four entries that were checked, and the checks before are stricter than
        // ggml_im2col_back, which asserts nothing.
        self.make("im2col_back", |context| unsafe {
            let (a, b) = (self.as_ptr(), kernel.as_ptr());
            sys::ggml_im2col_back(
                context,
                a,
                b,
                ne.as_mut_ptr(),
                s0,
                s1,
                p0,
                p1,
                d0,
                d1,
                planar,
            )
        })
    }

    /// The patches that the kernel `self` [kw, kh, kd, c * oc] meets in the volume `b` [w, h, d, c * n], for `c` channels:
    /// [kw * kh * kd * c, ow, oh, od * n] of F16 or F32. Only `ne[0]` to `ne[2]` of the kernel matter.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `ne[3]` of `b` is a multiple of the channels and the kernel fits;
    /// [`Error::DType`](crate::Error::DType) unless `b` is F32; otherwise as [`Tensor::im2col`].
    #[doc(alias = "ggml_im2col_3d")]
    #[track_caller]
    pub fn im2col_3d(
        self,
        b: Tensor<'g>,
        channels: usize,
        options: Conv3d,
        dtype: DType,
    ) -> Result<Self> {
        let at = here();
        check_im2col_3d(self.layout(), b.layout(), channels, options, dtype).at(at)?;
        let [[s0, s1, s2], [p0, p1, p2], [d0, d1, d2]] = options.raw();
        let channels = channels as i64;
        // SAFETY: the tensors are alive, and the check mirrors ggml_im2col_3d's assertions and its divisions.
        self.make("im2col_3d", |context| unsafe {
            let (a, b) = (self.as_ptr(), b.as_ptr());
            sys::ggml_im2col_3d(
                context,
                a,
                b,
                channels,
                s0,
                s1,
                s2,
                p0,
                p1,
                p2,
                d0,
                d1,
                d2,
                dtype.raw(),
            )
        })
    }

    /// Columns added up to a signal: `self` [k * channels, t] gives [(t - 1) * stride + k - 2 * padding, channels] with
    /// `out[i, c] = sum of self[c * k + j, s] over all s and j with s * stride + j = i + padding`, in the type of `self`:
    /// F32, F16 or BF16.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `self` is a matrix of whole channels and something is left of it;
    /// [`Error::Layout`](crate::Error::Layout) unless contiguous; [`Error::DType`](crate::Error::DType) for another type;
    /// [`Error::Param`](crate::Error::Param) for a stride of 0 or beyond 2^24.
    #[doc(alias = "ggml_col2im_1d")]
    #[track_caller]
    pub fn col2im_1d(self, stride: usize, channels: usize, padding: usize) -> Result<Self> {
        let at = here();
        let [stride, channels, padding] =
            check_col2im_1d(self.layout(), stride, channels, padding).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_col2im_1d's assertions.
        self.make("col2im_1d", |context| unsafe {
            sys::ggml_col2im_1d(context, self.as_ptr(), stride, channels, padding)
        })
    }
}

fn check_types(refusal: &Refusal, b: Layout, dtype: DType) -> Checked {
    match (b.dtype, dtype) {
        (F32, F32 | F16) | (F16, F16) => Ok(()),
        _ => Err(refusal.dtype(format!("patches of {dtype} are not cut from {}", b.dtype))),
    }
}

/// Mirrors `ggml_im2col` in two dimensions; the shape of the result.
pub(super) fn check_im2col(
    a: Layout,
    b: Layout,
    options: Conv2d,
    dtype: DType,
) -> Checked<[usize; 4]> {
    let refusal = Refusal {
        op: "im2col",
        operands: &[("a", a), ("b", b)],
    };
    let ([kw, kh, channels, _], [w, h, ..]) = (a.ne, b.ne);
    if channels != b.ne[2] {
        return Err(refusal.shape("ne[2] of a and b, the channels, must be the same"));
    }
    check_types(&refusal, b, dtype)?;
    let [ow, oh] = options.outputs(&refusal, [w, h], [kw, kh])?;
    let ne = [kw * kh * channels, ow, oh, b.ne[3]];
    refusal.check_result(dtype, ne)?;
    Ok(ne)
}

/// Mirrors `ggml_im2col` in one dimension; the shape of the result.
pub(super) fn check_im2col_1d(
    a: Layout,
    b: Layout,
    options: Conv1d,
    dtype: DType,
) -> Checked<[usize; 4]> {
    let refusal = Refusal {
        op: "im2col",
        operands: &[("a", a), ("b", b)],
    };
    let ([k, channels, ..], [l, ..]) = (a.ne, b.ne);
    if channels != b.ne[1] || b.ne[3] != 1 {
        return Err(
            refusal.shape("ne[1] of a and b, the channels, must be the same, and ne[3] of b 1")
        );
    }
    check_types(&refusal, b, dtype)?;
    let [ol] = options.outputs(&refusal, [l], [k])?;
    let ne = [k * channels, ol, b.ne[2], 1];
    refusal.check_result(dtype, ne)?;
    Ok(ne)
}

/// What the kernel of IM2COL_BACK takes for granted.
fn check_back(a: Layout, kernel: Layout, patches: [usize; 4]) -> Checked {
    let refusal = Refusal {
        op: "im2col_back",
        operands: &[("a", a), ("kernel", kernel)],
    };
    if a.ne != patches {
        return Err(refusal.shape(format!("the image's patches are {patches:?}")));
    }
    if a.dtype != F32 || !matches!(kernel.dtype, F32 | F16) {
        return Err(refusal.dtype("a must be F32, and the kernel F32 or F16"));
    }
    if !a.is_contiguous() {
        return Err(refusal.layout("a must be contiguous: call cont() first"));
    }
    Ok(())
}

/// Mirrors `ggml_im2col_3d`; the shape of the result.
pub(super) fn check_im2col_3d(
    a: Layout,
    b: Layout,
    channels: usize,
    options: Conv3d,
    dtype: DType,
) -> Checked<[usize; 4]> {
    let refusal = Refusal {
        op: "im2col_3d",
        operands: &[("a", a), ("b", b)],
    };
    count(&refusal, "channels", channels)?;
    if channels == 0 || !b.ne[3].is_multiple_of(channels) {
        return Err(refusal.shape(format!(
            "ne[3] of b must be a multiple of {channels} channels"
        )));
    }
    if b.dtype != F32 || !matches!(dtype, F32 | F16) {
        return Err(refusal.dtype("patches of F32 or F16 are cut from F32"));
    }
    let ([kw, kh, kd, _], [w, h, d, n]) = (a.ne, b.ne);
    let [ow, oh, od] = options.outputs(&refusal, [w, h, d], [kw, kh, kd])?;
    let volumes = od.checked_mul(n / channels);
    let row = (kw * kh * kd).checked_mul(channels);
    let (Some(volumes), Some(row)) = (volumes, row) else {
        return Err(refusal.shape("the result overflows"));
    };
    let ne = [row, ow, oh, volumes];
    refusal.check_result(dtype, ne)?;
    Ok(ne)
}

/// Mirrors `ggml_col2im_1d`; its parameters as ggml takes them.
fn check_col2im_1d(a: Layout, stride: usize, channels: usize, padding: usize) -> Checked<[i32; 3]> {
    let refusal = Refusal {
        op: "col2im_1d",
        operands: &[("a", a)],
    };
    check_step(&refusal, "stride", stride)?;
    let raw = [
        stride as i32,
        count(&refusal, "channels", channels)?,
        count(&refusal, "padding", padding)?,
    ];
    if a.ne[2..] != [1, 1] || channels == 0 || !a.ne[0].is_multiple_of(channels) {
        return Err(refusal.shape(format!(
            "a must be a matrix whose ne[0] is a multiple of {channels} channels"
        )));
    }
    if !a.is_contiguous() {
        return Err(refusal.layout("a must be contiguous: call cont() first"));
    }
    if !matches!(a.dtype, F32 | F16 | BF16) {
        return Err(refusal.dtype("a must be F32, F16 or BF16"));
    }
    let length = (a.ne[1] - 1)
        .checked_mul(stride)
        .and_then(|n| n.checked_add(a.ne[0] / channels));
    match length.and_then(|n| n.checked_sub(2 * padding)) {
        Some(length) if length > 0 => {
            // Positions are counted in int on Metal.
            count(&refusal, "the length", length + padding)?;
            refusal.check_result(a.dtype, [length, channels, 1, 1])?;
        }
        _ => return Err(refusal.shape("nothing is left between the paddings")),
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn patches_are_of_the_kernels_channels() {
        let (a, b) = (layout(F16, &[3, 2, 4, 9]), layout(F32, &[8, 7, 4, 5]));
        let options = Conv2d::default().stride([2, 1]).padding([1, 0]);
        assert_eq!(check_im2col(a, b, options, F16), Ok([24, 4, 6, 5]));
        let other = layout(F32, &[8, 7, 3, 5]);
        assert!(matches!(
            check_im2col(a, other, options, F16),
            Err(Refused::Shape(_))
        ));
        let halves = layout(F16, &[8, 7, 4, 5]);
        check_im2col(a, halves, options, F16).unwrap();
        for (b, to) in [
            (halves, F32),
            (b, BF16),
            (layout(DType::I32, &[8, 7, 4]), F16),
        ] {
            assert!(matches!(
                check_im2col(a, b, options, to),
                Err(Refused::DType(_))
            ));
        }
        let (a, b) = (layout(F16, &[3, 4, 9]), layout(F32, &[8, 4, 5]));
        assert_eq!(
            check_im2col_1d(a, b, Conv1d::default(), F32),
            Ok([12, 6, 5, 1])
        );
        let batch = layout(F32, &[8, 4, 5, 2]);
        assert!(check_im2col_1d(a, batch, Conv1d::default(), F32).is_err());
    }

    #[test]
    fn gradients_of_patches_have_their_shape() {
        let kernel = layout(F16, &[3, 2, 4, 9]);
        let patches = [24, 6, 6, 5];
        check_back(layout(F32, &patches), kernel, patches).unwrap();
        let short = layout(F32, &[24, 6, 6, 4]);
        assert!(matches!(
            check_back(short, kernel, patches),
            Err(Refused::Shape(_))
        ));
        let halves = layout(F16, &patches);
        assert!(matches!(
            check_back(halves, kernel, patches),
            Err(Refused::DType(_))
        ));
        let spread = Layout {
            nb: [4, 192, 1152, 6912],
            ..layout(F32, &patches)
        };
        assert!(matches!(
            check_back(spread, kernel, patches),
            Err(Refused::Layout(_))
        ));
    }

    #[test]
    fn volumes_have_whole_channels() {
        let (a, b) = (layout(F16, &[3, 2, 2, 6]), layout(F32, &[8, 7, 4, 9]));
        let check = |channels| check_im2col_3d(a, b, channels, Conv3d::default(), F16);
        assert_eq!(check(3), Ok([36, 6, 6, 9]));
        // The kernel's 6 are not asked.
        assert_eq!(check(9), Ok([108, 6, 6, 3]));
        for channels in [0, 2, 18] {
            assert!(matches!(check(channels), Err(Refused::Shape(_))));
        }
        assert!(matches!(check(1 << 40), Err(Refused::Param(_))));
    }

    #[test]
    fn columns_add_up_to_something() {
        let a = layout(F32, &[8, 5]);
        assert_eq!(check_col2im_1d(a, 2, 2, 1), Ok([2, 2, 1]));
        for (stride, channels, padding) in [(2, 3, 0), (2, 0, 0), (1, 8, 3)] {
            let error = check_col2im_1d(a, stride, channels, padding);
            assert!(matches!(error, Err(Refused::Shape(_))), "{error:?}");
        }
        assert!(matches!(
            check_col2im_1d(a, 0, 2, 0),
            Err(Refused::Param(_))
        ));
        assert!(matches!(
            check_col2im_1d(a, 1, 2, 1 << 40),
            Err(Refused::Param(_))
        ));
        let integers = layout(DType::I32, &[8, 5]);
        assert!(matches!(
            check_col2im_1d(integers, 1, 2, 0),
            Err(Refused::DType(_))
        ));
    }
}
