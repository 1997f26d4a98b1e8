//! Several backends, among which a plan divides its graph.

use std::fmt;
use std::slice;

use super::Backend;
use crate::device::Device;
use crate::error::{Call, Result};

/// What a plan does with a node that the first backend does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fallback {
    /// It goes to the first of the other backends that runs it. [`Plan::assigned`](crate::Plan::assigned) tells which did.
    #[default]
    Allow,
    /// It is [`Error::Unsupported`](crate::Error::Unsupported).
    Forbid,
}

/// Backends in the order of preference: a plan made on it runs each node on the first that can.
///
/// No device is ever used that was not named here, a simulated one least of all.
///
/// ```
/// use ggml_rs::{DType, Device, Graph, Plan, PlanOptions, Scheduler};
///
/// let (graph, (x, y)) = Graph::build(|g| {
///     let (x, x_in) = g.input("x", DType::F32, [4])?;
///     Ok((x_in, g.output("y", x.scale(2.0)?.relu()?)?))
/// })?;
/// // The best device, and the CPU for what that does not run.
/// let mut scheduler = Scheduler::best()?;
/// let mut plan = Plan::new(graph, &scheduler, PlanOptions::default())?;
/// let on_cpu = plan.assigned().filter(|node| node.device == Device::cpu().unwrap()).count();
/// println!("{on_cpu} of {} nodes on the CPU", plan.assigned().count());
/// plan.set_f32(&x, &[1.0, -1.0, 2.0, -2.0])?;
/// plan.run(&mut scheduler)?;
/// assert_eq!(plan.read_f32(&y)?, [2.0, 0.0, 4.0, 0.0]);
/// # Ok::<(), ggml_rs::Error>(())
/// ```
pub struct Scheduler {
    backends: Vec<Backend>,
    fallback: Fallback,
}

impl Scheduler {
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for no backend, for more than 16, and for two on one device.
    #[doc(alias = "ggml_backend_sched_new")]
    #[track_caller]
    pub fn new(backends: impl IntoIterator<Item = Backend>) -> Result<Self> {
        let backends: Vec<_> = backends.into_iter().collect();
        let call = Call::new("Scheduler::new");
        let refuse = |detail: String| Err(call.param(detail));
        if backends.is_empty() || backends.len() > MOST {
            return refuse(format!(
                "{} backends; 1 to {MOST} can be scheduled",
                backends.len()
            ));
        }
        for (i, backend) in backends.iter().enumerate() {
            let device = backend.device();
            if backends[..i]
                .iter()
                .any(|earlier| earlier.device() == device)
            {
                return refuse(format!("{} is there twice", device.name()));
            }
        }
        Ok(Self {
            backends,
            fallback: Fallback::Allow,
        })
    }

    /// [`Device::best`], and the CPU after it where that is another device. Never a simulated device.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) when a device refuses.
    pub fn best() -> Result<Self> {
        let (best, cpu) = (Device::best()?, Device::cpu()?);
        let others = (best != cpu).then_some(cpu);
        let opened: Result<Vec<_>> = [best].into_iter().chain(others).map(Device::open).collect();
        Self::new(opened?)
    }

    /// Says what happens to nodes that the first backend does not run.
    #[must_use]
    pub fn with_fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = fallback;
        self
    }

    /// The devices, in the order of preference.
    pub fn devices(&self) -> impl Iterator<Item = Device> + '_ {
        self.backends.iter().map(Backend::device)
    }

    /// The backend on a device, to set its threads.
    pub fn backend_mut(&mut self, device: Device) -> Option<&mut Backend> {
        self.backends
            .iter_mut()
            .find(|backend| backend.device() == device)
    }

    /// The backends again.
    pub fn into_backends(self) -> Vec<Backend> {
        self.backends
    }
}

/// A device is one bit of a mask.
const MOST: usize = 16;

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("backends", &self.backends)
            .field("fallback", &self.fallback)
            .finish()
    }
}

/// What a plan runs on: a [`Backend`] or a [`Scheduler`].
pub trait Executor: sealed::Executor {}

impl Executor for Backend {}
impl Executor for Scheduler {}

pub(crate) mod sealed {
    use super::{Backend, Fallback};

    pub trait Executor {
        fn backends(&self) -> &[Backend];
        fn backends_mut(&mut self) -> &mut [Backend];
        fn fallback(&self) -> Fallback;
    }
}

impl sealed::Executor for Backend {
    fn backends(&self) -> &[Backend] {
        slice::from_ref(self)
    }

    fn backends_mut(&mut self) -> &mut [Backend] {
        slice::from_mut(self)
    }

    fn fallback(&self) -> Fallback {
        Fallback::Forbid
    }
}

impl sealed::Executor for Scheduler {
    fn backends(&self) -> &[Backend] {
        &self.backends
    }

    fn backends_mut(&mut self) -> &mut [Backend] {
        &mut self.backends
    }

    fn fallback(&self) -> Fallback {
        self.fallback
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_named_once_each() {
        assert!(Scheduler::new([]).is_err());
        let cpu = || Device::cpu().unwrap().open().unwrap();
        let error = Scheduler::new([cpu(), cpu()]).unwrap_err();
        assert!(error.to_string().contains("CPU is there twice"), "{error}");
        let scheduler = Scheduler::new([cpu()]).unwrap();
        assert_eq!(scheduler.into_backends().len(), 1);
    }

    #[test]
    fn the_best_scheduler_simulates_nothing_and_ends_with_the_cpu() {
        let scheduler = Scheduler::best().unwrap();
        assert!(scheduler.devices().all(|device| !device.is_simulated()));
        assert_eq!(scheduler.devices().last(), Some(Device::cpu().unwrap()));
    }
}
