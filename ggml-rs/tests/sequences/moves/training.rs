//! Gradients, segments that are computed again, and steps of optimizers.

use ggml_rs::DType::F32;
use ggml_rs::{BackwardOptions, Builder, Gradients, Result, Staging, Tensor};

use crate::draw::{Draw, Made};
use crate::table::{Move, family};

/// One element that depends on what was drawn, trained leaves most likely among it.
fn loss<'g>(d: &mut Draw<'g>) -> Result<Tensor<'g>> {
    if d.marked.is_empty() {
        let ne = d.shape(F32);
        d.trained(ne)?;
    }
    if d.wild() {
        return d.any();
    }
    let mut sum = d.f32()?.sum()?;
    // What was made last depends on the most.
    if let Some(&last) = d.pool.last()
        && last.tensor.dtype() == F32
        && d.one_in(2)
    {
        d.used = d.used.or(last.history);
        sum = sum.add(last.tensor.sum()?)?;
    }
    if !d.marked.is_empty() && d.one_in(2) {
        let leaf = d.marked[d.random.below(d.marked.len())];
        sum = sum.add(leaf.mul(leaf)?.sum()?)?;
    }
    Ok(sum)
}

fn options(d: &mut Draw<'_>) -> BackwardOptions {
    let staging = match d.wild() {
        true => d.pick(&[Some(Staging::FloatWeights), Some(Staging::FloatActivations)]),
        false => d.pick(&[None, None, Some(Staging::Float), Some(Staging::Half)]),
    };
    let recompute = !d.one_in(3);
    BackwardOptions::default()
        .staging(staging)
        .recompute(recompute)
}

/// What a backward gives to the pool: the gradient of one of the marked leaves.
fn one_of<'g>(d: &mut Draw<'g>, gradients: Gradients<'g>) -> Result<Made<'g>> {
    let found: Vec<_> = d
        .marked
        .iter()
        .filter_map(|&leaf| gradients.of(leaf).ok())
        .collect();
    assert!(!gradients.is_empty() && gradients.len() >= found.len().min(1));
    d.gradients = Some(gradients);
    match found.is_empty() {
        true => Ok(d.f32()?.into()),
        false => Ok(found[d.random.below(found.len())].into()),
    }
}

fn backward<'g>(d: &mut Draw<'g>) -> Result<Made<'g>> {
    let loss = loss(d)?;
    let gradients = d.g.backward(loss)?;
    one_of(d, gradients)
}

fn backward_with<'g>(d: &mut Draw<'g>) -> Result<Made<'g>> {
    let (loss, options) = (loss(d)?, options(d));
    let gradients = d.g.backward_with(loss, options)?;
    one_of(d, gradients)
}

/// A segment of some moves, or one that fails.
fn checkpoint<'g>(d: &mut Draw<'g>) -> Result<Made<'g>> {
    let g: Builder<'g> = d.g;
    g.checkpoint(|| {
        let mut last = d.f32()?;
        for _ in 0..1 + d.below(3) {
            last = match d.below(6) {
                0 => last.scale(0.5),
                1 => last.relu(),
                2 => last.mul(last),
                3 => last.scale_inplace(0.5),
                4 => last.silu(),
                _ => {
                    let ne = [last.shape().ne()[0], d.dim(), 1, 1];
                    d.tensor(F32, ne)?.mul_mat(last)
                }
            }?;
        }
        Ok(last.into())
    })
}

fn gradients<'g>(d: &mut Draw<'g>) -> Result<Gradients<'g>> {
    if let Some(gradients) = d.gradients.take() {
        return Ok(gradients);
    }
    let loss = loss(d)?;
    d.g.backward(loss)
}

fn leaf<'g>(d: &mut Draw<'g>) -> Result<Tensor<'g>> {
    match d.wild() || d.marked.is_empty() {
        true => d.f32(),
        false => Ok(d.marked[d.random.below(d.marked.len())]),
    }
}

/// A trained leaf, its gradient or what stands for it, and the steps' numbers.
struct Step<'g> {
    a: Tensor<'g>,
    gradient: Tensor<'g>,
    moments: [Tensor<'g>; 2],
    numbers: Tensor<'g>,
}

fn step<'g>(d: &mut Draw<'g>, numbers: usize) -> Result<Step<'g>> {
    let ne = d.shape(F32);
    let a = d.trained(ne)?;
    let gradient = d
        .gradients
        .as_ref()
        .and_then(|gradients| gradients.of(a).ok());
    let gradient = match gradient {
        Some(gradient) if gradient.is_contiguous() => gradient,
        Some(gradient) => gradient.cont()?,
        None => d.plain(F32, ne)?,
    };
    Ok(Step {
        a,
        gradient,
        moments: [d.input(F32, ne)?, d.input(F32, ne)?],
        numbers: d.input(F32, [numbers, 1, 1, 1])?,
    })
}

family! {
    set_param(d) { let ne = d.shape(F32); let a = if d.wild() { d.any()? } else { d.input(F32, ne)? }; } a();
    of(d) { let gradients = gradients(d)?; let a = leaf(d)?; } gradients(a);
    accumulate(d) {
        let gradients = gradients(d)?;
        let a = leaf(d)?;
        let into = d.plain(F32, a.shape().ne())?;
    } gradients(a, into);
    opt_step_adamw(d) {
        let Step { a, gradient, moments: [m, v], numbers } = step(d, 7)?;
    } a(gradient, m, v, numbers);
    opt_step_sgd(d) { let Step { a, gradient, numbers, .. } = step(d, 2)?; } a(gradient, numbers);
}

/// Those that make no tensor of their own.
pub const OTHERS: &[Move] = &[
    Move {
        name: "backward",
        make: backward,
    },
    Move {
        name: "backward_with",
        make: backward_with,
    },
    Move {
        name: "checkpoint",
        make: checkpoint,
    },
];
