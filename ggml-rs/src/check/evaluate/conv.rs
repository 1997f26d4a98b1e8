//! Convolution's gather of patches, and pooling.

use ggml_sys as sys;

use super::call::Call;
use super::memory::{flat, place};
use crate::error::Result;

/// A window that steps over one dimension: output `o`, tap `t` reads input `o * stride + t * dilation - pad`.
#[derive(Clone, Copy)]
pub struct Axis {
    pub taps: usize,
    pub stride: i64,
    pub pad: i64,
    pub dilation: i64,
}

impl Axis {
    /// One tap that reads what is there.
    pub fn none() -> Self {
        Self {
            taps: 1,
            stride: 1,
            pad: 0,
            dilation: 1,
        }
    }

    /// The input that a tap reads; `None` in the padding.
    pub fn input(&self, output: usize, tap: usize, inputs: usize) -> Option<usize> {
        let at = output as i64 * self.stride + tap as i64 * self.dilation - self.pad;
        usize::try_from(at).ok().filter(|&at| at < inputs)
    }
}

/// The patches of IM2COL: sizes of image, kernel and result.
struct Patches {
    x: Axis,
    y: Axis,
    /// Width, height, channels, batch.
    image: [usize; 4],
    /// Width and height.
    out: [usize; 2],
}

impl Patches {
    /// `kernel`, `image` and `patches` are the shapes of the op's kernel, of the image and of the gathered patches.
    fn read(call: &Call<'_>, kernel: [usize; 4], image: [usize; 4], patches: [usize; 4]) -> Self {
        let axis = |taps: usize, first: usize| Axis {
            taps,
            stride: call.int(first),
            pad: call.int(first + 2),
            dilation: call.int(first + 4),
        };
        if call.int(6) == 1 {
            Self {
                x: axis(kernel[0], 0),
                y: axis(kernel[1], 1),
                image,
                out: [patches[1], patches[2]],
            }
        } else {
            Self {
                x: axis(kernel[0], 0),
                y: Axis::none(),
                image: [image[0], 1, image[1], image[2]],
                out: [patches[1], 1],
            }
        }
    }

    /// For every element of the gathered patches, in ne order, the image's element that it holds.
    fn sources(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        let [_, _, channels, batch] = self.image;
        let taps = [self.x.taps, self.y.taps, channels, 1];
        let outputs = [self.out[0], self.out[1], batch, 1];
        let count = |ne: [usize; 4]| ne.iter().product::<usize>();
        (0..count(outputs)).flat_map(move |number| {
            let [ox, oy, n, _] = place(outputs, number);
            (0..count(taps)).map(move |number| {
                let [kx, ky, channel, _] = place(taps, number);
                let x = self.x.input(ox, kx, self.image[0])?;
                let y = self.y.input(oy, ky, self.image[1])?;
                Some(flat(self.image, [x, y, channel, n]))
            })
        })
    }
}

/// IM2COL: operand 0 is the kernel, of which only the shape counts, operand 1 the image.
pub fn im2col(call: &Call<'_>) -> Result<Vec<f64>> {
    let (kernel, image) = (call.src(0)?, call.src(1)?);
    let patches = Patches::read(call, kernel.ne, image.ne, call.ne());
    let value = |source: Option<usize>| source.map_or(0.0, |index| image.values[index]);
    Ok(patches.sources().map(value).collect())
}

/// IM2COL_BACK: operand 0 is the gradient of the patches, operand 1 the kernel. Adds up what was gathered from one place.
pub fn im2col_back(call: &Call<'_>) -> Result<Vec<f64>> {
    let (gradient, kernel, ne) = (call.src(0)?, call.src(1)?, call.ne());
    let patches = Patches::read(call, kernel.ne, ne, gradient.ne);
    let mut out = vec![0.0; ne.iter().product()];
    for (source, &value) in patches.sources().zip(gradient.values.iter()) {
        if let Some(index) = source {
            out[index] += value;
        }
    }
    Ok(out)
}

/// Parameters of pooling.
struct Pool {
    function: sys::ggml_op_pool,
    x: Axis,
    y: Axis,
}

