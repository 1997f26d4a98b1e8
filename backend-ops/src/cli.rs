//! The command line: upstream's flags, and ours.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};
use ggml_rs::{Route, Staging};

use crate::cases::Set;

/// The seed of a run that names none: the same data everywhere, so that a report can be compared with the last one.
const DEFAULT_SEED: u64 = 1;

const AFTER_HELP: &str = "\
Examples:
  backend-ops test -o OUT_PROD --set gate                 the 37 cases that must pass
  backend-ops test -o OUT_PROD --set gate --staging half  the same with half staging: four overflow
  backend-ops test -o MUL_MAT_ID --set ground-truth       each staging's error, which is bounded
  backend-ops test -o OUT_PROD -p 'type_a=q4_K.*trans_b=1'
  backend-ops test -b CPU -o 'CONT(type=f32,ne=[2,1,1,1],use_view_slice=0)'
  backend-ops test -o MUL_MAT --staging float --kernels   float-staged products, and which kernels ran
  backend-ops perf -b CPU -o MUL_MAT                      times; on a simulated device counters
  backend-ops perf --set staging                          OUT_PROD with float against half staging
  backend-ops support --output csv                        which cases a device runs
  backend-ops test --output csv > results.csv             rows on stdout, the report for people on stderr

Exit codes:
  0  every case that ran passed
  1  a case failed
  2  wrong usage, no such device, or nothing ran

Mode grad, and upstream's -j and --test-file, are not in this version.";

/// Tests the operations of ggml's backends.
///
/// Each case runs on the device with every tensor in a buffer of its own and guard bytes behind it, and must agree with a
/// reference in double precision, and with ggml's CPU backend where that supports the case. Without -b every device but the
/// CPU is tested. A simulated device says "simulated" in its description.
#[derive(Clone, Debug, Parser)]
#[command(name = "backend-ops", version, after_help = AFTER_HELP)]
pub struct Cli {
    /// What to do
    #[arg(value_enum, default_value_t = Mode::Test)]
    pub mode: Mode,

    /// Only these operations or cases: names, or whole case strings in quotes
    #[arg(short = 'o', value_name = "OP[,OP]|CASE")]
    pub ops: Option<String>,

    /// Only this device: CPU, MTL0, ...
    #[arg(short = 'b', value_name = "DEVICE")]
    pub device: Option<String>,

    /// Only cases whose parameters match
    #[arg(short = 'p', value_name = "REGEX")]
    pub params: Option<String>,

    /// Output format; with sql, csv and json the report for people moves to stderr
    #[arg(long, value_enum, default_value_t = Output::Console)]
    pub output: Output,

    /// List all of ggml's operations and exit
    #[arg(long, conflicts_with = "show_coverage")]
    pub list_ops: bool,

    /// Show which operations have cases and exit
    #[arg(long)]
    pub show_coverage: bool,

    /// The list of cases
    #[arg(long, value_enum, default_value_t = Set::Upstream)]
    pub set: Set,

    /// Metal's tensor API, set before the device is created; the device decides where this is not given (simulated: off)
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub tensor: Option<Switch>,

    /// How Metal's batched products stage their operands; without it OUT_PROD stages in float, MUL_MAT and MUL_MAT_ID in half
    #[arg(long, value_enum)]
    pub staging: Option<StagingArg>,

    /// How Metal's MUL_MAT of many rows runs: auto as the device decides, mat-vec row by row, to compare
    #[arg(long, value_enum)]
    pub route: Option<RouteArg>,

    /// With --output markdown: write the table to this file, with its columns for devices that are not here
    #[arg(long, value_name = "PATH")]
    pub update: Option<PathBuf>,

    /// Print the pipelines that each case dispatched, with their threadgroup memory
    #[arg(long)]
    pub kernels: bool,

    /// Fail where this device is missing (may be given several times)
    #[arg(long, value_name = "DEVICE")]
    pub require: Vec<String>,

    /// Seed of the test data: a number, or "random"; printed in the report
    #[arg(long, value_name = "N|random", default_value_t = Seed(DEFAULT_SEED))]
    pub seed: Seed,

    /// A backend library to load instead of the built-in simulated device (used by this project's own mutation tests)
    #[arg(long, value_name = "PATH", hide = true)]
    pub backend_lib: Option<PathBuf>,
}

impl Cli {
    /// The list of cases to choose from: mode perf has its own.
    #[must_use]
    pub fn case_set(&self) -> Set {
        match (self.mode, self.set) {
            (Mode::Perf, Set::Upstream) => Set::Perf,
            (_, set) => set,
        }
    }

