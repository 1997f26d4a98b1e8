//! Do the cases discriminate? Each mutation, alone, must make its cases fail, and for the expected reason.
//!
//! A mutant is the patched tree with one text changed, built as a backend library; `backend-ops --backend-lib` runs cases on
//! it. The control does the same with nothing changed, and must pass: otherwise a broken way of building mutants would look
//! like good cases. So must the unpatched kernels, whose results must be those of the default, bit for bit.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use ggml_rs_tests::mutant::{self, Change};
use ggml_rs_tests::{Run, backend_ops_in_order};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use xtask::pin::{Pin, checkout};

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
/// The direct route: gradients beyond half; operands of which one alone is; ragged tiles; batches.
const DIRECT_GATE: Cases = Cases {
    args: &[
        "-o",
        "OUT_PROD",
        "--set",
        "gate",
        "--route",
        "direct",
        "-p",
        "m=(32|256),n=(1|16|32|64),k=(1|16|32|64)",
    ],
    count: 29,
};
const DIRECT_RANGE: Cases = Cases {
    args: &["-o", "OUT_PROD", "--set", "range", "--route", "direct"],
    count: 48,
};
const GROUND_TRUTH: Cases = Cases {
    args: &["-o", "MUL_MAT_ID", "--set", "ground-truth"],
    count: 6,
};
const FLOAT_PRODUCTS: Cases = Cases {
    args: &[
        "-o",
        "MUL_MAT",
        "--set",
        "quick",
        "--staging",
        "float",
        "-p",
        "type_a=f32",
    ],
    count: 30,
};
/// MUL_MAT's and MUL_MAT_ID's ordinary cases in both kernels, with hashes of the results.
const DEFAULT_PRODUCTS: [Cases; 2] = [
    Cases {
        args: &[
            "-o",
            "MUL_MAT,MUL_MAT_ID",
            "--set",
            "quick",
            "--output",
            "json",
            "--tensor",
            "off",
        ],
        count: 100,
    },
    Cases {
        args: &[
            "-o",
            "MUL_MAT,MUL_MAT_ID",
            "--set",
            "quick",
            "--output",
            "json",
            "--tensor",
            "on",
        ],
        count: 100,
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
        file: KERNELS,
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
        file: KERNELS,
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
        file: KERNELS,
        from: "simdgroup_float8x8, float, float2x4, simdgroup_float8x8, block, nl, dequantize, t, t##4x4, float, float2x4>; \\\ntemplate [[host_name(\"kernel_mul_mm_id_\" name \"_f32_fp32_src0",
        to: "simdgroup_float8x8, half, half2x4, simdgroup_half8x8, block, nl, dequantize, t, t##4x4, float, float2x4>; \\\ntemplate [[host_name(\"kernel_mul_mm_id_\" name \"_f32_fp32_src0",
        verdict: |run| some_cases_fail(run, "times, less than 2.2"),
    },
    // One operand in half, where the op asks for float: names and threadgroup memory are right, only the error is not.
    Mutant {
        name: "half_weights",
        cases: FLOAT_PRODUCTS,
        file: KERNELS,
        from: "<float, float4x4, simdgroup_float8x8, float, float2x4, simdgroup_float8x8, float4x4, 1, dequantize_f32",
        to: "<half, half4x4, simdgroup_half8x8, float, float2x4, simdgroup_float8x8, float4x4, 1, dequantize_f32",
        verdict: |run| some_cases_fail(run, "NMSE"),
    },
    Mutant {
        name: "half_activations",
        cases: FLOAT_PRODUCTS,
        file: KERNELS,
        from: "<float, float4x4, simdgroup_float8x8, float, float2x4, simdgroup_float8x8, float4x4, 1, dequantize_f32",
        to: "<float, float4x4, simdgroup_float8x8, half, half2x4, simdgroup_half8x8, float4x4, 1, dequantize_f32",
        verdict: |run| some_cases_fail(run, "NMSE"),
    },
    // The direct kernel. One operand passes through half, whatever the tile holds.
    Mutant {
        name: "direct_half_gradient",
        cases: DIRECT_RANGE,
        file: DIRECT_KERNEL,
        from: "inside ? (float) *(device const T *)(src + i*nb0 + k*nb1) : 0.f;",
        to: "inside ? (float) *(device const T *)(src + i*nb0 + k*nb1) : 0.f; \
             if (width == OUT_PROD_TILE_N) { threadgroup float & x = tile[out_prod_place<width>(i, k)]; x = (float) (half) x; }",
        verdict: |run| fails_exactly(run, 32, "b_range=150000"),
    },
    Mutant {
        name: "direct_half_weights",
        cases: DIRECT_RANGE,
        file: DIRECT_KERNEL,
        from: "*(threadgroup float4 *)(tile + out_prod_place<OUT_PROD_TILE_M>(16*part + 4*j, k)) = values[j];",
        to: "*(threadgroup float4 *)(tile + out_prod_place<OUT_PROD_TILE_M>(16*part + 4*j, k)) = (float4) (half4) values[j];",
        verdict: |run| fails_exactly(run, 16, "a_range=150000"),
    },
    Mutant {
        name: "direct_stride",
        cases: DIRECT_GATE,
        file: DIRECT_KERNEL,
        from: "src + i*nb0 + k*nb1",
        to: "src + i*sizeof(T) + k*nb1",
        verdict: |run| some_cases_fail(run, "NMSE"),
    },
    Mutant {
        name: "direct_edge",
        cases: DIRECT_GATE,
        file: DIRECT_KERNEL,
        from: "if (i < args.m - i0 && j < args.n - i1) {",
        to: "if (i < args.m - i0) {",
        verdict: |run| some_cases_fail(run, ""),
    },
    // Tiles are multiplied before they are staged.
    Mutant {
        name: "direct_without_barrier",
        cases: DIRECT_GATE,
        file: DIRECT_KERNEL,
        from: "threadgroup_barrier(mem_flags::mem_threadgroup); // the tiles are there",
        to: "// the tiles are there",
        verdict: |run| some_cases_fail(run, ""),
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

impl Mutant {
    fn run(&self, order: &str) -> Result<Run> {
        let change = Change {
            file: self.file,
            from: self.from,
            to: self.to,
        };
        run_cases(self.name, &[change], self.cases, order)
    }
}

/// The file with the batched products' kernels.
const KERNELS: &str = "src/ggml-metal/kernels/mul_mm.metal";
/// OUT_PROD's direct one.
const DIRECT_KERNEL: &str = "src/ggml-metal/kernels/out_prod.h";

/// All that the series changes in the batched products' kernels, undone.
fn unpatched_kernels() -> Result<Change> {
    let patched = Path::new(env!("GGML_ROOT")).join("ggml").join(KERNELS);
    let pristine = Pin::resolve(&checkout().join("vendor"))?.dir.join(KERNELS);
    let text = |path: &Path| -> Result<&'static str> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        // Once a process, and a change's texts are constants otherwise.
        Ok(text.leak())
    };
    Ok(Change {
        file: KERNELS,
        from: text(&patched)?,
        to: text(&pristine)?,
    })
}

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

/// So many cases fail, and each is one of those with `field`.
fn fails_exactly(run: &Run, count: usize, field: &str) -> Result<String> {
    let failures = run.failures();
    let other = failures.iter().find(|(case, _)| !case.contains(field));
    ensure!(other.is_none(), "another case fails: {other:?}");
    ensure!(
        failures.len() == count,
        "{} cases fail, not {count}",
        failures.len()
    );
    Ok(format!(
        "all {count} cases with {field}, the first: {}",
        failures[0].1
    ))
}

/// How many mutants are built and run at a time: compiling one leaves cores idle, which another's cases use.
const AT_A_TIME: usize = 2;

/// The folders in which nobody builds now.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A folder to build in, for as long as this lives.
struct Work(usize);

impl Work {
    /// libtest-mimic runs no more than [`AT_A_TIME`] tests, so no more folders are made.
    fn take() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self(free.unwrap_or_else(|| MADE.fetch_add(1, Ordering::Relaxed)))
    }

    fn dir(&self) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{}", self.0))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(self.0);
    }
}

