//! Running a plan, and what a run may be asked for.

use std::cell::RefCell;
use std::thread::sleep;
use std::time::Duration;

use super::partition::Partition;
use super::{Plan, names};
use crate::backend::{Backend, Cancel, Executor};
use crate::error::{Call, Error, Result};
use crate::inside::{self, Run};
use crate::logging;
use crate::params::{Accesses, Held, Wait};
use crate::trace::Dispatch;

/// What a run is asked for: [`Plan::run_with`].
///
/// Every combination runs but one: `cancel` with a `repeat` other than 1 is refused, because a graph that is repeated is not cut
/// into the parts between which a device looks at its switch.
///
/// ```
/// use ggml_rs::{Cancel, RunOptions};
///
/// let switch = Cancel::new();
/// let options = RunOptions { cancel: Some(&switch), trace: true, ..RunOptions::default() };
/// # assert_eq!(options.repeat, 1);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RunOptions<'a> {
    /// Stops the run when another thread switches it on: [`Error::Cancelled`].
    ///
    /// A run that was cancelled has no outputs, and may have written some of its parameters and not others (an optimizer's
    /// step that was reached, and not the next). On devices other than the CPU the graph runs in parts, across which
    /// kernels are not fused.
    pub cancel: Option<&'a Cancel>,
    /// Records what is dispatched: [`RunReport::dispatches`].
    pub trace: bool,
    /// Runs the graph repeated so many times, as one graph: for measurements, which the start and the end of a run would blur.
    /// 1 is an ordinary run.
    ///
    /// Kernels are not fused in a repeated graph. It takes one device, and at most 2^20 nodes in all.
    pub repeat: usize,
    /// Returns [`Error::Busy`] where another thread uses the graph's parameters, with nothing done, in place of waiting for it.
    ///
    /// It is about parameters only: runs on the simulated device take turns in a process, and so do those that share a
    /// [`ThreadPool`](crate::ThreadPool); a run waits for its turn.
    pub try_: bool,
}

impl Default for RunOptions<'_> {
    /// What [`Plan::run`] does: waits for parameters and for the end, records nothing.
    fn default() -> Self {
        Self {
            cancel: None,
            trace: false,
            repeat: 1,
            try_: false,
        }
    }
}

/// What a run reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunReport {
    /// What was dispatched, in order of encoding, where [`RunOptions::trace`] asked for it. Empty on devices that keep no
    /// record, such as the CPU.
    pub dispatches: Vec<Dispatch>,
}

impl Plan {
    /// Runs the graph and waits for its end.
    ///
    /// Where other threads use the parameters of the graph, it waits for them first: a training step has nothing else to
    /// do, and a caller that has sets [`RunOptions::try_`].
    ///
    /// # Errors
    /// [`Error::Param`] when an input or a parameter has no values or the backend works on another device;
    /// [`Error::Compute`], which poisons the backend; [`Error::Poisoned`] afterwards.
    ///
    /// In a closure of a custom op, which may run other plans, nothing waits for another run: what the run around it holds is
    /// [`Error::Param`] or [`Error::Device`], unless both only read it, and what another thread uses is [`Error::Busy`].
    ///
    /// # Panics
    /// When a closure of a custom op panicked: its panic continues here, after the run.
    #[doc(alias = "ggml_backend_graph_compute")]
    #[track_caller]
    pub fn run(&mut self, on: &mut impl Executor) -> Result<()> {
        let call = Call::new("Plan::run");
        self.start(call, on.backends_mut(), RunOptions::default())
            .map(drop)
    }

    /// Runs the graph as [`Plan::run`] does, with options: until a switch stops it, with a record of what is dispatched, repeated,
    /// or only if no other thread uses its parameters.
    ///
    /// ```
    /// use ggml_rs::{Backend, Error, Plan, Result, RunOptions};
    ///
    /// /// Whether the plan has run; `false` says that another thread uses its parameters.
    /// fn ran(plan: &mut Plan, backend: &mut Backend) -> Result<bool> {
    ///     let options = RunOptions { try_: true, ..RunOptions::default() };
    ///     match plan.run_with(backend, options) {
    ///         Ok(_) => Ok(true),
    ///         // A struct variant: match it with `{ .. }`.
    ///         Err(Error::Busy { .. }) => Ok(false),
    ///         Err(error) => Err(error),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Cancelled`] by [`RunOptions::cancel`]; [`Error::Busy`] with [`RunOptions::try_`]; [`Error::Param`] for options
    /// that cannot be combined and for a [`RunOptions::repeat`] that cannot be had; else as [`Plan::run`].
    ///
    /// # Panics
    /// As [`Plan::run`].
    #[doc(alias = "ggml_backend_cpu_set_abort_callback")]
    #[track_caller]
    pub fn run_with(
        &mut self,
        on: &mut impl Executor,
        options: RunOptions<'_>,
    ) -> Result<RunReport> {
        self.start(Call::new("Plan::run_with"), on.backends_mut(), options)
    }

    /// [`Plan::run_with`] with [`RunOptions::try_`].
    ///
    /// # Errors
    /// As there.
    #[deprecated(note = "call run_with with RunOptions::try_")]
    #[track_caller]
    pub fn try_run(&mut self, on: &mut impl Executor) -> Result<()> {
        let options = RunOptions {
            try_: true,
            ..RunOptions::default()
        };
        self.start(Call::new("Plan::try_run"), on.backends_mut(), options)
            .map(drop)
    }

    /// [`Plan::run_with`] with [`RunOptions::cancel`].
    ///
    /// # Errors
    /// As there.
    #[deprecated(note = "call run_with with RunOptions::cancel")]
    #[track_caller]
    pub fn run_cancellable(&mut self, on: &mut impl Executor, cancel: &Cancel) -> Result<()> {
        let options = RunOptions {
            cancel: Some(cancel),
            ..RunOptions::default()
        };
        let call = Call::new("Plan::run_cancellable");
        self.start(call, on.backends_mut(), options).map(drop)
    }

