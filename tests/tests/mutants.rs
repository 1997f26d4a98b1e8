//! Does the gate discriminate? Each mutation, alone, must make it fail, and for the expected reason.
//!
//! A mutant is the patched tree with one text changed. metal-sim's builder recompiles what that change touches, links
//! the objects into a backend library, and `backend-ops --backend-lib` runs the gate on it. The control does the same
//! with nothing changed, and must pass: otherwise a broken way of building mutants would look like a good gate.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use ggml_rs_tests::{Run, backend_ops_in_order};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// What `backend-ops` runs on a mutant, and how many cases that is.
#[derive(Clone, Copy)]
struct Cases {
    args: &'static [&'static str],
    count: usize,
}

const GATE: Cases = Cases {
    args: &["-o", "OUT_PROD", "--set", "gate"],
    count: 37,
};
const GROUND_TRUTH: Cases = Cases {
    args: &["-o", "MUL_MAT_ID", "--set", "ground-truth"],
    count: 6,
};
/// MUL_MAT_ID's ordinary cases in both kernels, with hashes of the results.
const EXPERTS: [Cases; 2] = [
    Cases {
        args: &["-o", "MUL_MAT_ID", "--output", "json", "--tensor", "off"],
        count: 74,
    },
    Cases {
        args: &["-o", "MUL_MAT_ID", "--output", "json", "--tensor", "on"],
        count: 74,
    },
];

/// One change to the patched tree, and what must come of it.
struct Mutant {
    name: &'static str,
    cases: Cases,
    /// Relative to ggml's root.
    file: &'static str,
    /// Stands exactly once in the file.
    from: &'static str,
    to: &'static str,
    /// Says what killed it, or why that is not what was expected.
    verdict: fn(&Run) -> Result<String>,
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "half_staging",
        cases: GATE,
        file: "src/ggml-metal/ggml-metal-out-prod.cpp",
        from: "return half\n",
        to: "return true\n",
        verdict: |run| all_cases_fail(run, "dispatched kernel_mul_mm_f32_f32_bci", "NaN"),
    },
    Mutant {
        name: "sb_at_4096",
        cases: GATE,
        file: "src/ggml-metal/kernels/mul_mm.metal",
        from: "(shmem + 64*32*sizeof(S0)); // behind sa\n\n    constexpr",
        to: "(shmem + 4096);\n\n    constexpr",
        verdict: |run| some_cases_fail(run, "NMSE"),
    },
    Mutant {
        name: "threadgroup_memory_8192",
        cases: GATE,
        file: "src/ggml-metal/ggml-metal-device.cpp",
        from: "fp32 ? 64*32*sizeof(float) + 32*32*sizeof(float)",
        to: "fp32 ? 8192",
        verdict: |run| all_cases_fail(run, "8192", "8192"),
    },
    Mutant {
        name: "view_on_dst_buffer",
        cases: GATE,
        file: "src/ggml-metal/ggml-metal-out-prod.cpp",
        from: "id_a(k > 0 ? buffer_id(op->src[0])",
        to: "id_a(k > 0 ? ggml_metal_buffer_get_id((ggml_metal_buffer_t) op->buffer->context, op->src[0])",
        verdict: |run| some_cases_fail(run, ""),
    },
    Mutant {
        name: "short_scratch",
        cases: GATE,
        file: "src/ggml-metal/ggml-metal-out-prod.cpp",
        from: "res.sum_offs + sizeof(float)*m*n*op->ne[2];",
        to: "res.sum_offs;",
        verdict: |run| some_cases_fail(run, "sentinel"),
    },
    Mutant {
        name: "experts_sb_at_4096",
        cases: GROUND_TRUTH,
        file: "src/ggml-metal/kernels/mul_mm.metal",
        from: "(shmem + 64*32*sizeof(S0)); // behind sa\n\n#ifdef",
        to: "(shmem + 4096);\n\n#ifdef",
        verdict: |run| some_cases_fail(run, "float weights: "),
    },
    Mutant {
        name: "experts_threadgroup_memory_8192",
        cases: GROUND_TRUTH,
        file: "src/ggml-metal/ggml-metal-device.cpp",
        from: "res.smem = std::max(smem_a + smem_b, 64*32*sizeof(float));",
        to: "res.smem = 64*32*sizeof(float);",
        verdict: |run| some_cases_fail(run, "8192"),
    },
    // The both-float kernel stages activations as half: name and threadgroup memory are right, only its error is not.
    Mutant {
        name: "experts_half_activations",
        cases: GROUND_TRUTH,
        file: "src/ggml-metal/kernels/mul_mm.metal",
        from: "simdgroup_float8x8, float, float2x4, simdgroup_float8x8, block, nl, dequantize, t, t##4x4, float, float2x4>; \\\ntemplate [[host_name(\"kernel_mul_mm_id_\" name \"_f32_fp32_src0",
        to: "simdgroup_float8x8, half, half2x4, simdgroup_half8x8, block, nl, dequantize, t, t##4x4, float, float2x4>; \\\ntemplate [[host_name(\"kernel_mul_mm_id_\" name \"_f32_fp32_src0",
        verdict: |run| some_cases_fail(run, "times, less than 2.2"),
    },
];

