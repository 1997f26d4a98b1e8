//! Convolutions made of patches and a product of matrices. They differentiate as these do.
//!
//! ggml's own compositions always round the patches to F16. Ours have F16 patches for an F16 kernel, and F32 patches for
//! any other, so that an F32 convolution neither rounds nor overflows at 65504.

use super::{Conv1d, Conv2d, Conv3d};
use crate::dtype::DType::{self, BF16, F16, F32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl<'g> Tensor<'g> {
    /// A convolution of signals: kernel `self` [k, c, oc] and `b` [l, c, n] of F32 give [ol, oc, n] of F32 with
    /// `out[i, o, n] = sum over j, c of self[j, c, o] * b[i * stride + j * dilation - padding, c, n]`.
    ///
    /// # Errors
    /// As [`Tensor::im2col_1d`]; [`Error::Layout`](crate::Error::Layout) unless the kernel is contiguous;
    /// [`Error::DType`](crate::Error::DType) unless the kernel is F32, F16 or BF16.
    #[doc(alias = "ggml_conv_1d")]
    #[track_caller]
    pub fn conv_1d(self, b: Tensor<'g>, options: Conv1d) -> Result<Self> {
        let at = here();
        check_operands("conv_1d", self.layout(), b.layout()).at(at)?;
        let kernel = self.as_factor()?;
        let [k, c, oc, _] = self.shape().ne();
        let patches = self.im2col_1d(b, options, patch_type(self.dtype()))?;
        let [row, ol, n, _] = patches.shape().ne();
        let product = patches
            .reshape([row, ol * n])?
            .mul_mat(kernel.reshape([k * c, oc])?)?;
        if n == 1 {
            return product.reshape([ol, oc, 1]);
        }
        // ggml reads [ol, n, oc] as [ol, oc, n].
        product.reshape([ol, n, oc])?.permute([0, 2, 1, 3])?.cont()
    }

    /// [`Tensor::conv_1d`] with half the kernel as padding, which keeps the length of an odd kernel's signal.
    ///
    /// # Errors
    /// As [`Tensor::conv_1d`].
    #[doc(alias = "ggml_conv_1d_ph")]
    #[track_caller]
    pub fn conv_1d_ph(self, b: Tensor<'g>, stride: usize, dilation: usize) -> Result<Self> {
        self.conv_1d(b, half_padded_1d(self, stride, dilation))
    }

    /// A convolution of each channel with its own kernels: `self` [k, 1, c * m] and `b` [l, c] give [ol, c * m]; `m`
    /// kernels to a channel.
    ///
    /// # Errors
    /// As [`Tensor::conv_1d`]; [`Error::Shape`](crate::Error::Shape) unless `ne[1]` of the kernel is 1, and `b` a matrix.
    #[doc(alias = "ggml_conv_1d_dw")]
    #[track_caller]
    pub fn conv_1d_dw(self, b: Tensor<'g>, options: Conv1d) -> Result<Self> {
        let at = here();
        const OP: &str = "conv_1d_dw";
        check_operands(OP, self.layout(), b.layout()).at(at)?;
        check_channels(OP, self.layout(), b.layout(), [1, 2], 1).at(at)?;
        let [l, c, ..] = b.shape().ne();
        let kernel = self.as_factor()?;
        let patches = self.im2col_1d(b.reshape([l, 1, c])?, options, patch_type(self.dtype()))?;
        let out = patches.mul_mat(kernel)?;
        let [ol, _, channels, _] = out.shape().ne();
        out.reshape([ol, channels])
    }

    /// [`Tensor::conv_1d_dw`] with half the kernel as padding.
    ///
    /// # Errors
    /// As [`Tensor::conv_1d_dw`].
    #[doc(alias = "ggml_conv_1d_dw_ph")]
    #[track_caller]
    pub fn conv_1d_dw_ph(self, b: Tensor<'g>, stride: usize, dilation: usize) -> Result<Self> {
        self.conv_1d_dw(b, half_padded_1d(self, stride, dilation))
    }

    /// A convolution of images: kernel `self` [kw, kh, c, oc] and `b` [w, h, c, n] of F32 give [ow, oh, oc, n] of F32.
    ///
    /// # Errors
    /// As [`Tensor::im2col`]; [`Error::Layout`](crate::Error::Layout) unless the kernel is contiguous;
    /// [`Error::DType`](crate::Error::DType) unless the kernel is F32, F16 or BF16.
    #[doc(alias = "ggml_conv_2d")]
    #[track_caller]
    pub fn conv_2d(self, b: Tensor<'g>, options: Conv2d) -> Result<Self> {
        let at = here();
        check_operands("conv_2d", self.layout(), b.layout()).at(at)?;
        let kernel = self.as_factor()?;
        let [kw, kh, c, oc] = self.shape().ne();
        let patches = self.im2col(b, options, patch_type(self.dtype()))?;
        let [row, ow, oh, n] = patches.shape().ne();
        patches
            .reshape([row, ow * oh * n])?
            .mul_mat(kernel.reshape([kw * kh * c, oc])?)?
            .reshape([ow, oh, n, oc])?
            .permute([0, 1, 3, 2])?
            .cont()
    }

    /// [`Tensor::conv_2d`] with the kernel as stride, and no padding: the image in tiles.
    ///
    /// # Errors
    /// As [`Tensor::conv_2d`].
    #[doc(alias = "ggml_conv_2d_sk_p0")]
    #[track_caller]
    pub fn conv_2d_sk_p0(self, b: Tensor<'g>) -> Result<Self> {
        let [kw, kh, ..] = self.shape().ne();
        self.conv_2d(b, Conv2d::default().stride([kw, kh]))
    }

    /// [`Tensor::conv_2d`] with half the kernel as padding, which keeps the size of an odd kernel's image.
    ///
    /// # Errors
    /// As [`Tensor::conv_2d`].
    #[doc(alias = "ggml_conv_2d_s1_ph")]
    #[track_caller]
    pub fn conv_2d_s1_ph(self, b: Tensor<'g>) -> Result<Self> {
        let [kw, kh, ..] = self.shape().ne();
        self.conv_2d(b, Conv2d::default().padding([kw / 2, kh / 2]))
    }

    /// A convolution of each channel with its own kernel: `self` [kw, kh, 1, c] and `b` [w, h, c, n] give [ow, oh, c, n].
    ///
    /// # Errors
    /// As [`Tensor::conv_2d`]; [`Error::Shape`](crate::Error::Shape) unless `ne[2]` of the kernel is 1, and `ne[3]` the
    /// channels.
    #[doc(alias = "ggml_conv_2d_dw")]
    #[track_caller]
    pub fn conv_2d_dw(self, b: Tensor<'g>, options: Conv2d) -> Result<Self> {
        let at = here();
        const OP: &str = "conv_2d_dw";
        check_operands(OP, self.layout(), b.layout()).at(at)?;
        check_channels(OP, self.layout(), b.layout(), [2, 3], 2).at(at)?;
        let [kw, kh, _, c] = self.shape().ne();
        let [w, h, _, n] = b.shape().ne();
        let kernel = self.as_factor()?.reshape([kw * kh, 1, c])?;
        let patches = self.im2col(
            b.reshape([w, h, 1, c * n])?,
            options,
            patch_type(self.dtype()),
        )?;
        let [row, ow, oh, _] = patches.shape().ne();
        kernel
            .mul_mat(patches.reshape([row, ow * oh, c, n])?)?
            .reshape([ow, oh, c, n])
    }

    /// A convolution of volumes: kernel `self` [kw, kh, kd, c * oc] and `b` [w, h, d, c * n] of F32 give
    /// [ow, oh, od, oc * n] of F32, for `channels` channels.
    ///
    /// # Errors
    /// As [`Tensor::im2col_3d`]; [`Error::Layout`](crate::Error::Layout) unless the kernel is contiguous;
    /// [`Error::DType`](crate::Error::DType) unless the kernel is F32, F16 or BF16.
    #[doc(alias = "ggml_conv_3d")]
    #[track_caller]
    pub fn conv_3d(self, b: Tensor<'g>, channels: usize, options: Conv3d) -> Result<Self> {
        let at = here();
        check_operands("conv_3d", self.layout(), b.layout()).at(at)?;
        check_kernels(self.layout(), b.layout(), channels).at(at)?;
        let kernel = self.as_factor()?;
        let patches = self.im2col_3d(b, channels, options, patch_type(self.dtype()))?;
        let [kw, kh, kd, kernels] = self.shape().ne();
        let (oc, n) = (kernels / channels, b.shape().ne()[3] / channels);
        let [row, ow, oh, volumes] = patches.shape().ne();
        patches
            .reshape([row, ow * oh * volumes])?
            .mul_mat(kernel.reshape([kw * kh * kd * channels, oc])?)?
            .reshape([ow * oh, volumes / n, n, oc])?
            .permute([0, 1, 3, 2])?
            .cont()?
            .reshape([ow, oh, volumes / n, oc * n])
    }

    /// A kernel as products take it: no device multiplies F32 patches with BF16.
    #[track_caller]
    fn as_factor(self) -> Result<Self> {
        if self.dtype() == BF16 {
            self.cast(F32)
        } else {
            Ok(self)
        }
    }
}

fn patch_type(kernel: DType) -> DType {
    if kernel == F16 { F16 } else { F32 }
}

fn half_padded_1d(kernel: Tensor<'_>, stride: usize, dilation: usize) -> Conv1d {
    Conv1d::default()
        .stride([stride])
        .padding([kernel.shape().ne()[0] / 2])
        .dilation([dilation])
}

/// What the reshapes and products of every composition ask of its operands.
fn check_operands(op: &'static str, kernel: Layout, b: Layout) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("kernel", kernel), ("b", b)],
    };
    if !matches!(kernel.dtype, F32 | F16 | BF16) || b.dtype != F32 {
        return Err(refusal.dtype("the kernel must be F32, F16 or BF16, and b F32"));
    }
    if !kernel.is_contiguous() || !b.is_contiguous() {
        return Err(refusal.layout("both must be contiguous: call cont() first"));
    }
    Ok(())
}

