//! What all children said: faults by kind, and the table of what was seen.

use std::collections::BTreeMap;

use libtest_mimic::Failed;

use crate::ORDERS;
use crate::common::children::{self, Job, Report};
use crate::differ::{DIVIDED, draw};
use crate::op::{Make, OPS};
use crate::patterns;
use crate::run::{Way, ways};
use crate::shrink::{count, without};

/// Fewer graphs than this need not show every pattern.
const ALL_PATTERNS: u64 = 1500;

/// Faults of one kind, the seed that had it first, and how many had it.
struct Kind {
    job: Job<'static>,
    seed: u64,
    what: String,
    count: u64,
}

fn job(order: &'static str) -> Job<'static> {
    Job {
        test: "differential",
        what: order,
        how: &[],
        set: Some(("METAL_SIM_ORDER", order)),
        range: 250,
        enough: 400,
    }
}

/// Runs seeds 0 to `count` in every order.
pub fn graphs(count: u64) -> Result<(), Failed> {
    let mut orders = ORDERS.to_vec();
    if ways(false).is_empty() {
        orders.truncate(1);
    }
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    let mut bits: BTreeMap<u64, String> = BTreeMap::new();
    let mut missing = Vec::new();
    for order in orders {
        let report = children::run(job(order), 0..count);
        print(order, &report);
        for (seed, fault) in &report.faults {
            note(&mut kinds, job(order), *seed, fault);
        }
        for (seed, hash) in report.others.iter().filter_map(|line| bits_of(line)) {
            let first = bits.entry(seed).or_insert_with(|| hash.to_owned());
            if first != hash {
                let fault = "MTL0: order :: other bits than in the first order";
                note(&mut kinds, job(order), seed, fault);
            }
        }
        missing.extend(lacking(order, &report, count));
    }
    deaths(&mut kinds);
    match kinds.is_empty() && missing.is_empty() {
        true => Ok(()),
        false => Err(told(&kinds, &missing).into()),
    }
}

fn note(kinds: &mut BTreeMap<String, Kind>, job: Job<'static>, seed: u64, fault: &str) {
    let (kind, what) = fault.split_once(" :: ").unwrap_or((fault, ""));
    let entry = kinds.entry(kind.to_owned()).or_insert_with(|| Kind {
        job,
        seed,
        what: what.to_owned(),
        count: 0,
    });
    entry.count += 1;
    if what.len() < entry.what.len() {
        (entry.job, entry.seed, entry.what) = (job, seed, what.to_owned());
    }
}

/// How many deaths are made smaller: each takes a process for everything that is taken away.
const DEATHS: usize = 4;

/// Adds the smallest graph that ends a process like this.
fn deaths(kinds: &mut BTreeMap<String, Kind>) {
    let died = |name: &str| {
        ["signal", "exit status", "does not end"]
            .iter()
            .any(|word| name.starts_with(word))
    };
    let dead = kinds.iter_mut().filter(|(name, _)| died(name));
    for (_, kind) in dead.take(DEATHS) {
        let (_, told) = smallest_death(kind.job, kind.seed);
        kind.what = format!("{} {told}", kind.what);
    }
}

/// The ops of the smallest graph that a process dies of, and the graph.
fn smallest_death(job: Job<'_>, seed: u64) -> (Vec<&'static str>, String) {
    let Ok((program, _)) = draw(seed, &patterns::all()) else {
        return Default::default();
    };
    let mut away: Vec<usize> = Vec::new();
    for place in 0..count(&program) {
        away.push(place);
        let list: Vec<String> = away.iter().map(usize::to_string).collect();
        let how = format!("without={}", list.join(","));
        let words: Vec<&str> = job
            .how
            .iter()
            .copied()
            .chain([how.as_str(), "whole"])
            .collect();
        let job = Job { how: &words, ..job };
        let report = children::run(job, seed..seed + 1);
        if report.ends.iter().sum::<u64>() > 0 {
            away.pop();
        }
    }
    let program = without(program, &away);
    (program.ops(), program.tell())
}

/// A process that dies is a fault with its seed, and the smallest graph has what it dies of, and nothing else.
pub fn dead_children() -> Result<(), Failed> {
    let job = Job {
        how: &["abort=mul"],
        ..job(ORDERS[0])
    };
    let has_mul = |seed: &u64| {
        draw(*seed, &patterns::all()).is_ok_and(|(program, _)| program.ops().contains(&"mul"))
    };
    let Some(seed) = (0..100).find(has_mul) else {
        return Err("no graph has a product".into());
    };
    let report = children::run(job, seed..seed + 1);
    let Some((_, fault)) = report.faults.first() else {
        return Err("nothing died".into());
    };
    let (ops, told) = smallest_death(job, seed);
    match ops.as_slice() {
        ["mul"] if cfg!(not(unix)) || fault.starts_with("signal 6") => Ok(()),
        _ => Err(format!("seed {seed}: {fault}: {told}").into()),
    }
}

fn told(kinds: &BTreeMap<String, Kind>, missing: &[String]) -> String {
    let mut lines = vec![format!("{} kinds of faults", kinds.len())];
    for (name, kind) in kinds {
        lines.push(format!(
            "{name}: {} times, seed {}: {}\n  {}",
            kind.count,
            kind.seed,
            kind.what,
            children::again(kind.job, kind.seed)
        ));
    }
    lines.extend_from_slice(missing);
    lines.join("\n")
}

/// `bits SEED HASH`.
fn bits_of(line: &str) -> Option<(u64, &str)> {
    let (seed, hash) = line.strip_prefix("bits ")?.split_once(' ')?;
    Some((seed.parse().ok()?, hash))
}

fn print(order: &str, report: &Report) {
    let [ran, empty, beyond] = report.ends;
    println!("{order}: {ran} graphs ran, {empty} were empty, {beyond} left the range of f32");
    for (name, [a, b, c]) in &report.moves {
        match name.split_once(':') {
            Some(("way", way)) => println!("  {way}: ran {a}, refused {b}, wrong {c}"),
            None if name == DIVIDED => println!("  divided among devices: {a} runs"),
            Some(("refused", what)) => println!("  refused by {what}: {a}"),
            _ => println!("  {name}: drawn {a}, ran on the CPU {b}, on Metal {c}"),
        }
    }
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    for line in &report.others {
        let Some((kind, part)) = line
            .strip_prefix("most ")
            .and_then(|rest| rest.split_once(' '))
        else {
            continue;
        };
        let most = most.entry(kind).or_default();
        *most = most.max(part.parse().unwrap_or(f64::INFINITY));
    }
    for (kind, part) in most {
        println!("  {kind}: the largest error is {part:.3} of what rounding allows");
    }
}

/// What shows too little.
fn lacking(order: &str, report: &Report, count: u64) -> Vec<String> {
    let mut missing = Vec::new();
    let [ran, empty, beyond] = report.ends;
    // Where a child died, its counts are lost.
    if !report.faults.is_empty() {
        return missing;
    }
    if ran + empty + beyond != count {
        missing.push(format!("{order}: {count} graphs, and not all ended"));
    }
    if ran * 4 < count * 3 {
        missing.push(format!(
            "{order}: only {ran} of {count} graphs were compared"
        ));
    }
    let counts = |name: String| report.moves.get(&name).copied().unwrap_or_default();
    for way in ways(order == ORDERS[0]) {
        let [ran, _, wrong] = counts(format!("way:{}", way.name()));
        if (ran + wrong) * 3 < count / way.every {
            missing.push(format!(
                "{order}: {} ran {ran} graphs of {count}",
                way.name()
            ));
        }
    }
    if count < ALL_PATTERNS {
        return missing;
    }
    let [divided, ..] = counts(DIVIDED.to_owned());
    if divided * 100 < count && ways(false).iter().any(Way::is_both) {
        missing.push(format!(
            "{order}: only {divided} runs were divided among devices"
        ));
    }
    for (name, ..) in patterns::all() {
        let [drawn, ..] = counts(format!("pattern:{}", name.replace(' ', "-")));
        if drawn == 0 {
            missing.push(format!("{order}: no graph has the pattern \"{name}\""));
        }
    }
    for op in OPS.iter().filter(|op| matches!(op.make, Make::Node(_))) {
        let [drawn, ..] = counts(format!("op:{}", op.name));
        if drawn == 0 {
            missing.push(format!("{order}: no graph has the op {}", op.name));
        }
    }
    missing
}
