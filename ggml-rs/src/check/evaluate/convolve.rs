//! Convolutions that are one op, their transposes, and patches of volumes.
//!
//! An image is a volume of depth 1: its elements lie in the same order.

use super::call::{Call, Operand};
use super::conv::Axis;
use super::memory::{flat, places};
use super::norm::dot;
use crate::error::Result;

/// A window that steps over a volume of several channels.
struct Volume {
    axes: [Axis; 3],
    /// Width, height, depth.
    image: [usize; 3],
    out: [usize; 3],
    channels: usize,
}

impl Volume {
    /// From the parameters of a convolution in two dimensions.
    fn read_2d(call: &Call<'_>, kernel: [usize; 4], image: [usize; 4], channels: usize) -> Self {
        let axis = |d: usize| axis(call, kernel[d], [d, d + 2, d + 4]);
        Self {
            axes: [axis(0), axis(1), Axis::none()],
            image: [image[0], image[1], 1],
            out: [call.ne()[0], call.ne()[1], 1],
            channels,
        }
    }

    /// From the parameters of one in three; `out` is the shape of the results.
    fn read_3d(call: &Call<'_>, kernel: [usize; 4], image: [usize; 4], out: [usize; 3]) -> Self {
        Self {
            axes: [0, 1, 2].map(|d| axis(call, kernel[d], [d, d + 3, d + 6])),
            image: [image[0], image[1], image[2]],
            out,
            channels: call.int(9) as usize,
        }
    }

    fn image_len(&self) -> usize {
        self.image.iter().product()
    }

    /// The window of all channels at one place of the result, in the order of a kernel; zero where it is outside.
    fn patch(&self, channels: &[f64], [ox, oy, oz]: [usize; 3], patch: &mut Vec<f64>) {
        let [x_axis, y_axis, z_axis] = self.axes;
        let [width, height, depth] = self.image;
        patch.clear();
        for channel in channels.chunks(self.image_len()) {
            for kz in 0..z_axis.taps {
                let z = z_axis.input(oz, kz, depth);
                for ky in 0..y_axis.taps {
                    let y = y_axis.input(oy, ky, height);
                    let row = z.zip(y).map(|(z, y)| &channel[width * (y + height * z)..]);
                    patch.extend((0..x_axis.taps).map(|kx| {
                        let x = x_axis.input(ox, kx, width);
                        row.zip(x).map_or(0.0, |(row, x)| row[x])
                    }));
                }
            }
        }
    }

    /// Calls `each` with every patch of every image, and with where it belongs in the results of an image and which that is.
    fn patches(&self, image: &[f64], mut each: impl FnMut(&[f64], usize, usize)) {
        let mut patch = Vec::new();
        for (batch, channels) in image.chunks(self.image_len() * self.channels).enumerate() {
            let [w, h, d] = self.out;
            for (number, [x, y, z, _]) in places([w, h, d, 1]).enumerate() {
                self.patch(channels, [x, y, z], &mut patch);
                each(&patch, number, batch);
            }
        }
    }

    /// The convolution with each of a kernel's filters. Filters of depthwise ones belong to one image each, in turn.
    fn convolve(&self, kernel: &Operand<'_>, image: &Operand<'_>, depthwise: bool) -> Vec<f64> {
        let places: usize = self.out.iter().product();
        let len = self.channels * self.axes.iter().map(|axis| axis.taps).product::<usize>();
        let filters = kernel.values.len() / len;
        let images = image.values.len() / (self.image_len() * self.channels);
        let per_image = if depthwise { 1 } else { filters };
        let mut out = vec![0.0; places * per_image * images];
        self.patches(&image.values, |patch, place, batch| {
            for filter in 0..per_image {
                let first = if depthwise { batch % filters } else { filter };
                let filter_values = &kernel.values[first * len..][..len];
                out[place + places * (filter + per_image * batch)] = dot(patch, filter_values);
            }
        });
        out
    }
}

/// From parameters: stride, padding, dilation.
fn axis(call: &Call<'_>, taps: usize, [stride, pad, dilation]: [usize; 3]) -> Axis {
    Axis {
        taps,
        stride: call.int(stride),
        pad: call.int(pad),
        dilation: call.int(dilation),
    }
}

