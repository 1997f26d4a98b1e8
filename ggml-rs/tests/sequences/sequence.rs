//! One sequence: a graph of some moves, planned, run and read.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ggml_rs::{
    Backend, Builder, Cancel, DType, Device, Error, Executor, Fallback, Graph, Output, Params,
    Placement, Plan, PlanOptions, Result, Scheduler,
};

use crate::common::{Random, if_free, traced, until};
use crate::draw::{Draw, Entry, Set, Style};
use crate::moves::custom::Deliberate;
use crate::table::{Bits, Move, all};

/// What a child works with.
pub struct World {
    pub moves: Vec<Move>,
    device: Device,
    /// Of one thread, of several, and of one for a second plan at the same time.
    backends: [Backend; 3],
    scheduler: Scheduler,
    /// Names each move before it is made.
    pub tell: bool,
}

/// How a sequence ended, if nothing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ran,
    Refused,
    /// Cancelled, or by a closure that panicked.
    Stopped,
}

/// What is wrong.
pub type Fault = String;

/// How often each move was made, was refused, and ran.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    pub made: Vec<u64>,
    pub refused: Vec<u64>,
    pub ran: Vec<u64>,
}

impl World {
    pub fn new(device: Device) -> Result<Self> {
        let open = |threads: usize| {
            let mut backend = device.open()?;
            if !device.is_metal() {
                backend.set_threads(threads)?;
            }
            Ok::<_, Error>(backend)
        };
        let mut on = vec![open(1)?];
        if device.is_metal() {
            on.push(Device::cpu()?.open()?);
        }
        Ok(Self {
            moves: all(),
            device,
            backends: [open(1)?, open(3)?, open(1)?],
            scheduler: Scheduler::new(on)?.with_fallback(Fallback::Allow),
            tell: false,
        })
    }

    /// Draws, plans and runs the sequence of a seed.
    pub fn sequence(
        &mut self,
        seed: u64,
        counts: &mut Counts,
    ) -> std::result::Result<Outcome, Fault> {
        let mut random = Random::new(seed);
        let style = style(&mut random);
        let params = match style.stores {
            true => Some(storage(self.device).map_err(|error| error.to_string())?),
            false => None,
        };
        let seeds = [random.next(), random.next()];
        let first = self.build(seeds[0], style, params.clone(), counts);
        let second = match style.stores && random.below(4) == 0 {
            true => Some(self.build(seeds[1], style, params, counts)),
            false => None,
        };
        let (graph, recipe) = match first {
            Ok(built) => built,
            Err(error) => return refused(&error),
        };
        if self.tell {
            eprintln!("seed {seed}: {graph:?}");
        }
        let options = PlanOptions {
            placement: random.pick(&[
                Placement::Pooled,
                Placement::Separate {
                    sentinel_bytes: 256,
                },
                Placement::Separate { sentinel_bytes: 0 },
            ]),
        };
        let outcome = match second {
            Some(Ok(second)) => self.both((graph, &recipe), second, options, &mut random)?,
            _ => match random.below(24) {
                0 => run(graph, &mut self.backends[1], options, &recipe, &mut random)?,
                1 | 2 => run(graph, &mut self.scheduler, options, &recipe, &mut random)?,
                _ => run(graph, &mut self.backends[0], options, &recipe, &mut random)?,
            },
        };
        if outcome == Outcome::Ran {
            for (place, ran) in counts.ran.iter_mut().enumerate() {
                *ran += u64::from(recipe.history.has(place));
            }
        }
        Ok(outcome)
    }

    fn build(
        &self,
        seed: u64,
        style: Style,
        params: Option<Params>,
        counts: &mut Counts,
    ) -> Result<(Graph, Recipe)> {
        Graph::build(|g| {
            let mut draw = Draw::new(g, Random::new(seed), style, params);
            let moves = 1 + draw.below(6);
            for _ in 0..moves {
                self.step(&mut draw, counts)?;
            }
            let (outputs, history) = outputs(&mut draw)?;
            Ok(Recipe {
                sets: draw.sets,
                outputs,
                history,
                large: draw.large,
            })
        })
    }

