//! Training through parameters: a plan that steps, and one that evaluates what it steps, on two threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ggml_rs::DType::F32;
use ggml_rs::{
    AdamW, Backend, Device, Graph, Input, Output, Param, Params, Plan, PlanOptions, Result,
};

use crate::common;

const INPUTS: usize = 4;
const ROWS: usize = 16;
const TRUE_WEIGHTS: [f32; INPUTS] = [0.5, -1.0, 2.0, 0.25];

/// x, and what the true weights make of it.
fn data() -> (Vec<f32>, Vec<f32>) {
    let x = common::values(INPUTS * ROWS, 7);
    let rows = x.chunks(INPUTS);
    let y = rows.map(|row| row.iter().zip(TRUE_WEIGHTS).map(|(x, w)| x * w).sum());
    let y = y.collect();
    (x, y)
}

fn backend() -> Backend {
    let mut backend = Device::cpu().unwrap().open().unwrap();
    // The work is too small to share.
    backend.set_threads(1).unwrap();
    backend
}

/// Weights and moments in two storages.
fn parameters() -> [Param; 3] {
    let cpu = Device::cpu().unwrap();
    let weights = Params::builder().tensor("w", F32, [INPUTS, 1]).unwrap();
    let weights = weights.allocate(cpu).unwrap();
    let moments = ["m", "v"]
        .into_iter()
        .try_fold(Params::builder(), |b, name| {
            b.tensor(name, F32, [INPUTS, 1])
        });
    let moments = moments.unwrap().allocate(cpu).unwrap();
    weights.zero().unwrap();
    moments.zero().unwrap();
    [
        weights.get("w").unwrap(),
        moments.get("m").unwrap(),
        moments.get("v").unwrap(),
    ]
}

struct Trainer {
    plan: Plan,
    step: Input,
    loss: Output,
}

fn trainer([w, m, v]: &[Param; 3], options: PlanOptions) -> Result<Trainer> {
    let (x_values, y_values) = data();
    let (graph, (x, y, step, loss)) = Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [INPUTS, ROWS])?;
        let (y, y_in) = g.input("y", F32, [1, ROWS])?;
        let (step, step_in) = g.input("step", F32, [7])?;
        let weights = g.param(w)?;
        let error = weights.mul_mat(x)?.sub(y)?;
        let loss = error.mul(error)?.sum()?;
        let gradient = g.backward(loss)?.of(weights)?;
        let stepped = weights.opt_step_adamw(gradient, g.weight(m)?, g.weight(v)?, step)?;
        g.output("w", stepped)?;
        Ok((x_in, y_in, step_in, g.output("loss", loss)?))
    })?;
    let mut plan = Plan::new(graph, &backend(), options)?;
    plan.set_f32(&x, &x_values)?;
    plan.set_f32(&y, &y_values)?;
    Ok(Trainer { plan, step, loss })
}

impl Trainer {
    fn train(&mut self, steps: u32, mut after: impl FnMut(f32)) -> Result<()> {
        let mut backend = backend();
        let adamw = AdamW {
            learning_rate: 0.02,
            ..AdamW::default()
        };
        for step in 1..=steps {
            self.plan.set_f32(&self.step, &adamw.values(step))?;
            self.plan.run(&mut backend)?;
            after(self.plan.read_f32(&self.loss)?[0]);
        }
        Ok(())
    }
}

#[test]
fn steps_change_parameters_and_moments() {
    let mut found = Vec::new();
    for placement in common::PLACEMENTS {
        let parameters = parameters();
        let mut trainer = trainer(&parameters, PlanOptions { placement }).unwrap();
        let mut losses = Vec::new();
        trainer.train(600, |loss| losses.push(loss)).unwrap();
        assert!(
            losses[599] < losses[0] * 1e-4,
            "{} {}",
            losses[0],
            losses[599]
        );
        let weights = parameters[0].read_f32().unwrap();
        for (weight, wanted) in weights.iter().zip(TRUE_WEIGHTS) {
            assert!((weight - wanted).abs() < 0.02, "{weights:?}");
        }
        assert!(parameters[2].read_f32().unwrap().iter().all(|&v| v > 0.0));
        found.push(weights);
    }
    assert_eq!(found[0], found[1], "wherever the tensors lie");
}

#[test]
fn evaluation_runs_beside_training() {
    let parameters = parameters();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut trainer = trainer(&parameters, PlanOptions::default()).unwrap();
            trainer.train(600, |_| ()).unwrap();
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let (x_values, _) = data();
            let (graph, (x, once, twice)) = Graph::build(|g| {
                let (x, x_in) = g.input("x", F32, [INPUTS, ROWS])?;
                let weights = g.weight(&parameters[0])?;
                let once = g.output("once", weights.mul_mat(x)?)?;
                // The same again, after other work: a step between both would show.
                let twice = g.output("twice", weights.mul_mat(x.scale(1.0)?)?)?;
                Ok((x_in, once, twice))
            })
            .unwrap();
            let mut backend = backend();
            let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
            plan.set_f32(&x, &x_values).unwrap();
            while !done.load(Ordering::Acquire) {
                plan.run(&mut backend).unwrap();
                assert_eq!(
                    plan.read_f32(&once).unwrap(),
                    plan.read_f32(&twice).unwrap()
                );
            }
        });
    });
}