    /// The flags that repeat this run, but for the device and the selection of cases.
    #[must_use]
    pub fn repeat_flags(&self) -> String {
        let mut flags = format!("--seed {}", self.seed);
        if let Some(staging) = self.staging.and_then(|staging| staging.to_possible_value()) {
            flags.push_str(&format!(" --staging {}", staging.get_name()));
        }
        if let Some(route) = self.route.and_then(|route| route.to_possible_value()) {
            flags.push_str(&format!(" --route {}", route.get_name()));
        }
        if let Some(tensor) = self.tensor {
            flags.push_str(if tensor.is_on() {
                " --tensor on"
            } else {
                " --tensor off"
            });
        }
        if let Some(path) = &self.backend_lib {
            flags.push_str(&format!(" --backend-lib '{}'", path.display()));
        }
        flags
    }
}

/// What the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Compare results with the reference
    Test,
    /// Measure how long cases take; on a simulated device, count what they do
    Perf,
    /// List which cases a device runs, without running them
    Support,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines for people
    Console,
    /// Statements for sqlite3, upstream's table
    Sql,
    /// Comma-separated values, upstream's seven columns
    Csv,
    /// One JSON object per line
    Json,
    /// Mode support: a table of operations by device
    Markdown,
}

/// `on` or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl Switch {
    /// Whether it is on.
    #[must_use]
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// [`Staging`] as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StagingArg {
    /// Both operands as float
    Float,
    /// The weights as float, the activations as half: MUL_MAT_ID only
    FloatWeights,
    /// The activations as float, the weights as half: MUL_MAT_ID only
    FloatActivations,
    /// Both operands as half: values beyond 65504 overflow
    Half,
}

impl From<StagingArg> for Staging {
    fn from(arg: StagingArg) -> Self {
        match arg {
            StagingArg::Float => Self::Float,
            StagingArg::FloatWeights => Self::FloatWeights,
            StagingArg::FloatActivations => Self::FloatActivations,
            StagingArg::Half => Self::Half,
        }
    }
}

/// [`Route`] as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RouteArg {
    /// As the device decides
    Auto,
    /// One product of a matrix and a vector per row
    MatVec,
}

impl From<RouteArg> for Route {
    fn from(arg: RouteArg) -> Self {
        match arg {
            RouteArg::Auto => Self::Auto,
            RouteArg::MatVec => Self::MatVec,
        }
    }
}

/// A seed; "random" draws one, which the report then prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "random" {
            // std seeds its hashers from the system's entropy: enough to pick a seed, without another dependency.
            return Ok(Self(RandomState::new().hash_one(0)));
        }
        text.parse()
            .map(Self)
            .map_err(|_| format!("expected a number from 0 to {} or \"random\"", u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["backend-ops"], args].concat())
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn upstreams_flags_are_accepted() {
        let cli = parse(&[
            "test", "-o", "ADD", "-b", "CPU", "-p", "m=1", "--output", "csv",
        ])
        .expect("parses");
        assert_eq!(
            (cli.ops.as_deref(), cli.device.as_deref(), cli.output),
            (Some("ADD"), Some("CPU"), Output::Csv)
        );
        assert!(parse(&["--list-ops"]).expect("a mode is optional").list_ops);
    }

    #[test]
    fn what_is_not_built_yet_is_refused_rather_than_ignored() {
        for args in [&["grad"][..], &["-j", "2"], &["--test-file", "x"]] {
            assert_eq!(
                parse(args).expect_err("not in this version").exit_code(),
                2,
                "{args:?}"
            );
        }
    }

    #[test]
    fn mode_perf_has_a_list_of_its_own() {
        let set = |args| parse(args).expect("parses").case_set();
        assert_eq!(set(&["perf"]), Set::Perf);
        assert_eq!(set(&["perf", "--set", "staging"]), Set::Staging);
        assert_eq!(set(&["perf", "--set", "gate"]), Set::Gate);
        assert_eq!(set(&["support"]), Set::Upstream);
    }

    #[test]
    fn the_flags_that_change_numbers_are_repeated() {
        let cli = parse(&[
            "--seed",
            "9",
            "--staging",
            "half",
            "--route",
            "mat-vec",
            "--tensor",
            "on",
        ])
        .expect("parses");
        assert_eq!(
            cli.repeat_flags(),
            "--seed 9 --staging half --route mat-vec --tensor on"
        );
        assert_eq!(parse(&[]).expect("parses").repeat_flags(), "--seed 1");
    }

    #[test]
    fn a_random_seed_is_drawn_anew() {
        let draw = || "random".parse::<Seed>().expect("draws");
        assert_ne!(draw(), draw());
        assert!("-1".parse::<Seed>().is_err());
    }
}
