//! Tables of ops against formulas in f64: on the CPU and, where it is built, on the simulated Metal device.

use ggml_rs::{DType, Device, Error, Graph, Input, Plan, PlanOptions, Result, Shape, Tensor};

use super::{Operand, PLACEMENTS, devices, values};

/// An operand's type, shape and values.
pub struct Given {
    pub dims: Vec<usize>,
    pub data: Data,
}

pub enum Data {
    Float(DType, Vec<f32>),
    I32(Vec<i32>),
}

impl Given {
    /// Values in [-1, 1), times `range`.
    pub fn random(dtype: DType, dims: &[usize], seed: u64, range: f32) -> Self {
        let len = dims.iter().product();
        let values = values(len, seed).into_iter().map(|x| x * range).collect();
        Self::float(dtype, dims, values)
    }

    pub fn float(dtype: DType, dims: &[usize], values: Vec<f32>) -> Self {
        Self {
            dims: dims.to_vec(),
            data: Data::Float(dtype, values),
        }
    }

    pub fn i32(dims: &[usize], values: Vec<i32>) -> Self {
        Self {
            dims: dims.to_vec(),
            data: Data::I32(values),
        }
    }

    pub fn dtype(&self) -> DType {
        match self.data {
            Data::Float(dtype, _) => dtype,
            Data::I32(_) => DType::I32,
        }
    }

    /// The values as a device sees them.
    pub fn values(&self) -> Vec<f64> {
        match &self.data {
            Data::Float(dtype, values) => {
                let operand = Operand {
                    dtype: *dtype,
                    shape: Shape::new(&self.dims).unwrap(),
                    values: values.clone(),
                };
                operand.rounded().into_iter().map(f64::from).collect()
            }
            Data::I32(values) => values.iter().map(|&x| f64::from(x)).collect(),
        }
    }

    fn set(&self, plan: &mut Plan, input: &Input) -> Result<()> {
        match &self.data {
            Data::Float(_, values) => plan.set_f32(input, values),
            Data::I32(values) => plan.set_i32(input, values),
        }
    }
}

/// One op, or a few, on some operands.
pub struct Case {
    pub name: String,
    pub given: Vec<Given>,
    pub expected: Vec<f64>,
    /// Relative for results above 1, absolute below.
    pub tolerance: f64,
    /// Whether the Metal backend has it. Where it has not, it must say so.
    pub metal: bool,
}

impl Case {
    /// Runs on every device, with both placements.
    #[track_caller]
    pub fn check(&self, build: impl for<'g> Fn(&[Tensor<'g>]) -> Result<Tensor<'g>>) {
        for device in devices() {
            for placement in PLACEMENTS {
                let what = format!("{} on {}, {placement:?}", self.name, device.name());
                let found = self.run(device, PlanOptions { placement }, &build);
                if device.name() == "CPU" || self.metal {
                    let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
                    self.compare(&found, &what);
                } else {
                    let refused = matches!(found, Err(Error::Unsupported(_)));
                    assert!(refused, "{what}: {found:?} instead of a refusal");
                }
            }
        }
    }

    fn run(
        &self,
        device: Device,
        options: PlanOptions,
        build: impl for<'g> Fn(&[Tensor<'g>]) -> Result<Tensor<'g>>,
    ) -> Result<Vec<f64>> {
        let (graph, (inputs, y)) = Graph::build(|g| {
            let (mut tensors, mut inputs) = (Vec::new(), Vec::new());
            for (i, given) in self.given.iter().enumerate() {
                let (tensor, input) =
                    g.input(&format!("input {i}"), given.dtype(), &*given.dims)?;
                tensors.push(tensor);
                inputs.push(input);
            }
            Ok((inputs, g.output("y", build(&tensors)?)?))
        })?;
        let mut backend = device.open()?;
        let mut plan = Plan::new(graph, &backend, options)?;
        for (given, input) in self.given.iter().zip(&inputs) {
            // Of some operands an op takes the shape alone.
            if plan.needs(input)? {
                given.set(&mut plan, input)?;
            }
        }
        plan.run(&mut backend)?;
        if options.placement != PLACEMENTS[0] {
            plan.check_sentinels()?;
        }
        match y.dtype() {
            DType::I32 => Ok(plan.read_i32(&y)?.into_iter().map(f64::from).collect()),
            DType::I64 => Ok(plan.read_i64(&y)?.into_iter().map(|x| x as f64).collect()),
            _ => Ok(plan.read_f32(&y)?.into_iter().map(f64::from).collect()),
        }
    }

    #[track_caller]
    fn compare(&self, found: &[f64], what: &str) {
        assert_eq!(found.len(), self.expected.len(), "{what}");
        for (i, (&found, &expected)) in found.iter().zip(&self.expected).enumerate() {
            let slack = self.tolerance * expected.abs().max(1.0);
            let same = found == expected || found.is_nan() && expected.is_nan();
            assert!(
                same || (found - expected).abs() <= slack,
                "{what}: {found} instead of {expected} at {i}"
            );
        }
    }
}

/// The rounding of a type, relative to the value.
pub fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1.0 / 1024.0,
        DType::BF16 => 1.0 / 128.0,
        _ => 2e-6,
    }
}

/// All places of a shape in ne order.
pub fn places(ne: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    let all = move |n: usize| {
        let (i0, n) = (n % ne[0], n / ne[0]);
        let (i1, n) = (n % ne[1], n / ne[1]);
        [i0, i1, n % ne[2], n / ne[2]]
    };
    (0..ne.iter().product()).map(all)
}

/// Where a place is in contiguous values.
pub fn index(ne: [usize; 4], i: [usize; 4]) -> usize {
    i[0] + ne[0] * (i[1] + ne[1] * (i[2] + ne[2] * i[3]))
}
