//! The CPU backend's levels: the best one that the machine has is picked, each computes right, and a CPU that has too
//! little gets an error instead of an illegal instruction.
//!
//! Other CPUs are emulated by qemu-x86_64. Where it is missing its tests are ignored, or fail if `GGML_RS_REQUIRE_TOOLS`
//! is set.

use std::env;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use ggml_rs_tests::Run;
use libtest_mimic::{Arguments, Failed, Trial};

const EXE: &str = env!("CARGO_BIN_EXE_backend-ops-under-test");
const QEMU: &str = "qemu-x86_64";
const LEVEL: &str = "GGML_RS_CPU_LEVEL";

/// The gate on the CPU.
const GATE: [&str; 7] = ["test", "-o", "OUT_PROD", "--set", "gate", "-b", "CPU"];

/// Sums of up to 4096 products and edges of everything that a product is cut into, close to f64.
const PRECISE: [&str; 7] = ["test", "-o", "OUT_PROD", "--set", "precise", "-b", "CPU"];

/// With this variable in its environment this program checks products, at the level that it is given.
const PRODUCTS: &str = "GGML_RS_TESTS_PRODUCTS";

/// Cases of the gate that are quick in an emulator.
const QUICK: [&str; 2] = ["-p", QUICK_CASES];
const QUICK_CASES: &str = "k=(1|16),";

/// Runs `backend-ops`, on an emulated CPU or on this one, at a level or at the best.
fn backend_ops(cpu: Option<&str>, level: Option<&str>, args: &[&str]) -> Result<Run> {
    let mut command = match cpu {
        Some(model) => {
            let mut qemu = Command::new(QEMU);
            qemu.args(["-cpu", model, EXE]);
            qemu
        }
        None => Command::new(EXE),
    };
    // An emulator does not follow into worker processes.
    command.args(args).args(["-j", "1"]);
    command.stdin(Stdio::null()).env_remove(LEVEL);
    if let Some(level) = level {
        command.env(LEVEL, level);
    }
    let output = command.output().context("cannot run backend-ops")?;
    Ok(Run {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Every case that ran passed, at this level, and some ran.
fn passed_at(run: &Run, level: &str) -> Result<()> {
    ensure!(
        run.stdout.contains(&format!("(x86-64-{level})")),
        "not at {level}:\n{}",
        run.transcript()
    );
    let (passed, all) = run.tally().with_context(|| run.transcript())?;
    ensure!(
        run.status.success() && passed == all && all > 0,
        "{}",
        run.transcript()
    );
    Ok(())
}

/// It ended with an error that says `reason`, and with no signal.
fn refused_with(run: &Run, reason: &str) -> Result<()> {
    ensure!(
        run.status.code() == Some(2) && run.stderr.contains(reason),
        "expected an error with {reason:?}:\n{}",
        run.transcript()
    );
    Ok(())
}

/// The best level, asked of the standard library.
#[cfg(target_arch = "x86_64")]
fn best_level() -> &'static str {
    macro_rules! has {
        ($($feature:tt)*) => { $(std::arch::is_x86_feature_detected!($feature))&&* };
    }
    let v3 = has!("avx" "avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe");
    let v4 = has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl");
    match (v3, v4) {
        (true, true) => "v4",
        (true, false) => "v3",
        _ => "v2",
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best_level() -> &'static str {
    "v2"
}

fn this_machine_gets_its_best() -> Result<()> {
    let run = backend_ops(None, None, &[&GATE[..], &QUICK].concat())?;
    passed_at(&run, best_level())
}

fn gate_at(level: &str) -> Result<()> {
    passed_at(&backend_ops(None, Some(level), &GATE)?, level)
}

fn precise_at(level: &str) -> Result<()> {
    passed_at(&backend_ops(None, Some(level), &PRECISE)?, level)
}

/// The level is one for all of a process.
fn products_at(level: &str) -> Result<()> {
    let output = Command::new(env::current_exe()?)
        .env(PRODUCTS, level)
        .env(LEVEL, level)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    Ok(())
}

/// What this program does for [`products_at`].
fn products(level: &str) -> Result<()> {
    let here = ggml_sys::cpu::level().unwrap_or_default();
    ensure!(here == format!("x86-64-{level}"), "this is {here}");
    ggml_rs_tests::products::check()
}

fn a_wrong_level_is_an_error() -> Result<()> {
    for wrong in ["v5", "3", ""] {
        let run = backend_ops(None, Some(wrong), &GATE)?;
        refused_with(&run, "it must be v2, v3 or v4")?;
    }
    Ok(())
}

fn nehalem_gets_v2() -> Result<()> {
    let run = backend_ops(Some("Nehalem"), None, &[&GATE[..], &QUICK].concat())?;
    passed_at(&run, "v2")
}

fn haswell_gets_v3() -> Result<()> {
    let run = backend_ops(Some("Haswell"), None, &[&GATE[..], &QUICK].concat())?;
    passed_at(&run, "v3")
}

fn the_variable_does_not_raise_the_level() -> Result<()> {
    let run = backend_ops(Some("Haswell"), Some("v4"), &GATE)?;
    refused_with(&run, "supports no more than v3")
}

/// Core 2 has SSSE3 and neither SSE4.2 nor popcnt.
fn a_cpu_below_v2_gets_an_error() -> Result<()> {
    let run = backend_ops(Some("core2duo"), None, &GATE)?;
    refused_with(&run, "sse4.2")?;
    refused_with(&run, "popcnt")
}

/// The simulator is compiled for AVX2, and part of the program: its constructors must not run, nor its device exist.
fn a_cpu_below_v3_has_no_simulated_device() -> Result<()> {
    let run = backend_ops(Some("Nehalem"), None, &["test", "-b", "MTL0"])?;
    refused_with(&run, "no device \"MTL0\"; devices here: CPU")?;
    // Nor may it look as if there had never been one.
    let run = backend_ops(Some("Nehalem"), None, &["test"])?;
    refused_with(&run, "needs a CPU with AVX2")
}

/// Why there is no simulated device that a CPU could lack.
fn without_simulation() -> Option<&'static str> {
    let mut backends = env!("GGML_BACKENDS").split(',');
    (!backends.any(|backend| backend == "metal-sim")).then_some("no simulated device in this build")
}

fn trial(name: &str, test: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        test().map_err(|error| Failed::from(format!("{error:#}")))
    })
}

