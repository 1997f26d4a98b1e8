//! Does the gate discriminate? Each mutation, alone, must make it fail, and for the expected reason.
//!
//! A mutant is the patched tree with one text changed, built as a backend library; `backend-ops --backend-lib` runs the
//! gate on it. The control does the same with nothing changed, and must pass: otherwise a broken way of building mutants
//! would look like a good gate.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use ggml_rs_tests::mutant::{self, Change};
use ggml_rs_tests::{Run, backend_ops_in_order};
use libtest_mimic::{Arguments, Failed, Trial};

/// One change to the patched tree, and what must come of it.
struct Mutant {
    name: &'static str,
    /// Relative to ggml's root.
    file: &'static str,
    /// Stands exactly once in the file.
    from: &'static str,
    to: &'static str,
    /// Says what killed it, or why that is not what was expected.
    verdict: fn(&Run) -> Result<String>,
}

impl Mutant {
    fn change(&self) -> Change {
        Change {
            file: self.file,
            from: self.from,
            to: self.to,
        }
    }
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "half_staging",
        file: "src/ggml-metal/ggml-metal-out-prod.cpp",
        from: "return half\n",
        to: "return true\n",
        verdict: |run| all_cases_fail(run, "dispatched kernel_mul_mm_f32_f32_bci", "NaN"),
    },
    Mutant {
        name: "sb_at_4096",
        file: "src/ggml-metal/kernels/mul_mm.metal",
        from: "(shmem + 64*32*sizeof(S0))",
        to: "(shmem + 4096)",
        verdict: |run| some_cases_fail(run, "NMSE"),
    },
    Mutant {
        name: "threadgroup_memory_8192",
        file: "src/ggml-metal/ggml-metal-device.cpp",
        from: "fp32 ? 64*32*sizeof(float) + 32*32*sizeof(float)",
        to: "fp32 ? 8192",
        verdict: |run| all_cases_fail(run, "8192", "8192"),
    },
    Mutant {
        name: "view_on_dst_buffer",
        file: "src/ggml-metal/ggml-metal-out-prod.cpp",
        from: "id_a(k > 0 ? buffer_id(op->src[0])",
        to: "id_a(k > 0 ? ggml_metal_buffer_get_id((ggml_metal_buffer_t) op->buffer->context, op->src[0])",
        verdict: |run| some_cases_fail(run, ""),
    },
    Mutant {
        name: "short_scratch",
        file: "src/ggml-metal/ggml-metal-out-prod.cpp",
        from: "res.sum_offs + sizeof(float)*m*n*op->ne[2];",
        to: "res.sum_offs;",
        verdict: |run| some_cases_fail(run, "sentinel"),
    },
];

/// The product may start before its operands are staged. Where dispatches run in the order in which they were encoded,
/// nothing shows.
const WITHOUT_BARRIER: Mutant = Mutant {
    name: "product_without_barrier",
    file: "src/ggml-metal/ggml-metal-out-prod.cpp",
    from: "            barrier();\n\n            multiply(",
    to: "            multiply(",
    verdict: |run| some_cases_fail(run, "NaN"),
};

fn all_cases_fail(run: &Run, reason: &str, or: &str) -> Result<String> {
    let failures = run.failures();
    ensure!(run.tally() == Some((0, 37)), "expected 0/37");
    match failures
        .iter()
        .find(|(_, why)| !why.contains(reason) && !why.contains(or))
    {
        Some((case, why)) => bail!("another reason than {reason:?}: {case}): {why}"),
        None => Ok(format!("37 of 37 cases, the first: {}", failures[0].1)),
    }
}

fn some_cases_fail(run: &Run, reason: &str) -> Result<String> {
    let failures = run.failures();
    match failures.iter().find(|(_, why)| why.contains(reason)) {
        Some((case, why)) => Ok(format!(
            "{} of 37 cases, among them {case}): {why}",
            failures.len()
        )),
        None => bail!("no case failed with {reason:?}"),
    }
}

/// Builds the backend library of a mutant (or of the control) and runs the gate on it.
fn run_gate(mutant: Option<&Mutant>, order: &str) -> Result<Run> {
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    let name = mutant.map_or("control", |mutant| mutant.name);
    let changes = mutant.map(Mutant::change);
    let library = mutant::build(&work, name, changes.as_slice())?;
    let library = library
        .to_str()
        .context("the target folder's path is not UTF-8")?;
    let args = [
        "test",
        "-o",
        "OUT_PROD",
        "--set",
        "gate",
        "-b",
        "MTL0",
        "--backend-lib",
        library,
    ];
    let exe = env!("CARGO_BIN_EXE_backend-ops-under-test");
    backend_ops_in_order(exe, &args, order)
}

fn survives(mutant: Option<&Mutant>, order: &str) -> Result<()> {
    let run = run_gate(mutant, order)?;
    ensure!(
        run.tally() == Some((37, 37)) && run.status.success(),
        "must pass in {order} order:\n{}",
        run.transcript()
    );
    Ok(())
}

fn control() -> Result<String> {
    for order in ["ascending", "reversed", "random"] {
        survives(None, order)?;
    }
    Ok("survives in every order, as it must: 37/37".into())
}

/// What only the order of dispatches shows.
fn kill_by_order(mutant: &Mutant) -> Result<String> {
    survives(Some(mutant), "ascending")?;
    Ok(format!("{} in reversed order", kill(mutant, "reversed")?))
}

fn kill(mutant: &Mutant, order: &str) -> Result<String> {
    let run = run_gate(Some(mutant), order)?;
    ensure!(
        !run.status.success(),
        "the gate passed:\n{}",
        run.transcript()
    );
    let why = match run.unfinished_case() {
        Some(case) => format!("the process died ({}) in {case})", run.status),
        None => (mutant.verdict)(&run).with_context(|| run.transcript())?,
    };
    Ok(format!("killed by {why}"))
}

fn trial(name: &'static str, test: impl FnOnce() -> Result<String> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let outcome = test().map_err(|error| Failed::from(format!("{error:#}")))?;
        eprintln!("{name}: {outcome}");
        Ok(())
    })
}

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // They share a build folder.
    args.test_threads = Some(1);

    let simulated = env!("GGML_BACKENDS")
        .split(',')
        .any(|backend| backend == "metal-sim");
    let trials = std::iter::once(trial("control", control))
        .chain(
            MUTANTS
                .iter()
                .map(|mutant| trial(mutant.name, || kill(mutant, "ascending"))),
        )
        .chain(std::iter::once(trial(WITHOUT_BARRIER.name, || {
            kill_by_order(&WITHOUT_BARRIER)
        })))
        // Mutants are built for the simulated device: where it is not built, they are listed as ignored, not passed.
        .map(|trial| trial.with_ignored_flag(!simulated))
        .collect();
    libtest_mimic::run(&args, trials).exit_code()
}
