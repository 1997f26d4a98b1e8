//! ggml's real matrix kernels on AArch64: translated, cross-compiled by metal-sim's builder, and run by qemu.
//!
//! The runtime alone is metal-sim's own test. Ignored, with the reason, where a tool is missing; failed there if
//! `GGML_RS_REQUIRE_TOOLS` is set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};

const TARGET: &str = "aarch64-linux-gnu";
/// clang has `_Float16` there, g++ from version 13 on; the cross compiler is installed for its libraries.
const TOOLS: [&str; 3] = ["clang++", "aarch64-linux-gnu-g++", "qemu-aarch64"];

/// Kernel, threadgroup bytes, and the range of the largest error over the largest sum: half's rounding must show where
/// operands are staged in half.
const KERNELS: [(&str, &str, f64, f64); 2] = [
    ("kernel_mul_mm_f32_f32", "8192", 1e-5, 1e-3),
    ("kernel_mul_mm_f32_f32_fp32", "12288", 0.0, 1e-6),
];

fn missing_tool() -> Option<&'static str> {
    let starts = |tool: &&str| Command::new(tool).arg("--version").output().is_ok();
    TOOLS.into_iter().find(|tool| !starts(tool))
}

/// The patched tree, reduced to one kernel file: the others would take minutes.
fn reduced_tree(to: &Path) -> Result<()> {
    let from = Path::new(env!("GGML_ROOT")).join("ggml/src");
    let to = to.join("src");
    fs::create_dir_all(to.join("ggml-metal/kernels"))?;
    fs::write(
        to.join("ggml-metal/ggml-metal-device.m"),
        "#define GGML_METAL_LIBS X(MUL_MM, mul_mm)\n",
    )?;
    for name in [
        "ggml-common.h",
        "ggml-metal/ggml-metal-impl.h",
        "ggml-metal/kernels/mul_mm.metal",
        "ggml-metal/kernels/common.h",
        "ggml-metal/kernels/dequantize.h",
    ] {
        fs::copy(from.join(name), to.join(name)).with_context(|| name.to_owned())?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}\n{text}{errors}");
    Ok(text)
}

/// The driver with the kernels and the runtime, as a static program.
fn build() -> Result<PathBuf> {
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("aarch64");
    let (tree, program) = (work.join("ggml"), work.join("mul_mm"));
    reduced_tree(&tree)?;
    let objects = metal_sim::Build::new(&tree, work.join("out"))
        .target("aarch64-unknown-linux-gnu")
        .compiler("clang++")
        .compile_kernels()?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(Command::new("clang++")
        .args([
            &format!("--target={TARGET}"),
            "-std=c++17",
            "-O1",
            "-static",
        ])
        .arg("-I")
        .arg(here.join("../metal-sim/cpp/runtime"))
        .arg("-I")
        .arg(tree.join("src/ggml-metal"))
        .arg(here.join("aarch64/mul_mm.cpp"))
        .args(objects.iter().map(|object| &object.path))
        .args(["-lpthread", "-o"])
        .arg(&program))?;
    Ok(program)
}

fn products_are_right() -> Result<()> {
    let program = build()?;
    for (kernel, bytes, least, most) in KERNELS {
        let mut results = Vec::new();
        for order in ["ascending", "reversed", "random"] {
            let mut qemu = Command::new("qemu-aarch64");
            qemu.arg(&program).args([kernel, bytes]);
            results.push(run(qemu.env("METAL_SIM_ORDER", order))?);
        }
        let error: f64 = results[0].trim().parse()?;
        ensure!(
            (least..most).contains(&error),
            "{kernel}: error {error}, expected {least} to {most}"
        );
        ensure!(
            results.iter().all(|result| *result == results[0]),
            "{kernel}: the order of lanes changes the error: {results:?}"
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let simulated = env!("GGML_BACKENDS")
        .split(',')
        .any(|backend| backend == "metal-sim");
    let required = std::env::var_os("GGML_RS_REQUIRE_TOOLS").is_some();
    let missing = missing_tool().map(|tool| format!("no {tool}"));
    let ignored = !simulated || (missing.is_some() && !required);
    let kind = if simulated {
        missing.clone().unwrap_or_default()
    } else {
        "no simulated device in this build".to_owned()
    };
    let test = Trial::test("products_are_right", move || match missing {
        Some(reason) => Err(Failed::from(reason)),
        None => products_are_right().map_err(|error| Failed::from(format!("{error:#}"))),
    });
    let trial = test.with_kind(kind).with_ignored_flag(ignored);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}
