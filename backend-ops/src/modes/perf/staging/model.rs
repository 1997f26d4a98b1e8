//! The work of an OUT_PROD on Metal, at sizes that nobody wants to wait for on a simulated device.
//!
//! A matrix product does the same in every whole tile and in every step along k. So two small runs tell what a threadgroup
//! does and what a step adds, and the work at any size of whole tiles is that times their number. How k is cut into blocks
//! follows from the scratch that the device asks for at the full size, which it answers without running anything.
//! A third run, whose k takes two blocks, must come out as computed in every counter, else there is no table.

use ggml_rs::sim::Counters;
use ggml_rs::trace::Dispatch;
use ggml_rs::{DType, Plan, PlanOptions, Route};

use super::super::Arm;
use super::super::measure::{count_run, plan};
use super::super::work::{Share, short, split};
use super::built;
use crate::case::Case;
use crate::cases::OutProd;
use crate::engine::runner::{Target, generate};

/// A step along k.
const STEP: usize = 32;
/// k of a block at most.
const LONGEST_BLOCK: usize = 4096;
const FLOAT: usize = 4;

/// The runs that tell the work of a threadgroup and of a step: m, n, and k of two and of four steps.
const SMALL: [usize; 2] = [256, 128];
const STEPS: [usize; 2] = [2, 4];
/// The run that must come out as computed: two blocks, the second of one step.
pub const CHECK: [usize; 3] = [1024, 128, 1056];

/// Bytes of device memory that kernels load and store, computed from shapes: no counter tells them. Each threadgroup of a
/// product loads its rows of both operands once, as if there were no cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Of the product.
    pub product: usize,
    /// Of the copies into temporaries, and of the sums of blocks.
    pub rest: usize,
}

/// What one run of an OUT_PROD does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Device memory.
    pub moved: Moved,
    /// The product's dispatches and threadgroups.
    pub product: Share,
    /// Those of the rest.
    pub rest: Share,
    /// What the simulated device would count, switches between lanes apart.
    pub counters: Option<Counters>,
}

/// A cost of a threadgroup: what it has once, and what each step adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    once: u64,
    step: u64,
}

impl Cost {
    /// From the sums over so many threadgroups that took [`STEPS`].
    fn fit(sums: [u64; 2], threadgroups: u64) -> Option<Self> {
        let [few, many] = STEPS.map(|steps| steps as u64);
        let per_step = threadgroups.checked_mul(many - few)?;
        let more = sums[1].checked_sub(sums[0])?;
        if per_step == 0 || !more.is_multiple_of(per_step) || !sums[0].is_multiple_of(threadgroups)
        {
            return None;
        }
        let step = more / per_step;
        let once = (sums[0] / threadgroups).checked_sub(few * step)?;
        Some(Self { once, step })
    }

    fn sum(self, threadgroups: u64, blocks: &[usize]) -> u64 {
        let steps: usize = blocks.iter().map(|k| k.div_ceil(STEP)).sum();
        threadgroups * (blocks.len() as u64 * self.once + steps as u64 * self.step)
    }
}

/// The costs of a threadgroup of a product, from the simulated device's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Costs {
    barriers: Cost,
    fmas: Cost,
    relaxed: Cost,
}

/// What small runs of an arm told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// The product's pipeline and its threadgroup memory.
    pub product: (String, usize),
    /// m and n of a tile.
    tile: [usize; 2],
    /// Whether it multiplies copies of its operands, block by block, or the operands themselves, in one go.
    makes_temporaries: bool,
    costs: Option<Costs>,
}

impl Calibration {
    /// Runs an arm small, and on a simulated device checks what follows from that.
    ///
    /// # Errors
    /// When it does not run, or not as it should.
    pub fn run(weights: DType, arm: Arm, target: &mut Target, seed: u64) -> Result<Self, String> {
        let [m, n] = SMALL;
        let mut run = |[m, n, k]: [usize; 3]| {
            let case = OutProd::new(weights, DType::F32, [m, n, k]);
            run(&case, arm, target, seed)
                .map(|ran| (case, ran))
                .map_err(|error| error.to_string())
        };
        let [few, many] = STEPS.map(|steps| [m, n, steps * STEP]);
        let (_, first) = run(few)?;
        let dispatch = first
            .dispatches
            .iter()
            .find(|dispatch| is_product(&dispatch.pipeline))
            .ok_or("no batched product was dispatched")?;
        let mut calibration = Self {
            product: (
                short(&dispatch.pipeline).to_owned(),
                dispatch.threadgroup_bytes,
            ),
            tile: tile(arm),
            makes_temporaries: arm.choices.route != Some(Route::Direct),
            costs: None,
        };
        let Some(few) = first.counters else {
            return Ok(calibration);
        };
        let (_, second) = run(many)?;
        let many = second.counters.ok_or("counters went away")?;
        calibration.costs = Some(costs(few, many, &first.dispatches)?);
        let (case, check) = run(CHECK)?;
        let computed = calibration.work(&case, check.held)?;
        calibration.compare(&case, &computed, &check)?;
        Ok(calibration)
    }

