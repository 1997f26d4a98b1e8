//! Images, windows and positions.

use ggml_rs::DType::{F16, F32};
use ggml_rs::{Interpolation, Result, Scale, Tensor};

use crate::draw::Draw;
use crate::table::family;

fn scale(d: &mut Draw<'_>) -> Scale {
    d.pick(&[Scale::Nearest, Scale::Bilinear, Scale::Bicubic])
}

/// A small image.
fn image<'g>(d: &mut Draw<'g>) -> Result<Tensor<'g>> {
    let ne = [d.dim(), d.dim(), d.batch(), d.batch()];
    d.tensor(F32, ne)
}

fn size(d: &mut Draw<'_>) -> [usize; 4] {
    let ne = [d.dim(), d.dim(), d.batch(), d.batch()];
    d.sizes(ne)
}

/// Scores [n * n, q1 * q2, b], and positions [n, q1, q2, b] in both directions.
fn scores<'g>(d: &mut Draw<'g>) -> Result<[Tensor<'g>; 3]> {
    let (n, q1, q2, b) = (1 + d.below(4), 1 + d.below(4), 1 + d.below(4), d.batch());
    let a = d.plain(F32, [n * n, q1 * q2, b, 1])?;
    let w = d.plain(F32, [n, q1, q2, b])?;
    Ok([a, w, d.plain(F32, [n, q1, q2, b])?])
}

family! {
    upscale(d) {
        let (a, factor, scale) = (image(d)?, 2 + d.below(2), scale(d));
        let factor = d.size(factor);
    } a(factor, scale);
    upscale_ext(d) { let (a, ne, scale) = (image(d)?, size(d), scale(d)); } a(ne, scale);
    interpolate(d) {
        let (a, ne) = (image(d)?, size(d));
        let mut options = Interpolation::new(scale(d));
        if d.one_in(2) {
            options = options.align_corners();
        }
        if d.one_in(3) {
            options = options.antialias();
        }
    } a(ne, options);
    arange(d) {
        let g = d.g;
        let (start, stop, step) = (d.float(-1.0), d.float(2.0), d.float(0.25));
    } g(start, stop, step);
    timestep_embedding(d) {
        let ne = [d.dim(), 1, 1, 1];
        let a = d.plain(F32, ne)?;
        let dim = d.row(F32);
        let [dim, period] = d.sizes([dim, 10_000]);
    } a(dim, period);
    get_rel_pos(d) {
        let ne = [d.row(F16), 2 * d.below(5) + 1, 1, 1];
        let a = d.plain(F16, ne)?;
    } a();
    add_rel_pos(d) { let [a, w, h] = scores(d)?; } a(w, h);
    add_rel_pos_inplace(d) { let [a, w, h] = scores(d)?; } a(w, h);
    win_part(d) {
        let ne = [d.dim(), d.dim(), d.dim(), 1];
        let a = d.plain(F32, ne)?;
        let size = d.up_to(5);
    } a(size);
    win_unpart(d) {
        let (c, size, width, height) = (d.dim(), 1 + d.below(4), d.dim(), d.dim());
        let windows = width.div_ceil(size) * height.div_ceil(size);
        let a = d.plain(F32, [c, size, size, windows])?;
        let [width, height] = d.sizes([width, height]);
    } a(width, height);
}
