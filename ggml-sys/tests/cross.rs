//! Compiling for other machines, with the build script's own files and flags.
//!
//! For aarch64 Linux a program is linked and run in an emulator. For Macs every C and C++ file is compiled, those of the
//! Metal backend among them, and the embedded kernels are assembled; the two Objective-C files need Apple's SDK. Nothing
//! is claimed for what has not run.
//!
//! Each needs a compiler that not everyone has (`.ci/tools` installs them). A test without its tools is ignored, or fails
//! if `GGML_RS_REQUIRE_TOOLS` is set.

#[path = "../build/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "most of the build script is not called here, and its unit tests run elsewhere"
)]
mod build;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use build::{
    Prepared,
    compile::{Job, Settings},
    env::{Arch, Os, Parts, Target},
    layout::Layout,
    levels::Plan,
    metal, prefix,
    source::Source,
    tree::{Tree, write_if_changed},
};
use libtest_mimic::{Arguments, Failed, Trial};
use object::{Object, ObjectSection as _, ObjectSymbol as _};

type Outcome = Result<(), Failed>;

const AARCH64_CXX: &str = "aarch64-linux-gnu-g++";
const EMULATOR: &str = "qemu-aarch64";

/// This machine, as cargo names it to a build script and to no test.
fn host() -> String {
    let system = match env::consts::OS {
        "macos" => "apple-darwin",
        "windows" => "pc-windows-msvc",
        _ => "unknown-linux-gnu",
    };
    format!("{}-{system}", env::consts::ARCH)
}

/// The patched tree and what is generated from it, in a folder of its own that the next run finds again.
fn prepare(name: &str) -> Result<(Tree, PathBuf), Failed> {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&out_dir)?;
    let layout = Layout::find(manifest_dir);
    let source = Source::obtain(&layout, manifest_dir, &out_dir)?;
    let prepared = Prepared::write(&source, &layout, &[], &out_dir)?;
    Ok((prepared.tree, out_dir))
}

fn settings(os: Os, metal: bool, features: &str) -> Settings {
    let target = Target {
        os,
        arch: Arch::Aarch64,
        msvc: false,
    };
    Settings {
        plan: Plan::new(&target, false, features),
        parts: Parts {
            metal,
            accelerate: false,
            openblas: false,
            metal_sim: false,
        },
        target,
    }
}

/// Runs a command and returns what it printed.
fn run(command: &mut Command) -> Result<String, Failed> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}\n{text}{errors}", output.status).into())
}

/// ggml's CPU backend for aarch64 computes right, with plain NEON and with what later CPUs have.
fn aarch64_linux(name: &str, features: &str) -> Outcome {
    let (tree, out_dir) = prepare(&format!("cross-{name}"))?;
    let settings = settings(Os::Linux, false, features);
    let objects = Job {
        settings: &settings,
        out_dir: &out_dir,
        adapt: &|build| {
            build
                .target("aarch64-unknown-linux-gnu")
                .host(&host())
                .cargo_metadata(false)
                // It need not be fast.
                .opt_level(1);
        },
    }
    .portable(&tree)?;
    let program = out_dir.join("products");
    run(Command::new(AARCH64_CXX)
        .args(["-std=c++17", "-static", "-include"])
        .arg(out_dir.join("gen").join(prefix::HEADER))
        .arg("-I")
        .arg(out_dir.join("ggml/include"))
        .arg("-o")
        .arg(&program)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/cpp/products.cpp"
        ))
        .args(&objects)
        .arg("-lpthread"))?;
    let report = run(Command::new(EMULATOR).arg(&program))?;
    let right = report.lines().filter(|line| line.ends_with(" ok")).count();
    let dotprod = format!("dotprod {}", u8::from(features.contains("dotprod")));
    if right == 7 && report.contains("neon 1") && report.contains(&dotprod) {
        return Ok(());
    }
    Err(report.into())
}

/// A compiler for Macs out of zig, which brings what ggml's C and C++ files need of a Mac's headers.
///
/// `cc` takes it for one of Linux and names that target, since for Apple's it would look for an SDK.
fn mac_compiler(zig: &str, dir: &Path) -> Result<PathBuf, Failed> {
    let script = format!(
        "#!/bin/sh\n\
         language=cc\n\
         for argument; do\n\
         shift\n\
         case $argument in\n\
         --target=*) continue ;;\n\
         *.cpp) language=c++ ;;\n\
         esac\n\
         set -- \"$@\" \"$argument\"\n\
         done\n\
         exec '{zig}' \"$language\" -target aarch64-macos \"$@\"\n"
    );
    let path = dir.join("mac-compiler");
    write_if_changed(&path, &script)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;

        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(path)
}

