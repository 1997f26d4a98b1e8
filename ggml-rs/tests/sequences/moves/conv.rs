//! Convolutions, patches and pools.

use ggml_rs::DType::{self, BF16, F16, F32};
use ggml_rs::{
    Conv1d, Conv2d, Conv3d, ConvOptions, Pool, Pool1d, Pool2d, PoolOptions, Result, Tensor,
};

use crate::draw::Draw;
use crate::table::family;

/// How a kernel of this reach passes over an image of this size: always at least once.
fn options<const N: usize>(
    d: &mut Draw<'_>,
    kernel: [usize; N],
    image: [usize; N],
) -> ConvOptions<N> {
    let mut options = ConvOptions::default();
    for i in 0..N {
        let padding = d.below(3);
        let reach = |dilation: usize| dilation * (kernel[i] - 1) + 1;
        let dilation = match reach(2) <= image[i] + 2 * padding && d.one_in(3) {
            true => 2,
            false => 1,
        };
        let stride = 1 + d.below(2);
        options.stride[i] = d.size(stride);
        options.padding[i] = d.size(padding);
        options.dilation[i] = d.size(dilation);
    }
    options
}

/// A kernel's size, and an image's that is no smaller.
fn sizes<const N: usize>(d: &mut Draw<'_>) -> ([usize; N], [usize; N]) {
    let kernel: [usize; N] = std::array::from_fn(|_| 1 + d.below(3));
    let image = kernel.map(|k| k + d.below(5));
    (kernel, image)
}

struct Conv<'g, const N: usize> {
    kernel: Tensor<'g>,
    image: Tensor<'g>,
    options: ConvOptions<N>,
}

/// A signal [l, c, n] and kernels [k, c, oc].
fn signal<'g>(d: &mut Draw<'g>, dtypes: &[DType]) -> Result<Conv<'g, 1>> {
    let ([k], [l]) = sizes(d);
    let (c, oc, n) = (1 + d.below(3), 1 + d.below(3), d.batch());
    let dtype = d.pick(dtypes);
    Ok(Conv {
        kernel: d.plain(dtype, [k, c, oc, 1])?,
        image: d.plain(F32, [l, c, n, 1])?,
        options: options(d, [k], [l]),
    })
}

/// A signal [l, c], and kernels [k, 1, c] for each channel.
fn channels<'g>(d: &mut Draw<'g>) -> Result<Conv<'g, 1>> {
    let ([k], [l]) = sizes(d);
    let (c, m) = (1 + d.below(3), 1 + d.below(2));
    let dtype = d.pick(&[F32, F16, BF16]);
    Ok(Conv {
        kernel: d.plain(dtype, [k, 1, c * m, 1])?,
        image: d.plain(F32, [l, c, 1, 1])?,
        options: options(d, [k], [l]),
    })
}

/// An image [w, h, c, n] and kernels [kw, kh, c, oc].
fn image<'g>(d: &mut Draw<'g>, dtypes: &[DType]) -> Result<Conv<'g, 2>> {
    let ([kw, kh], [w, h]) = sizes(d);
    let (c, oc, n) = (1 + d.below(3), 1 + d.below(3), d.batch());
    let dtype = d.pick(dtypes);
    Ok(Conv {
        kernel: d.plain(dtype, [kw, kh, c, oc])?,
        image: d.plain(F32, [w, h, c, n])?,
        options: options(d, [kw, kh], [w, h]),
    })
}

/// An image [w, h, c, n] and kernels [kw, kh, 1, c].
fn planes<'g>(d: &mut Draw<'g>, dtypes: &[DType]) -> Result<Conv<'g, 2>> {
    let ([kw, kh], [w, h]) = sizes(d);
    let (c, n) = (1 + d.below(3), d.batch());
    let dtype = d.pick(dtypes);
    Ok(Conv {
        kernel: d.plain(dtype, [kw, kh, 1, c])?,
        image: d.plain(F32, [w, h, c, n])?,
        options: options(d, [kw, kh], [w, h]),
    })
}