    fn compare(&self, case: &OutProd, computed: &Work, ran: &Ran) -> Result<(), String> {
        let counted = ran.counters.map(without_switches);
        let dispatched = ran
            .counters
            .and_then(|counters| split(&counters, &ran.dispatches))
            .map(|split| [split.products, split.others]);
        let expected = [computed.product.dispatches, computed.rest.dispatches];
        if computed.counters == counted && dispatched == Some(expected) {
            return Ok(());
        }
        Err(format!(
            "{}: a run does other work than computed for it: {counted:?} in {dispatched:?} dispatches, computed {computed:?}",
            case.name()
        ))
    }

    /// The work of a case of whole tiles.
    ///
    /// # Errors
    /// For a case of other than whole tiles, and for one in batches.
    pub fn work(&self, case: &OutProd, held: usize) -> Result<Work, String> {
        let [tile_m, tile_n] = self.tile;
        let whole = case.m.is_multiple_of(tile_m)
            && case.n.is_multiple_of(tile_n)
            && case.k.is_multiple_of(STEP);
        if !whole || case.trans_b || case.bs != [1, 1] || case.nr != [1, 1] {
            return Err(format!("{} is not of whole tiles", case.name()));
        }
        let blocks = match self.makes_temporaries {
            true => blocks(case, held)?,
            false => vec![case.k],
        };
        let tiles = [case.m / tile_m, case.n / tile_n];
        let in_a_block = (tiles[0] * tiles[1]) as u64;
        let product = Share {
            dispatches: blocks.len() as u64,
            threadgroups: in_a_block * blocks.len() as u64,
        };
        let (rest, before) = match self.makes_temporaries {
            true => {
                let before: usize = copies(case, blocks[0]).into_iter().sum();
                (rest(case, &blocks), before as u64)
            }
            false => (Share::default(), 0),
        };
        let threadgroups = product.threadgroups + rest.threadgroups;
        let counters = self.costs.map(|costs| Counters {
            dispatches: product.dispatches + rest.dispatches,
            threadgroups,
            threadgroup_barriers: costs.barriers.sum(in_a_block, &blocks),
            simdgroup_fmas: costs.fmas.sum(in_a_block, &blocks),
            // An encoder keeps the product's memory, so what follows the first product has it too.
            threadgroup_bytes: (threadgroups - before) * self.product.1 as u64,
            relaxed_fmas: costs.relaxed.sum(in_a_block, &blocks),
            ..Counters::default()
        });
        Ok(Work {
            moved: match self.makes_temporaries {
                true => moved(case, tiles, blocks.len())?,
                false => moved_directly(case, tiles)?,
            },
            product,
            rest,
            counters,
        })
    }
}

fn without_switches(counters: Counters) -> Counters {
    Counters {
        lane_switches: 0,
        ..counters
    }
}

/// m and n of a threadgroup's tile: as the host code of ggml's Metal backend cuts them. Where it does not, the check fails.
fn tile(arm: Arm) -> [usize; 2] {
    if arm.name.is_some_and(|name| name.starts_with("tensor")) {
        [64, 128]
    } else {
        [64, 32]
    }
}

fn costs(few: Counters, many: Counters, dispatches: &[Dispatch]) -> Result<Costs, String> {
    let threadgroups = split(&few, dispatches)
        .and_then(|split| split.threadgroups)
        .ok_or("the product cannot be told from the rest")?[0];
    let fit = |count: fn(&Counters) -> u64| {
        Cost::fit([count(&few), count(&many)], threadgroups)
            .ok_or_else(|| format!("counters are not whole per threadgroup: {few:?}, {many:?}"))
    };
    Ok(Costs {
        barriers: fit(|counters| counters.threadgroup_barriers)?,
        fmas: fit(|counters| counters.simdgroup_fmas)?,
        relaxed: fit(|counters| counters.relaxed_fmas)?,
    })
}

