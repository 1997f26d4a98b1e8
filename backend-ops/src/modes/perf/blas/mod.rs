//! Set `blas`: OUT_PROD on the CPU beside the machine's BLAS, whose OUT_PROD is a single sgemm, and beside upstream's kernel.
//!
//! The arms take turns within one run, so that their ratio holds where the machine's clock or its other work changes.

mod table;

use std::thread;
use std::time::Instant;

use ggml_rs::{Backend, DType, Device, Plan};

use super::measure::{plan, repeated};
use super::rounds::{Timing, alternate, runs_in_a_round};
use super::{Perf, Sinks};
use crate::case::{Case, CaseGraph, Choices};
use crate::cases::OutProd;
use crate::engine::runner::generate;
use crate::engine::session::{Error, Verdict, describe};
use crate::report::{Header, Report};

const CUBES: [usize; 3] = [512, 1024, 2048];
/// Ranks of LoRA adapters, and m and n of their gradients.
const RANKS: [usize; 3] = [8, 16, 64];
const LAYERS: [[usize; 2]; 5] = [
    [1024, 1024],
    [4096, 4096],
    [8192, 8192],
    [8192, 1024],
    [1024, 8192],
];
/// Gradients of the adapters themselves: m, n and k.
const ADAPTERS: [[usize; 3]; 4] = [
    [4096, 16, 1024],
    [16, 4096, 1024],
    [4096, 64, 4096],
    [64, 4096, 4096],
];

/// The cases: cubes with the gradient as it is and transposed, then those of LoRA.
#[must_use]
pub fn cases() -> Vec<OutProd> {
    let case = |mnk| OutProd::new(DType::F32, DType::F32, mnk);
    let cubes = CUBES.map(|size| case([size; 3]));
    let layers = RANKS
        .into_iter()
        .flat_map(|k| LAYERS.map(|[m, n]| case([m, n, k])));
    cubes
        .iter()
        .cloned()
        .chain(cubes.iter().map(|case| case.clone().transposed(true)))
        .chain(layers)
        .chain(ADAPTERS.map(case))
        .collect()
}

/// Who computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The CPU backend.
    Ours,
    /// The BLAS backend.
    Blas,
    /// The CPU backend with ggml's own kernel.
    Upstream,
}

impl Arm {
    /// All, in the order in which they take turns.
    pub const ALL: [Self; 3] = [Self::Ours, Self::Blas, Self::Upstream];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Blas => "blas",
            Self::Upstream => "upstream",
        }
    }

    fn open(self, devices: [Device; 2], threads: usize) -> ggml_rs::Result<Backend> {
        let [cpu, blas] = devices;
        let mut backend = match self {
            Self::Blas => blas.open()?,
            Self::Ours | Self::Upstream => cpu.open()?,
        };
        backend.set_threads(threads)?;
        if self == Self::Upstream {
            backend.set_reference(true)?;
        }
        Ok(backend)
    }

    /// Runs in one submission. Upstream's takes several times as long: fewer of its runs say as much.
    fn runs(self, case: &OutProd) -> usize {
        let runs = runs_in_a_round(case.flops(), 0, true);
        match self {
            Self::Upstream => runs.div_ceil(5),
            Self::Ours | Self::Blas => runs,
        }
    }
}

/// What a case came to with so many threads.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Threads of every arm.
    pub threads: usize,
    /// As [`Arm::ALL`].
    pub timings: [Timing; 3],
}

impl Comparison {
    fn of(&self, arm: Arm) -> &Timing {
        &self.timings[arm as usize]
    }

    /// The speed of an arm, by medians, as a multiple of BLAS's.
    #[must_use]
    pub fn ratio(&self, arm: Arm) -> f64 {
        self.of(Arm::Blas).series.median() / self.of(arm).series.median()
    }
}

/// The device of the machine's BLAS.
///
/// # Errors
/// Says how to have one.
pub fn device() -> anyhow::Result<Device> {
    Device::by_name("BLAS").map_err(|_| {
        anyhow::anyhow!(
            "--set blas: there is no device BLAS; install OpenBLAS with its headers and pkg-config (Debian: libopenblas-dev \
             pkg-config) and build with --features blas"
        )
    })
}

