//! A child: runs a range of seeds, and says on stdout which one it is at.

use std::any::Any;
use std::io::{Write, stdout};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ggml_rs::Device;

use crate::common::children::{AT, END, FAULT, MOVE};
use crate::sequence::{Counts, Outcome, World};

/// Runs `seeds`. `how` is `tell` to name every move on stderr, or `abort` and a seed at which to die, for the test of the parent.
pub fn run(device: &str, seeds: Range<u64>, how: &[String]) {
    let device = Device::by_name(device).unwrap();
    let mut world = World::new(device).unwrap();
    world.tell = how.iter().any(|word| word == "tell");
    let dies_at: Option<u64> = match how {
        [word, seed] if word == "abort" => Some(seed.parse().unwrap()),
        _ => None,
    };
    let moves = world.moves.len();
    let mut counts = Counts {
        made: vec![0; moves],
        refused: vec![0; moves],
        ran: vec![0; moves],
    };
    let mut ends = [0_u64; 3];
    for seed in seeds {
        say(&format!("{AT} {seed}"));
        if dies_at == Some(seed) {
            std::process::abort();
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| world.sequence(seed, &mut counts)));
        match outcome {
            Ok(Ok(Outcome::Ran)) => ends[0] += 1,
            Ok(Ok(Outcome::Refused)) => ends[1] += 1,
            Ok(Ok(Outcome::Stopped)) => ends[2] += 1,
            Ok(Err(fault)) => say(&format!("{FAULT} {seed} {}", fault.replace('\n', " "))),
            Err(panic) => say(&format!("{FAULT} {seed} panicked: {}", message(&*panic))),
        }
    }
    for (place, chosen) in world.moves.iter().enumerate() {
        let [made, refused, ran] = [&counts.made, &counts.refused, &counts.ran].map(|n| n[place]);
        say(&format!("{MOVE} {} {made} {refused} {ran}", chosen.name));
    }
    say(&format!("{END} {} {} {}", ends[0], ends[1], ends[2]));
}

/// A line that reaches the parent before anything else happens.
fn say(line: &str) {
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("something else than text")
        .replace('\n', " ")
}
