//! Running one step and keeping what it said.

use std::{
    process::{Command, ExitStatus, Output},
    time::Instant,
};

use serde::Deserialize;

use super::Options;
use crate::pin::checkout;

/// The device that is asked.
const DEVICE: &str = "MTL0";

/// Lines of a section's output that a report keeps.
const KEPT_LINES: usize = 80;

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It never started, and why.
    NotRun(String),
    /// By a signal: it crashed or was killed.
    Signal,
    /// With this exit code.
    Code(i32),
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        status.code().map_or(Self::Signal, Self::Code)
    }
}

/// Cases counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ran {
    /// Cases that passed.
    pub passed: usize,
    /// Case and reason of each that failed.
    pub failed: Vec<(String, String)>,
    /// Cases that the device does not support: neither passed nor failed.
    pub unsupported: usize,
}

/// A run of backend-ops.
#[derive(Debug, Clone)]
pub struct Tested {
    /// What was run.
    pub name: String,
    /// Its arguments.
    pub arguments: String,
    /// How it ended.
    pub ending: Ending,
    /// What its rows say.
    pub ran: Ran,
    /// The device as the rows describe it.
    pub device: String,
    /// The build's hash.
    pub build_hash: String,
    /// What the run's header says about the tensor API.
    pub tensor_api: String,
    /// Wall time, building not included.
    pub seconds: f64,
    /// The end of stderr, where the run did not end as it should.
    pub complaint: String,
}

/// Cases of the gate that half staging in the simdgroup kernel loses.
const OVERFLOWING: usize = 4;

/// Half's largest number.
const HALF_MAX: f64 = 65504.0;

/// What backend-ops says when it is to use a tensor API that the device does not have.
const NO_TENSOR_API: &str = "has no tensor API";

impl Tested {
    /// Whether everything passed; or, where half staging is measured, exactly what overflows failed.
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        // What follows -p is the user's.
        let (asked, selection) = match self.arguments.split_once(" -p ") {
            Some((asked, selection)) => (asked, Some(selection)),
            None => (&*self.arguments, None),
        };
        let Ran { passed, failed, .. } = &self.ran;
        if !asked.contains("--tensor off --staging half") {
            return self.ending == Ending::Code(0) && *passed > 0 && failed.is_empty();
        }
        let all_there = match selection {
            Some(_) => !failed.is_empty(),
            None => failed.len() == OVERFLOWING,
        };
        let overflow = failed.iter().all(|(case, _)| overflows(case));
        self.ending == Ending::Code(1) && all_there && overflow
    }
}

fn overflows(case: &str) -> bool {
    case.split([',', '(', ')'])
        .find_map(|field| field.strip_prefix("b_range="))
        .and_then(|range| range.parse::<f64>().ok())
        .is_some_and(|range| range > HALF_MAX)
}

/// How a run ended that was to use the tensor API: where the device has none, nothing ran.
fn without_tensor_api(arguments: &str, ending: Ending, stderr: &str) -> Ending {
    let refusal = stderr.lines().find(|line| line.contains(NO_TENSOR_API));
    match (&ending, refusal) {
        (Ending::Code(2), Some(line)) if arguments.contains("--tensor on") => {
            Ending::NotRun(line.trim_start_matches("error: ").to_owned())
        }
        _ => ending,
    }
}

/// Another command.
#[derive(Debug, Clone)]
pub struct Section {
    /// What it is.
    pub title: String,
    /// The command line.
    pub command: String,
    /// How it ended.
    pub ending: Ending,
    /// The end of what it printed.
    pub output: String,
    /// Wall time.
    pub seconds: f64,
}

/// A row of `--output json`, as far as it is used.
#[derive(Debug, Deserialize)]
struct Row {
    build_commit: String,
    op_name: String,
    op_params: String,
    supported: bool,
    passed: bool,
    error_message: String,
    device_description: String,
}

/// Runs backend-ops and counts its rows.
pub fn backend_ops(options: &Options, name: &str, arguments: &[&str]) -> Tested {
    let mut all = vec!["test", "-b", DEVICE, "--require", DEVICE];
    all.extend(arguments);
    if let Some(params) = &options.params {
        all.extend(["-p", params]);
    }
    let mut command = match &options.backend_ops {
        Some(path) => Command::new(path),
        None => build_and_run(),
    };
    let started = Instant::now();
    let output = command.args(&all).args(["--output", "json"]).output();
    let mut tested = Tested {
        name: name.to_owned(),
        arguments: all.join(" "),
        ending: Ending::NotRun(String::new()),
        ran: Ran::default(),
        device: String::new(),
        build_hash: String::new(),
        tensor_api: String::new(),
        seconds: started.elapsed().as_secs_f64(),
        complaint: String::new(),
    };
    match output {
        Ok(output) => tested.read(&output),
        Err(error) => tested.ending = Ending::NotRun(error.to_string()),
    }
    tested
}

/// Builds first, so that the time of a run is the run's.
fn build_and_run() -> Command {
    let cargo = |verb: &str| {
        let mut command = crate::pin::cargo();
        command
            .args([verb, "--quiet", "--release", "--package", "backend-ops"])
            .current_dir(checkout());
        command
    };
    // Where this fails, the run fails in the same way and is reported.
    let _ = cargo("build").status();
    let mut run = cargo("run");
    run.arg("--");
    run
}