impl Pool {
    fn read_1d(call: &Call<'_>) -> Self {
        Self {
            function: call.int(0) as sys::ggml_op_pool,
            x: pool_axis(call, 1, 2, 3),
            y: Axis::none(),
        }
    }

    fn read_2d(call: &Call<'_>) -> Self {
        Self {
            function: call.int(0) as sys::ggml_op_pool,
            x: pool_axis(call, 1, 3, 5),
            y: pool_axis(call, 2, 4, 6),
        }
    }

    /// The elements of plane `plane` of an image that the window at an output sees, in order.
    fn window(&self, image: [usize; 4], [ox, oy]: [usize; 2], plane: usize) -> Vec<usize> {
        let rows = (0..self.y.taps).filter_map(|ky| self.y.input(oy, ky, image[1]));
        rows.flat_map(|y| {
            let columns = (0..self.x.taps).filter_map(move |kx| self.x.input(ox, kx, image[0]));
            columns.map(move |x| x + image[0] * (y + image[1] * plane))
        })
        .collect()
    }

    fn is_max(&self) -> bool {
        self.function == sys::GGML_OP_POOL_MAX
    }
}

fn pool_axis(call: &Call<'_>, taps: usize, stride: usize, pad: usize) -> Axis {
    Axis {
        taps: call.int(taps) as usize,
        stride: call.int(stride),
        pad: call.int(pad),
        dilation: 1,
    }
}

/// POOL_1D: the average counts what the window sees.
pub fn pool_1d(call: &Call<'_>) -> Result<Vec<f64>> {
    let [n0, n1, n2, n3] = call.src(0)?.ne;
    let image = [n0, 1, n1 * n2 * n3, 1];
    pool(call, &Pool::read_1d(call), image, 1, |seen| seen)
}

/// POOL_2D: the average divides by the whole window, its padding included.
pub fn pool_2d(call: &Call<'_>) -> Result<Vec<f64>> {
    let (image, params) = (call.src(0)?.ne, Pool::read_2d(call));
    let window = params.x.taps * params.y.taps;
    pool(call, &params, image, call.ne()[1], |_| window)
}

fn pool(
    call: &Call<'_>,
    params: &Pool,
    image: [usize; 4],
    out_rows: usize,
    divisor: impl Fn(usize) -> usize,
) -> Result<Vec<f64>> {
    let (a, columns) = (call.src(0)?, call.ne()[0]);
    let planes = image[2] * image[3];
    let value = |number| {
        let [ox, oy, plane, _] = place([columns, out_rows, planes, 1], number);
        let window = params.window(image, [ox, oy], plane);
        let values = window.iter().map(|&index| a.values[index]);
        match () {
            // Not f64::max, which passes NaN over.
            () if params.is_max() => values.fold(f64::NEG_INFINITY, larger),
            () if window.is_empty() => 0.0,
            () => values.sum::<f64>() / divisor(window.len()) as f64,
        }
    };
    Ok((0..columns * out_rows * planes).map(value).collect())
}

/// The larger of two, NaN where one is.
fn larger(a: f64, b: f64) -> f64 {
    match a.is_nan() || b.is_nan() {
        true => f64::NAN,
        false => a.max(b),
    }
}

/// POOL_2D_BACK: operand 0 is the gradient, operand 1 the op's input. Of equal maxima the first gets it all.
pub fn pool_2d_back(call: &Call<'_>) -> Result<Vec<f64>> {
    let (gradient, a, params) = (call.src(0)?, call.src(1)?, Pool::read_2d(call));
    let mut out = vec![0.0; a.values.len()];
    for (number, &dy) in gradient.values.iter().enumerate() {
        let [ox, oy, i2, i3] = place(gradient.ne, number);
        let window = params.window(a.ne, [ox, oy], i2 + a.ne[2] * i3);
        if params.is_max() {
            let mut best = None;
            for &index in &window {
                if best.is_none_or(|best: usize| a.values[index] > a.values[best]) {
                    best = Some(index);
                }
            }
            if let Some(best) = best {
                out[best] += dy;
            }
        } else {
            let share = dy / (params.x.taps * params.y.taps) as f64;
            window.iter().for_each(|&index| out[index] += share);
        }
    }
    Ok(out)
}