/// The product may start before its operands are staged. Where dispatches run in the order in which they were encoded,
/// nothing shows.
const WITHOUT_BARRIER: Mutant = Mutant {
    name: "product_without_barrier",
    cases: GATE,
    file: "src/ggml-metal/ggml-metal-out-prod.cpp",
    from: "            barrier();\n\n            multiply(",
    to: "            multiply(",
    verdict: |run| some_cases_fail(run, "NaN"),
};

/// Together: patch 0011's changes to kernel_mul_mm_id undone. The float-staged instantiations, which the patch adds, go too.
const UNPATCHED_EXPERTS: [Mutant; 4] = {
    const fn undo(name: &'static str, from: &'static str, to: &'static str) -> Mutant {
        Mutant {
            name,
            cases: EXPERTS[0],
            file: "src/ggml-metal/kernels/mul_mm.metal",
            from,
            to,
            verdict: |_| bail!("is compared, not killed"),
        }
    }
    [
        undo(
            "unpatched_experts",
            "(shmem + 64*32*sizeof(S0)); // behind sa\n\n#ifdef",
            "(shmem + 4096);\n\n#ifdef",
        ),
        undo(
            "unpatched_experts_c0",
            "<decltype(tB0), decltype(tA), float>",
            "<decltype(tA), decltype(tB0), float>",
        ),
        undo(
            "unpatched_experts_c1",
            "<decltype(tB1), decltype(tA), float>",
            "<decltype(tA), decltype(tB1), float>",
        ),
        undo(
            "unpatched_experts_instances",
            "#define MUL_MM_ID_FP32(name, s, block, nl, dequantize, t) \\\n",
            "#define MUL_MM_ID_FP32(...)\n#define UNUSED(name, s, block, nl, dequantize, t) \\\n",
        ),
    ]
};

fn all_cases_fail(run: &Run, reason: &str, or: &str) -> Result<String> {
    let failures = run.failures();
    ensure!(
        run.tally().is_some_and(|(passed, _)| passed == 0),
        "a case passed"
    );
    match failures
        .iter()
        .find(|(_, why)| !why.contains(reason) && !why.contains(or))
    {
        Some((case, why)) => bail!("another reason than {reason:?}: {case}): {why}"),
        None => Ok(format!(
            "all {} cases, the first: {}",
            failures.len(),
            failures[0].1
        )),
    }
}

fn some_cases_fail(run: &Run, reason: &str) -> Result<String> {
    let failures = run.failures();
    match failures.iter().find(|(_, why)| why.contains(reason)) {
        Some((case, why)) => Ok(format!(
            "{} cases, among them {case}): {why}",
            failures.len()
        )),
        None => bail!("no case failed with {reason:?}"),
    }
}

/// Copies a folder with the changes made, leaving files alone that are as they should be.
fn copy_changed(from: &Path, to: &Path, mutants: &[Mutant]) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("nothing at {}", from.display()))? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_changed(&source, &target, mutants)?;
            continue;
        }
        let mut content = fs::read(&source)?;
        for mutant in mutants
            .iter()
            .filter(|mutant| source.ends_with(mutant.file))
        {
            content = mutate(&content, mutant)?;
        }
        if fs::read(&target).ok().as_ref() != Some(&content) {
            fs::write(&target, content)?;
        }
    }
    Ok(())
}

