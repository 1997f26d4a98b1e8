//! A child: runs a range of seeds in one order of the simulated device, and says on stdout which one it is at.

use std::io::{Write, stdout};
use std::ops::Range;

use crate::common::children::{AT, END, FAULT, MOVE, OTHER};
use crate::differ::{Fault, Outcome, World};

/// Runs `seeds`. `how` is `tell` to print every graph on stderr, `whole` to leave a faulty graph as it is, `without=` and places to
/// take something away from each, `abort=` and an op to die of.
pub fn run(order: &str, seeds: Range<u64>, how: &[String]) {
    let mut world = World::new(order == crate::ORDERS[0]).unwrap();
    world.tell = how.iter().any(|word| word == "tell");
    world.whole = how.iter().any(|word| word == "whole");
    let deadly = how.iter().find_map(|word| word.strip_prefix("abort="));
    world.deadly = deadly.map(str::to_owned);
    if let Some(places) = how.iter().find_map(|word| word.strip_prefix("without=")) {
        let places = places.split(',').filter(|place| !place.is_empty());
        world.without = places.map(|place| place.parse().unwrap()).collect();
    }
    let mut ends = [0_u64; 3];
    for seed in seeds {
        say(&format!("{AT} {seed}"));
        let (outcome, bits) = world.seed(seed);
        if let Some(bits) = bits {
            say(&format!("{OTHER} bits {seed} {bits:x}"));
        }
        match outcome {
            Ok(Outcome::Ran) => ends[0] += 1,
            Ok(Outcome::Empty) => ends[1] += 1,
            Ok(Outcome::Beyond) => ends[2] += 1,
            Err(faults) => {
                ends[0] += 1;
                for fault in faults {
                    say(&format!("{FAULT} {seed} {}", line(&fault)));
                }
            }
        }
    }
    for (name, [a, b, c]) in &world.table.counts {
        say(&format!("{MOVE} {} {a} {b} {c}", name.replace(' ', "-")));
    }
    for (kind, part) in &world.table.most {
        say(&format!("{OTHER} most {kind} {part}"));
    }
    say(&format!("{END} {} {} {}", ends[0], ends[1], ends[2]));
}

/// A fault in one line: what kind it is of, and what a person needs.
fn line(fault: &Fault) -> String {
    let text = format!(
        "{}: {} :: {} on {} :: {}",
        fault.way.kind(),
        fault.program.ops().join(" "),
        fault.what,
        fault.way.name(),
        fault.program.tell()
    );
    text.replace('\n', " ")
}

/// A line that reaches the parent before anything else happens.
fn say(line: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}
