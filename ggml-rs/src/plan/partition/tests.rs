//! Partitions of random graphs, with the CPU in the part of several devices that cannot read each other's memory: results
//! are those of the undivided graph, bit for bit.

use super::*;
use crate::backend::Backend;
use crate::dtype::DType::F32;
use crate::error::Call;
use crate::graph::{Builder, Input, Output, Tensor as Built};
use crate::params::{Param, Params};
use crate::plan::assign::Groups;
use crate::plan::{Placement, Plan, PlanOptions, RunOptions};

const N: usize = 8;
const DEVICES: usize = 3;
const PLACEMENTS: [Placement; 2] = [
    Placement::Pooled,
    Placement::Separate { sentinel_bytes: 64 },
];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

fn param() -> Param {
    let builder = Params::builder().tensor("w", F32, [N, N]).unwrap();
    let params = builder.allocate(Device::cpu().unwrap()).unwrap();
    params.get("w").unwrap()
}

/// One more tensor of N by N: sums, products, views, copies into memory that is read again, writes to a parameter.
fn grow<'g>(
    g: Builder<'g>,
    random: &mut Random,
    values: &[Built<'g>],
    targets: &[Built<'g>],
) -> Result<Built<'g>> {
    let a = values[random.below(values.len())];
    let b = values[random.below(values.len())];
    match random.below(8) {
        0 => a.add(b),
        1 => a.mul(b),
        2 => a.scale(0.5),
        3 => a.relu(),
        4 => a.mul_mat(b)?.scale(0.125),
        5 => b.add(a.transpose()?),
        6 => a.relu()?.cpy(targets[random.below(targets.len())]),
        _ => a.transpose()?.cont()?.cpy(g.empty("", F32, [N, N])?),
    }
}

fn build(seed: u64, w: &Param) -> (Graph, Input, Vec<Output>) {
    let mut random = Random(seed);
    let (graph, (x, outputs)) = Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [N, N])?;
        let target = x.scale(1.0)?.cpy(g.empty("target", F32, [N, N])?)?;
        let held = g.weight(w)?;
        let targets = [target, held];
        let mut values = vec![x, target, held];
        for _ in 0..5 + random.below(40) {
            let grown = grow(g, &mut random, &values, &targets)?;
            values.push(grown);
        }
        let outputs = values.iter().rev().take(6).enumerate();
        let outputs = outputs.map(|(i, &value)| g.output(&format!("y{i}"), value));
        Ok((x_in, outputs.collect::<Result<Vec<_>>>()?))
    })
    .unwrap();
    (graph, x, outputs)
}

fn set(plan: &mut Plan, x: &Input, w: &Param) {
    let values: Vec<f32> = (0..N * N).map(|i| (i % 13) as f32 / 13.0 - 0.4).collect();
    if plan.needs(x).unwrap() {
        plan.set_f32(x, &values).unwrap();
    }
    w.set_f32(&values.iter().map(|value| value * -1.5).collect::<Vec<_>>())
        .unwrap();
}

/// Every output and the parameter, after two runs.
fn run(plan: &mut Plan, backends: &mut [Backend], y: &[Output], w: &Param) -> Vec<Vec<u8>> {
    for _ in 0..2 {
        plan.start(Call::new("test"), backends, RunOptions::default())
            .unwrap();
    }
    let outputs = y.iter().map(|y| plan.read_bytes(y).unwrap());
    outputs.chain([w.read_bytes().unwrap()]).collect()
}

fn backends(count: usize) -> Vec<Backend> {
    let open = |_| {
        let mut backend = Device::cpu().unwrap().open().unwrap();
        backend.set_threads(1).unwrap();
        backend
    };
    (0..count).map(open).collect()
}

/// A device for each group of tensors that share memory.
fn random_homes(graph: &Graph, random: &mut Random) -> Vec<usize> {
    let mut groups = Groups::of(graph);
    let by_group: Vec<_> = graph
        .tensors()
        .iter()
        .map(|_| random.below(DEVICES))
        .collect();
    let tensors = graph.tensors().iter();
    tensors
        .map(|&tensor| by_group[groups.find(tensor)])
        .collect()
}

fn divide(graph: &Graph, random: &mut Random) -> Partition {
    let homes = random_homes(graph, random);
    let devices = vec![Device::cpu().unwrap(); DEVICES];
    Partition::divided(graph, devices, &homes, Reads::OnlyItsOwn).unwrap()
}