/// A run on the device.
struct Ran {
    held: usize,
    counters: Option<Counters>,
    dispatches: Vec<Dispatch>,
}

fn run(case: &OutProd, arm: Arm, target: &mut Target, seed: u64) -> ggml_rs::Result<Ran> {
    let held = held(case, arm, target)?;
    let built = built(case, arm)?;
    let data = generate(case as &dyn Case, seed)?;
    let mut plan = plan(built.graph, &built.inputs, &data, target.backend()?)?;
    let (counters, dispatches) = count_run(&mut plan, target)?;
    Ok(Ran {
        held,
        counters: target.device().is_simulated().then_some(counters),
        dispatches,
    })
}

/// Bytes of device memory that a case takes, scratch included. Nothing is allocated.
///
/// # Errors
/// When the device does not run it.
pub fn held(case: &OutProd, arm: Arm, target: &mut Target) -> ggml_rs::Result<usize> {
    let built = built(case, arm)?;
    let uses = Plan::measure(&built.graph, target.backend()?, PlanOptions::default())?;
    Ok(uses.iter().map(|used| used.tensors).sum())
}

/// Bytes of `a`, `b` and the result.
fn tensors(case: &OutProd) -> Result<[usize; 3], String> {
    let a = case
        .type_a
        .row_bytes(case.m)
        .map_err(|error| error.to_string())?
        * case.k;
    Ok([a, FLOAT * case.n * case.k, FLOAT * case.m * case.n])
}

/// How k is cut: as many steps as the scratch holds of both operands in float, beside the product of one block.
fn blocks(case: &OutProd, held: usize) -> Result<Vec<usize>, String> {
    let [a, b, dst] = tensors(case)?;
    let row = FLOAT * (case.m + case.m.max(case.n));
    let fits = held
        .checked_sub(a + b + 2 * dst)
        .map(|scratch| scratch / (row * STEP) * STEP)
        .filter(|&fits| fits > 0)
        .ok_or_else(|| format!("{}: {held} bytes leave no scratch", case.name()))?;
    if case.k == 0 {
        return Err(format!("{} sums nothing", case.name()));
    }
    let block = fits.min(case.k.next_multiple_of(STEP)).min(LONGEST_BLOCK);
    let mut left = case.k;
    let mut blocks = Vec::new();
    while left > 0 {
        let k = left.min(block);
        blocks.push(k);
        left -= k;
    }
    Ok(blocks)
}

/// Copies and sums.
fn rest(case: &OutProd, blocks: &[usize]) -> Share {
    // From the second block on its product is added to what is there: a row each.
    let sums = blocks.iter().skip(1).map(|_| case.n);
    let copies = blocks.iter().flat_map(|&k| copies(case, k));
    copies
        .chain(sums)
        .fold(Share::default(), |sum, groups| Share {
            dispatches: sum.dispatches + 1,
            threadgroups: sum.threadgroups + groups as u64,
        })
}

/// Threadgroups of each copy of a block of k.
fn copies(case: &OutProd, k: usize) -> Vec<usize> {
    let mut copies = vec![copy_threadgroups(k, case.m), copy_threadgroups(k, case.n)];
    if case.type_a.is_quantized() {
        // A thread turns 16 values of a row into floats.
        copies.push((case.m / 16).div_ceil(256) * k);
    }
    copies
}

/// Threadgroups of a copy of `rows` rows of k floats: 256 threads, on a piece of a row or on several short ones.
fn copy_threadgroups(k: usize, rows: usize) -> usize {
    let threads = k.clamp(1, 256);
    match (256 / threads).min(rows) {
        0 | 1 => k.div_ceil(threads) * rows,
        together => rows.div_ceil(together),
    }
}

fn moved(case: &OutProd, tiles: [usize; 2], blocks: usize) -> Result<Moved, String> {
    let [a, b, dst] = tensors(case)?;
    let float_a = FLOAT * case.m * case.k;
    let to_float = if case.type_a.is_quantized() {
        a + float_a + 2 * float_a
    } else {
        a + float_a
    };
    Ok(Moved {
        product: tiles[1] * float_a + tiles[0] * b + blocks * dst,
        rest: to_float + 2 * b + 3 * (blocks - 1) * dst,
    })
}

