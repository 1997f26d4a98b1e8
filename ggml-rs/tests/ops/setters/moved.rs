//! A scheduler moves a node with a request only to a device that keeps it.

use ggml_rs::DType::{self, F16, F32, Q4_1, Q4_K};
use ggml_rs::quantize::{dequantize, quantize};
use ggml_rs::{
    Backend, Device, Error, Graph, Plan, PlanOptions, Precision, Result, Scheduler, Tensor,
};

/// Three experts for a token, for a batch of which Metal has no kernel.
const USED: usize = 3;
const TOKENS: usize = 32;
const K: usize = 256;

fn cpu() -> Backend {
    Device::cpu().unwrap().open().unwrap()
}

/// Activations of 1e5 and weights of 1: the plan's error, or its values beside the right one.
fn routed(
    scheduler: &mut Scheduler,
    a: DType,
    ask: impl for<'g> Fn(Tensor<'g>) -> Result<Tensor<'g>>,
) -> Result<(Plan, Vec<f32>, f64)> {
    let (graph, (w, x, ids, y)) = Graph::build(|g| {
        let (w, w_in) = g.input("w", a, [K, 8, 4])?;
        let (x, x_in) = g.input("x", F32, [K, 1, TOKENS])?;
        let (ids, ids_in) = g.expert_ids("ids", USED, TOKENS, 4)?;
        let product = ask(w.mul_mat_id(x, ids)?)?;
        Ok((w_in, x_in, ids_in, g.output("y", product)?))
    })?;
    let mut plan = Plan::new(graph, scheduler, PlanOptions::default())?;
    let weights = quantize(a, &[1.0; K * 8 * 4], K)?;
    plan.set_bytes(&w, &weights)?;
    plan.set_f32(&x, &[1e5; K * TOKENS])?;
    plan.set_i32(&ids, &[0, 1, 2].repeat(TOKENS))?;
    plan.run(scheduler)?;
    let row = &dequantize(a, &weights)?[..K];
    let right = row.iter().map(|&w| f64::from(w) * 1e5).sum();
    let got = plan.read_f32(&y)?;
    Ok((plan, got, right))
}