/// CONV_2D: a kernel of `[w, h, channels, filters]`, images of `[w, h, channels, batch]`.
pub fn conv_2d(call: &Call<'_>) -> Result<Vec<f64>> {
    let (kernel, image) = (call.src(0)?, call.src(1)?);
    let volume = Volume::read_2d(call, kernel.ne, image.ne, image.ne[2]);
    Ok(volume.convolve(&kernel, &image, false))
}

/// CONV_2D_DW: each channel has a filter of its own.
pub fn conv_2d_dw(call: &Call<'_>) -> Result<Vec<f64>> {
    let (kernel, image) = (call.src(0)?, call.src(1)?);
    let volume = Volume::read_2d(call, kernel.ne, image.ne, 1);
    Ok(volume.convolve(&kernel, &image, true))
}

/// CONV_3D: channels and filters, or channels and batch, share the last dimension.
pub fn conv_3d(call: &Call<'_>) -> Result<Vec<f64>> {
    let (kernel, image, [w, h, d, _]) = (call.src(0)?, call.src(1)?, call.ne());
    let volume = Volume::read_3d(call, kernel.ne, image.ne, [w, h, d]);
    Ok(volume.convolve(&kernel, &image, false))
}

/// IM2COL_3D: operand 0 is the kernel, of which only the shape counts.
pub fn im2col_3d(call: &Call<'_>) -> Result<Vec<f64>> {
    let (kernel, image, [_, w, h, rest]) = (call.src(0)?, call.src(1)?, call.ne());
    let images = image.ne[3] / call.int(9) as usize;
    let volume = Volume::read_3d(call, kernel.ne, image.ne, [w, h, rest / images]);
    let mut out = Vec::with_capacity(call.ne().iter().product());
    volume.patches(&image.values, |patch, _, _| out.extend_from_slice(patch));
    Ok(out)
}

/// CONV_TRANSPOSE_1D: a kernel of `[w, filters, channels]`, `[w, channels]`.
pub fn conv_transpose_1d(call: &Call<'_>) -> Result<Vec<f64>> {
    let (kernel, image, ne) = (call.src(0)?, call.src(1)?, call.ne());
    let kernel_ne = [kernel.ne[0], 1, kernel.ne[1], kernel.ne[2]];
    let image_ne = [image.ne[0], 1, image.ne[1], 1];
    let (kernel, image) = (reshaped(kernel, kernel_ne), reshaped(image, image_ne));
    Ok(transposed(call, &kernel, &image, [ne[0], 1, ne[1], 1]))
}

/// CONV_TRANSPOSE_2D: a kernel of `[w, h, filters, channels]`, images of `[w, h, channels, batch]`.
pub fn conv_transpose_2d(call: &Call<'_>) -> Result<Vec<f64>> {
    Ok(transposed(call, &call.src(0)?, &call.src(1)?, call.ne()))
}

fn reshaped(operand: Operand<'_>, ne: [usize; 4]) -> Operand<'_> {
    Operand { ne, ..operand }
}

/// Every element of the image adds its multiple of the kernel, where its stride puts it.
fn transposed(
    call: &Call<'_>,
    kernel: &Operand<'_>,
    image: &Operand<'_>,
    ne: [usize; 4],
) -> Vec<f64> {
    let stride = call.int(0) as usize;
    let mut out = vec![0.0; ne.iter().product()];
    for ([x, y, channel, batch], &value) in places(image.ne).zip(image.values.iter()) {
        for [ky, filter, ..] in places([kernel.ne[1], ne[2], 1, 1]) {
            let first = flat(ne, [x * stride, y * stride + ky, filter, batch]);
            let taps = kernel.row(ky, filter, channel);
            let sums = out[first..].iter_mut().zip(taps);
            sums.for_each(|(sum, tap)| *sum += value * tap);
        }
    }
    out
}

/// COL2IM_1D: adds up what overlaps, of columns of `[taps * filters, inputs]`.
pub fn col2im_1d(call: &Call<'_>) -> Result<Vec<f64>> {
    let (columns, [length, filters, ..]) = (call.src(0)?, call.ne());
    let (stride, pad) = (call.int(0) as usize, call.int(2) as usize);
    let taps = columns.ne[0] / filters;
    let mut out = vec![0.0; length * filters];
    for (input, column) in columns.rows().enumerate() {
        for (number, value) in column.iter().enumerate() {
            let (tap, filter) = (number % taps, number / taps);
            let at = (input * stride + tap).checked_sub(pad);
            if let Some(at) = at.filter(|&at| at < length) {
                out[at + length * filter] += value;
            }
        }
    }
    Ok(out)
}