/// The product reads the operands as they are. A byte with parts of several values counts once, though they are decoded apart.
fn moved_directly(case: &OutProd, tiles: [usize; 2]) -> Result<Moved, String> {
    let [a, b, dst] = tensors(case)?;
    Ok(Moved {
        product: tiles[1] * a + tiles[0] * b + dst,
        rest: 0,
    })
}

fn is_product(pipeline: &str) -> bool {
    ["kernel_mul_mm_", "kernel_out_prod_"]
        .iter()
        .any(|prefix| pipeline.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_fitted_exactly_or_not_at_all() {
        // Eight threadgroups, 3 barriers each and 5 a step.
        let sums = [8 * (3 + 2 * 5), 8 * (3 + 4 * 5)];
        let cost = Cost::fit(sums, 8).expect("whole");
        assert_eq!(cost, Cost { once: 3, step: 5 });
        assert_eq!(cost.sum(8, &[64]), sums[0]);
        assert_eq!(cost.sum(10, &[64, 40]), 10 * (2 * 3 + 4 * 5));
        assert_eq!(Cost::fit([sums[0], sums[1] + 1], 8), None);
        assert_eq!(Cost::fit([sums[1], sums[0]], 8), None);
        assert_eq!(Cost::fit(sums, 0), None);
    }

    #[test]
    fn blocks_follow_from_the_scratch() {
        let case = OutProd::new(DType::F32, DType::F32, [1024, 128, 1056]);
        let tensors: usize = tensors(&case).expect("bytes").iter().sum();
        let dst = 4 * 1024 * 128;
        // 8 MiB of operands: 1024 rows of k at 4*(1024 + 1024) bytes.
        assert_eq!(blocks(&case, tensors + dst + (8 << 20)), Ok(vec![1024, 32]));
        assert_eq!(blocks(&case, tensors + dst + (16 << 20)), Ok(vec![1056]));
        assert!(blocks(&case, tensors).is_err());
    }

    #[test]
    fn only_whole_tiles_are_computed() {
        let calibration = Calibration {
            product: (String::new(), 8192),
            tile: [64, 32],
            makes_temporaries: true,
            costs: None,
        };
        let case = OutProd::new(DType::F32, DType::F32, [100, 32, 32]);
        assert!(calibration.work(&case, 1 << 30).is_err());
        let whole = OutProd::new(DType::F32, DType::F32, [128, 32, 32]);
        let work = calibration.work(&whole, 1 << 30).expect("whole tiles");
        assert_eq!(
            work.product,
            Share {
                dispatches: 1,
                threadgroups: 2
            }
        );
        // a once for every 32 columns, b once for every 64 rows, the result.
        let (a, b, dst) = (4 * 128 * 32, 4 * 32 * 32, 4 * 128 * 32);
        assert_eq!(work.moved.product, a + 2 * b + dst);
        assert_eq!(work.moved.rest, 2 * a + 2 * b);
        let direct = Calibration {
            makes_temporaries: false,
            ..calibration.clone()
        };
        let work = direct.work(&whole, a + b + dst).expect("whole tiles");
        let moved = [work.moved.product, work.moved.rest];
        assert_eq!(moved, [a + 2 * b + dst, 0]);
        assert_eq!(work.rest, Share::default());
        assert!(calibration.work(&whole.transposed(true), 1 << 30).is_err());
    }

    /// The smallest size of the table, run whole.
    #[test]
    #[cfg(not(target_os = "macos"))]
    fn the_work_at_full_size_is_as_computed() {
        let Ok(device) = ggml_rs::Device::by_name("MTL0") else {
            panic!("no device to run it on");
        };
        let mut target = Target::open(device).expect("opens");
        for arm in crate::modes::perf::staging::arms(false) {
            let calibration = Calibration::run(DType::F32, arm, &mut target, 1).expect("runs");
            let case = OutProd::new(DType::F32, DType::F32, [1536, 1024, 1536]);
            let ran = run(&case, arm, &mut target, 1).expect("runs");
            let computed = calibration.work(&case, ran.held).expect("whole tiles");
            assert_eq!(calibration.compare(&case, &computed, &ran), Ok(()));
        }
    }
}
