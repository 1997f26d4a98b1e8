//! Gradients against central differences, element by element.
//!
//! A check compares with the differences twice. The *formulas* are the backward's own nodes, evaluated in double precision by
//! the [`Interpreter`]: a wrong one shows however small it is. The *device* computes the same nodes in its own precision.
//!
//! ```
//! use ggml_rs::check::{Data, GradientOptions, gradients};
//!
//! let report = gradients(&GradientOptions::default(), |inputs| {
//!     let w = inputs.trained([8, 4], Data::unit())?;
//!     let x = inputs.trained([8, 3], Data::unit())?;
//!     w.mul_mat(x)
//! })?;
//! assert!(report.passes(), "{report}");
//! assert_eq!(report.elements, 8 * 4 + 8 * 3);
//! # Ok::<(), ggml_rs::Error>(())
//! ```

mod backward;
mod data;
mod difference;
mod expected;
mod forward;
mod inputs;
mod ops;
mod report;
mod subject;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

pub use data::Data;
pub use inputs::Inputs;
pub use ops::differentiable_ops;
pub use report::{Deviation, GradientReport};
pub use subject::Subject;

use crate::device::Device;
use crate::error::{Call, Error, Result};
use crate::graph::{BackwardOptions, Builder, Tensor};
use crate::plan::Placement;
use backward::Backward;
use expected::Expected;
use forward::Forward;
use report::larger;

/// How [`gradients`] checks.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GradientOptions {
    /// The seed of all data.
    pub seed: u64,
    /// The largest error of what the device computes, relative to the larger of an element and the root mean square of its
    /// gradient. The default, 3e-5, is 250 units of f32: chains of some ten operations, and sums of some hundred terms that
    /// cancel in part.
    pub tolerance: f64,
    /// What an error is relative to at the least. The default is 0; a gradient of which most cancels is no larger than the
    /// rounding of what cancels.
    pub floor: f64,
    /// The tolerance of the formulas in double precision. The default, 1e-6, is for constants in f32.
    pub formula_tolerance: f64,
    /// The device; `None` is the CPU. The CPU computes what another device does not run, and the report names those ops.
    pub device: Option<Device>,
    /// How the backward is made.
    pub backward: BackwardOptions,
    /// The most elements of an input of which differences are taken, drawn by the seed; `None` is all of them. The other elements
    /// of what the device computes are compared with the formulas.
    pub elements: Option<usize>,
    /// Whether elements at kinks are left out and counted. Otherwise a kink is an error.
    pub skip_kinks: bool,
}

impl Default for GradientOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            tolerance: 3e-5,
            floor: 0.0,
            formula_tolerance: 1e-6,
            device: None,
            backward: BackwardOptions::default(),
            elements: None,
            skip_kinks: false,
        }
    }
}

impl GradientOptions {
    /// The same with another seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The same with another tolerance of what the device computes.
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// The same with errors relative to this at the least.
    #[must_use]
    pub fn floor(mut self, floor: f64) -> Self {
        self.floor = floor;
        self
    }

    /// The same on another device.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// The same with another backward.
    #[must_use]
    pub fn backward(mut self, backward: BackwardOptions) -> Self {
        self.backward = backward;
        self
    }

    /// The same with differences of so many elements of an input at most.
    #[must_use]
    pub fn elements(mut self, elements: impl Into<Option<usize>>) -> Self {
        self.elements = elements.into();
        self
    }

    /// The same with elements at kinks left out.
    #[must_use]
    pub fn skip_kinks(mut self, skip: bool) -> Self {
        self.skip_kinks = skip;
        self
    }
}

/// Where operands lie: in one buffer, and in buffers of their own.
const PLACEMENTS: [Placement; 2] = [
    Placement::Pooled,
    Placement::Separate { sentinel_bytes: 64 },
];

/// Checks the gradients of every trained input of the graph that `build` makes.
///
/// `build` declares the inputs and returns a tensor of any shape; the loss is its sum after a multiplication with fixed random
/// weights, so that its gradient is not constant. It is called several times, for graphs without a backward and with one, and
/// must make the same every time.
///
/// # Errors
/// What `build`, the backward or a plan returns; [`Error::Param`] without a trained input, and where the loss is not smooth
/// ([`Data::Smooth`] keeps values away from kinks).
#[track_caller]
pub fn gradients(
    options: &GradientOptions,
    build: impl for<'g> Fn(&mut Inputs<'g>) -> Result<Tensor<'g>>,
) -> Result<GradientReport> {
    gradients_of(options, |builder| {
        let mut inputs = Inputs::new(builder, options.seed);
        let result = build(&mut inputs)?;
        Ok(inputs.subject(result))
    })
}

/// As [`gradients`], of a graph whose inputs and values `build` declares itself.
///
/// An input that the backward has no gradient for must have differences of zero.
///
/// # Errors
/// As [`gradients`].
#[track_caller]
pub fn gradients_of(
    options: &GradientOptions,
    build: impl for<'g> Fn(Builder<'g>) -> Result<Subject<'g>>,
) -> Result<GradientReport> {
    let call = Call::new("gradients");
    let forward = Forward::build(call, options.seed, &build)?;
    let formulas = Backward::build(call, options, &build)?.evaluate(call)?;
    let mut expected = Expected::new(call, &forward, &formulas, options)?;
    let formula = expected.compare(call, &formulas, options.formula_tolerance, options.floor)?;
    let (mut device, mut on_cpu) = (None, BTreeSet::new());
    let mut hasher = DefaultHasher::new();
    for placement in PLACEMENTS {
        let (got, elsewhere) =
            Backward::build(call, options, &build)?.compute(call, options.device, placement)?;
        on_cpu.extend(elsewhere);
        let bits = got.iter().flatten().map(|value| value.to_bits());
        bits.for_each(|bits| bits.hash(&mut hasher));
        expected.look_closer(call, &forward, &got, options)?;
        let found = expected.compare(call, &got, options.tolerance, options.floor)?;
        device = Some(device.map_or(found.clone(), |worst| larger(worst, found)));
    }
    Ok(GradientReport {
        seed: options.seed,
        elements: expected.elements(),
        of: expected.of(),
        kinks: expected.kinks(),
        ops: forward.ops(),
        hash: hasher.finish(),
        on_cpu,
        formula,
        device: device.ok_or_else(|| no_input(call))?,
    })
}

fn no_input(call: Call) -> Error {
    let detail = "no trained input was declared: there is no gradient to check";
    call.param(detail)
}
