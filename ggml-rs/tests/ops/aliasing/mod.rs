//! Where a result lies is decided after the graph is built: the allocator uses memory again, backends compute several nodes in
//! one pass, Metal leaves out barriers. Whatever they decide, values are those of a plan in which no two tensors share memory.

mod fusions;

use std::process::Command;

use ggml_rs::check::Interpreter;
use ggml_rs::{
    AdamW, Builder, Cancel, DType, Device, GatedDeltaNet, Graph, Input, Output, Placement, Plan,
    PlanOptions, Result, Rope, Tensor,
};

use crate::common::{PLACEMENTS, devices, traced, until, values};

/// What an input is set to.
enum Set {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

/// A graph under construction, and what its inputs are set to.
struct Case<'g> {
    g: Builder<'g>,
    sets: Vec<(Input, Set)>,
    outputs: Vec<Output>,
}

impl<'g> Case<'g> {
    /// An input of random values.
    fn input(&mut self, dims: &[usize]) -> Result<Tensor<'g>> {
        let (tensor, input) = self.g.input("", DType::F32, dims)?;
        let seed = self.sets.len() as u64 + 1;
        self.sets
            .push((input, Set::F32(values(input.shape().elements(), seed))));
        Ok(tensor)
    }

    /// Random values whose memory may be used again: an input's may not.
    fn computed(&mut self, dims: &[usize]) -> Result<Tensor<'g>> {
        self.input(dims)?.scale(1.0)
    }

    fn output(&mut self, tensor: Tensor<'g>) -> Result<()> {
        self.outputs.push(self.g.output("", tensor)?);
        Ok(())
    }
}

/// A graph, what its inputs are set to, and what it gives.
struct Built {
    graph: Graph,
    sets: Vec<(Input, Set)>,
    outputs: Vec<Output>,
}

impl Built {
    fn new(build: &impl for<'g> Fn(&mut Case<'g>) -> Result<()>) -> Result<Self> {
        let (graph, (sets, outputs)) = Graph::build(|g| {
            let (sets, outputs) = (Vec::new(), Vec::new());
            let mut case = Case { g, sets, outputs };
            build(&mut case)?;
            Ok((case.sets, case.outputs))
        })?;
        Ok(Self {
            graph,
            sets,
            outputs,
        })
    }

    /// The values of its definitions, in double precision.
    fn expected(&self) -> Result<Vec<f64>> {
        let mut reference = Interpreter::new(&self.graph)?;
        for (input, set) in &self.sets {
            match set {
                Set::F32(values) => reference.set_f32(input, values)?,
                Set::I32(values) => reference.set_i32(input, values)?,
            }
        }
        reference.run()?;
        let outputs = self.outputs.iter().map(|output| reference.read(output));
        Ok(outputs.collect::<Result<Vec<_>>>()?.concat())
    }

    /// The values on a device, and how many kernels a Metal device dispatched for them.
    fn run(self, device: Device, placement: Placement, how: How) -> Result<(Vec<f32>, usize)> {
        let mut backend = device.open()?;
        let mut plan = Plan::new(self.graph, &backend, PlanOptions { placement })?;
        for (input, set) in &self.sets {
            match set {
                Set::F32(values) => plan.set_f32(input, values)?,
                Set::I32(values) => plan.set_i32(input, values)?,
            }
        }
        let mut dispatches = 0;
        match how {
            How::Whole => plan.run(&mut backend)?,
            How::InParts => drop(plan.run_with(&mut backend, until(&Cancel::new()))?),
            How::Traced => dispatches = plan.run_with(&mut backend, traced())?.dispatches.len(),
        }
        let outputs = self.outputs.iter().map(|output| plan.read_f32(output));
        let values = outputs.collect::<Result<Vec<_>>>()?.concat();
        Ok((values, dispatches))
    }
}

/// How a plan is run.
#[derive(Debug, Clone, Copy)]
enum How {
    Whole,
    /// As a run that can be cancelled.
    InParts,
    Traced,
}

/// The runs that are compared: those in which backends compute several nodes in one pass first.
const RUNS: [(Placement, How); 3] = [
    (PLACEMENTS[0], How::Whole),
    (PLACEMENTS[0], How::InParts),
    (PLACEMENTS[1], How::Whole),
];

/// Compares every device and run with the definitions.
fn check(build: impl for<'g> Fn(&mut Case<'g>) -> Result<()>) {
    check_named("", build);
}

fn check_named(what: &str, build: impl for<'g> Fn(&mut Case<'g>) -> Result<()>) {
    check_runs(&RUNS, what, build);
}

