//! Views, joins, pads, masks and sums.

use ggml_rs::DType::{BF16, F16, F32, I8, I16, I32};
use ggml_rs::{DType, Result, Tensor, TriPart};

use crate::draw::Draw;
use crate::table::family;

/// A tensor to look at in another way.
fn any<'g>(d: &mut Draw<'g>) -> Result<Tensor<'g>> {
    d.of(&[F32, F32, F16, I32, DType::Q8_0])
}

fn axes(d: &mut Draw<'_>) -> [usize; 4] {
    let axes = d.pick(&[
        [0, 2, 1, 3],
        [1, 0, 2, 3],
        [3, 2, 1, 0],
        [0, 1, 3, 2],
        [2, 0, 1, 3],
    ]);
    d.sizes(axes)
}

/// The same elements in another shape.
fn shape(d: &mut Draw<'_>, ne: [usize; 4]) -> [usize; 4] {
    let [n0, n1, n2, n3] = ne;
    let shape = match d.below(5) {
        0 => [n0, n1 * n2, n3, 1],
        1 => [n0 * n1, n2, n3, 1],
        2 => [n0, n1, n2 * n3, 1],
        3 => [n0, 1, n1, n2 * n3],
        _ => [n0 * n1 * n2 * n3, 1, 1, 1],
    };
    d.sizes(shape)
}

/// A window of a tensor, or any view at all.
fn window(d: &mut Draw<'_>, a: Tensor<'_>) -> ([usize; 4], [usize; 3], usize) {
    let ne = a.shape().ne();
    let mut part = ne;
    part[1] = 1 + d.below(ne[1]);
    part[2] = 1 + d.below(ne[2]);
    if d.wild() {
        part[0] = d.below(300);
        let nb = std::array::from_fn(|_| d.below(600));
        return (part, nb, d.below(64));
    }
    let [_, nb1, nb2, nb3] = a.strides();
    let offset = nb1 * (ne[1] - part[1]);
    (d.sizes(part), d.sizes([nb1, nb2, nb3]), d.size(offset))
}

/// Elements of another row, in numbers that fit.
fn numbers(d: &mut Draw<'_>, most: [usize; 4]) -> [usize; 4] {
    let fits = most.map(|n| if d.one_in(2) { 0 } else { d.below(n.min(4)) });
    d.sizes(fits)
}

fn pads<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, [usize; 4], [usize; 4])> {
    let a = d.f32()?;
    let (before, after) = (numbers(d, [4; 4]), numbers(d, [4; 4]));
    Ok((a, before, after))
}

fn circular<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, [usize; 4], [usize; 4])> {
    let a = d.f32()?;
    let (before, after) = (numbers(d, a.shape().ne()), numbers(d, a.shape().ne()));
    Ok((a, before, after))
}

fn shifts(d: &mut Draw<'_>, ne: [usize; 4]) -> [i32; 4] {
    ne.map(|n| {
        let shift = d.below(n.min(1 << 20)) as i32;
        match (d.wild(), d.one_in(2)) {
            (true, _) => d.pick(&[i32::MIN, -77, 64, i32::MAX]),
            (_, true) => -shift,
            _ => shift,
        }
    })
}

/// Whole copies of `like`.
fn copies<'g>(d: &mut Draw<'g>) -> Result<(Tensor<'g>, Tensor<'g>)> {
    let like = d.f32()?;
    let ne = like.shape().ne().map(|n| n * d.pick(&[1, 1, 2]));
    Ok((d.plain(F32, ne)?, like))
}

family! {
    transpose(d) { let a = d.of(&[F32, F16, I32])?; } a();
    permute(d) { let a = any(d)?; let axes = axes(d); } a(axes);
    reshape(d) {
        let a = d.packed(&[F32, F16, I32, DType::Q8_0])?;
        let shape = shape(d, a.shape().ne());
    } a(shape);
    view(d) { let a = any(d)?; let (ne, nb, offset) = window(d, a); } a(ne, nb, offset);
    concat(d) {
        let a = d.of(&[F32, F32, F16, BF16, I32, I16, I8, DType::I64, DType::Q8_0, DType::Q4_K])?;
        let axis = d.below(4);
        let mut ne = a.shape().ne();
        ne[axis] = if axis == 0 { d.row(a.dtype()) } else { d.dim() };
        let b = d.tensor(a.dtype(), ne)?;
        let axis = d.size(axis);
    } a(b, axis);
    repeat(d) {
        let a = d.of(&[F32, F32, F16, BF16, I32, I16])?;
        let ne = a.shape().ne().map(|n| n * d.pick(&[1, 1, 2, 3]));
        let ne = d.sizes(ne);
    } a(ne);
    repeat_back(d) { let (a, like) = copies(d)?; } a(like);
    diag(d) {
        let ne = [d.row(F32), 1, d.batch(), d.batch()];
        let a = d.plain(F32, ne)?;
    } a();
    diag_mask_inf(d) { let a = d.packed(&[F32])?; let n = d.up_to(4); } a(n);
    diag_mask_inf_inplace(d) { let a = d.packed(&[F32])?; let n = d.up_to(4); } a(n);
    diag_mask_zero(d) { let a = d.packed(&[F32])?; let n = d.up_to(4); } a(n);
    diag_mask_zero_inplace(d) { let a = d.packed(&[F32])?; let n = d.up_to(4); } a(n);
    tri(d) {
        let n = d.dim();
        let ne = [n, n, d.batch(), d.batch()];
        let a = d.plain(F32, ne)?;
        let part = d.pick(&[TriPart::Lower, TriPart::LowerDiag, TriPart::Upper, TriPart::UpperDiag]);
    } a(part);
    pad(d) { let (a, _, after) = pads(d)?; } a(after);
    pad_ext(d) { let (a, before, after) = pads(d)?; } a(before, after);
    pad_circular(d) { let (a, _, after) = circular(d)?; } a(after);
    pad_ext_circular(d) { let (a, before, after) = circular(d)?; } a(before, after);
    pad_reflect_1d(d) {
        let a = d.packed(&[F32])?;
        let [n0, ..] = a.shape().ne();
        let (before, after) = (d.below(n0), d.below(n0));
        let [before, after] = d.sizes([before, after]);
    } a(before, after);
    roll(d) { let a = d.f32()?; let by = shifts(d, a.shape().ne()); } a(by);
    sum(d) { let a = d.of(&[F32, F32, F16, BF16])?; } a();
    sum_rows(d) { let a = d.f32()?; } a();
    mean(d) { let a = d.f32()?; } a();
    mean_rows(d) { let a = d.f32()?; } a();
    max(d) { let a = d.f32()?; } a();
    max_rows(d) { let a = d.f32()?; } a();
    min(d) { let a = d.f32()?; } a();
    min_rows(d) { let a = d.f32()?; } a();
    cumsum(d) { let a = d.f32()?; } a();
    argmax(d) {
        let ne = [d.row(F32), d.dim(), 1, 1];
        let a = d.tensor(F32, ne)?;
    } a();
    count_equal(d) { let a = d.of(&[I32])?; let b = d.like(a)?; } a(b);
}
