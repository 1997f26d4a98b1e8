//! The flags: upstream's, and ours.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::environment::{Environment, quoted};
use super::values::{Mode, Output, RouteArg, Seed, StagingArg, Switch};
use crate::cases::Set;
use crate::judge::exact::Exactness;
use crate::judge::verify::Rules;

/// The seed of a run that names none: the same data everywhere, so that a report can be compared with the last one.
const DEFAULT_SEED: u64 = 1;

const AFTER_HELP: &str = "\
Examples:
  backend-ops test -o OUT_PROD --set gate                 the 37 cases that must pass
  backend-ops test -o OUT_PROD --set gate --staging half  the same with half staging: four overflow
  backend-ops test -o MUL_MAT_ID --set ground-truth       each staging's error, which is bounded
  backend-ops test -o OUT_PROD --set gate --route direct  the same in one kernel, which makes no temporaries
  backend-ops test -o OUT_PROD -p 'type_a=q4_K.*trans_b=1'
  backend-ops test -b CPU -o 'CONT(type=f32,ne=[2,1,1,1],use_view_slice=0)'
  backend-ops test -o MUL_MAT --staging float --kernels   float-staged products, and which kernels ran
  backend-ops perf -b CPU -o MUL_MAT                      times; on a simulated device counters
  backend-ops perf --set staging                          OUT_PROD with float against half staging
  backend-ops perf -o OUT_PROD --set blas                 OUT_PROD beside OpenBLAS (a build with --features blas)
  backend-ops support --output csv                        which cases a device runs
  backend-ops test --output csv > results.csv             rows on stdout, the report for people on stderr
  backend-ops test --set quick                            minutes: the values of every parameter, but for the largest
  backend-ops test -o CPY --exact=0                       copies and conversions must be right to the bit
  backend-ops grad -o MUL_MAT -p type_a=f32               gradients on the CPU, which -b changes
  backend-ops threads -o FLASH_ATTN_EXT                   the CPU's bits with 1 to 8 threads
  backend-ops test -b MTL0 --set quick --verify           races, uninitialised reads and more, on the simulated device
  backend-ops test -o MUL_MAT --bisect                    shrinks the first failing case of each operation

Worker processes (-j):
  Cases run in worker processes. One that dies (an abort, a crash, out of memory) fails its case, with the signal's name, and
  the run goes on. Results are reported in the order of the cases. -j 1 runs everything in this process, as upstream does: for
  debuggers, profilers and emulators; a crash then ends the run, and the last case named is the one that crashed.

Single elements (--exact):
  For each case: how many elements differ in bits from the reference rounded to F32, the element that differs most and the one
  that is furthest in units of the last place (ulp), each with its index, flat and in ne order, and both values. With a number
  no element may be further from the f64 reference than so many ulp (from the CPU backend, where there is no such reference);
  --exact=0 demands equal bits. Results that are sets, in any order, are left out.

Smaller cases (--bisect):
  After a device's cases the first failing case of each operation is run again with one size smaller, as long as it fails in
  the same way (wrong values, a crash, ...). The smallest form is printed with the command that runs it: -o takes the string of
  a smaller form of any case.

Files of cases (--test-file):
  A case string a line; blank lines and lines that start with # say nothing. Upstream's files of exported operations hold
  numbers of one build of ggml and are refused.

Exit codes:
  0  every case that ran passed
  1  a case failed
  2  wrong usage, no such device, or nothing ran