fn mutate(content: &[u8], mutant: &Mutant) -> Result<Vec<u8>> {
    let text = std::str::from_utf8(content)?;
    let count = text.matches(mutant.from).count();
    ensure!(
        count == 1,
        "{:?} stands {count} times in {}",
        mutant.from,
        mutant.file
    );
    Ok(text.replace(mutant.from, mutant.to).into_bytes())
}

/// Builds the backend library with these changes, none for the control, and runs cases on it.
fn run_cases(mutants: &[Mutant], cases: Cases, order: &str) -> Result<Run> {
    let root = Path::new(env!("GGML_ROOT"));
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    // The objects of the build come along, so that only what the change touches is compiled.
    let (tree, objects) = (work.join("ggml"), work.join("metal-sim"));
    copy_changed(&root.join("ggml"), &tree, mutants)?;
    copy_changed(&root.join("metal-sim"), &objects, &[])?;
    let name = mutants.first().map_or("control", |mutant| mutant.name);
    let library = work.join(format!("{name}.so"));

    let build = metal_sim::Build::new(tree, objects)
        .forced_include(env!("GGML_PREFIX_HEADER"))
        .include(root.join("gen"));
    let build = env!("GGML_DEFINES")
        .split(';')
        .fold(build, |build, define| match define.split_once('=') {
            Some((name, value)) => build.define(name, Some(value)),
            None => build.define(define, None),
        });
    let objects = build.compile()?;
    build.link_plugin(&objects, Path::new(env!("GGML_ARCHIVE")), &library)?;

    let library = library
        .to_str()
        .context("the target folder's path is not UTF-8")?;
    let fixed = ["test", "-b", "MTL0", "--backend-lib", library];
    let args = [&fixed, cases.args].concat();
    let exe = env!("CARGO_BIN_EXE_backend-ops-under-test");
    backend_ops_in_order(exe, &args, order)
}

fn survives(mutants: &[Mutant], cases: Cases, order: &str) -> Result<()> {
    let run = run_cases(mutants, cases, order)?;
    ensure!(
        run.tally() == Some((cases.count, cases.count)) && run.status.success(),
        "must pass in {order} order:\n{}",
        run.transcript()
    );
    Ok(())
}

fn control() -> Result<String> {
    for order in ["ascending", "reversed", "random"] {
        for cases in [GATE, GROUND_TRUTH] {
            survives(&[], cases, order)?;
        }
    }
    Ok("survives in every order, as it must: 37/37 and 6/6".into())
}

/// The bits of MUL_MAT_ID's results in its default staging, by case.
fn hashes(mutants: &[Mutant], cases: Cases) -> Result<BTreeMap<String, String>> {
    let run = run_cases(mutants, cases, "ascending")?;
    ensure!(run.status.success(), "{}", run.transcript());
    run.stdout
        .lines()
        .map(|line| {
            let row: Value = serde_json::from_str(line)?;
            let text = |name: &str| row[name].as_str().map(str::to_owned);
            let field = |name: &str| text(name).with_context(|| format!("no {name}: {line}"));
            Ok((field("op_params")?, field("result_hash")?))
        })
        .collect()
}

/// Float staging is an offer: whoever does not ask for it gets upstream's bits.
fn experts_are_upstreams_by_default() -> Result<String> {
    let patched = EXPERTS.map(|cases| hashes(&[], cases));
    for (cases, patched) in EXPERTS.into_iter().zip(patched) {
        let (patched, unpatched) = (patched?, hashes(&UNPATCHED_EXPERTS, cases)?);
        ensure!(patched.len() == cases.count, "{} cases", patched.len());
        ensure!(
            patched == unpatched,
            "{:?}: {patched:?} and {unpatched:?}",
            cases.args
        );
    }
    Ok(format!("{} cases twice, equal bits", EXPERTS[0].count))
}

/// What only the order of dispatches shows.
fn kill_by_order(mutant: &Mutant) -> Result<String> {
    survives(std::slice::from_ref(mutant), mutant.cases, "ascending")?;
    Ok(format!("{} in reversed order", kill(mutant, "reversed")?))
}

fn kill(mutant: &Mutant, order: &str) -> Result<String> {
    let run = run_cases(std::slice::from_ref(mutant), mutant.cases, order)?;
    ensure!(
        !run.status.success(),
        "its cases passed:\n{}",
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
        .chain(std::iter::once(trial(
            "experts_are_upstreams_by_default",
            experts_are_upstreams_by_default,
        )))
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