/// Builds the backend library with these changes, none for the control, and runs cases on it.
fn run_cases(name: &str, changes: &[Change], cases: Cases, order: &str) -> Result<Run> {
    let work = Work::take();
    let library = mutant::build(&work.dir(), name, changes)?;
    let library = library
        .to_str()
        .context("the target folder's path is not UTF-8")?;
    // In one process: mutants run side by side already, and a death is told by the case that was running.
    let fixed = ["test", "-b", "MTL0", "-j", "1", "--backend-lib", library];
    let args = [&fixed, cases.args].concat();
    let exe = env!("CARGO_BIN_EXE_backend-ops-under-test");
    backend_ops_in_order(exe, &args, order)
}

fn passes(run: &Run, cases: Cases, order: &str) -> Result<()> {
    let (passed, ran) = run.tally().unwrap_or_default();
    ensure!(
        passed == ran && ran >= cases.count && run.status.success(),
        "must pass in {order} order:\n{}",
        run.transcript()
    );
    Ok(())
}

fn control() -> Result<String> {
    for order in ["ascending", "reversed", "random"] {
        for cases in [
            GATE,
            GROUND_TRUTH,
            FLOAT_PRODUCTS,
            DIRECT_GATE,
            DIRECT_RANGE,
        ] {
            passes(&run_cases("control", &[], cases, order)?, cases, order)?;
        }
    }
    Ok("survives in every order, as it must".into())
}