Gradients (grad):
  The loss is the sum of the result, each element times a random weight. The graph's backward must agree with central
  differences in f64 when it is evaluated in f64, and on the device. Large operands are checked in part, and the line says so;
  elements at kinks are left out and counted, and a case of which more than half is left out fails. The CPU computes what another
  device lacks: such a case fails where the gradient is wrong, and where it is right it counts as not supported, apart from the
  device's own. --output json has the operands of each case with and without a gradient.";

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

    /// Only these operations or cases: names, or case strings in quotes, whole or with some of their fields
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

    /// How Metal's products run: MUL_MAT of many rows as the device decides or row by row, OUT_PROD with temporaries or without
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

    /// Worker processes; without it one for each core (at most 8), one for a GPU; 1 runs everything in this process
    #[arg(short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,

    /// Mode threads: the most threads that a case runs with; without it 8
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=512))]
    pub threads: Option<u16>,

    /// Only the cases that a file names, a case string a line
    #[arg(long, value_name = "FILE")]
    pub test_file: Option<PathBuf>,

    /// Print the elements that differ most; with a number fail where one is further away than so many ulp, 0 for equal bits
    #[arg(long, value_name = "ULP", num_args = 0..=1, require_equals = true)]
    pub exact: Option<Option<u32>>,

    /// Let the simulated device's verifier judge too: races, uninitialised reads, accesses out of bounds, dependence on order
    /// (needs a build with --features verifier)
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "hardware")]
    pub verify: Option<Rules>,

    /// Look for the smallest form of a failing case
    #[arg(long)]
    pub bisect: bool,

    /// Seed of the test data: a number, or "random"; printed in the report
    #[arg(long, value_name = "N|random", default_value_t = Seed(DEFAULT_SEED))]
    pub seed: Seed,

    /// A backend library to load instead of the built-in simulated device (used by this project's own mutation tests)
    #[arg(long, value_name = "PATH", hide = true)]
    pub backend_lib: Option<PathBuf>,

    /// Runs cases for another process: on a device, with so many threads
    #[arg(long, num_args = 2, value_names = ["DEVICE", "THREADS"], hide = true)]
    pub worker: Option<Vec<String>>,
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

    /// The flags that repeat what this run makes of a case: all but those for the device, the selection of cases and reports.
    #[must_use]
    pub fn flags_of_cases(&self) -> Vec<String> {
        let mut flags = vec!["--seed".to_owned(), self.seed.to_string()];
        let mut add = |flag: &str, value: &str| flags.extend([flag.to_owned(), value.to_owned()]);
        // The default set has the quick one's cases.
        if self.set.whole() != Set::Upstream {
            add("--set", &self.set.to_string());
        }
        if let Some(staging) = self.staging.and_then(|staging| staging.to_possible_value()) {
            add("--staging", staging.get_name());
        }
        if let Some(route) = self.route.and_then(|route| route.to_possible_value()) {
            add("--route", route.get_name());
        }
        if let Some(tensor) = self.tensor {
            add("--tensor", if tensor.is_on() { "on" } else { "off" });
        }
        if let Some(path) = &self.backend_lib {
            add("--backend-lib", &path.display().to_string());
        }
        if let Some(threads) = self.threads {
            add("--threads", &threads.to_string());
        }
        match self.exactness() {
            None => {}
            Some(Exactness::Report) => flags.push("--exact".to_owned()),
            Some(Exactness::Within(ulp)) => flags.push(format!("--exact={ulp}")),
        }
        if let Some(rules) = self.verify.and_then(|rules| rules.to_possible_value()) {
            flags.push(format!("--verify={}", rules.get_name()));
        }
        flags
    }

    /// The command that repeats a case, up to `-o`: with the environment's settings of the simulated device and of ggml's Metal
    /// backend, which it depends on too.
    #[must_use]
    pub fn repeat(&self, device: &str, environment: &Environment) -> String {
        let mut words = environment.0.clone();
        words.extend(["backend-ops", self.mode.name(), "-b", device].map(str::to_owned));
        words.extend(self.flags_of_cases().iter().map(|flag| quoted(flag)));
        words.join(" ")
    }

    /// The device that is named. Mode grad has a default, which upstream includes there too, and mode threads is the CPU's alone.
    #[must_use]
    pub fn device(&self) -> Option<&str> {
        let default = matches!(self.mode, Mode::Grad | Mode::Threads).then_some("CPU");
        self.device.as_deref().or(default)
    }

    /// What is asked of single elements.
    #[must_use]
    pub fn exactness(&self) -> Option<Exactness> {
        let asked = self.exact?;
        Some(asked.map_or(Exactness::Report, Exactness::Within))
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
    fn what_makes_no_sense_is_refused_rather_than_ignored() {
        let error = parse(&["-j", "0"]).expect_err("no workers at all");
        assert_eq!(error.exit_code(), 2);
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
            cli.repeat("MTL0", &Environment::default()),
            "backend-ops test -b MTL0 --seed 9 --staging half --route mat-vec --tensor on"
        );
        let nothing = Environment::default();
        let repeat = |args: &[&str]| parse(args).expect("parses").repeat("CPU", &nothing);
        assert_eq!(repeat(&[]), "backend-ops test -b CPU --seed 1");
        assert_eq!(repeat(&["--set", "quick", "-j", "3"]), repeat(&[]));
        assert!(repeat(&["--set", "range", "--exact=0"]).ends_with("--set range --exact=0"));
        assert!(repeat(&["--backend-lib", "a b"]).ends_with("--backend-lib 'a b'"));
    }

    #[test]
    fn the_environment_that_changes_numbers_is_repeated() {
        let env = [
            ("HOME", "/"),
            ("METAL_SIM_ORDER", "reversed"),
            ("GGML_METAL_X", "a'b"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            parse(&[])
                .expect("parses")
                .repeat("MTL0", &Environment::of(env)),
            r"GGML_METAL_X='a'\''b' METAL_SIM_ORDER=reversed backend-ops test -b MTL0 --seed 1"
        );
    }

    #[test]
    fn exact_takes_no_other_argument_for_its_number() {
        let exactness = |args: &[&str]| parse(args).expect("parses").exactness();
        assert_eq!(exactness(&[]), None);
        assert_eq!(exactness(&["--exact", "test"]), Some(Exactness::Report));
        assert_eq!(exactness(&["--exact=3"]), Some(Exactness::Within(3)));
    }
}