/// One thread, and two where the machine has them.
fn threads() -> impl Iterator<Item = usize> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (1..=2).filter(move |&threads| threads <= cores)
}

fn compare(
    case: &OutProd,
    devices: [Device; 2],
    threads: usize,
    seed: u64,
) -> ggml_rs::Result<Comparison> {
    let data = generate(case, seed)?;
    let mut arms = Vec::new();
    for arm in Arm::ALL {
        let built = CaseGraph::new(case, Choices::default())?;
        let backend = arm.open(devices, threads)?;
        let plan = plan(built.graph, &built.inputs, &data, &backend)?;
        arms.push(((plan, backend), arm.runs(case)));
    }
    let timings = alternate(&mut arms, |(plan, backend): &mut (Plan, Backend), runs| {
        let start = Instant::now();
        plan.run_with(backend, repeated(runs))?;
        Ok::<_, ggml_rs::Error>(start.elapsed())
    })?;
    let [ours, blas, upstream] = &timings[..] else {
        unreachable!("as many timings as arms");
    };
    Ok(Comparison {
        threads,
        timings: [ours.clone(), blas.clone(), upstream.clone()],
    })
}

/// Measures the cases that are in the set.
///
/// # Errors
/// When a report cannot be written or a device cannot be opened.
pub(super) fn run(perf: &Perf, blas: Device, sinks: &mut Sinks<'_>) -> Result<Verdict, Error> {
    let chosen: Vec<String> = perf.cases.iter().map(|case| case.name()).collect();
    let mut cases = cases();
    cases.retain(|case| chosen.contains(&case.name()));
    sinks.begin(&Header::new(
        perf.settings.seed,
        perf.settings.choices,
        perf.all_devices.len(),
    ))?;
    let mut infos = Vec::new();
    for (index, &device) in perf.all_devices.iter().enumerate() {
        let info = describe(index, device);
        if device == blas || device == Device::cpu()? {
            sinks.people.begin_device(&info)?;
        }
        infos.push((device, info));
    }
    let info_of = |wanted| infos.iter().find(|(device, _)| *device == wanted);
    let devices = [Device::cpu()?, blas];
    for line in table::head() {
        sinks.line(line)?;
    }
    let (mut measured, mut failed) = (0, 0);
    for case in &cases {
        for threads in threads() {
            let comparison = match compare(case, devices, threads, perf.settings.seed) {
                Ok(comparison) => comparison,
                Err(error) => {
                    failed += 1;
                    sinks.line(format_args!("  {}: {error} FAIL", case.name()))?;
                    continue;
                }
            };
            measured += 1;
            sinks.line(table::line(case, &comparison))?;
            let Some(rows) = &mut sinks.rows else {
                continue;
            };
            for arm in Arm::ALL {
                let device = devices[usize::from(arm == Arm::Blas)];
                if let Some((_, info)) = info_of(device) {
                    let (row, extra) = table::row(case, &comparison, arm, info);
                    rows.write_with(&row, &extra)?;
                }
            }
        }
    }
    sinks.line(format_args!("  measured {measured}, failed {failed}"))?;
    Ok(match (measured, failed) {
        (_, 1..) => Verdict::Failed,
        (0, _) => Verdict::NothingRan,
        _ => Verdict::Passed,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_shape_comes_once() {
        let cases = cases();
        let names: HashSet<_> = cases.iter().map(Case::name).collect();
        assert_eq!((cases.len(), names.len()), (25, 25));
    }

    #[test]
    fn a_ratio_above_one_is_faster_than_blas() {
        let timing = |us: u64| {
            let mut timing = Timing {
                runs: 1,
                total: Duration::from_micros(us),
                ..Timing::default()
            };
            timing.series.push(us as f64);
            timing
        };
        let comparison = Comparison {
            threads: 1,
            timings: [timing(50), timing(100), timing(400)],
        };
        assert_eq!(comparison.ratio(Arm::Ours), 2.0);
        assert_eq!(comparison.ratio(Arm::Blas), 1.0);
        assert_eq!(comparison.ratio(Arm::Upstream), 0.25);
    }
}
