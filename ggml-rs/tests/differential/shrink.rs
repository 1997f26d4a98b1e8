//! Smaller graphs with the same fault.

use std::time::{Duration, Instant};

use crate::program::Program;

/// A fault is told even where the smallest graph is not reached.
const PATIENCE: Duration = Duration::from_secs(20);

/// Takes away what can be taken away while `fails` holds.
pub fn shrink(mut program: Program, mut fails: impl FnMut(&Program) -> bool) -> Program {
    let begin = Instant::now();
    loop {
        let mut smaller = false;
        for candidate in candidates(&program) {
            if begin.elapsed() > PATIENCE {
                return program;
            }
            let candidate = candidate(&program);
            if let Some(candidate) = candidate
                && fails(&candidate)
            {
                program = candidate;
                smaller = true;
            }
        }
        if !smaller {
            return program;
        }
    }
}

/// How many things there are to take away.
pub fn count(program: &Program) -> usize {
    candidates(program).len()
}

/// A program without these, by their places among all: for a process that may die of it.
pub fn without(mut program: Program, places: &[usize]) -> Program {
    let all = candidates(&program);
    for &place in places {
        if let Some(smaller) = all[place](&program) {
            program = smaller;
        }
    }
    program
}

type Candidate = Box<dyn Fn(&Program) -> Option<Program>>;

/// What to try, the largest steps first. Each is applied to what the ones before it left.
fn candidates(program: &Program) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for place in (0..program.outputs.len()).rev() {
        all.push(Box::new(move |program| {
            (place < program.outputs.len()).then(|| program.without_output(place))?
        }));
    }
    for at in (0..program.steps.len()).rev() {
        all.push(Box::new(move |program| {
            (!program.gone[at]).then(|| program.with_leaf(at))?
        }));
        for arg in 0..2 {
            all.push(Box::new(move |program| {
                (!program.gone[at]).then(|| program.with_shortcut(at, arg))?
            }));
        }
        all.push(Box::new(move |program| {
            (!program.gone[at]).then(|| program.with_numbers(at))?
        }));
    }
    all
}