/// The bits of results, by case.
fn hashes(name: &str, changes: &[Change], cases: Cases) -> Result<BTreeMap<String, String>> {
    let run = run_cases(name, changes, cases, "ascending")?;
    ensure!(run.status.success(), "{}", run.transcript());
    let mut hashes = BTreeMap::new();
    for line in run.stdout.lines() {
        let row: Value = serde_json::from_str(line)?;
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        // A case that the device refuses has no result.
        if !text("result_hash").is_empty() {
            let case = format!("{}({})", text("op_name"), text("op_params"));
            hashes.insert(case, text("result_hash"));
        }
    }
    Ok(hashes)
}

/// Float staging is an offer: whoever does not ask for it gets upstream's bits.
fn the_default_has_upstreams_bits() -> Result<String> {
    let unpatched = unpatched_kernels()?;
    let mut compared = 0;
    for cases in DEFAULT_PRODUCTS {
        let ours = hashes("control", &[], cases)?;
        let upstreams = hashes("unpatched", std::slice::from_ref(&unpatched), cases)?;
        ensure!(ours.len() >= cases.count, "{} cases", ours.len());
        let differs = ours
            .iter()
            .find(|(case, hash)| upstreams.get(*case) != Some(hash));
        ensure!(differs.is_none(), "{:?}: {differs:?}", cases.args);
        compared += ours.len();
    }
    Ok(format!("{compared} results, equal bits"))
}

/// What only the order of dispatches shows.
fn kill_by_order(mutant: &Mutant) -> Result<String> {
    passes(&mutant.run("ascending")?, mutant.cases, "ascending")?;
    Ok(format!("{} in reversed order", kill(mutant, "reversed")?))
}

/// In which orders mutants are killed: in the first alone, unless a longer run is asked for.
fn orders() -> &'static [&'static str] {
    let all = std::env::var("GGML_RS_MUTANTS_ORDERS").is_ok_and(|orders| orders == "all");
    match all {
        true => &["ascending", "reversed", "random"],
        false => &["ascending"],
    }
}

fn kill_in_orders(mutant: &Mutant) -> Result<String> {
    let killed = orders().iter().map(|order| kill(mutant, order));
    Ok(killed.collect::<Result<Vec<_>>>()?.join("; "))
}

fn kill(mutant: &Mutant, order: &str) -> Result<String> {
    let run = mutant.run(order)?;
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
    args.test_threads = Some(AT_A_TIME);

    let simulated = env!("GGML_BACKENDS")
        .split(',')
        .any(|backend| backend == "metal-sim");
    let trials = std::iter::once(trial("control", control))
        .chain(std::iter::once(trial(
            "the_default_has_upstreams_bits",
            the_default_has_upstreams_bits,
        )))
        .chain(
            MUTANTS
                .iter()
                .map(|mutant| trial(mutant.name, || kill_in_orders(mutant))),
        )
        .chain(std::iter::once(trial(WITHOUT_BARRIER.name, || {
            kill_by_order(&WITHOUT_BARRIER)
        })))
        // Mutants are built for the simulated device: where it is not built, they are listed as ignored, not passed.
        .map(|trial| trial.with_ignored_flag(!simulated))
        .collect();
    libtest_mimic::run(&args, trials).exit_code()
}