/// What a kernel's patches do not ask for: whole kernels.
fn check_kernels(kernel: Layout, b: Layout, channels: usize) -> Checked {
    let refusal = Refusal {
        op: "conv_3d",
        operands: &[("kernel", kernel), ("b", b)],
    };
    if channels == 0 || !kernel.ne[3].is_multiple_of(channels) {
        return Err(refusal.shape(format!(
            "ne[3] of the kernel must be a multiple of {channels} channels"
        )));
    }
    Ok(())
}

/// A kernel of one input channel, for each of the channels of `b`: `one` and `all` are their places in the kernel.
fn check_channels(
    op: &'static str,
    kernel: Layout,
    b: Layout,
    [one, all]: [usize; 2],
    channel: usize,
) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("kernel", kernel), ("b", b)],
    };
    let (kernels, channels) = (kernel.ne[all], b.ne[channel]);
    // Several kernels to a channel are for one signal alone.
    let fits = kernels == channels || (channel == 1 && kernels.is_multiple_of(channels));
    let signal = channel == 2 || (b.ne[2..] == [1, 1] && kernel.ne[3] == 1);
    if kernel.ne[one] != 1 || !fits || !signal {
        return Err(refusal
            .shape("the kernel must have one input channel, and outputs for each channel of b"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn operands_are_contiguous_floats() {
        let b = layout(F32, &[8, 8, 3]);
        let check = |kernel| check_operands("conv_2d", kernel, b);
        check(layout(BF16, &[3, 2, 3])).unwrap();
        let turned = transposed(layout(F32, &[3, 2, 3]));
        assert!(matches!(check(turned), Err(Refused::Layout(_))));
        let blocks = layout(DType::Q8_0, &[32, 2, 3]);
        assert!(matches!(check(blocks), Err(Refused::DType(_))));
    }

    #[test]
    fn a_channel_has_its_kernels() {
        let plane = |kernel: &[usize]| {
            let b = layout(F32, &[8, 8, 4, 2]);
            check_channels("conv_2d_dw", layout(F32, kernel), b, [2, 3], 2)
        };
        plane(&[3, 3, 1, 4]).unwrap();
        for kernel in [&[3, 3, 2, 4][..], &[3, 3, 1, 8], &[3, 3, 1, 3]] {
            assert!(matches!(plane(kernel), Err(Refused::Shape(_))));
        }
        let signal = |kernel: &[usize], b: &[usize]| {
            check_channels("conv_1d_dw", layout(F32, kernel), layout(F32, b), [1, 2], 1)
        };
        signal(&[3, 1, 8], &[9, 4]).unwrap();
        assert!(matches!(
            signal(&[3, 1, 6], &[9, 4]),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            signal(&[3, 1, 4], &[9, 4, 2]),
            Err(Refused::Shape(_))
        ));
    }
}