/// A volume [w, h, d, c * n] and kernels [kw, kh, kd, c * oc], for `c` channels.
fn volume<'g>(d: &mut Draw<'g>, dtypes: &[DType]) -> Result<(Conv<'g, 3>, usize)> {
    let ([kw, kh, kd], [w, h, depth]) = sizes(d);
    let (c, oc, n) = (1 + d.below(2), 1 + d.below(2), d.batch());
    let dtype = d.pick(dtypes);
    let conv = Conv {
        kernel: d.plain(dtype, [kw, kh, kd, c * oc])?,
        image: d.plain(F32, [w, h, depth, c * n])?,
        options: options(d, [kw, kh, kd], [w, h, depth]),
    };
    Ok((conv, d.size(c)))
}

/// Steps of a kernel that is padded by half: stride and dilation.
fn steps(d: &mut Draw<'_>) -> (usize, usize) {
    let stride = 1 + d.below(2);
    (d.size(stride), d.size(1))
}

fn pool<const N: usize>(d: &mut Draw<'_>, ne: [usize; 4]) -> PoolOptions<N> {
    let size = std::array::from_fn(|i| 1 + d.below(ne[i].min(3)));
    let pool = d.pick(&[Pool::Max, Pool::Average]);
    let mut options = PoolOptions::new(pool, d.sizes(size));
    for (i, &size) in size.iter().enumerate() {
        if d.one_in(2) {
            let (stride, padding) = (1 + d.below(2), d.below(size));
            options.stride[i] = d.size(stride);
            options.padding[i] = d.size(padding);
        }
    }
    options
}

/// The length that is left of a dimension.
fn windows(size: usize, reach: usize, stride: usize, padding: usize) -> usize {
    let padded = size.saturating_add(padding.saturating_mul(2));
    (padded.saturating_sub(reach) / stride.max(1)).saturating_add(1)
}

const FLOATS: [DType; 3] = [F32, F16, BF16];
const HALVES: [DType; 2] = [F32, F16];

