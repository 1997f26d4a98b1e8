//! Are the bounds tight? One element that is a little wrong must be seen.

use libtest_mimic::Failed;

use ggml_rs::DType;

use crate::common::Random;
use crate::differ::draw;
use crate::patterns;
use crate::reference::Reference;
use crate::run::{Backends, Ran, Way, ways};

const GRAPHS: u64 = 300;
/// How wrong, as a part of the value.
const ERROR: f32 = 1e-5;

/// Changes one element of what the CPU gives, in graphs of F32.
pub fn small_errors() -> Result<(), Failed> {
    let way = ways(true)[0];
    let mut backends = Backends::new(&[way])?;
    let (mut changed, mut seen) = (0, 0);
    for seed in 0..GRAPHS {
        let (program, _) = draw(seed, &patterns::all())?;
        if program.outputs.is_empty() || !is_single(&program) {
            continue;
        }
        let Some(mut reference) = Reference::new(&program)? else {
            continue;
        };
        if let Some(found) = one(&mut backends, &mut reference, &program, way, seed)? {
            changed += 1;
            seen += u64::from(found);
        }
    }
    println!("{seen} of {changed} errors of {ERROR} of a value were seen");
    match changed > GRAPHS / 4 && seen * 100 >= changed * 95 {
        true => Ok(()),
        false => Err(format!("only {seen} of {changed} were seen").into()),
    }
}

/// Whether everything is F32, and no op looks up a function in a table of halves.
fn is_single(program: &crate::program::Program) -> bool {
    let tables = ["gelu", "gelu_quick", "glu", "glu_swapped", "glu_split"];
    let mut steps = program.live();
    steps.all(|(at, step)| {
        program.made[at].is_none_or(|(dtype, _)| dtype == DType::F32)
            && !tables.contains(&step.op.name)
    })
}

/// Whether a wrong element is seen; `None` where there is none to change.
fn one(
    backends: &mut Backends,
    reference: &mut Reference<'_>,
    program: &crate::program::Program,
    way: Way,
    seed: u64,
) -> Result<Option<bool>, Failed> {
    let Ran::Done { bytes: mut got, .. } = backends.run(program, way) else {
        return Ok(None);
    };
    if reference.compare(way.rounds(), &got)?.is_err() {
        // The other test tells.
        return Ok(None);
    }
    let mut random = Random::new(seed);
    let output = random.below(got.len());
    let at = 4 * random.below(got[output].len() / 4);
    let word = &mut got[output][at..at + 4];
    let value = f32::from_ne_bytes(word.try_into().unwrap());
    if !value.is_normal() {
        return Ok(None);
    }
    word.copy_from_slice(&(value * (1.0 + ERROR)).to_ne_bytes());
    Ok(Some(reference.compare(way.rounds(), &got)?.is_err()))
}