/// Weights after a step that is no output, in a graph whose only output is the loss, or that has none.
#[test]
fn steps_run_without_being_outputs() {
    for outputs in [true, false] {
        for adam in [true, false] {
            let [w, m, v] = parameters();
            let (graph, (step, loss)) = Graph::build(|g| {
                let (step, step_in) = g.input("step", F32, [if adam { 7 } else { 2 }])?;
                let weights = g.param(&w)?;
                let loss = weights.scale_bias(1.0, -1.0)?.sqr()?.sum()?;
                let gradient = g.backward(loss)?.of(weights)?;
                let loss = outputs.then(|| g.output("loss", loss)).transpose()?;
                match adam {
                    true => weights.opt_step_adamw(gradient, g.weight(&m)?, g.weight(&v)?, step),
                    false => weights.opt_step_sgd(gradient, step),
                }?;
                Ok((step_in, loss))
            })
            .unwrap();
            let mut backend = backend();
            let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
            let adamw = AdamW {
                learning_rate: 0.25,
                ..AdamW::default()
            };
            match adam {
                true => plan.set_f32(&step, &adamw.values(1)).unwrap(),
                false => plan.set_f32(&step, &[0.125, 0.0]).unwrap(),
            }
            plan.run(&mut backend).unwrap();
            // The gradient of (w - 1)^2 at 0 is -2; AdamW's first step is as long as the rate.
            for value in w.read_f32().unwrap() {
                assert!((value - 0.25).abs() < 1e-6, "{outputs} {adam}: {value}");
            }
            assert_eq!(m.read_f32().unwrap()[0] != 0.0, adam);
            if let Some(loss) = loss {
                // Read before the step.
                assert_eq!(plan.read_f32(&loss).unwrap(), [INPUTS as f32]);
            }
        }
    }
}

/// Every way to write to a parameter, and to an input, which keeps its values.
#[test]
fn writes_to_what_outlives_a_run_need_no_output() {
    type Write = for<'g> fn(
        ggml_rs::Builder<'g>,
        ggml_rs::Tensor<'g>,
        ggml_rs::Tensor<'g>,
    ) -> Result<ggml_rs::Tensor<'g>>;
    let writes: [(&str, Write); 5] = [
        ("cpy", |_, to, x| x.cpy(to)),
        ("cpy into a view", |_, to, x| {
            x.reshape([2, 2])?.cpy(to.reshape([2, 2])?)
        }),
        ("add_inplace", |_, to, x| to.add_inplace(x)),
        ("set_rows", |g, to, x| {
            let options = ggml_rs::RowIdsOptions::new(1).distinct();
            let (ids, _) = g.row_ids_with("ids", [1], options)?;
            to.reshape([4, 1])?.set_rows(x.reshape([4, 1])?, ids)
        }),
        ("set_inplace", |_, to, x| to.set_1d_inplace(x, 0)),
    ];
    for (name, write) in writes {
        let [w, ..] = parameters();
        for into_input in [false, true] {
            w.zero().unwrap();
            let (graph, (x, to, y)) = Graph::build(|g| {
                let (x, x_in) = g.input("x", F32, [4])?;
                let (to, to_in) = g.input("to", F32, [4])?;
                let target = if into_input {
                    to
                } else {
                    g.weight(&w)?.reshape([4])?
                };
                write(g, target, x)?;
                // An output that the write has nothing to do with.
                Ok((x_in, to_in, g.output("y", g.arange(0.0, 1.0, 1.0)?)?))
            })
            .unwrap();
            let mut backend = backend();
            let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
            assert_eq!(plan.needs(&to).unwrap(), into_input, "{name}");
            plan.set_f32(&x, &[1.0, 2.0, 3.0, 4.0]).unwrap();
            if into_input {
                plan.set_f32(&to, &[0.0; 4]).unwrap();
            }
            let ids = plan.run(&mut backend);
            if name == "set_rows" {
                // The ids are needed, and missing.
                assert!(ids.unwrap_err().to_string().contains("`ids`"));
                continue;
            }
            ids.unwrap();
            assert_eq!(plan.read_f32(&y).unwrap(), [0.0]);
            if !into_input {
                assert_eq!(w.read_f32().unwrap(), [1.0, 2.0, 3.0, 4.0], "{name}");
            }
        }
    }
}

/// A step runs where it was written: what was written before it has read the old weights, what comes after reads the new ones.
#[test]
fn a_step_that_is_no_output_keeps_its_place() {
    let [w, ..] = parameters();
    let (graph, (step, before, after)) = Graph::build(|g| {
        let (step, step_in) = g.input("step", F32, [2])?;
        let weights = g.param(&w)?;
        let loss = weights.scale_bias(1.0, -1.0)?.sqr()?.sum()?;
        let gradient = g.backward(loss)?.of(weights)?;
        let before = weights.scale(1.0)?;
        weights.opt_step_sgd(gradient, step)?;
        let after = weights.scale(1.0)?;
        // Declared the other way round.
        let after = g.output("after", after)?;
        Ok((step_in, g.output("before", before)?, after))
    })
    .unwrap();
    let mut backend = backend();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&step, &[0.25, 0.0]).unwrap();
    plan.run(&mut backend).unwrap();
    assert_eq!(plan.read_f32(&before).unwrap(), [0.0; INPUTS]);
    assert_eq!(plan.read_f32(&after).unwrap(), [0.5; INPUTS]);
}
