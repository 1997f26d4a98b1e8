//! Reductions of half-precision tensors are computed in F32, on every device, and this guard notices if they are not.
//!
//! Each variant (op, axis, type, device) is a process of its own: this binary, run again. In one process, an earlier
//! variant can hide the fault of a later one. Each runs [`ITERATIONS`] times on fresh data. The guard is worth what it
//! catches, so every half-precision variant has a faulty twin, which must not pass.

mod bound;
mod data;
mod faulty;
mod variant;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ggml_rs::DType::{self, BF16, F16, F32};
use ggml_rs_tests::mutant::{self, Change};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;
use variant::{Axis, ITERATIONS, Op, Variant};

/// As the first argument, it makes this binary run one variant.
const VARIANT: &str = "variant";

/// What a variant's process reports.
#[derive(Deserialize)]
struct Report {
    iterations: u64,
    differ: u64,
    first: Option<String>,
    closest: Option<f64>,
    ulps: Option<f64>,
}

/// Runs a variant in a process of its own.
fn report(variant: &Variant) -> Result<Report> {
    let output = Command::new(std::env::current_exe()?)
        .arg(VARIANT)
        .args(variant.args())
        .stdin(Stdio::null())
        .output()?;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    // One that died has not shown that results are wrong, no more than that they are right.
    ensure!(output.status.success(), "{}\n{out}{err}", output.status);
    let report: Report = serde_json::from_str(&out).with_context(|| format!("{out}{err}"))?;
    ensure!(
        report.iterations == ITERATIONS,
        "{} iterations, not {ITERATIONS}",
        report.iterations
    );
    Ok(report)
}

fn passes(variant: &Variant) -> Result<String> {
    let report = report(variant)?;
    ensure!(
        report.differ == 0,
        "{} of {ITERATIONS} differ, the first: {}",
        report.differ,
        report.first.unwrap_or_default()
    );
    let (closest, ulps) = (
        report.closest.context("no distance")?,
        report.ulps.context("no distance")?,
    );
    Ok(format!("closest to its bound: {closest:.3}; {ulps:.3} ulp"))
}

fn is_caught(variant: &Variant) -> Result<String> {
    let report = report(variant)?;
    ensure!(report.differ > 0, "a faulty reduction passed");
    Ok(format!(
        "caught in {} of {ITERATIONS}, the first: {}",
        report.differ,
        report.first.unwrap_or_default()
    ))
}

/// The variant on a mutant of the simulated device; with no change, on the device itself as a library.
fn on_mutant(variant: Variant, name: &'static str, changes: &[Change]) -> Result<Variant> {
    static BUILT: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let library = match built.entry(name) {
        Entry::Occupied(entry) => entry.get().clone(),
        Entry::Vacant(entry) => {
            let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
            entry.insert(mutant::build(&work, name, changes)?).clone()
        }
    };
    Ok(Variant {
        backend_lib: Some(library),
        ..variant
    })
}

fn catch(variant: Variant) -> Result<String> {
    if variant.device == "CPU" {
        return is_caught(&Variant {
            faulty: true,
            ..variant
        });
    }
    let (name, changes) = faulty::mutant(variant.op, variant.dtype);
    is_caught(&on_mutant(variant, name, &changes)?)
}

/// Without it, a broken way of building mutants would look like a good guard.
fn control(variant: Variant) -> Result<String> {
    passes(&on_mutant(variant, "control", &[])?)
}

fn trial(
    kind: &str,
    variant: &Variant,
    test: impl FnOnce(Variant) -> Result<String> + Send + 'static,
) -> Trial {
    let name = [kind.to_owned(), variant.args().join(" ")].join(" ");
    let (variant, title) = (variant.clone(), name.clone());
    Trial::test(name, move || {
        let outcome = test(variant).map_err(|error| Failed::from(format!("{error:#}")))?;
        eprintln!("{title}: {outcome}");
        Ok(())
    })
}

fn variants(dtypes: &[DType]) -> impl Iterator<Item = Variant> {
    let mut all = Vec::new();
    for device in ["CPU", "MTL0"] {
        for &dtype in dtypes {
            for op in [Op::Sum, Op::Mean, Op::Max, Op::Min] {
                all.extend([Axis::Rows, Axis::Whole].map(|axis| Variant {
                    op,
                    axis,
                    dtype,
                    device: device.into(),
                    faulty: false,
                    backend_lib: None,
                }));
            }
        }
    }
    all.into_iter()
}

fn main() -> ExitCode {
    let mut own = std::env::args().skip(1);
    if own.next().as_deref() == Some(VARIANT) {
        let variant = Variant::parse_from(std::iter::once(VARIANT.to_owned()).chain(own));
        return match variant.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let mut args = Arguments::from_args();
    // Mutants share a build folder, and the simulated device uses all cores.
    args.test_threads = Some(1);

    let built = |name: &str| {
        env!("GGML_BACKENDS")
            .split(',')
            .any(|backend| backend == name)
    };
    let (metal, simulated) = (built("metal") || built("metal-sim"), built("metal-sim"));
    let right = variants(&[F32, F16, BF16]).map(|variant| {
        trial("right", &variant, |v| passes(&v))
            .with_ignored_flag(variant.device != "CPU" && !metal)
    });
    let faulty = variants(&[F16, BF16]).map(|variant| {
        trial("faulty", &variant, catch).with_ignored_flag(variant.device != "CPU" && !simulated)
    });
    let controls = variants(&[F16])
        .filter(|variant| variant.device != "CPU" && variant.axis == Axis::Rows)
        .map(|variant| trial("control", &variant, control).with_ignored_flag(!simulated));
    let trials = right.chain(controls).chain(faulty).collect();
    libtest_mimic::run(&args, trials).exit_code()
}
