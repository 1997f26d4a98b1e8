//! One seed: a graph is drawn, computed in every way, and compared.

use ggml_rs::Graph;

use crate::draw::Draw;
use crate::op::Make;
use crate::patterns::{self, Pattern};
use crate::program::Program;
use crate::reference::{Bytes, Reference};
use crate::run::{Backends, Ran, Way, ways};
use crate::shrink::{shrink, without};
use crate::table::Table;

/// The count of runs that were divided among devices.
pub const DIVIDED: &str = "divided";

/// What a child works with.
pub struct World {
    pub patterns: Vec<Pattern>,
    pub ways: Vec<Way>,
    backends: Backends,
    pub table: Table,
    /// Prints each graph before it runs.
    pub tell: bool,
    /// Leaves faulty graphs as they are.
    pub whole: bool,
    /// What is taken away from each graph before it runs.
    pub without: Vec<usize>,
    /// An op that ends the process, for the test of the parent.
    pub deadly: Option<String>,
}

/// How a seed ended, if nothing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ran,
    /// Nothing was made that could be read.
    Empty,
    /// Values left the range in which devices can be compared.
    Beyond,
}

/// A fault, the way in which it shows, and the smallest graph that has it.
pub struct Fault {
    pub way: Way,
    pub what: String,
    pub program: Program,
}

impl World {
    pub fn new(first_order: bool) -> ggml_rs::Result<Self> {
        let ways = ways(first_order);
        Ok(Self {
            patterns: patterns::all(),
            backends: Backends::new(&ways)?,
            ways,
            table: Table::default(),
            tell: false,
            whole: false,
            without: Vec::new(),
            deadly: None,
        })
    }

    /// Runs a seed. Gives the bits of the first run on Metal, which no order may change.
    pub fn seed(&mut self, seed: u64) -> (Result<Outcome, Vec<Fault>>, Option<u64>) {
        let (program, refused) = match draw(seed, &self.patterns) {
            Ok((program, refused)) => (without(program, &self.without), refused),
            Err(what) => {
                let (way, program) = (self.ways[0], Program::default());
                return (Err(vec![Fault { way, what, program }]), None);
            }
        };
        self.table.add("refused:build", [refused, 0, 0]);
        if self.tell {
            eprintln!("seed {seed}: {}", program.tell());
        }
        if self
            .deadly
            .as_deref()
            .is_some_and(|op| program.ops().contains(&op))
        {
            std::process::abort();
        }
        if program.outputs.is_empty() {
            return (Ok(Outcome::Empty), None);
        }
        let mut reference = match Reference::new(&program) {
            Ok(Some(reference)) => reference,
            Ok(None) => return (Ok(Outcome::Beyond), None),
            Err(error) => {
                let what = format!("interpreter: {error}");
                let way = self.ways[0];
                return (Err(vec![Fault { way, what, program }]), None);
            }
        };
        let mut faults: Vec<(Way, String)> = Vec::new();
        let mut seen = Seen::default();
        let mut ran = [0, 0];
        for way in self.ways.clone() {
            if !seed.is_multiple_of(way.every) {
                continue;
            }
            if self.tell {
                eprintln!("  {}", way.name());
            }
            let found = one(&mut self.backends, &program, &mut reference, way, &mut seen);
            let name = format!("way:{}", way.name());
            match found {
                Found::Right { part, divided } => {
                    self.table.add(&name, [1, 0, 0]);
                    self.table.add(DIVIDED, [u64::from(divided), 0, 0]);
                    self.table.most(way.kind(), part);
                    match way.kind() {
                        "CPU" => ran[0] = 1,
                        _ => ran[1] = 1,
                    }
                }
                Found::Refused(what) => {
                    self.table.add(&name, [0, 1, 0]);
                    self.table.add(&format!("refused:{what}"), [1, 0, 0]);
                }
                Found::Wrong(what) => {
                    self.table.add(&name, [0, 0, 1]);
                    // What both devices show together, one of them mostly has alone.
                    let told = |other: &Way| other.kind() == way.kind();
                    if faults.is_empty()
                        || !(way.is_both() || faults.iter().any(|(way, _)| told(way)))
                    {
                        faults.push((way, what));
                    }
                }
            }
        }
        self.count(&program, ran);
        let bits = seen.bits("MTL0");
        if faults.is_empty() {
            return (Ok(Outcome::Ran), bits);
        }
        drop(reference);
        let faults = faults
            .into_iter()
            .map(|(way, what)| self.smallest(&program, way, what))
            .collect();
        (Err(faults), bits)
    }

    fn count(&mut self, program: &Program, [cpu, metal]: [u64; 2]) {
        let mut drawn = vec![false; self.patterns.len()];
        for (_, step) in program.live() {
            if matches!(step.op.make, Make::Node(_)) {
                drawn[step.pattern] = true;
                self.table
                    .add(&format!("op:{}", step.op.name), [1, cpu, metal]);
                self.table.add("nodes", [1, cpu, metal]);
            }
        }
        for (place, drawn) in drawn.into_iter().enumerate() {
            if drawn {
                let name = self.patterns[place].0.replace(' ', "-");
                self.table.add(&format!("pattern:{name}"), [1, cpu, metal]);
            }
        }
    }

