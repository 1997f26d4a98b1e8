//! ggml's real matrix kernels on AArch64: translated, cross-compiled by metal-sim's builder, and run by qemu. And the CPU's float
//! products, whose kernel is NEON's there.
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

/// The CPU's float products in a static program, with a driver in place of the rest of ggml.
fn build_cpu_products() -> Result<PathBuf> {
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("aarch64-cpu");
    fs::create_dir_all(&work)?;
    let program = work.join("products");
    let tree = Path::new(env!("GGML_ROOT")).join("ggml");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compile = Command::new("clang++");
    compile.args([
        &format!("--target={TARGET}"),
        "-std=c++17",
        "-O2",
        "-static",
    ]);
    for folder in ["include", "src", "src/ggml-cpu"] {
        compile.arg("-I").arg(tree.join(folder));
    }
    compile
        .arg(here.join("aarch64/products.cpp"))
        .arg(tree.join("src/ggml-cpu/ggml-cpu-gemm.cpp"))
        .args(["-lpthread", "-o"])
        .arg(&program);
    run(&mut compile)?;
    Ok(program)
}

/// The driver compares whole numbers itself.
fn cpu_products_are_right() -> Result<()> {
    let said = run(Command::new("qemu-aarch64").arg(build_cpu_products()?))?;
    let error: f64 = said.trim().parse().with_context(|| said.clone())?;
    ensure!((0.0..1e-12).contains(&error), "error {error}");
    Ok(())
}

fn main() -> ExitCode {
    let simulated = env!("GGML_BACKENDS")
        .split(',')
        .any(|backend| backend == "metal-sim");
    let required = std::env::var_os("GGML_RS_REQUIRE_TOOLS").is_some();
    let missing = missing_tool().map(|tool| format!("no {tool}"));
    let trial = |name: &str, unusable: Option<&str>, test: fn() -> Result<()>| {
        let ignored = unusable.is_some() || (missing.is_some() && !required);
        let kind = unusable.map_or_else(|| missing.clone().unwrap_or_default(), str::to_owned);
        let missing = missing.clone();
        Trial::test(name, move || match missing {
            Some(reason) => Err(Failed::from(reason)),
            None => test().map_err(|error| Failed::from(format!("{error:#}"))),
        })
        .with_kind(kind)
        .with_ignored_flag(ignored)
    };
    let unsimulated = (!simulated).then_some("no simulated device in this build");
    let trials = vec![
        trial("products_are_right", unsimulated, products_are_right),
        trial("cpu_products_are_right", None, cpu_products_are_right),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
