//! What the tests share: a graph with its loss and gradients, and differences of the loss.

use ggml_rs::DType::F32;
use ggml_rs::{
    Backend, Builder, Device, Graph, Input, Output, Placement, Plan, PlanOptions, Result, Tensor,
};

use crate::common;

/// Inputs that are not trained, with their values.
pub type Frozen = Vec<(Input, Values)>;

pub enum Values {
    Floats(Vec<f32>),
    Ids(Vec<i32>),
}

/// Makes the result whose weighted sum is the loss, from the marked tensors.
pub type Build<'a> =
    &'a dyn for<'g> Fn(Builder<'g>, &[Tensor<'g>], &mut Frozen) -> Result<Tensor<'g>>;

/// A parameter's shape and values.
pub type Param<'a> = (&'a [usize], Vec<f32>);

pub struct Run {
    pub plan: Plan,
    backend: Backend,
    params: Vec<Input>,
    loss: Output,
    gradients: Vec<Output>,
}

impl Run {
    /// `loss = sum(out * w)`, `w` fixed: every result counts, and none like another.
    pub fn new(params: &[Param<'_>], build: Build<'_>) -> Result<Self> {
        let mut frozen = Frozen::new();
        let (graph, (inputs, loss, gradients)) = Graph::build(|g| {
            let mut tensors = Vec::new();
            let mut inputs = Vec::new();
            for (i, (dims, _)) in params.iter().enumerate() {
                let (tensor, input) = g.input(&format!("p{i}"), F32, *dims)?;
                tensors.push(tensor.set_param()?);
                inputs.push(input);
            }
            let out = build(g, &tensors, &mut frozen)?;
            let (w, w_in) = g.input("weights of the loss", F32, out.shape())?;
            let weights = common::values(out.shape().elements(), 77);
            frozen.push((w_in, Values::Floats(weights)));
            let out = if out.is_contiguous() {
                out
            } else {
                out.cont()?
            };
            let loss = out.mul(w)?.sum()?;
            let gradients = g.backward(loss)?;
            let mut outputs = Vec::new();
            for (i, &tensor) in tensors.iter().enumerate() {
                let gradient = gradients.of(tensor)?;
                assert_eq!(gradient.shape(), tensor.shape());
                assert_eq!(gradient.dtype(), F32);
                outputs.push(g.output(&format!("d{i}"), gradient.cont()?)?);
            }
            Ok((inputs, g.output("loss", loss)?, outputs))
        })?;
        let mut backend = Device::cpu()?.open()?;
        // Graphs are tiny and many: threads that wait for each other would take most of the time.
        backend.set_threads(1)?;
        let placement = Placement::Separate {
            sentinel_bytes: 256,
        };
        let mut plan = Plan::new(graph, &backend, PlanOptions { placement })?;
        for (input, values) in frozen {
            match values {
                Values::Floats(values) => plan.set_f32(&input, &values)?,
                Values::Ids(values) => plan.set_i32(&input, &values)?,
            }
        }
        for (input, (_, values)) in inputs.iter().zip(params) {
            plan.set_f32(input, values)?;
        }
        Ok(Self {
            plan,
            backend,
            params: inputs,
            loss,
            gradients,
        })
    }

    /// All gradients, by parameter.
    pub fn gradients(&mut self) -> Vec<Vec<f32>> {
        self.plan.run(&mut self.backend).unwrap();
        self.plan.check_sentinels().unwrap();
        self.gradients
            .iter()
            .map(|d| self.plan.read_f32(d).unwrap())
            .collect()
    }

    fn loss(&mut self, i: usize, values: &[f32]) -> f64 {
        self.plan.set_f32(&self.params[i], values).unwrap();
        self.plan.run(&mut self.backend).unwrap();
        f64::from(self.plan.read_f32(&self.loss).unwrap()[0])
    }

    /// Richardson's difference of steps `H` and `H / 2`, whose error is of the order of `H`⁴.
    fn slope(&mut self, i: usize, values: &[f32], k: usize) -> f64 {
        const H: f32 = 1.0 / 32.0;
        let mut difference = |h: f32| {
            let mut moved = values.to_vec();
            moved[k] = values[k] + h;
            let (up, above) = (moved[k], self.loss(i, &moved));
            moved[k] = values[k] - h;
            (above - self.loss(i, &moved)) / f64::from(up - moved[k])
        };
        let (coarse, fine) = (difference(H), difference(H / 2.0));
        (4.0 * fine - coarse) / 3.0
    }
}

/// Compares all gradients with differences of the loss. Rounding leaves about 1e-7 of the loss over the step; the tolerance is 2e-3
/// of a parameter's largest gradient, and every fault that these tests are for is larger than a tenth of it.
#[track_caller]
pub fn check_at(what: &str, params: &[Param<'_>], build: Build<'_>) {
    let mut run = Run::new(params, build).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = run.gradients();
    for (i, (_, values)) in params.iter().enumerate() {
        let expected: Vec<f64> = (0..values.len()).map(|k| run.slope(i, values, k)).collect();
        run.loss(i, values);
        let scale = expected.iter().fold(1e-3_f64, |m, e| m.max(e.abs()));
        for (k, (&found, &expected)) in found[i].iter().zip(&expected).enumerate() {
            assert!(
                (f64::from(found) - expected).abs() <= 2e-3 * scale,
                "{what}: parameter {i}, element {k}: {found}, not {expected} (scale {scale})"
            );
        }
    }
}

/// As [`check_at`], at random values of a range.
#[track_caller]
pub fn check(what: &str, dims: &[&[usize]], range: (f32, f32), build: Build<'_>) {
    let params: Vec<Param<'_>> = dims
        .iter()
        .enumerate()
        .map(|(i, &dims)| (dims, random(dims, range, 11 + i as u64)))
        .collect();
    check_at(what, &params, build);
}

pub fn random(dims: &[usize], (low, high): (f32, f32), seed: u64) -> Vec<f32> {
    common::values(dims.iter().product(), seed)
        .into_iter()
        .map(|x| low + (high - low) * (x + 1.0) / 2.0)
        .collect()
}

pub const WIDE: (f32, f32) = (-1.0, 1.0);
pub const POSITIVE: (f32, f32) = (0.5, 1.5);