impl Tested {
    fn read(&mut self, output: &Output) {
        let stderr = String::from_utf8_lossy(&output.stderr);
        self.ending = without_tensor_api(&self.arguments, output.status.into(), &stderr);
        let mut unreadable = 0;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            match serde_json::from_str::<Row>(line) {
                Ok(row) => self.count(row),
                Err(_) => unreadable += 1,
            }
        }
        let header = stderr
            .lines()
            .find_map(|line| line.split_once("tensor API: "));
        self.tensor_api = header
            .map_or("not reported", |(_, rest)| {
                rest.split([',', ';', ')']).next().unwrap_or(rest)
            })
            .trim()
            .to_owned();
        if unreadable > 0 {
            self.complaint = format!("{unreadable} lines of stdout are no rows\n");
        }
        if !matches!(self.ending, Ending::Code(0 | 1) | Ending::NotRun(_)) {
            self.complaint.push_str(&tail(&stderr, 20));
        }
    }

    fn count(&mut self, row: Row) {
        self.device = row.device_description;
        self.build_hash = row.build_commit;
        if !row.supported {
            self.ran.unsupported += 1;
        } else if row.passed {
            self.ran.passed += 1;
        } else {
            let case = format!("{}({})", row.op_name, row.op_params);
            self.ran.failed.push((case, row.error_message));
        }
    }
}

/// Runs cargo in the checkout and keeps the end of its output.
pub fn cargo(title: &str, arguments: &[&str]) -> Section {
    let started = Instant::now();
    let output = crate::pin::cargo()
        .args(arguments)
        .current_dir(checkout())
        .output();
    let (ending, output) = match output {
        Ok(output) => {
            let both = [output.stdout, output.stderr].concat();
            (
                output.status.into(),
                tail(&String::from_utf8_lossy(&both), KEPT_LINES),
            )
        }
        Err(error) => (Ending::NotRun(error.to_string()), String::new()),
    };
    Section {
        title: title.to_owned(),
        command: format!("cargo {}", arguments.join(" ")),
        ending,
        output,
        seconds: started.elapsed().as_secs_f64(),
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(arguments: &str, ending: Ending, passed: usize, failed: &[&str]) -> Tested {
        let failed = failed
            .iter()
            .map(|case| ((*case).to_owned(), String::new()))
            .collect();
        Tested {
            name: String::new(),
            arguments: arguments.to_owned(),
            ending,
            ran: Ran {
                passed,
                failed,
                unsupported: 0,
            },
            device: String::new(),
            build_hash: String::new(),
            tensor_api: String::new(),
            seconds: 0.0,
            complaint: String::new(),
        }
    }

    const HALF: &str = "--tensor off --staging half";
    const OVERFLOW: &str = "OUT_PROD(type_a=f32,b_range=150000.000000)";
    const NONE: [&str; 0] = [];

    fn clean(arguments: &str, code: i32, passed: usize, failed: &[&str]) -> bool {
        ended(arguments, Ending::Code(code), passed, failed).is_as_expected()
    }

    #[test]
    fn half_staging_must_fail_exactly_the_four_that_overflow() {
        assert!(clean(HALF, 1, 33, &[OVERFLOW; 4]));
        assert!(!clean(HALF, 0, 33, &[OVERFLOW; 4]));
        assert!(!clean(HALF, 1, 34, &[OVERFLOW; 3]));
        assert!(!clean(HALF, 1, 32, &[OVERFLOW; 5]));
        for fits in ["OUT_PROD(m=1)", "OUT_PROD(b_range=65504.0)"] {
            assert!(!clean(HALF, 1, 33, &[OVERFLOW, OVERFLOW, OVERFLOW, fits]));
        }
        // Half staging that loses nothing was not half staging.
        assert!(!clean(HALF, 0, 37, &NONE));
        assert!(!clean(HALF, 1, 37, &NONE));
    }

    #[test]
    fn a_selection_under_half_staging_must_fail_what_overflows() {
        let half = format!("{HALF} -p m=256");
        assert!(clean(&half, 1, 0, &[OVERFLOW]));
        assert!(!clean(&half, 1, 1, &[OVERFLOW, "OUT_PROD(m=1)"]));
        assert!(!clean(&half, 1, 1, &NONE));
        assert!(!clean(&half, 0, 1, &NONE));
    }

    #[test]
    fn every_other_run_must_pass() {
        for arguments in [
            "",
            "--tensor off --staging float",
            "--tensor on --staging half",
            "--staging float -p --tensor off --staging half",
        ] {
            assert!(clean(arguments, 0, 37, &NONE));
            assert!(!clean(arguments, 0, 0, &NONE));
            assert!(!clean(arguments, 1, 37, &NONE));
            assert!(!clean(arguments, 0, 33, &[OVERFLOW; 4]));
            assert!(!clean(arguments, 1, 33, &[OVERFLOW; 4]));
        }
    }

    #[test]
    fn a_device_without_the_tensor_api_did_not_run() {
        let stderr = "ggml: hello\nerror: MTL0 has no tensor API\n";
        let ending = |arguments: &str, code, stderr| {
            without_tensor_api(arguments, Ending::Code(code), stderr)
        };
        let not_run = ending("--tensor on", 2, stderr);
        assert_eq!(not_run, Ending::NotRun("MTL0 has no tensor API".to_owned()));
        assert!(!ended("--tensor on", not_run, 37, &NONE).is_as_expected());
        assert_eq!(ending("--tensor on", 1, stderr), Ending::Code(1));
        assert_eq!(ending("--tensor off", 2, stderr), Ending::Code(2));
        assert_eq!(ending("--tensor on", 2, "error: x\n"), Ending::Code(2));
    }

    #[test]
    fn what_did_not_run_or_did_not_end_is_not_as_expected() {
        for ending in [Ending::NotRun("x".into()), Ending::Signal, Ending::Code(2)] {
            assert!(!ended("", ending, 37, &[]).is_as_expected());
        }
        assert!(!ended("", Ending::Code(0), 0, &[]).is_as_expected());
    }
}
