//! What safety costs: a graph of 1,000 ops through the safe API and through the same calls of ggml, built and run.
//!
//! `cargo bench -p ggml-rs-benches --bench graph_build` prints both times and their ratio, from rounds that alternate. The two
//! graphs must have as many nodes and give the same bits. Where the machine is not quiet, count instructions instead: with
//! `--only safe` or `--only c`, and `--builds N`, it builds one of them alone, for `perf stat` or callgrind; `--only backward` builds
//! the first with its gradients, to compare with another version of this library.

#[path = "graph_build/by_hand.rs"]
mod by_hand;
#[path = "graph_build/safe.rs"]
mod safe;

use std::env;
use std::ffi::CStr;
use std::hint::black_box;
use std::time::Instant;

use ggml_rs::Result;

/// Layers of 27 ops, and one op behind them.
const LAYERS: usize = 37;
const OPS: usize = 1000;
/// The model: width, heads, width of the feed-forward part, tokens.
const WIDTH: usize = 64;
const HEADS: usize = 4;
const HEAD: usize = WIDTH / HEADS;
const HIDDEN: usize = 128;
const TOKENS: usize = 8;
const EPS: f32 = 1e-6;
const SCALE: f32 = 0.25;

/// A layer's weights in ne order, by name. C has its names ready, with the NUL.
const WEIGHTS: [(&CStr, [usize; 2]); 9] = [
    (c"norm", [WIDTH, 1]),
    (c"q", [WIDTH, WIDTH]),
    (c"k", [WIDTH, WIDTH]),
    (c"v", [WIDTH, WIDTH]),
    (c"out", [WIDTH, WIDTH]),
    (c"ffn_norm", [WIDTH, 1]),
    (c"gate", [WIDTH, HIDDEN]),
    (c"up", [WIDTH, HIDDEN]),
    (c"down", [HIDDEN, WIDTH]),
];

const ROUNDS: usize = 31;
const BUILDS_A_ROUND: usize = 40;
const RUNS_A_ROUND: usize = 4;

/// The values of the `index`-th weight, or of the input.
fn values(index: usize, len: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 7919 + index * 104_729) % 2003) as f32 / 1001.5 - 1.0;
    (0..len).map(|i| value(i) / 8.0).collect()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().collect();
    let after = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1)
    };
    let builds = after("--builds").and_then(|count| count.parse().ok());
    match after("--only").map(String::as_str) {
        Some(arm) => only(arm, builds.unwrap_or(1)),
        None => compare(),
    }
}

/// One arm alone, for tools that count.
fn only(arm: &str, builds: usize) -> Result<()> {
    // Checks the CPU, which a call of ggml by hand does not. No backend is started: its tables would count too.
    drop(safe::build()?);
    for _ in 0..builds {
        match arm {
            "safe" => drop(black_box(safe::build()?)),
            "c" => drop(black_box(by_hand::Built::new())),
            "backward" => drop(black_box(safe::build_with_backward()?)),
            // What starting up costs, to be subtracted.
            _ => {}
        }
    }
    Ok(())
}

fn compare() -> Result<()> {
    // Checks the CPU, which a call of ggml by hand does not.
    ggml_rs::Device::cpu()?;
    let (nodes, by_hand_nodes) = (safe::build()?.0.nodes(), by_hand::Built::new().nodes());
    assert_eq!((nodes, by_hand_nodes), (OPS, OPS), "not the same graph");

    report(
        "build",
        BUILDS_A_ROUND,
        || drop(black_box(safe::build().expect("built before"))),
        || drop(black_box(by_hand::Built::new())),
    );

    let mut safe = safe::Ready::new()?;
    let mut by_hand = by_hand::Ready::new();
    let (expected, found) = (by_hand.run(), safe.run()?);
    assert!(
        expected
            .iter()
            .zip(&found)
            .all(|(a, b)| a.to_bits() == b.to_bits() && a.is_finite()),
        "not the same results"
    );
    report(
        "run",
        RUNS_A_ROUND,
        || drop(black_box(safe.run().expect("ran before"))),
        || drop(black_box(by_hand.run())),
    );
    Ok(())
}

/// Times both in alternating rounds and prints the medians, and the median of the rounds' ratios.
fn report(what: &str, repeats: usize, mut safe: impl FnMut(), mut by_hand: impl FnMut()) {
    let mut rounds: Vec<[f64; 2]> = Vec::new();
    for round in 0..ROUNDS {
        // Whoever comes second finds warmer caches.
        let (mut a, mut b) = (0.0, 0.0);
        if round % 2 == 0 {
            a = microseconds(repeats, &mut safe);
        }
        b += microseconds(repeats, &mut by_hand);
        if round % 2 == 1 {
            a = microseconds(repeats, &mut safe);
        }
        rounds.push([a, b]);
    }
    let ratio = median(rounds.iter().map(|[a, b]| a / b));
    println!(
        "{what}: {OPS} ops, safe {:.1} us, C {:.1} us, ratio {ratio:.3} (medians of {ROUNDS} rounds)",
        median(rounds.iter().map(|[a, _]| *a)),
        median(rounds.iter().map(|[_, b]| *b)),
    );
}

/// What one call takes, over `repeats` calls.
fn microseconds(repeats: usize, call: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..repeats {
        call();
    }
    start.elapsed().as_secs_f64() * 1e6 / repeats as f64
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
