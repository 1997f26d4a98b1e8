//! Random graphs, computed in every way that there is, and compared with double precision.
//!
//! Each seed draws a graph of patterns: views, writes in place, chains that backends fuse, nodes that are used twice. It runs
//! with both placements, on every device and several numbers of threads, with a scheduler, cancellable, traced and again, and
//! on the simulated device in three orders, each in processes of its own. Values must be those of the f64 interpreter, as
//! closely as rounding allows for each element; all runs of one device must agree in every bit; no watched byte may change.
//!
//! `GGML_RS_GRAPHS` is the number of graphs. A fault is printed with the smallest graph that has it, and the command that
//! runs its seed again.

#[path = "../common/mod.rs"]
mod common;

mod child;
mod differ;
mod draw;
mod fill;
mod op;
mod patterns;
mod program;
mod reference;
mod report;
mod rounding;
mod run;
mod shrink;
mod table;
mod tight;

use std::env;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// How the simulated device runs what no barrier orders.
pub const ORDERS: [&str; 3] = ["ascending", "reversed", "random"];
/// Enough for every pattern to run some ten times.
const GRAPHS: u64 = 2000;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [first, order, start, end, rest @ ..] = arguments.as_slice()
        && first == "--child"
    {
        let seeds = start.parse().unwrap()..end.parse().unwrap();
        child::run(order, seeds, rest);
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("small_errors_are_seen", tight::small_errors),
        Trial::test(
            "a_child_that_dies_is_a_fault_with_a_small_graph",
            report::dead_children,
        ),
        Trial::test(
            "random_graphs_agree_with_double_precision_in_every_way",
            random_graphs,
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn random_graphs() -> Result<(), Failed> {
    let set = env::var("GGML_RS_GRAPHS").ok();
    let graphs = set.map_or(GRAPHS, |text| text.parse().expect("a number of graphs"));
    report::graphs(graphs)
}