    /// The smallest graph with a fault on this kind of device, and what is wrong with it.
    fn smallest(&mut self, program: &Program, way: Way, what: String) -> Fault {
        let mut last = (way, what);
        let ways: Vec<Way> = self
            .ways
            .iter()
            .copied()
            .filter(|other| other.kind() == way.kind() && (other.every == 1 || *other == way))
            .collect();
        let (backends, whole) = (&mut self.backends, self.whole);
        let program = shrink(program.clone(), |smaller| {
            if whole {
                return false;
            }
            match any(backends, smaller, &ways) {
                Some(found) => {
                    last = found;
                    true
                }
                None => false,
            }
        });
        let (way, what) = last;
        Fault { way, what, program }
    }
}

/// Draws a seed's program, and counts what was refused.
///
/// # Errors
/// What is wrong with a refusal.
pub fn draw(seed: u64, patterns: &[Pattern]) -> Result<(Program, u64), String> {
    let mut drawn = None;
    // The graph that it was checked with is made anew for each way, and is refused here: it has no outputs.
    let _ = Graph::build(|g| {
        let mut draw = Draw::new(g, seed);
        patterns::draw(&mut draw, patterns);
        let draw = draw.finish();
        drawn = Some((draw.program, draw.refused, draw.fault));
        Ok(())
    });
    match drawn {
        Some((_, _, Some(fault))) => Err(fault),
        Some((program, refused, None)) => Ok((program, refused)),
        None => Err("nothing was drawn".to_owned()),
    }
}

/// The first fault of a program in these ways.
fn any(backends: &mut Backends, program: &Program, ways: &[Way]) -> Option<(Way, String)> {
    let mut reference = Reference::new(program).ok()??;
    let mut seen = Seen::default();
    ways.iter().find_map(
        |&way| match one(backends, program, &mut reference, way, &mut seen) {
            Found::Wrong(what) => Some((way, what)),
            Found::Right { .. } | Found::Refused(_) => None,
        },
    )
}

/// What a kind of device gave first.
#[derive(Default)]
struct Seen(Vec<(Way, Bytes)>);

impl Seen {
    fn first(&self, kind: &str) -> Option<&(Way, Bytes)> {
        self.0.iter().find(|(way, _)| way.kind() == kind)
    }

    fn bits(&self, kind: &str) -> Option<u64> {
        let (_, bytes) = self.first(kind)?;
        let all = bytes.iter().flatten();
        // FNV.
        Some(all.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        }))
    }
}

enum Found {
    Right { part: f64, divided: bool },
    Refused(String),
    Wrong(String),
}

/// Computes in one way, and compares with exact values and with other runs of the device.
fn one(
    backends: &mut Backends,
    program: &Program,
    reference: &mut Reference<'_>,
    way: Way,
    seen: &mut Seen,
) -> Found {
    let (got, divided) = match backends.run(program, way) {
        Ran::Done { bytes, splits } => (bytes, splits > 1),
        Ran::Refused(what) => return Found::Refused(what),
        Ran::Wrong(what) => return Found::Wrong(what),
    };
    let compared = match reference.compare(way.rounds(), &got) {
        Ok(compared) => compared,
        Err(error) => return Found::Wrong(format!("compare: {error}")),
    };
    let part = match compared {
        Ok(part) => part,
        Err(wrong) => {
            return Found::Wrong(format!(
                "output {} element {} of {} is {:e}, not {:e} (within {:e}); {} are wrong",
                wrong.output,
                wrong.element,
                wrong.of,
                wrong.got,
                wrong.expected,
                wrong.bound,
                wrong.wrong
            ));
        }
    };
    let first = match sums_by_placement(program) {
        // The fused kernel adds in another order, and is used with one placement alone.
        true => seen.0.iter().find(|(other, _)| other.like(way)),
        false => seen.first(way.kind()),
    };
    match first {
        // A fused kernel begins a sum at +0, or adds no bias of +0: it may give the other zero than its nodes one by one.
        Some((other, bytes)) if !reference.agree(bytes, &got, way.kind() != "CPU") => {
            Found::Wrong(format!(
                "other bits than {}: {}",
                other.name(),
                difference(bytes, &got)
            ))
        }
        Some(_) => Found::Right { part, divided },
        None => {
            seen.0.push((way, got));
            Found::Right { part, divided }
        }
    }
}

/// Whether a graph may have a router, which Metal runs as one kernel where its operands are in one buffer.
fn sums_by_placement(program: &Program) -> bool {
    let ops = program.ops();
    let router = ["soft_max", "argsort", "get_rows"];
    router.iter().all(|op| ops.contains(op))
}

fn difference(a: &Bytes, b: &Bytes) -> String {
    for (output, (a, b)) in a.iter().zip(b).enumerate() {
        let pairs = a.chunks(4).zip(b.chunks(4));
        if let Some((at, (a, b))) = pairs.enumerate().find(|(_, (a, b))| a != b) {
            return format!("output {output}, word {at}: {a:02x?} and {b:02x?}");
        }
    }
    "none".to_owned()
}