/// Every C and C++ file of a build for Macs compiles, and the entry points are there.
fn aarch64_macos() -> Outcome {
    let (tree, out_dir) = prepare("cross-aarch64-macos")?;
    let compiler = mac_compiler(&tool_from("ZIG").unwrap_or_default(), &out_dir)?;
    let settings = settings(Os::Mac, true, "dotprod,fp16,fhm,neon");
    let objects = Job {
        settings: &settings,
        out_dir: &out_dir,
        adapt: &|build| {
            build
                .target("aarch64-unknown-linux-gnu")
                .host(&host())
                .compiler(&compiler)
                .cargo_metadata(false)
                .opt_level(0);
        },
    }
    .portable(&tree)?;

    let mut defined = Vec::new();
    for path in &objects {
        let bytes = fs::read(path)?;
        let file = object::File::parse(&*bytes)?;
        let is_mac = file.format() == object::BinaryFormat::MachO
            && file.architecture() == object::Architecture::Aarch64;
        if !is_mac {
            return Err(format!("{} is not for aarch64 macOS", path.display()).into());
        }
        let symbols = file.symbols().filter(|symbol| symbol.is_definition());
        defined.extend(symbols.filter_map(|symbol| Some(symbol.name().ok()?.to_owned())));
    }
    for entry in [
        "ggml_init",
        "ggml_backend_cpu_reg",
        "ggml_backend_metal_reg",
    ] {
        let symbol = format!("_ggmlrs_{entry}");
        if defined.iter().filter(|name| **name == symbol).count() != 1 {
            return Err(format!("{symbol} is not defined once").into());
        }
    }
    Ok(())
}

/// The assembly that embeds the kernels assembles for both kinds of Macs, and each kernel text is there whole.
fn embedded_kernels(name: &str, triple: &str) -> Outcome {
    let (tree, out_dir) = prepare(&format!("cross-embed-{name}"))?;
    let dir = out_dir.join("embed");
    let assembly = metal::embed(&tree, &dir)?;
    let object = dir.join("embed.o");
    run(Command::new("clang")
        .arg(format!("--target={triple}"))
        .args(["-c", "-o"])
        .args([&object, &assembly]))?;

    let bytes = fs::read(&object)?;
    let file = object::File::parse(&*bytes)?;
    let section = file
        .section_by_name("__ggml_metallib")
        .ok_or("no section __ggml_metallib")?;
    let content = section.data()?;
    let address = |symbol: &str| -> Result<usize, Failed> {
        let name = format!("_{}{symbol}", prefix::PREFIX);
        let found = file.symbol_by_name(&name).filter(|found| found.is_global());
        let found = found.ok_or_else(|| format!("{name} is missing or not global"))?;
        Ok((found.address() - section.address()) as usize)
    };
    let symbols = metal::embedded_symbols(&tree);
    for pair in symbols.chunks(2) {
        let [start, end] = pair else { continue };
        let kind = start
            .trim_start_matches("ggml_metallib_")
            .trim_end_matches("_start");
        let text = fs::read(dir.join(format!("ggml-metal-embed-{kind}.metal")))?;
        if content.get(address(start)?..address(end)?) != Some(&text) {
            return Err(format!("the text of {kind} is not between {start} and {end}").into());
        }
    }
    if symbols.len() == 70 {
        return Ok(());
    }
    Err(format!(
        "{} symbols instead of two for each of 35 kinds",
        symbols.len()
    )
    .into())
}

/// The path in a variable, if a program that runs lies there.
fn tool_from(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|path| runs(path, "version"))
}

fn runs(program: &str, argument: &str) -> bool {
    Command::new(program)
        .arg(argument)
        .output()
        .is_ok_and(|output| output.status.success())
}

/// A test that is ignored, with the reason in place of its kind, unless its tools are there.
fn trial(
    name: &str,
    missing: Option<&str>,
    test: impl FnOnce() -> Outcome + Send + 'static,
) -> Trial {
    let trial = Trial::test(name, test);
    match missing.filter(|_| env::var_os("GGML_RS_REQUIRE_TOOLS").is_none()) {
        Some(missing) => trial.with_kind(missing).with_ignored_flag(true),
        None => trial,
    }
}

fn main() -> ExitCode {
    let cross = runs(AARCH64_CXX, "--version") && runs(EMULATOR, "--version");
    let cross = (!cross).then_some("needs aarch64-linux-gnu-g++ and qemu-aarch64");
    // The compiler made of it is a shell script.
    let zig = (cfg!(not(unix)) || tool_from("ZIG").is_none())
        .then_some("needs zig, named in ZIG, on a Unix");
    let clang = (!runs("clang", "--version")).then_some("needs clang");
    let trials = vec![
        trial("aarch64_linux_computes_right", cross, || {
            aarch64_linux("aarch64-linux", "neon")
        }),
        trial("later_aarch64_linux_computes_right", cross, || {
            aarch64_linux("later-aarch64-linux", "bf16,dotprod,fp16,i8mm,neon")
        }),
        trial("aarch64_macos_compiles", zig, aarch64_macos),
        trial("kernels_embed_for_arm64_macs", clang, || {
            embedded_kernels("arm64", "arm64-apple-macos13")
        }),
        trial("kernels_embed_for_intel_macs", clang, || {
            embedded_kernels("x86_64", "x86_64-apple-macos13")
        }),
    ];
    let mut args = Arguments::from_args();
    // Each uses all cores.
    args.test_threads = Some(1);
    libtest_mimic::run(&args, trials).exit_code()
}
