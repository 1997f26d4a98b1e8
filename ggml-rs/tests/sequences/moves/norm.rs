//! Norms, softmax, its loss, and positions.

use ggml_rs::DType::{F16, F32, I32};
use ggml_rs::{Result, Rope, RopeMode, SoftMax, Tensor};

use crate::draw::Draw;
use crate::table::family;

fn eps(d: &mut Draw<'_>) -> f32 {
    d.float(1e-5)
}

/// Channels in groups.
fn groups<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, usize)> {
    let groups = 1 + d.below(3);
    let ne = [d.dim(), d.dim(), groups * (1 + d.below(2)), d.batch()];
    Ok((d.plain(F32, ne)?, d.size(groups)))
}

/// What attention adds to a softmax.
fn extras<'g>(d: &mut Draw<'g>, a: Tensor<'g>) -> Result<SoftMax<'g>> {
    let [n0, n1, n2, n3] = a.shape().ne();
    let mut options = SoftMax {
        scale: d.float(0.5),
        ..SoftMax::default()
    };
    if !d.one_in(3) {
        let dtype = d.pick(&[F32, F16]);
        let ne = match d.one_in(2) {
            true => [n0, n1, 1, 1],
            false => [n0, n1 + d.below(3), n2, n3],
        };
        options.mask = Some(d.plain(dtype, ne)?);
        if d.one_in(3) {
            options.max_bias = d.float(8.0);
        }
    }
    if d.one_in(3) {
        options.sinks = Some(d.plain(F32, [n2, 1, 1, 1])?);
    }
    if d.wild() {
        options.max_bias = d.float(1.0);
    }
    Ok(options)
}

struct Turn<'g> {
    a: Tensor<'g>,
    positions: Tensor<'g>,
    options: Rope<'g>,
}

fn rope<'g>(d: &mut Draw<'g>) -> Result<Turn<'g>> {
    let dtype = d.pick(&[F32, F32, F16]);
    let half = 2 * (1 + d.below(8));
    let ne = [2 * half, d.dim(), d.dim(), d.batch()];
    let a = d.tensor(dtype, ne)?;
    let sections = match d.one_in(2) {
        true => [half / 2, half - half / 2, 0, 0],
        false => [half / 2, half / 2, half / 2, half / 2],
    };
    let sections = d.sizes(sections);
    let mode = d.pick(&[
        RopeMode::Normal,
        RopeMode::Neox,
        RopeMode::Mrope(sections),
        RopeMode::Imrope(sections),
        RopeMode::Vision(sections),
    ]);
    let each = match mode {
        RopeMode::Normal | RopeMode::Neox => 1,
        _ => 4,
    };
    let positions = d.plain(I32, [each * a.shape().ne()[2], 1, 1, 1])?;
    let mut options = Rope {
        mode,
        freq_base: d.float(10_000.0),
        freq_scale: d.float(1.0),
        attn_factor: d.float(1.0),
        ..Rope::default()
    };
    if each == 1 && d.one_in(3) {
        let (dims, offset) = (half, 2 * d.below(half / 2));
        options.dims = Some(d.size(dims));
        options.offset = d.size(offset);
    }
    if d.one_in(4) {
        let pairs = a.shape().ne()[0] / 2;
        options.freq_factors = Some(d.plain(F32, [pairs, 1, 1, 1])?);
    }
    if d.one_in(4) {
        options.n_ctx_orig = d.size(1024);
        options.ext_factor = d.float(1.0);
        options.beta_fast = d.float(32.0);
        options.beta_slow = d.float(1.0);
    }
    Ok(Turn {
        a,
        positions,
        options,
    })
}

family! {
    norm(d) { let a = d.f32()?; let eps = eps(d); } a(eps);
    norm_inplace(d) { let a = d.f32()?; let eps = eps(d); } a(eps);
    rms_norm(d) { let a = d.f32()?; let eps = eps(d); } a(eps);
    rms_norm_inplace(d) { let a = d.f32()?; let eps = eps(d); } a(eps);
    rms_norm_back(d) { let a = d.f32()?; let x = d.like(a)?; let eps = eps(d); } a(x, eps);
    group_norm(d) { let (a, groups) = groups(d)?; let eps = eps(d); } a(groups, eps);
    group_norm_inplace(d) { let (a, groups) = groups(d)?; let eps = eps(d); } a(groups, eps);
    l2_norm(d) { let a = d.f32()?; let eps = eps(d); } a(eps);
    l2_norm_inplace(d) { let a = d.f32()?; let eps = eps(d); } a(eps);
    soft_max(d) { let a = d.packed(&[F32])?; } a();
    soft_max_inplace(d) { let a = d.packed(&[F32])?; } a();
    soft_max_ext(d) { let a = d.packed(&[F32])?; let options = extras(d, a)?; } a(options);
    soft_max_ext_inplace(d) { let a = d.packed(&[F32])?; let options = extras(d, a)?; } a(options);
    soft_max_ext_back(d) {
        let a = d.packed(&[F32])?;
        let y = d.plain(F32, a.shape().ne())?;
        let scale = d.float(0.5);
    } a(y, scale);
    soft_max_ext_back_inplace(d) {
        let a = d.packed(&[F32])?;
        let y = d.plain(F32, a.shape().ne())?;
        let scale = d.float(0.5);
    } a(y, scale);
    cross_entropy_loss(d) {
        let a = d.packed(&[F32])?;
        let labels = d.plain(F32, a.shape().ne())?;
    } a(labels);
    cross_entropy_loss_back(d) {
        let gradient = d.plain(F32, [1; 4])?;
        let a = d.packed(&[F32])?;
        let labels = d.plain(F32, a.shape().ne())?;
    } gradient(a, labels);
    rope(d) { let Turn { a, positions, options } = rope(d)?; } a(positions, options);
    rope_inplace(d) { let Turn { a, positions, options } = rope(d)?; } a(positions, options);
    rope_back(d) { let Turn { a, positions, options } = rope(d)?; } a(positions, options);
}
