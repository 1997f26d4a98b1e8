//! Optimizer steps against their formulas, and gradients summed over runs.

use ggml_rs::DType::F32;
use ggml_rs::{AdamW, Device, Error, Graph, Plan, PlanOptions};

const W: [f32; 4] = [1.0, -2.0, 0.5, 3.0];
const X: [f32; 4] = [0.5, 1.0, -1.5, 2.0];

/// loss = sum(x * w²): the gradient is 2 * x * w.
#[test]
fn adamw_follows_its_formula() {
    let (graph, (w, x, m, v, params, out)) = Graph::build(|g| {
        let (w, w_in) = g.input("w", F32, [4])?;
        let (x, x_in) = g.input("x", F32, [4])?;
        let (m, m_in) = g.input("m", F32, [4])?;
        let (v, v_in) = g.input("v", F32, [4])?;
        let (params, params_in) = g.input("params", F32, [7])?;
        let w = w.set_param()?;
        let gradients = g.backward(w.mul(w)?.mul(x)?.sum()?)?;
        let step = w.opt_step_adamw(gradients.of(w)?, m, v, params)?;
        Ok((w_in, x_in, m_in, v_in, params_in, g.output("step", step)?))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    let options = AdamW {
        learning_rate: 0.1,
        weight_decay: 0.01,
        ..AdamW::default()
    };
    plan.set_f32(&w, &W).unwrap();
    plan.set_f32(&x, &X).unwrap();
    plan.set_f32(&m, &[0.0; 4]).unwrap();
    plan.set_f32(&v, &[0.0; 4]).unwrap();
    let (mut w, mut m, mut v) = (W.map(f64::from), [0.0; 4], [0.0; 4]);
    for step in 1..=5 {
        plan.set_f32(&params, &options.values(step)).unwrap();
        plan.run(&mut backend).unwrap();
        let found = plan.read_f32(&out).unwrap();
        for i in 0..4 {
            let g = 2.0 * f64::from(X[i]) * w[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            let (c1, c2) = (
                1.0 / (1.0 - 0.9_f64.powi(step as i32)),
                1.0 / (1.0 - 0.999_f64.powi(step as i32)),
            );
            w[i] = w[i] * (1.0 - 0.1 * 0.01) - 0.1 * m[i] * c1 / ((v[i] * c2).sqrt() + 1e-8);
            assert!(
                (f64::from(found[i]) - w[i]).abs() < 1e-4,
                "step {step}: {found:?}, not {w:?}"
            );
        }
    }
}

#[test]
fn descent_follows_its_formula_and_sums_go_on() {
    let (graph, (w, x, sum, params, total, step)) = Graph::build(|g| {
        let (w, w_in) = g.input("w", F32, [4])?;
        let (x, x_in) = g.input("x", F32, [4])?;
        let (sum, sum_in) = g.input("sum", F32, [4])?;
        let (params, params_in) = g.input("params", F32, [2])?;
        let w = w.set_param()?;
        let gradients = g.backward(w.mul(w)?.mul(x)?.sum()?)?;
        let total = gradients.accumulate(w, sum)?;
        let step = w.opt_step_sgd(gradients.of(w)?, params)?;
        let (total, step) = (g.output("total", total)?, g.output("step", step)?);
        Ok((w_in, x_in, sum_in, params_in, total, step))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&w, &W).unwrap();
    plan.set_f32(&x, &X).unwrap();
    plan.set_f32(&sum, &[0.0; 4]).unwrap();
    plan.set_f32(&params, &[0.125, 0.5]).unwrap();
    let (mut w, mut sum) = (W, [0.0; 4]);
    for _ in 0..3 {
        plan.run(&mut backend).unwrap();
        for i in 0..4 {
            let g = 2.0 * X[i] * w[i];
            sum[i] += g;
            w[i] = w[i] * (1.0 - 0.125 * 0.5) - 0.125 * g;
        }
        for (found, expected) in [(&total, sum), (&step, w)] {
            for (found, expected) in plan.read_f32(found).unwrap().iter().zip(expected) {
                assert!(
                    (found - expected).abs() < 1e-5 * expected.abs().max(1.0),
                    "{found}, not {expected}"
                );
            }
        }
    }
}

#[test]
fn steps_are_for_marked_tensors_and_memory_of_their_own() {
    Graph::build(|g| {
        let (w, _) = g.input("w", F32, [4])?;
        let (plain, _) = g.input("plain", F32, [4])?;
        let (m, _) = g.input("m", F32, [4])?;
        let (params, _) = g.input("params", F32, [7])?;
        let w = w.set_param()?;
        let gradients = g.backward(w.mul(w)?.sum()?)?;
        let d = gradients.of(w)?;
        assert!(matches!(
            plain.opt_step_adamw(d, m, plain, params),
            Err(Error::Param(_))
        ));
        assert!(matches!(
            w.opt_step_adamw(d, m, m, params),
            Err(Error::Param(_))
        ));
        assert!(matches!(w.opt_step_sgd(d, params), Err(Error::Shape(_))));
        assert!(matches!(
            gradients.accumulate(w, params),
            Err(Error::Shape(_))
        ));
        // A second backward would read weights that the step has changed.
        let loss = w.mul(w)?.sum()?;
        w.opt_step_adamw(d, m, plain, params)?;
        assert!(matches!(g.backward(loss), Err(Error::NotDifferentiable(_))));
        g.output("d", d)
    })
    .unwrap();
}
