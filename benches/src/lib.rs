//! What the benches share: an OUT_PROD ready to run.
#![deny(missing_docs)]

use anyhow::Result;
use ggml_rs::{Backend, DType, Device, Graph, Plan, PlanOptions, Staging};

/// The shape of an OUT_PROD: `a` is `[m, k]`, `b` is `[n, k]`, the result `[m, n]`, in ne order.
#[derive(Clone, Copy, Debug)]
pub struct OutProd {
    /// Type of `a`, the weight. `b`, the gradient, is F32.
    pub weight: DType,
    /// Rows of the result, the weight's first dimension.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
}

impl OutProd {
    /// Multiply-adds of one run.
    #[must_use]
    pub fn multiply_adds(&self) -> u64 {
        (self.m * self.n * self.k) as u64
    }

    /// Allocates it on a device, with operands set.
    ///
    /// # Errors
    /// When the device does not support or cannot hold it.
    pub fn prepare(&self, device: Device, staging: Staging) -> Result<Prepared> {
        let (graph, (a, b)) = Graph::build(|g| {
            let (weight, a) = g.input("weight", self.weight, [self.m, self.k])?;
            let (gradient, b) = g.input("gradient", DType::F32, [self.n, self.k])?;
            let mut product = weight.out_prod(gradient)?;
            if device.is_metal() {
                product = product.set_staging(staging)?;
            }
            g.output("product", product)?;
            Ok((a, b))
        })?;
        let backend = Device::open(device)?;
        let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
        plan.set_f32(&a, &ramp(self.m * self.k))?;
        plan.set_f32(&b, &ramp(self.n * self.k))?;
        Ok(Prepared { plan, backend })
    }
}

impl std::fmt::Display for OutProd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} m{} n{} k{}", self.weight, self.m, self.n, self.k)
    }
}

/// An OUT_PROD in a device's memory.
pub struct Prepared {
    /// The graph, allocated.
    pub plan: Plan,
    /// What runs it.
    pub backend: Backend,
}

impl Prepared {
    /// Runs it once and waits for the result.
    ///
    /// # Errors
    /// When the device fails.
    pub fn run(&mut self) -> Result<()> {
        Ok(self.plan.run(&mut self.backend)?)
    }
}

/// Values in [-1, 1) without a pattern that quantization would profit from. Times do not depend on them.
#[must_use]
pub fn ramp(len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| (i * 7919 % 2003) as f32 / 1001.5 - 1.0)
        .collect()
}
