//! Whole training steps: forward, backward and optimizer, in the reference and on the CPU.

use ggml_rs::DType::F32;
use ggml_rs::check::Interpreter;
use ggml_rs::{AdamW, Builder, Device, Graph, Output, Params, Plan, PlanOptions, Result, Tensor};

const STEPS: u32 = 5;

/// A small network's loss.
fn loss<'g>(x: Tensor<'g>, wanted: Tensor<'g>, w: [Tensor<'g>; 2]) -> Result<Tensor<'g>> {
    let y = w[1].mul_mat(w[0].mul_mat(x)?.silu()?)?;
    y.sub(wanted)?.sqr()?.sum()
}

fn wave(len: usize, phase: f32) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.7 + phase).sin()).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// A step of AdamW for one weight; its moments are parameters too, so that they stay from run to run.
fn step<'g>(
    g: Builder<'g>,
    params: &Params,
    [w, gradient, options]: [Tensor<'g>; 3],
    which: usize,
) -> Result<Output> {
    let m = g.weight(&params.get(&format!("m{which}"))?)?;
    let v = g.weight(&params.get(&format!("v{which}"))?)?;
    let stepped = w.opt_step_adamw(gradient, m, v, options)?;
    g.output(&format!("stepped {which}"), stepped)
}

#[test]
fn training_steps_follow_the_reference() {
    let shapes = [[4, 6], [6, 3]];
    let mut params = Params::builder();
    for (i, shape) in shapes.into_iter().enumerate() {
        for name in ["w", "m", "v"] {
            params = params.tensor(&format!("{name}{i}"), F32, shape).unwrap();
        }
    }
    let device = Device::cpu().unwrap();
    let params = params.allocate(device).unwrap();
    params.zero().unwrap();
    for (i, [k, m]) in shapes.into_iter().enumerate() {
        let weight = params.get(&format!("w{i}")).unwrap();
        weight.set_f32(&wave(k * m, i as f32)).unwrap();
    }

    let build = || {
        Graph::build(|g| {
            let (x, x_in) = g.input("x", F32, [4, 5])?;
            let (wanted, wanted_in) = g.input("wanted", F32, [3, 5])?;
            let (options, options_in) = g.input("options", F32, [7])?;
            let w = [g.param(&params.get("w0")?)?, g.param(&params.get("w1")?)?];
            let loss = loss(x, wanted, w)?;
            let gradients = g.backward(loss)?;
            let loss = g.output("loss", loss)?;
            for (i, w) in w.into_iter().enumerate() {
                step(g, &params, [w, gradients.of(w)?, options], i)?;
            }
            Ok((x_in, wanted_in, options_in, loss))
        })
    };
    let (graph, (x, wanted, options, loss)) = build().unwrap();
    let mut reference = Interpreter::new(&graph).unwrap();
    let (graph, (plan_x, plan_wanted, plan_options, plan_loss)) = build().unwrap();
    let mut backend = device.open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    let (x_values, wanted_values) = (wave(20, 3.0), wave(15, 4.0));
    reference.set(&x, &wide(&x_values)).unwrap();
    reference.set(&wanted, &wide(&wanted_values)).unwrap();
    plan.set_f32(&plan_x, &x_values).unwrap();
    plan.set_f32(&plan_wanted, &wanted_values).unwrap();

    let mut losses = Vec::new();
    for number in 1..=STEPS {
        let values = AdamW::default().values(number);
        reference.set(&options, &wide(&values)).unwrap();
        reference.run().unwrap();
        plan.set_f32(&plan_options, &values).unwrap();
        plan.run(&mut backend).unwrap();
        let (expected, got) = (
            reference.read(&loss).unwrap()[0],
            plan.read_f32(&plan_loss).unwrap()[0],
        );
        // Sums of f32 over 15 squares, of values that agree to some units.
        assert!(
            (expected - f64::from(got)).abs() < 1e-5 * expected,
            "{expected} {got}"
        );
        losses.push(expected);
    }
    assert!(
        losses.windows(2).all(|pair| pair[1] < pair[0]),
        "{losses:?}"
    );
    for param in params.iter() {
        let (expected, got) = (
            reference.read_param(&param).unwrap(),
            param.read_f32().unwrap(),
        );
        let error = ggml_rs::check::nmse(&expected, &got).sqrt();
        assert!(error < 1e-5, "{}: {error:e}", param.name());
    }
}
