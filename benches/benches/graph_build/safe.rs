//! The graph through the safe API.

use ggml_rs::graph::{GluOp, SoftMax};
use ggml_rs::{
    Backend, Builder, DType, Device, Graph, Input, Output, Plan, PlanOptions, Result, Tensor,
};

use super::{EPS, HEAD, HEADS, LAYERS, SCALE, TOKENS, WEIGHTS, WIDTH, values};

/// One layer: attention and a gated feed-forward part, each with its residual.
fn layer<'g>(
    g: Builder<'g>,
    inputs: &mut Vec<(Tensor<'g>, Input)>,
    x: Tensor<'g>,
) -> Result<Tensor<'g>> {
    let mut weight = |index: usize| -> Result<Tensor<'g>> {
        let (name, shape) = WEIGHTS[index];
        let name = str::from_utf8(name.to_bytes()).expect("names are ASCII");
        inputs.push(g.input(name, DType::F32, shape)?);
        Ok(inputs[inputs.len() - 1].0)
    };
    let heads = [HEAD, HEADS, TOKENS];
    let h = x.rms_norm(EPS)?.mul(weight(0)?)?;
    let q = weight(1)?
        .mul_mat(h)?
        .reshape(heads)?
        .permute([0, 2, 1, 3])?;
    let k = weight(2)?
        .mul_mat(h)?
        .reshape(heads)?
        .permute([0, 2, 1, 3])?;
    let v = weight(3)?
        .mul_mat(h)?
        .reshape(heads)?
        .permute([1, 2, 0, 3])?;
    let options = SoftMax {
        scale: SCALE,
        ..SoftMax::default()
    };
    let scores = k.mul_mat(q)?.soft_max_ext(options)?;
    let mixed = v.cont()?.mul_mat(scores)?.permute([0, 2, 1, 3])?;
    let mixed = mixed.cont()?.reshape([WIDTH, TOKENS])?;
    let x = weight(4)?.mul_mat(mixed)?.add(x)?;
    let h = x.rms_norm(EPS)?.mul(weight(5)?)?;
    let gate = weight(6)?.mul_mat(h)?;
    let up = weight(7)?.mul_mat(h)?;
    let gated = gate.glu_split(up, GluOp::Swiglu)?;
    weight(8)?.mul_mat(gated)?.add(x)
}

/// The graph, its inputs in order, and its output.
pub fn build() -> Result<(Graph, (Vec<Input>, Output))> {
    Graph::build(|g| {
        let (inputs, y) = forward(g)?;
        let inputs = inputs.into_iter().map(|(_, input)| input).collect();
        Ok((inputs, g.output("y", y)?))
    })
}

/// The same ops with their backward: the gradient of the sum of all results for every weight.
pub fn build_with_backward() -> Result<Graph> {
    let (graph, ()) = Graph::build(|g| {
        let (inputs, y) = forward(g)?;
        for &(weight, _) in &inputs[1..] {
            weight.set_param()?;
        }
        let gradients = g.backward(y.sum()?)?;
        for &(weight, _) in &inputs[1..] {
            g.output("dw", gradients.of(weight)?)?;
        }
        Ok(())
    })?;
    Ok(graph)
}

/// The inputs and the result.
fn forward<'g>(g: Builder<'g>) -> Result<(Vec<(Tensor<'g>, Input)>, Tensor<'g>)> {
    let mut inputs = vec![g.input("x", DType::F32, [WIDTH, TOKENS])?];
    let mut x = inputs[0].0;
    for _ in 0..LAYERS {
        x = layer(g, &mut inputs, x)?;
    }
    Ok((inputs, x.scale(0.5)?))
}

/// The graph with memory and values, on one thread of the CPU.
pub struct Ready {
    plan: Plan,
    backend: Backend,
    output: Output,
}

impl Ready {
    pub fn new() -> Result<Self> {
        let (graph, (inputs, output)) = build()?;
        let mut backend = Device::cpu()?.open()?;
        backend.set_threads(1)?;
        let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
        for (index, input) in inputs.iter().enumerate() {
            plan.set_f32(input, &values(index, input.shape().elements()))?;
        }
        Ok(Self {
            plan,
            backend,
            output,
        })
    }

    pub fn run(&mut self) -> Result<Vec<f32>> {
        self.plan.run(&mut self.backend)?;
        self.plan.read_f32(&self.output)
    }
}
