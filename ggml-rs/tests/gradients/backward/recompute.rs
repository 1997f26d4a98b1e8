//! Checkpoints: the same gradients bit for bit, in less memory.

use ggml_rs::DType::F32;
use ggml_rs::{BackwardOptions, Builder, Device, Error, Graph, Plan, PlanOptions, Result, Tensor};

use crate::common::values;

/// A chain of layers, each a segment; returns the loss's gradient of the weights, as bits, and the plan's bytes.
fn chain(layers: usize, recompute: bool) -> (Vec<u32>, usize) {
    let options = BackwardOptions::default().recompute(recompute);
    chain_on(Device::cpu().unwrap(), layers, options)
}

pub(crate) fn chain_on(
    device: Device,
    layers: usize,
    options: BackwardOptions,
) -> (Vec<u32>, usize) {
    const N: usize = 32;
    let (graph, (w, x, dw)) = Graph::build(|g| {
        let (w, w_in) = g.input("w", F32, [N, N])?;
        let (x, x_in) = g.input("x", F32, [N, 64])?;
        let w = w.set_param()?;
        let mut y = x;
        for _ in 0..layers {
            y = g.checkpoint(|| layer(w, y))?;
        }
        let loss = y.mul(y)?.mean()?;
        let gradients = g.backward_with(loss, options)?;
        Ok((w_in, x_in, g.output("dw", gradients.of(w)?)?))
    })
    .unwrap();
    let mut backend = device.open().unwrap();
    if device == Device::cpu().unwrap() {
        backend.set_threads(1).unwrap();
    }
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    let weights: Vec<f32> = values(N * N, 1).iter().map(|w| w * 0.3).collect();
    plan.set_f32(&w, &weights).unwrap();
    plan.set_f32(&x, &values(N * 64, 2)).unwrap();
    plan.run(&mut backend).unwrap();
    let bits = plan
        .read_f32(&dw)
        .unwrap()
        .iter()
        .map(|v| v.to_bits())
        .collect();
    (bits, plan.memory()[0].tensors)
}

fn layer<'g>(w: Tensor<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
    let h = w.mul_mat(x.rms_norm(1e-5)?)?;
    // A view of a permuted copy inside of the segment, whose base is copied too.
    let h = h.silu()?.transpose()?.cont()?.transpose()?.cont()?;
    let gate = h.sigmoid()?.scale(0.5)?;
    x.add(h.mul(gate)?)
}

#[test]
fn gradients_are_the_same_and_memory_is_less() {
    let (kept, all) = chain(12, false);
    let (again, less) = chain(12, true);
    assert!(kept.iter().any(|&bits| f32::from_bits(bits).abs() > 1e-4));
    assert!(kept.iter().all(|&bits| f32::from_bits(bits).is_finite()));
    assert_eq!(kept, again);
    assert!(less * 2 < all, "{less} bytes, {all} without checkpoints");
}

#[test]
fn a_segment_as_deep_as_a_model_is_copied_without_recursion() {
    let deep = |g: Builder<'_>| -> Result<_> {
        let (x, x_in) = g.input("x", F32, [2])?;
        let x = x.set_param()?;
        let y = g.checkpoint(|| {
            let mut y = x;
            for _ in 0..20_000 {
                y = y.sin()?;
            }
            y.sum()
        })?;
        let gradients = g.backward(y)?;
        Ok((x_in, g.output("dx", gradients.of(x)?)?))
    };
    Graph::build(deep).unwrap();
}

#[test]
fn segments_nest_and_may_write_nothing() {
    Graph::build(|g| {
        let (x, _) = g.input("x", F32, [4])?;
        let x = x.set_param()?;
        let y = g.checkpoint(|| g.checkpoint(|| x.sin()?.exp())?.sin())?;
        let gradients = g.backward(y.sum()?)?;
        g.output("dx", gradients.of(x)?)
    })
    .unwrap();
    // The write is none of the loss's: nothing computes it again.
    Graph::build(|g| {
        let (x, _) = g.input("x", F32, [4])?;
        let x = x.set_param()?;
        let to = g.empty("to", F32, [4])?;
        let y = g.checkpoint(|| {
            let y = x.sin()?;
            y.scale(2.0)?.cpy(to)?;
            y.exp()
        })?;
        g.output("dx", g.backward(y.sum()?)?.of(x)?)
    })
    .unwrap();
    let refused = Graph::build(|g| {
        let (x, _) = g.input("x", F32, [4])?;
        let x = x.set_param()?;
        let to = g.empty("to", F32, [4])?;
        let y = g.checkpoint(|| x.sin()?.cpy(to)?.exp())?;
        g.output("dx", g.backward(y.sum()?)?.of(x)?)
    });
    assert!(
        matches!(refused, Err(Error::NotDifferentiable(_))),
        "{refused:?}"
    );
}