fn check_runs(
    runs: &[(Placement, How)],
    what: &str,
    build: impl for<'g> Fn(&mut Case<'g>) -> Result<()>,
) {
    let expected = Built::new(&build).unwrap().expected().unwrap();
    for device in devices() {
        for &(placement, how) in runs {
            let built = Built::new(&build).unwrap();
            let (got, _) = built.run(device, placement, how).unwrap();
            assert_eq!(got.len(), expected.len());
            let differs = got.iter().zip(&expected).position(|(&got, &expected)| {
                let difference = (f64::from(got) - expected).abs();
                difference.is_nan() || difference > 1e-4 * expected.abs().max(1.0)
            });
            if let Some(at) = differs {
                panic!(
                    "{what}, {} {placement:?} {how:?}: element {at} is {}, not {}",
                    device.name(),
                    got[at],
                    expected[at]
                );
            }
        }
    }
}

#[test]
fn biases_by_id_are_not_written_over() {
    check(|case| {
        let (a, b) = (case.input(&[8, 2, 1])?, case.computed(&[8, 2])?);
        let (ids, input) = case.g.expert_ids("ids", 2, 1, 2)?;
        case.sets.push((input, Set::I32(vec![1, 0])));
        case.output(a.add_id(b, ids)?)
    });
}

#[test]
fn frequency_factors_are_not_written_over() {
    check(|case| {
        let x = case.input(&[256, 1, 1])?;
        let factors = case
            .computed(&[256])?
            .add(case.input(&[1])?.scale_bias(0.0, 2.0)?)?;
        let (positions, input) = case.g.input("positions", DType::I32, [1])?;
        case.sets.push((input, Set::I32(vec![3])));
        let rope = Rope {
            freq_factors: Some(factors),
            ..Rope::default()
        };
        case.output(x.rope(positions, rope)?)
    });
}

#[test]
fn a_fused_norm_reads_before_it_writes() {
    check(|case| {
        let w = case.computed(&[1, 2, 2])?;
        let y = w.permute([0, 2, 1, 3])?.rms_norm(1.0)?;
        case.output(w.mul(y)?)
    });
    check(|case| {
        let w = case.computed(&[64, 5, 5])?;
        let y = w.permute([0, 2, 1, 3])?.rms_norm(1.0)?;
        case.output(y.mul(w)?)
    });
}

#[test]
fn moments_are_read_after_the_step() {
    check(|case| {
        let w = case.input(&[4096])?.set_param()?;
        let gradient = case.input(&[4096])?;
        let (m, v) = (case.input(&[4096])?, case.input(&[4096])?.sqr_inplace()?);
        let (options, input) = case.g.input("options", DType::F32, [7])?;
        case.sets
            .push((input, Set::F32(AdamW::default().values(1).to_vec())));
        let before = m.scale(1.0)?;
        let step = w.opt_step_adamw(gradient, m, v, options)?;
        let after = m.scale(1.0)?;
        for tensor in [before, step, after] {
            case.output(tensor)?;
        }
        Ok(())
    });
}

#[test]
fn a_fused_activation_reads_before_it_writes() {
    check(|case| {
        let (x, inverse) = (case.input(&[64, 8])?, case.input(&[1, 8])?);
        // The factors are the first elements of the first row, which the result overwrites.
        let a = x.view([1, 8], [4, 32, 32], 0)?;
        let wave = x.mul(a)?.sin()?.sqr()?.mul(inverse)?;
        case.output(x.add_inplace(wave)?)
    });
}

#[test]
fn states_of_a_delta_net_are_there_for_all_who_read_them() {
    check(|case| {
        let n = 32;
        let net = GatedDeltaNet {
            k: case.input(&[n, 1])?,
            v: case.input(&[n, 1])?,
            g: case.input(&[1, 1])?,
            beta: case.input(&[1, 1])?,
            state: case.input(&[n, n])?,
            states: 1,
        };
        let out = case.input(&[n, 1])?.gated_delta_net(net)?;
        let states = out.view([n * n], [4 * n * n; 3], 4 * n)?;
        let cache = case.input(&[n * n])?;
        let stored = states.cpy(cache)?;
        case.output(states.scale(1.0)?)?;
        case.output(stored.cont()?)
    });
}

#[test]
fn a_diagonal_has_strides_of_its_own() {
    check(|case| {
        // A row of a longer tensor: the stride to the next row is not that of a row.
        let row = case.input(&[64, 4])?.view([16, 1], [256, 1024, 1024], 0)?;
        case.output(row.diag()?)
    });
}

/// What no barrier orders runs the other way round there. One process an order: a device reads its setting once.
#[test]
fn values_do_not_depend_on_the_order_of_dispatches() {
    const CHILD: &str = "GGML_RS_TESTS_REVERSED";
    const TESTS: usize = 19;
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .arg("aliasing::")
        .env(CHILD, "1")
        .env("METAL_SIM_ORDER", "reversed")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains(&format!("{TESTS} passed")),
        "{text}"
    );
}