    /// One move. What is refused is no fault; an assertion of ggml's is.
    fn step(&self, draw: &mut Draw<'_>, counts: &mut Counts) -> Result<()> {
        let place = draw.below(self.moves.len());
        let chosen = self.moves[place];
        if self.tell {
            eprint!("  {} ", chosen.name);
        }
        draw.used = Bits::default();
        let made = (chosen.make)(draw);
        if self.tell {
            match &made {
                Ok(_) => eprintln!("was made"),
                Err(error) => eprintln!("was refused: {error}"),
            }
        }
        match made {
            Ok(made) => {
                counts.made[place] += 1;
                draw.keep(made, draw.used.with(place));
            }
            Err(error @ Error::Internal { .. }) => return Err(error),
            Err(error) => {
                check_place(&error)?;
                counts.refused[place] += 1;
            }
        }
        Ok(())
    }

    /// Two plans that share parameters, at the same time.
    fn both(
        &mut self,
        first: (Graph, &Recipe),
        second: (Graph, Recipe),
        options: PlanOptions,
        random: &mut Random,
    ) -> std::result::Result<Outcome, Fault> {
        let [here, _, there] = &mut self.backends;
        let mut other = Random::new(random.next());
        std::thread::scope(|scope| {
            let second = scope.spawn(move || {
                let (graph, recipe) = second;
                run(graph, there, options, &recipe, &mut other)
            });
            let outcome = run(first.0, here, options, first.1, random);
            match second.join() {
                Ok(Ok(_)) => outcome,
                Ok(Err(fault)) => Err(format!("{fault} (the second plan)")),
                Err(_) => Err("the second plan panicked".to_owned()),
            }
        })
    }
}

/// Whatever is refused, and for whatever reason: the place is in a file of the moves, and never in one of the library's.
fn check_place(error: &Error) -> Result<()> {
    let (Error::Shape(why) | Error::DType(why) | Error::Layout(why) | Error::Param(why)) = error
    else {
        return Ok(());
    };
    let file = why.at.file().replace('\\', "/");
    match file.contains("tests/sequences/") {
        true => Ok(()),
        false => Err(Error::Internal {
            step: "name the caller's line",
            message: format!("{file}:{}: {error}", why.at.line()),
        }),
    }
}

/// How to set and read a graph.
struct Recipe {
    sets: Vec<Set>,
    outputs: Vec<Output>,
    /// The moves that its outputs depend on.
    history: Bits,
    /// It may need more memory than a test should take.
    large: bool,
}

/// More than this is not allocated, unless it is more than any machine has.
const MOST: usize = 64 << 20;
const BEYOND: usize = 1 << 46;

fn style(random: &mut Random) -> Style {
    Style {
        wild: random.pick(&[0, 8, 24, 64, 128]),
        trains: random.below(4) == 0,
        stores: random.below(12) == 0,
    }
}

/// Parameters of shapes that leaves often have.
fn storage(device: Device) -> Result<Params> {
    let mut builder = Params::builder();
    let shapes = [
        (DType::F32, [1, 1]),
        (DType::F32, [8, 1]),
        (DType::F32, [16, 4]),
        (DType::F32, [4, 3]),
        (DType::F16, [8, 4]),
        (DType::Q8_0, [32, 4]),
        (DType::Q4_K, [256, 1]),
    ];
    for (place, (dtype, ne)) in shapes.into_iter().enumerate() {
        builder = builder.tensor(&place.to_string(), dtype, ne)?;
    }
    let params = builder.allocate(device)?;
    params.zero()?;
    Ok(params)
}

/// Declares what was made as outputs: everything, or what came last.
fn outputs(draw: &mut Draw<'_>) -> Result<(Vec<Output>, Bits)> {
    let g: Builder<'_> = draw.g;
    let everything = draw.one_in(2);
    let mut declared = (Vec::new(), Bits::default());
    let mut entries = draw.pool.clone();
    for (ids, history) in draw.ids.clone() {
        if let Ok(tensor) = ids.to_tensor() {
            entries.push(Entry { tensor, history });
        }
    }
    for entry in entries.into_iter().rev() {
        if entry.history == Bits::default() || (!everything && !declared.0.is_empty()) {
            continue;
        }
        let tensor = match entry.tensor.is_contiguous() {
            true => entry.tensor,
            false => match entry.tensor.cont() {
                Ok(tensor) => tensor,
                Err(_) => continue,
            },
        };
        declared.0.push(g.output("", tensor)?);
        declared.1 = declared.1.or(entry.history);
    }
    Ok(declared)
}