#[test]
fn random_partitions_have_the_results_of_the_whole() {
    let (mut one, mut several) = (backends(1), backends(DEVICES));
    let (mut splits, mut copies) = (0, 0);
    for seed in 0..300 {
        let w = param();
        let options = PlanOptions {
            placement: PLACEMENTS[seed as usize % 2],
        };
        let (graph, x, y) = build(seed, &w);
        let mut whole = Plan::new(graph, &one[0], options).unwrap();
        set(&mut whole, &x, &w);
        let expected = run(&mut whole, &mut one, &y, &w);

        let (graph, x, y) = build(seed, &w);
        let partition = divide(&graph, &mut Random(!seed));
        let mut plan = Plan::on_partition(graph, partition, &several, options).unwrap();
        set(&mut plan, &x, &w);
        let found = run(&mut plan, &mut several, &y, &w);
        assert!(found == expected, "seed {seed}, {options:?}");
        assert_eq!(plan.assigned().count(), whole.assigned().count());
        splits += plan.splits();
        copies += plan.copies();
    }
    println!("300 graphs, {splits} splits, {copies} copies");
    assert!(splits > 3000 && copies > 3000, "{splits} {copies}");
}

#[test]
fn an_undone_partition_leaves_the_graph_as_it_was() {
    let mut one = backends(1);
    for seed in 0..50 {
        let w = param();
        let (graph, x, y) = build(seed, &w);
        let mut plan = Plan::new(graph, &one[0], PlanOptions::default()).unwrap();
        set(&mut plan, &x, &w);
        let (expected, memory) = (run(&mut plan, &mut one, &y, &w), plan.memory().to_vec());

        let (graph, x, y) = build(seed, &w);
        divide(&graph, &mut Random(!seed)).undo();
        let mut plan = Plan::new(graph, &one[0], PlanOptions::default()).unwrap();
        assert_eq!(
            plan.memory(),
            memory,
            "flags are back, so memory is used again"
        );
        set(&mut plan, &x, &w);
        assert!(run(&mut plan, &mut one, &y, &w) == expected, "seed {seed}");
    }
}

#[test]
fn unchanged_tensors_are_copied_once_and_written_ones_again() {
    let (graph, _) = Graph::build(|g| {
        let (x, _) = g.input("x", F32, [N, N])?;
        let target = g.empty("target", F32, [N, N])?;
        let first = x.relu()?.cpy(target)?;
        let a = first.add(x)?;
        let second = a.scale(2.0)?.cpy(target)?;
        let b = second.add(x)?;
        let c = second.mul(x)?;
        g.output("b", b)?;
        g.output("c", c)
    })
    .unwrap();
    // Everything on device 0 but the three that read `target` and x.
    let away = |tensor: &Tensor| {
        // SAFETY: the graph is alive.
        let op = unsafe { tensor.as_ref() }.op;
        op == sys::GGML_OP_ADD || op == sys::GGML_OP_MUL
    };
    let homes: Vec<_> = graph
        .tensors()
        .iter()
        .map(|tensor| usize::from(away(tensor)))
        .collect();
    let devices = vec![Device::cpu().unwrap(); 2];
    let partition = Partition::divided(&graph, devices, &homes, Reads::OnlyItsOwn).unwrap();
    let copies: Vec<_> = partition
        .splits
        .iter()
        .map(|split| (split.device, split.copies.len()))
        .collect();
    // relu, cpy | add: `first` and x | scale, cpy: a | add, mul: `second`, and x no more.
    assert_eq!(copies, [(0, 0), (1, 2), (0, 1), (1, 1)]);
    assert_eq!(partition.copies, 4);
}

/// The parts of a run that can be cancelled are the whole run, in order.
#[test]
fn parts_hold_every_node_once() {
    let (graph, _) = Graph::build(|g| {
        let (x, _) = g.input("x", F32, [N])?;
        let mut y = x;
        for _ in 0..2 * PART + 5 {
            y = y.scale(2.0)?;
        }
        g.output("y", y)
    })
    .unwrap();
    let mut partition =
        Partition::new(&graph, vec![Device::cpu().unwrap()], Fallback::Forbid).unwrap();
    assert_eq!(partition.graphs(0, true).unwrap(), [partition.cgraph]);
    let parts = partition.parts(0).unwrap();
    let mut nodes = Vec::new();
    for part in parts {
        // SAFETY: the cgraph is alive, and the index below its count.
        unsafe {
            for i in 0..sys::ggml_graph_n_nodes(part.as_ptr()) {
                nodes.push(NonNull::new(sys::ggml_graph_node(part.as_ptr(), i)).unwrap());
            }
        }
    }
    assert_eq!(nodes, computed(graph.tensors()));
}
