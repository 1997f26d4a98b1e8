//! What the tests share: reproducible data, and running a graph of two inputs on the CPU.

#![allow(dead_code, reason = "each test uses a part")]

pub mod child;
pub mod children;
pub mod forward;
pub mod router;

use ggml_rs::{
    Builder, Cancel, DType, Device, Graph, Placement, Plan, PlanOptions, Result, RunOptions, Shape,
    Tensor,
};

/// A run that records what is dispatched.
pub fn traced() -> RunOptions<'static> {
    RunOptions {
        trace: true,
        ..RunOptions::default()
    }
}

/// A run that a switch stops.
pub fn until(cancel: &Cancel) -> RunOptions<'_> {
    RunOptions {
        cancel: Some(cancel),
        ..RunOptions::default()
    }
}

/// A run of the graph repeated so many times.
pub fn repeated(times: usize) -> RunOptions<'static> {
    RunOptions {
        repeat: times,
        ..RunOptions::default()
    }
}

/// A run that waits for nobody's parameters.
pub fn if_free() -> RunOptions<'static> {
    RunOptions {
        try_: true,
        ..RunOptions::default()
    }
}

/// Values in [-1, 1) that depend on `seed` alone.
pub fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.unit() * 2.0 - 1.0).collect()
}

/// SplitMix64: a few lines, and the same numbers everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// An operand: its type, its shape and the values it is made from.
pub struct Operand {
    pub dtype: DType,
    pub shape: Shape,
    pub values: Vec<f32>,
}

impl Operand {
    pub fn new(dtype: DType, dims: &[usize], seed: u64) -> Self {
        let shape = Shape::new(dims).unwrap();
        Self {
            dtype,
            shape,
            values: values(shape.elements(), seed),
        }
    }

    /// The values as the device sees them: rounded to the operand's type.
    pub fn rounded(&self) -> Vec<f32> {
        use ggml_rs::quantize::{dequantize, quantize};
        let bytes = quantize(self.dtype, &self.values, self.shape.ne()[0]).unwrap();
        dequantize(self.dtype, &bytes).unwrap()
    }
}

/// Both placements, so that every test runs with operands in one buffer and in buffers of their own.
pub const PLACEMENTS: [Placement; 2] = [
    Placement::Pooled,
    Placement::Separate {
        sentinel_bytes: 4096,
    },
];

/// Runs a graph of some inputs and one output on the CPU.
pub fn run_on_cpu(
    inputs: &[&Operand],
    placement: Placement,
    build: impl for<'g> FnOnce(Builder<'g>, &[Tensor<'g>]) -> Result<Tensor<'g>>,
) -> Result<Vec<f32>> {
    run_on(Device::cpu()?, inputs, placement, build)
}

/// The CPU and, where it is built, the simulated Metal device.
pub fn devices() -> Vec<Device> {
    let simulated = cfg!(all(feature = "metal-sim", not(target_os = "macos")));
    let names = ["CPU", "MTL0"];
    let names = &names[..1 + usize::from(simulated)];
    names
        .iter()
        .map(|name| Device::by_name(name).unwrap())
        .collect()
}

/// Runs a graph of some inputs and one output.
pub fn run_on(
    device: Device,
    inputs: &[&Operand],
    placement: Placement,
    build: impl for<'g> FnOnce(Builder<'g>, &[Tensor<'g>]) -> Result<Tensor<'g>>,
) -> Result<Vec<f32>> {
    let (graph, (tokens, y)) = Graph::build(|g| {
        let mut tensors = Vec::new();
        let mut tokens = Vec::new();
        for (i, input) in inputs.iter().enumerate() {
            let (tensor, token) = g.input(&format!("input {i}"), input.dtype, input.shape)?;
            tensors.push(tensor);
            tokens.push(token);
        }
        let y = g.output("y", build(g, &tensors)?)?;
        Ok((tokens, y))
    })?;
    let mut backend = device.open()?;
    let mut plan = Plan::new(graph, &backend, PlanOptions { placement })?;
    for (token, input) in tokens.iter().zip(inputs) {
        // A variant of an op may leave an operand out.
        if plan.needs(token)? {
            plan.set_f32(token, &input.values)?;
        }
    }
    plan.run(&mut backend)?;
    if matches!(placement, Placement::Separate { .. }) {
        plan.check_sentinels()?;
    }
    plan.read_f32(&y)
}

/// Runs a graph of some inputs and one output with both placements, which must agree bit for bit.
pub fn run(
    device: Device,
    inputs: &[&Operand],
    build: impl for<'g> Fn(Builder<'g>, &[Tensor<'g>]) -> Result<Tensor<'g>>,
) -> Vec<f32> {
    let [pooled, separate] = PLACEMENTS.map(|placement| {
        run_on(device, inputs, placement, &build)
            .unwrap_or_else(|error| panic!("{}: {error}", device.name()))
    });
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&pooled), bits(&separate), "on {}", device.name());
    pooled
}

/// Compares element by element, within an absolute tolerance.
#[track_caller]
pub fn assert_close(got: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let got = f64::from(got);
        assert!(
            (got - expected).abs() <= tolerance,
            "{what}: element {i} is {got}, not {expected}"
        );
    }
}
