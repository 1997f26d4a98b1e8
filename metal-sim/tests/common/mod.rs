//! Programs of kernels in `tests/cpp`, built with the simulator's runtime for a machine and run on it.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

use cc_units::UnitSet;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const OUT: &str = env!("CARGO_TARGET_TMPDIR");

/// What the build passes for kernels on every machine: see `metal_sim::Build`.
const KERNEL_FLAGS: &[&str] = &["-ffp-contract=off", "-fno-strict-aliasing", "-fsigned-char"];

/// A program: its file below `tests/cpp`, the C++ standard it needs, and how many tests it has.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub name: &'static str,
    pub standard: &'static str,
    pub tests: usize,
}

const fn program(name: &'static str, standard: &'static str, tests: usize) -> Program {
    Program {
        name,
        standard,
        tests,
    }
}

pub const PROGRAMS: &[Program] = &[
    program("scheduling", "c++17", 14),
    program("dispatches", "c++17", 6),
    program("memory", "c++17", 9),
    program("constants", "c++17", 5),
    program("arithmetic", "c++17", 9),
    program("tensor", "c++20", 1),
];

/// Where programs run, and how they are built for it.
pub struct Machine {
    triple: String,
    compiler: String,
    /// What else must be installed.
    tools: &'static [&'static str],
    flags: &'static [&'static str],
    link: &'static [&'static str],
    /// Runs a program of this machine on this one.
    emulator: Option<&'static str>,
    /// Tests share programs: they must not be relinked under one another.
    built: Mutex<HashMap<&'static str, PathBuf>>,
}

impl Machine {
    pub fn this() -> Self {
        Machine {
            triple: format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
            compiler: std::env::var("CXX").unwrap_or_else(|_| "c++".into()),
            tools: &[],
            flags: match std::env::consts::ARCH {
                "x86_64" => &["-mavx2", "-mf16c", "-mfma", "-fexcess-precision=16"],
                _ => &[],
            },
            link: &["-lpthread"],
            emulator: None,
            built: Mutex::default(),
        }
    }

    /// By clang, which has `_Float16` there and rounds it after every operation; g++ has it from version 13 on. The cross
    /// compiler is installed for its libraries, and static programs need none of them at run time.
    pub fn aarch64() -> Self {
        Machine {
            triple: "aarch64-unknown-linux-gnu".into(),
            compiler: "clang++".into(),
            tools: &["aarch64-linux-gnu-g++", "qemu-aarch64"],
            flags: &[],
            link: &["--target=aarch64-linux-gnu", "-static", "-lpthread"],
            emulator: Some("qemu-aarch64"),
            built: Mutex::default(),
        }
    }

    /// The first tool that this machine needs and that cannot be started here.
    pub fn missing_tool(&self) -> Option<&str> {
        let starts = |tool: &&str| Command::new(tool).arg("--version").output().is_ok();
        std::iter::once(self.compiler.as_str())
            .chain(self.tools.iter().copied())
            .find(|tool| !starts(tool))
    }

    fn compile(&self, set: &str, standard: &str, files: Vec<PathBuf>) -> Vec<PathBuf> {
        let mut build = cc::Build::new();
        build
            .compiler(&self.compiler)
            .target(&self.triple)
            .host(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
            .cpp(true)
            .std(standard)
            .opt_level(1)
            .warnings(true)
            .extra_warnings(true)
            .warnings_into_errors(true)
            .cargo_metadata(false)
            .flags(KERNEL_FLAGS)
            .flags(self.flags);
        for dir in ["cpp/shim", "cpp/runtime", "tests/cpp"] {
            build.include(Path::new(CRATE).join(dir));
        }
        UnitSet::new(build, self.out_dir().join(set))
            .root("metal-sim", CRATE)
            .files(files)
            .compile()
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn out_dir(&self) -> PathBuf {
        Path::new(OUT).join(&self.triple)
    }

    fn runtime(&self) -> Vec<PathBuf> {
        let dir = Path::new(CRATE).join("cpp/runtime");
        let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "cpp"))
            .collect();
        files.sort();
        self.compile("runtime", "c++17", files)
    }

    /// The executable of `program`, built once.
    fn build(&self, program: Program) -> PathBuf {
        let mut built = self.built.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(path) = built.get(program.name) {
            return path.clone();
        }
        let source = Path::new(CRATE).join("tests/cpp").join(program.name);
        let objects = self.compile(
            program.name,
            program.standard,
            vec![source.with_extension("cpp")],
        );
        let path = self.out_dir().join(program.name).join("program");
        let status = Command::new(&self.compiler)
            .args(objects.iter().chain(&self.runtime()))
            .args(self.link)
            .arg("-o")
            .arg(&path)
            .status()
            .unwrap();
        assert!(status.success(), "linking {}: {status}", program.name);
        built.insert(program.name, path.clone());
        path
    }

    /// Runs it with one environment variable set.
    pub fn run(&self, program: Program, variable: &str, value: &str) -> Output {
        let path = self.build(program);
        let mut command = match self.emulator {
            Some(emulator) => Command::new(emulator),
            None => Command::new(&path),
        };
        if self.emulator.is_some() {
            command.arg(&path);
        }
        command.env(variable, value).output().unwrap()
    }

    /// Runs a program in every order; each run must report all of its tests as passed, and no other.
    pub fn check(&self, program: Program) {
        for order in ["ascending", "reversed", "random"] {
            let output = self.run(program, "METAL_SIM_ORDER", order);
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "{}, {order}: {}\n{text}{errors}",
                program.name,
                output.status
            );
            let passed = text.lines().filter(|line| line.starts_with("ok ")).count();
            assert_eq!(passed, program.tests, "{}, {order}:\n{text}", program.name);
        }
    }
}