/// Why tests on an emulated CPU cannot run here.
fn without_qemu() -> Option<&'static str> {
    let found = Command::new(QEMU).arg("--version").output().is_ok();
    let required = env::var_os("GGML_RS_REQUIRE_TOOLS").is_some();
    (!found && !required).then_some("qemu-x86_64 is missing")
}

/// A wrong level in the environment hides what this build has. Nothing is ignored then, and this fails.
fn this_process_has_a_level() -> Result<()> {
    match ggml_sys::cpu::level_error() {
        Some(error) => bail!("{error}"),
        None => Ok(()),
    }
}

/// Why there is no choice of levels to test.
fn without_levels() -> Option<&'static str> {
    if ggml_sys::cpu::level_error().is_some() {
        return None;
    }
    let level = ggml_sys::cpu::level().unwrap_or_default();
    (!level.starts_with("x86-64-") || cfg!(not(target_os = "linux")))
        .then_some("the CPU backend is compiled for one CPU")
}

/// An ignored test says why in place of its kind.
fn unless(reason: Option<&str>, trial: Trial) -> Trial {
    match reason {
        Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
        None => trial,
    }
}

fn main() -> ExitCode {
    if let Some(level) = env::var_os(PRODUCTS) {
        return match products(&level.to_string_lossy()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let native = [
        trial("this_process_has_a_level", this_process_has_a_level),
        trial("this_machine_gets_its_best", this_machine_gets_its_best),
        trial("a_wrong_level_is_an_error", a_wrong_level_is_an_error),
    ];
    let levels = ["v2", "v3", "v4"].into_iter().flat_map(|level| {
        let above = (level > best_level()).then_some("above this machine");
        [
            trial(&format!("gate_at_{level}"), move || gate_at(level)),
            trial(&format!("precise_at_{level}"), move || precise_at(level)),
            trial(&format!("products_at_{level}"), move || products_at(level)),
        ]
        .map(|trial| unless(above, trial))
    });
    let emulated = [
        trial("nehalem_gets_v2", nehalem_gets_v2),
        trial("haswell_gets_v3", haswell_gets_v3),
        trial(
            "the_variable_does_not_raise_the_level",
            the_variable_does_not_raise_the_level,
        ),
        trial("a_cpu_below_v2_gets_an_error", a_cpu_below_v2_gets_an_error),
        unless(
            without_simulation(),
            trial(
                "a_cpu_below_v3_has_no_simulated_device",
                a_cpu_below_v3_has_no_simulated_device,
            ),
        ),
    ]
    .map(|trial| unless(without_qemu(), trial));
    let trials = native
        .into_iter()
        .chain(levels)
        .chain(emulated)
        .map(|trial| unless(without_levels(), trial))
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