/// An error before a run: a refusal, unless it says that something is wrong.
fn refused(error: &Error) -> std::result::Result<Outcome, Fault> {
    match error {
        Error::Internal { .. } => Err(error.to_string()),
        _ => Ok(Outcome::Refused),
    }
}

/// Plans and runs a graph, once or twice.
fn run(
    graph: Graph,
    on: &mut impl Executor,
    options: PlanOptions,
    recipe: &Recipe,
    random: &mut Random,
) -> std::result::Result<Outcome, Fault> {
    if recipe.large {
        match Plan::measure(&graph, on, options) {
            Ok(uses)
                if uses
                    .iter()
                    .any(|used| (MOST..BEYOND).contains(&used.total())) =>
            {
                return Ok(Outcome::Refused);
            }
            Ok(_) => {}
            Err(error) => return refused(&error),
        }
    }
    let mut plan = match Plan::new(graph, on, options) {
        Ok(plan) => plan,
        Err(error) => return refused(&error),
    };
    for _ in 0..1 + usize::from(random.below(4) == 0) {
        if !set(&mut plan, recipe, random)? {
            return Ok(Outcome::Refused);
        }
        // A closure's panic comes out of the run, and the plan stays what it was.
        let started = catch_unwind(AssertUnwindSafe(|| start(&mut plan, on, random)));
        let started = match started {
            Ok(started) => started,
            Err(panic) if panic.is::<Deliberate>() => return Ok(Outcome::Stopped),
            Err(panic) => resume_unwind(panic),
        };
        match started {
            Ok(()) => read(&plan, options, recipe)?,
            Err(Error::Cancelled) => return Ok(Outcome::Stopped),
            // Another plan has the parameters.
            Err(Error::Busy { .. }) => return Ok(Outcome::Refused),
            Err(error) => return Err(format!("run: {error}")),
        }
    }
    Ok(Outcome::Ran)
}

/// The most elements of an input that are made only to be refused.
const LARGE: usize = 1 << 16;

/// Sets every input; whether all of them have values that are valid.
fn set(plan: &mut Plan, recipe: &Recipe, random: &mut Random) -> std::result::Result<bool, Fault> {
    for Set { input, fill } in &recipe.sets {
        // Nothing reads it, and it has no memory: it may be as large as the address space.
        if matches!(plan.needs(input), Ok(false)) && input.shape().elements() > LARGE {
            continue;
        }
        if let Some(wrong) = fill.wrong_ids(random, input)
            && !matches!(plan.set_bytes(input, &wrong), Err(Error::Param(_)))
        {
            return Err(format!("ids that do not exist are taken: {fill:?}"));
        }
        let Some(bytes) = fill.bytes(random, input) else {
            return Ok(false);
        };
        match plan.needs(input) {
            Ok(true) => plan
                .set_bytes(input, &bytes)
                .map_err(|error| format!("set: {error}"))?,
            // Nothing reads it.
            _ if plan.set_bytes(input, &bytes).is_err() => {}
            _ => return Err("an input without effect is set".to_owned()),
        }
    }
    Ok(true)
}

/// Runs a plan in one of the ways that there are.
fn start(plan: &mut Plan, on: &mut impl Executor, random: &mut Random) -> Result<()> {
    let cancel = Cancel::new();
    let options = match random.below(64) {
        0 => {
            cancel.cancel();
            until(&cancel)
        }
        1 => {
            let cancelled = std::thread::scope(|scope| {
                scope.spawn(|| cancel.cancel());
                plan.run_with(on, until(&cancel))
            });
            return cancelled.map(drop);
        }
        2..6 => until(&cancel),
        6..10 => if_free(),
        10..12 => traced(),
        _ => return plan.run(on),
    };
    plan.run_with(on, options).map(drop)
}

fn read(plan: &Plan, options: PlanOptions, recipe: &Recipe) -> std::result::Result<(), Fault> {
    for output in &recipe.outputs {
        plan.read_bytes(output)
            .map_err(|error| format!("read: {error}"))?;
        // A type that does not convert is an error.
        let _ = plan.read_f32(output);
    }
    match options.placement {
        Placement::Pooled => Ok(()),
        Placement::Separate { .. } => plan
            .check_sentinels()
            .map_err(|error| format!("sentinels: {error}")),
    }
}
