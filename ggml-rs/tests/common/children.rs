//! The parent of a test that starts children of itself: hands ranges of seeds to them, and collects what they say.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, thread};

/// Lines of a child's report, by their first character: the seed that it is at, a fault, counts, how seeds ended, and whatever
/// else the test's parent is told.
pub const AT: char = '@';
pub const FAULT: char = '!';
pub const MOVE: char = '=';
pub const END: char = '#';
pub const OTHER: char = '~';

/// A seed takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// What children run.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The test that they are, for the command that runs a seed again.
    pub test: &'static str,
    /// What comes after `--child`: a device, or an order.
    pub what: &'a str,
    /// What comes after the seeds.
    pub how: &'a [&'a str],
    /// A variable of their environment.
    pub set: Option<(&'a str, &'a str)>,
    /// How many seeds a child gets.
    pub range: u64,
    /// After so many faults the rest is not run.
    pub enough: usize,
}

/// What all children said.
#[derive(Debug, Default)]
pub struct Report {
    /// Made, refused and ran, by move.
    pub moves: BTreeMap<String, [u64; 3]>,
    /// Sequences that ran, were refused and were stopped.
    pub ends: [u64; 3],
    /// Seeds, and what is wrong with them.
    pub faults: Vec<(u64, String)>,
    /// What else children said.
    pub others: Vec<String>,
}

/// Runs `seeds`, in as many children at a time as there are cores.
pub fn run(job: Job<'_>, seeds: Range<u64>) -> Report {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let next = Mutex::new(seeds.start);
    let report = Mutex::new(Report::default());
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(range) = take(&next, seeds.end, job.range) {
                    if lock(&report).faults.len() >= job.enough {
                        break;
                    }
                    one_range(job, range, &report);
                }
            });
        }
    });
    report.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// How a person runs one seed again.
pub fn again(job: Job<'_>, seed: u64) -> String {
    let set = job.set.map(|(name, value)| format!("{name}={value} "));
    let features = match cfg!(feature = "metal-sim") {
        true => " --features metal-sim",
        false => "",
    };
    format!(
        "{}cargo test -p ggml-rs{features} --test {} -- --child {} {seed} {} tell",
        set.unwrap_or_default(),
        job.test,
        job.what,
        seed + 1
    )
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(next: &Mutex<u64>, end: u64, range: u64) -> Option<Range<u64>> {
    let mut next = lock(next);
    let start = *next;
    *next = (start + range).min(end);
    (start < end).then_some(start..*next)
}

/// A child for the range, and another for what is left of it where that one dies.
fn one_range(job: Job<'_>, mut range: Range<u64>, report: &Mutex<Report>) {
    while !range.is_empty() && lock(report).faults.len() < job.enough {
        let Some(died_at) = one_child(job, range.clone(), report) else {
            return;
        };
        range.start = died_at + 1;
    }
}

/// Runs a child; the seed at which it died.
fn one_child(job: Job<'_>, range: Range<u64>, report: &Mutex<Report>) -> Option<u64> {
    let mut child = start(job, &range);
    let errors = child.stderr.take().map(|mut stream| {
        thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stream.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    let mut at = range.start;
    let hangs = listen(&mut child, &mut at, report);
    if hangs {
        let _ = child.kill();
    }
    let status = child.wait().unwrap();
    let errors = errors
        .and_then(|errors| errors.join().ok())
        .unwrap_or_default();
    if status.success() {
        return None;
    }
    let fault = match hangs {
        true => format!("does not end within {PATIENCE:?}"),
        false => format!("{}: {}", ending(status), tail(&errors)),
    };
    lock(report).faults.push((at, fault));
    Some(at)
}

fn start(job: Job<'_>, range: &Range<u64>) -> Child {
    program()
        .args(["--child", job.what])
        .args([range.start, range.end].map(|seed| seed.to_string()))
        .args(job.how)
        .envs(job.set)
        // A debugger takes seconds to say where.
        .env("GGML_NO_BACKTRACE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Words that come before a child's command, as for a child under valgrind.
const RUNNER: &str = "GGML_RS_TESTS_RUNNER";

fn program() -> Command {
    let this = env::current_exe().unwrap();
    let runner = env::var(RUNNER).unwrap_or_default();
    let mut words = runner.split_whitespace();
    match words.next() {
        None => Command::new(this),
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(this);
            command
        }
    }
}

/// Reads what a child says until it ends; whether it says nothing for too long.
fn listen(child: &mut Child, at: &mut u64, report: &Mutex<Report>) -> bool {
    let (said, lines) = channel();
    let stream = child.stdout.take().unwrap();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if said.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => match line.strip_prefix(AT) {
                Some(seed) => *at = seed.trim().parse().unwrap(),
                None => lock(report).take(&line),
            },
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => return true,
        }
    }
}

impl Report {
    fn take(&mut self, line: &str) {
        let Some(kind) = line.chars().next() else {
            return;
        };
        let rest = line[kind.len_utf8()..].trim_start();
        if kind == FAULT {
            let (seed, fault) = rest.split_once(' ').unwrap_or((rest, ""));
            self.faults
                .push((seed.parse().unwrap_or(0), fault.to_owned()));
        } else if kind == MOVE {
            let (name, counts) = rest.split_once(' ').unwrap_or((rest, ""));
            add(self.moves.entry(name.to_owned()).or_default(), counts);
        } else if kind == END {
            add(&mut self.ends, rest);
        } else if kind == OTHER {
            self.others.push(rest.to_owned());
        }
    }
}

fn add(to: &mut [u64; 3], counts: &str) {
    for (sum, count) in to.iter_mut().zip(counts.split_whitespace()) {
        *sum += count.parse::<u64>().unwrap_or(0);
    }
}

fn ending(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("signal {signal}");
    }
    status.to_string()
}

/// What a child wrote to stderr: what a sanitizer found, or the last lines.
fn tail(errors: &str) -> String {
    let found = |line: &&str| {
        let words = ["runtime error: ", "ERROR: ", "uninitialised", "Invalid "];
        words.iter().any(|word| line.contains(word))
    };
    let lines: Vec<&str> = errors.lines().collect();
    let reports: Vec<&str> = lines.iter().copied().filter(found).take(2).collect();
    match reports.is_empty() {
        true => lines[lines.len().saturating_sub(12)..].join(" | "),
        false => reports.join(" | "),
    }
}