family! {
    conv_1d(d) { let Conv { kernel, image, options } = signal(d, &FLOATS)?; } kernel(image, options);
    conv_1d_ph(d) {
        let Conv { kernel, image, .. } = signal(d, &FLOATS)?;
        let (stride, dilation) = steps(d);
    } kernel(image, stride, dilation);
    conv_1d_dw(d) { let Conv { kernel, image, options } = channels(d)?; } kernel(image, options);
    conv_1d_dw_ph(d) {
        let Conv { kernel, image, .. } = channels(d)?;
        let (stride, dilation) = steps(d);
    } kernel(image, stride, dilation);
    conv_2d(d) { let Conv { kernel, image, options } = image(d, &FLOATS)?; } kernel(image, options);
    conv_2d_sk_p0(d) { let Conv { kernel, image, .. } = image(d, &FLOATS)?; } kernel(image);
    conv_2d_s1_ph(d) { let Conv { kernel, image, .. } = image(d, &FLOATS)?; } kernel(image);
    conv_2d_dw(d) { let Conv { kernel, image, options } = planes(d, &FLOATS)?; } kernel(image, options);
    conv_3d(d) {
        let (Conv { kernel, image, options }, channels) = volume(d, &FLOATS)?;
    } kernel(image, channels, options);
    conv_2d_direct(d) { let Conv { kernel, image, options } = image(d, &HALVES)?; } kernel(image, options);
    conv_2d_dw_direct(d) {
        let Conv { kernel, image, options } = planes(d, &HALVES)?;
        let image = match d.one_in(3) {
            // Channels next to each other.
            true => image.permute([1, 2, 0, 3])?.cont()?.permute([2, 0, 1, 3])?,
            false => image,
        };
    } kernel(image, options);
    conv_3d_direct(d) {
        let (Conv { kernel, image, options }, channels) = volume(d, &HALVES)?;
    } kernel(image, channels, options);
    im2col(d) {
        let Conv { kernel, image, options } = image(d, &FLOATS)?;
        let dtype = d.pick(&HALVES);
    } kernel(image, options, dtype);
    im2col_1d(d) {
        let Conv { kernel, image, options } = signal(d, &FLOATS)?;
        let dtype = d.pick(&HALVES);
    } kernel(image, options, dtype);
    im2col_back(d) {
        let Conv { kernel, image, options } = image(d, &HALVES)?;
        let ne = image.shape().ne();
        let [kw, kh, c, _] = kernel.shape().ne();
        let Conv2d { stride, padding, dilation, .. } = options;
        let out = |i: usize, k: usize| {
            let reach = dilation[i].saturating_mul(k - 1).saturating_add(1);
            windows(ne[i], reach, stride[i], padding[i])
        };
        let patches = d.plain(F32, [kw * kh * c, out(0, kw), out(1, kh), ne[3]])?;
    } patches(kernel, ne, options);
    im2col_1d_back(d) {
        let Conv { kernel, image, options } = signal(d, &HALVES)?;
        let ne = image.shape().ne();
        let [k, c, ..] = kernel.shape().ne();
        let Conv1d { stride: [s], padding: [p], dilation: [di], .. } = options;
        let reach = di.saturating_mul(k - 1).saturating_add(1);
        let patches = d.plain(F32, [k * c, windows(ne[0], reach, s, p), ne[2], 1])?;
    } patches(kernel, ne, options);
    im2col_3d(d) {
        let (Conv { kernel, image, options }, channels) = volume(d, &FLOATS)?;
        let dtype = d.pick(&HALVES);
        let options: Conv3d = options;
    } kernel(image, channels, options, dtype);
    col2im_1d(d) {
        let (k, channels, t) = (2 + d.below(3), 1 + d.below(3), d.dim());
        let dtype = d.pick(&FLOATS);
        let a = d.plain(dtype, [k * channels, t, 1, 1])?;
        let (stride, padding) = (1 + d.below(3), d.below(k / 2));
        let [stride, channels, padding] = d.sizes([stride, channels, padding]);
    } a(stride, channels, padding);
    conv_transpose_1d(d) {
        let (k, oc, c, l) = (1 + d.below(3), 1 + d.below(3), 1 + d.below(3), d.dim());
        let dtype = d.pick(&HALVES);
        let kernel = d.plain(dtype, [k, oc, c, 1])?;
        let b = d.plain(F32, [l, c, 1, 1])?;
        let stride = d.up_to(3);
    } kernel(b, stride);
    conv_transpose_2d_p0(d) {
        let (k, oc, c) = (1 + d.below(3), 1 + d.below(3), 1 + d.below(3));
        let (w, h, n) = (d.dim(), d.dim(), d.batch());
        let dtype = d.pick(&HALVES);
        let kernel = d.plain(dtype, [k, 1 + k % 2, oc, c])?;
        let b = d.plain(F32, [w, h, c, n])?;
        let stride = d.up_to(3);
    } kernel(b, stride);
    pool_1d(d) {
        let a = d.packed(&HALVES)?;
        let options: Pool1d = pool(d, a.shape().ne());
    } a(options);
    pool_2d(d) {
        let a = d.packed(&HALVES)?;
        let options: Pool2d = pool(d, a.shape().ne());
    } a(options);
    pool_2d_back(d) {
        let image = d.packed(&[F32])?;
        let options: Pool2d = pool(d, image.shape().ne());
        let [w, h, n2, n3] = image.shape().ne();
        let out = |i: usize, size: usize| {
            windows(size, options.size[i], options.stride[i], options.padding[i])
        };
        let a = d.plain(F32, [out(0, w), out(1, h), n2, n3])?;
    } a(image, options);
}
