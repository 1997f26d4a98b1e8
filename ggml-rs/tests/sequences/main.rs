//! Random sequences of ops: whatever ops, types, shapes, layouts, parameters and values come together, the answer is a result or
//! an error.
//!
//! The test starts children of itself. Each draws a sequence for every seed of its range, plans it, sets its inputs, runs it and
//! reads what it gave; some sequences fit together, and some do not. A signal, an assertion of ggml's, a byte behind a tensor
//! that changed and an error where none is due are faults, and are printed with a command that runs the seed again.
//!
//! `GGML_RS_SEQUENCES` is the number of sequences, for a short run or a long one.

#[path = "../common/mod.rs"]
mod common;

mod child;
mod covered;
mod draw;
mod fill;
mod moves;
mod sequence;
mod table;

use std::collections::BTreeSet;
use std::env;
use std::process::ExitCode;

use common::children::{self, Job, Report};
use libtest_mimic::{Arguments, Failed, Trial};

/// Enough for every op to run some hundred times.
const ON_THE_CPU: u64 = 100_000;
/// The simulated device is slower, and refuses more.
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
const SIMULATED: u64 = 20_000;
/// Fewer sequences than this need not show every op.
const ALL_OPS: u64 = 20_000;

/// Methods that end in a node, or look as if they did, and are no moves of their own.
const NOT_MOVES: &[(&str, &str)] = &[
    ("input", "every leaf is one"),
    ("empty", "leaves without values, drawn with all others"),
    ("output", "every graph declares some"),
    ("param", "leaves of sequences with a storage"),
    ("build", "every sequence is a graph"),
    ("named", "names a tensor, which makes no node"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [first, device, start, end, rest @ ..] = arguments.as_slice()
        && first == "--child"
    {
        let seeds = start.parse().unwrap()..end.parse().unwrap();
        child::run(device, seeds, rest);
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("every_constructor_is_a_move", every_constructor),
        Trial::test("constructors_are_found_in_sources", constructors_are_found),
        Trial::test("a_child_that_dies_is_a_fault_with_its_seed", dead_children),
        Trial::test("sequences_on_the_cpu_run_or_are_refused", || {
            let wanted = wanted(ON_THE_CPU);
            let report = sequences("CPU", wanted)?;
            ran_enough(&report, wanted)
        }),
        #[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
        Trial::test(
            "sequences_on_the_simulated_metal_device_run_or_are_refused",
            || sequences("MTL0", wanted(SIMULATED)).map(drop),
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Children that run sequences on a device.
fn job(device: &str) -> Job<'_> {
    Job {
        test: "sequences",
        what: device,
        how: &[],
        set: None,
        range: 1000,
        enough: 20,
    }
}

fn wanted(usual: u64) -> u64 {
    let set = env::var("GGML_RS_SEQUENCES").ok();
    set.map_or(usual, |text| text.parse().expect("a number of sequences"))
}

/// Runs seeds 0 to `count`. Fails for faults, and where too few sequences ran to show anything.
fn sequences(device: &str, count: u64) -> Result<Report, Failed> {
    let report = children::run(job(device), 0..count);
    let [ran, refused, stopped] = report.ends;
    println!("{device}: {ran} sequences ran, {refused} were refused, {stopped} were stopped");
    for (name, [made, refused, ran]) in &report.moves {
        println!("  {name}: made {made}, refused {refused}, ran {ran}");
    }
    if !report.faults.is_empty() {
        let mut lines = vec![format!("{} faults", report.faults.len())];
        for (seed, fault) in &report.faults {
            lines.push(format!(
                "seed {seed}: {fault}\n  {}",
                children::again(job(device), *seed)
            ));
        }
        return Err(lines.join("\n").into());
    }
    if ran + refused + stopped != count {
        return Err(format!("{count} sequences, and not all ended").into());
    }
    let made: u64 = report.moves.values().map(|[made, ..]| made).sum();
    let not_made: u64 = report.moves.values().map(|[_, refused, _]| refused).sum();
    println!("{device}: {made} ops were made, {not_made} were refused");
    if ran * 4 < count || refused * 20 < count || not_made * 10 < made {
        return Err("the mix shows too little".into());
    }
    Ok(report)
}

/// Every op ran, somewhere.
fn ran_enough(report: &Report, count: u64) -> Result<(), Failed> {
    let idle: Vec<&str> = report
        .moves
        .iter()
        .filter(|(_, [_, _, ran])| *ran == 0)
        .map(|(name, _)| name.as_str())
        .collect();
    match idle.is_empty() || count < ALL_OPS {
        true => Ok(()),
        false => Err(format!("these never ran: {}", idle.join(" ")).into()),
    }
}

/// The sources have no constructor that is no move.
fn every_constructor() -> Result<(), Failed> {
    let moves: BTreeSet<String> = table::all().iter().map(|m| m.name.to_owned()).collect();
    let constructors = covered::constructors();
    if constructors.len() < 150 {
        return Err(format!("only {} constructors found", constructors.len()).into());
    }
    let left_out = |name: &str| NOT_MOVES.iter().any(|(other, _)| *other == name);
    let missing: Vec<_> = constructors
        .difference(&moves)
        .filter(|name| !left_out(name))
        .cloned()
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("no move makes: {}", missing.join(" ")).into()),
    }
}

/// What is a constructor, in words as the sources have them.
fn constructors_are_found() -> Result<(), Failed> {
    let text = "
        #[doc(alias = \"ggml_add\")]
        #[track_caller]
        pub fn add(self, b: Tensor<'g>) -> Result<Self> { .. }
        pub fn without_alias(
            self,
        ) -> Result<Self> { .. }
        #[doc(alias = \"ggml_nbytes\")]
        pub fn no_error(&self) -> usize { .. }
        pub(crate) fn hidden(self) -> Result<Self> { .. }
        // pub fn commented(self) -> Result<Self> { .. }
    ";
    let found = |ops| covered::methods(text, ops).into_iter().collect::<Vec<_>>();
    match (found(true).as_slice(), found(false).as_slice()) {
        ([a, b], [c]) if a == "add" && b == "without_alias" && c == "add" => Ok(()),
        (ops, rest) => Err(format!("{ops:?}, {rest:?}").into()),
    }
}

/// A signal is seen, the seed is named, and the seeds behind it run.
fn dead_children() -> Result<(), Failed> {
    let job = Job {
        how: &["abort", "3"],
        ..job("CPU")
    };
    let report = children::run(job, 0..8);
    let ended: u64 = report.ends.iter().sum();
    match report.faults.as_slice() {
        [(3, fault)] if cfg!(not(unix)) || fault.starts_with("signal 6") => {}
        faults => return Err(format!("{faults:?}").into()),
    }
    // 4 to 7: what the dead child had counted is lost.
    match ended {
        4 => Ok(()),
        _ => Err(format!("{ended} sequences ended").into()),
    }
}