    /// [`Plan::run_with`] with [`RunOptions::repeat`].
    ///
    /// # Errors
    /// As there.
    #[deprecated(note = "call run_with with RunOptions::repeat")]
    #[track_caller]
    pub fn run_times(&mut self, on: &mut impl Executor, times: usize) -> Result<()> {
        let options = RunOptions {
            repeat: times,
            ..RunOptions::default()
        };
        self.start(Call::new("Plan::run_times"), on.backends_mut(), options)
            .map(drop)
    }

    /// [`Plan::run_with`] with [`RunOptions::trace`].
    ///
    /// # Errors
    /// As there.
    #[deprecated(note = "call run_with with RunOptions::trace")]
    #[track_caller]
    pub fn run_traced(&mut self, on: &mut impl Executor) -> Result<Vec<Dispatch>> {
        let options = RunOptions {
            trace: true,
            ..RunOptions::default()
        };
        self.start(Call::new("Plan::run_traced"), on.backends_mut(), options)
            .map(|report| report.dispatches)
    }

    /// Runs the graph for any of the public functions that do.
    pub(super) fn start(
        &mut self,
        call: Call,
        backends: &mut [Backend],
        options: RunOptions<'_>,
    ) -> Result<RunReport> {
        self.check_options(call, options)?;
        self.check_ready(call, backends)?;
        // Dropped last, when all locks are free: a logger may do anything.
        let _lines = logging::hold();
        self.compute(call, backends, options)
    }

    fn check_options(&self, call: Call, options: RunOptions<'_>) -> Result<()> {
        let RunOptions { cancel, repeat, .. } = options;
        let parts = self.partition.splits.len();
        match repeat {
            1 => Ok(()),
            _ if cancel.is_some() => Err(call.param(format!(
                "a graph repeated {repeat} times cannot be cancelled: leave out `cancel`, or repeat the call"
            ))),
            0 => Err(call.param("a graph cannot be repeated 0 times: `repeat` is 1 or more")),
            _ if parts > 1 || !self.partition.can_repeat(repeat) => Err(call.param(format!(
                "a plan of {parts} parts cannot run {repeat} times as one graph: it takes one device, and at most 2^20 nodes in all"
            ))),
            _ => Ok(()),
        }
    }

    fn check_ready(&self, call: Call, backends: &[Backend]) -> Result<()> {
        let refuse = |detail: String| Err(call.param(detail));
        let devices = || backends.iter().map(Backend::device);
        if !devices().eq(self.devices().iter().copied()) {
            return refuse(format!(
                "the plan is on {}, the backend on {}",
                names(self.devices().iter().copied()),
                names(devices())
            ));
        }
        if let Some(index) = self.set.iter().position(|set| !set) {
            return refuse(format!(
                "input `{}` has no values: set it first",
                self.graph.input_name(index)
            ));
        }
        self.graph
            .params()
            .iter()
            .try_for_each(|leaf| leaf.param.check_set(call))
    }

    fn compute(
        &mut self,
        call: Call,
        backends: &mut [Backend],
        options: RunOptions<'_>,
    ) -> Result<RunReport> {
        // A run that is not to wait leaves everything as it was.
        self.finished &= options.try_;
        let _held = lock(call, &self.accesses, options)?;
        self.finished = false;
        let running = self.graph.running(|| Run {
            storages: self.accesses.uses(),
            pools: backends.iter().filter_map(Backend::pool).collect(),
            around: inside::run(),
        });
        let outcome = run_splits(&mut self.partition, backends, options);
        drop(running);
        // Whatever came of the run, ggml has returned.
        self.graph.resume_panic();
        let dispatches = outcome?;
        self.finished = true;
        Ok(RunReport { dispatches })
    }
}

/// How often a run that waits for parameters looks at its switch.
const LOOK: Duration = Duration::from_millis(1);

/// Locks the parameters of a graph, or waits for them as the options say.
fn lock<'a>(call: Call, accesses: &'a Accesses, options: RunOptions<'_>) -> Result<Vec<Held<'a>>> {
    let Some(cancel) = options.cancel else {
        return accesses.lock(call, if options.try_ { Wait::No } else { Wait::Yes });
    };
    let waits = !options.try_ && inside::run().is_none();
    loop {
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        match accesses.lock(call, Wait::No) {
            Err(Error::Busy { .. }) if waits => sleep(LOOK),
            done => return done,
        }
    }
}

/// Runs one part after the other, each on its backend.
fn run_splits(
    partition: &mut Partition,
    backends: &mut [Backend],
    options: RunOptions<'_>,
) -> Result<Vec<Dispatch>> {
    let RunOptions { cancel, repeat, .. } = options;
    let trace = options.trace.then(RefCell::default);
    for split in 0..partition.splits.len() {
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Error::Cancelled);
        }
        let graphs = if repeat > 1 {
            vec![partition.repeated(repeat)?]
        } else {
            partition.graphs(split, cancel.is_some())?
        };
        let split = &partition.splits[split];
        // SAFETY: `Plan::new` allocated both sides of each copy. Earlier splits have ended, and the locks keep others from
        // parameters.
        unsafe { split.copy_in() };
        for graph in graphs {
            // SAFETY: the graph is alive; `Plan::new` allocated its tensors where this device reaches them and checked that
            // it runs every node; `check_ready` compared the devices.
            unsafe { backends[split.device].compute(graph, cancel, trace.as_ref())? };
        }
    }
    Ok(trace.map(RefCell::into_inner).unwrap_or_default())
}