fn range(node: Tensor<'_>) -> Result<Tensor<'_>> {
    node.set_src_precision(Precision::F32, 1)
}

#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
fn float(node: Tensor<'_>) -> Result<Tensor<'_>> {
    node.set_staging(ggml_rs::Staging::Float)
}

fn close(got: &[f32], right: f64) {
    let near = |&v: &f32| (f64::from(v) - right).abs() <= 1e-2 * right;
    assert!(got.iter().all(near), "{:?}, not {right}", &got[..4]);
}

/// f16 [1, 1, 1] times [1e5] was Inf, and q4_1 [32, 1, 1], too.
#[test]
fn the_cpu_refuses_a_range_that_it_does_not_keep() {
    for (a, k) in [(F16, 1), (Q4_1, 32)] {
        let (graph, _) = Graph::build(|g| {
            let (w, _) = g.input("w", a, [k, 1, 1])?;
            let (x, _) = g.input("x", F32, [k, 1, 1])?;
            let (ids, _) = g.expert_ids("ids", 1, 1, 1)?;
            g.output("y", range(w.mul_mat_id(x, ids)?)?)
        })
        .unwrap();
        let error = Plan::new(graph, &cpu(), PlanOptions::default()).unwrap_err();
        let text = error.to_string();
        for part in ["set_src_precision(F32, 1)", a.name(), "cast a to F32"] {
            assert!(text.contains(part), "{text}");
        }
    }
    // With weights of F32 nothing is rounded, and blocks of 256 have a scale of F32.
    for a in [F32, Q4_K] {
        let mut scheduler = Scheduler::new([cpu()]).unwrap();
        let (_, got, right) = routed(&mut scheduler, a, range).unwrap();
        close(&got, right);
    }
}

#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
#[test]
fn a_node_stays_where_its_request_is_kept() {
    let both = || {
        let metal = Device::by_name("MTL0").unwrap().open().unwrap();
        Scheduler::new([metal, cpu()]).unwrap()
    };
    // Metal does not sort three experts for a token, and the CPU would round to halves: an error, and not Inf.
    let asks: [for<'g> fn(Tensor<'g>) -> Result<Tensor<'g>>; 2] = [range, float];
    for ask in asks {
        for a in [F16, Q4_1] {
            let error = routed(&mut both(), a, ask).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::Unsupported(_)), "{error}");
            let text = error.to_string();
            let parts = ["3 experts per token", "no other device", "CPU", "set_s"];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
    // Where the CPU keeps it, the node goes there, and says why.
    for a in [F32, Q4_K] {
        let (plan, got, right) = routed(&mut both(), a, range).unwrap();
        close(&got, right);
        let product = plan
            .assigned()
            .find(|node| node.op == "MUL_MAT_ID")
            .unwrap();
        assert_eq!(product.device, Device::cpu().unwrap());
        let reason = product.reason.unwrap();
        assert!(reason.contains("3 experts per token"), "{reason}");
    }
}

/// Half of one operand made both half on Metal: 40 times 1e5 was Inf, whatever the other operand had asked for.
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
#[test]
fn one_operand_of_an_outer_product_is_not_half_alone() {
    let product = |asked: &[(Precision, usize)], [a, b]: [f32; 2], device: &str| {
        let (graph, (w, x, y)) = Graph::build(|g| {
            let (w, w_in) = g.input("w", F32, [64, 40])?;
            let (x, x_in) = g.input("x", F32, [33, 40])?;
            let ask = |node: Tensor<'_>, &(precision, source): &(Precision, usize)| {
                node.set_src_precision(precision, source).map(drop)
            };
            let node = w.out_prod(x)?;
            asked.iter().try_for_each(|request| ask(node, request))?;
            Ok((w_in, x_in, g.output("y", node)?))
        })
        .unwrap();
        let mut backend = Device::by_name(device).unwrap().open().unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
        plan.set_f32(&w, &[a; 64 * 40])?;
        plan.set_f32(&x, &[b; 33 * 40])?;
        plan.run(&mut backend)?;
        plan.read_f32(&y)
    };
    use Precision::{F16 as Half, F32 as Float};
    for asked in [
        &[(Half, 0)][..],
        &[(Half, 1)],
        &[(Float, 1), (Half, 0)],
        &[(Half, 1), (Float, 0)],
    ] {
        for values in [[1.0, 1e5], [1e5, 1.0]] {
            let error = product(asked, values, "MTL0").unwrap_err();
            let text = error.to_string();
            assert!(text.contains("F16 of both"), "{text}");
            close(&product(asked, values, "CPU").unwrap(), 4e6);
        }
    }
    close(
        &product(&[(Float, 0), (Float, 1)], [1.0, 1e5], "MTL0").unwrap(),
        4e6,
    );
    close(
        &product(&[(Half, 0), (Half, 1)], [1.0, 2.0], "MTL0").unwrap(),
        80.0,
    );
}

/// The rescale's first kernel read halves as floats, past the ends of their rows.
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
#[test]
fn halves_are_not_rescaled() {
    let run = |ask: for<'g> fn(Tensor<'g>) -> Result<Tensor<'g>>| {
        let (graph, (w, x, ids, y)) = Graph::build(|g| {
            let (w, w_in) = g.input("w", F32, [64, 8, 4])?;
            let (x, x_in) = g.input("x", F16, [64, 1, 40])?;
            let (ids, ids_in) = g.expert_ids("ids", 2, 40, 4)?;
            let y = g.output("y", ask(w.mul_mat_id(x, ids)?)?)?;
            Ok((w_in, x_in, ids_in, y))
        })
        .unwrap();
        let mut backend = Device::by_name("MTL0").unwrap().open().unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.set_f32(&w, &[1.0; 64 * 8 * 4]).unwrap();
        // As floats, pairs of these halves are 2e19.
        plan.set_f32(&x, &[60000.0; 64 * 40]).unwrap();
        plan.set_i32(&ids, &[0, 1].repeat(40)).unwrap();
        plan.run(&mut backend).unwrap();
        plan.read_f32(&y).unwrap()
    };
    let rescaled = run(range);
    let right = |v: &f32| *v == 60000.0 * 64.0;
    assert!(rescaled.iter().all(right), "{:?}", &rescaled[..4]);
    assert!(rescaled == run(|node| Ok(node)));
}
