//! Parameters: built, set, read, used by graphs, and what is refused.

use ggml_rs::DType::{F16, F32, I32, Q8_0};
use ggml_rs::{Device, Error, Graph, Input, Output, Param, Params, Plan, PlanOptions, Result};

use crate::common;

fn one(dtype: ggml_rs::DType, dims: &[usize]) -> Param {
    let shape = ggml_rs::Shape::new(dims).unwrap();
    let builder = Params::builder().tensor("w", dtype, shape).unwrap();
    let params = builder.allocate(Device::cpu().unwrap()).unwrap();
    params.get("w").unwrap()
}

fn text<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn values_are_set_and_read_in_their_type() {
    let params = Params::builder()
        .tensor("f32", F32, [3])
        .and_then(|b| b.tensor("f16", F16, [2]))
        .and_then(|b| b.tensor("q8", Q8_0, [32, 2]))
        .and_then(|b| b.tensor("i32", I32, [2]))
        .and_then(|b| b.allocate(Device::cpu()?))
        .unwrap();
    assert_eq!(params.len(), 4);
    assert!(params.bytes() >= 12 + 4 + 68 + 8);
    let get = |name: &str| params.get(name).unwrap();
    get("f32").set_f32(&[1.0, 2.0, 3.0]).unwrap();
    get("f16").set_f32(&[1.0 + f32::EPSILON, 65520.0]).unwrap();
    get("q8").set_f32(&[0.5; 64]).unwrap();
    get("i32").set_bytes(&[1, 0, 0, 0, 2, 0, 0, 0]).unwrap();
    assert_eq!(get("f32").read_f32().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(get("f16").read_f32().unwrap(), [1.0, f32::INFINITY]);
    let near = |value: &f32| (value - 0.5).abs() < 1e-3;
    assert!(get("q8").read_f32().unwrap().iter().all(near));
    assert!(matches!(
        get("i32").set_f32(&[1.0; 2]),
        Err(Error::DType(_))
    ));
    params.zero().unwrap();
    assert!(
        params
            .iter()
            .all(|param| param.read_bytes().unwrap().iter().all(|&byte| byte == 0))
    );
}

#[test]
fn misuse_is_an_error_that_says_what_to_do() {
    let w = one(F32, &[4]);
    assert!(text(w.read_f32()).contains("`w` has no values"));
    assert!(text(w.set_f32(&[1.0; 3])).contains("3 values for parameter `w` of 4"));
    assert!(text(w.set_bytes(&[0; 15])).contains("15 bytes for parameter `w` of 16"));
    assert!(text(Params::builder().allocate(Device::cpu().unwrap())).contains("no tensor"));
    let twice = Params::builder()
        .tensor("w", F32, [1])
        .and_then(|b| b.tensor("w", F32, [1]));
    assert!(text(twice).contains("listed twice"));
    assert!(matches!(
        Params::builder().tensor("q", Q8_0, [31]),
        Err(Error::Shape(_))
    ));
    assert!(matches!(
        Params::builder().tensor(&"x".repeat(64), F32, [1]),
        Err(Error::Param(_))
    ));
    let huge = Params::builder()
        .tensor("a", F32, [1 << 30, 1 << 15])
        .unwrap();
    let huge = huge.allocate(Device::cpu().unwrap());
    assert!(matches!(huge, Err(Error::Alloc { bytes, .. }) if bytes == 1 << 47));
    let many = (0..8).try_fold(Params::builder(), |builder, i| {
        builder.tensor(&i.to_string(), F32, [1 << 30, 1 << 30])
    });
    let overflow = many.unwrap().allocate(Device::cpu().unwrap());
    assert!(matches!(overflow, Err(Error::Alloc { .. })), "{overflow:?}");
}

#[test]
fn graphs_take_a_parameter_once_and_one_way() {
    let (w, q) = (one(F32, &[4]), one(Q8_0, &[32]));
    Graph::build(|g| {
        let (first, again) = (g.param(&w)?, g.param(&w.clone())?);
        assert_eq!(first.shape(), again.shape());
        assert!(text(g.weight(&w)).contains("both as trainable and as frozen"));
        assert!(matches!(g.param(&q), Err(Error::DType(_))));
        g.weight(&q)?;
        g.output("y", first.add(again)?)
    })
    .map(|(graph, _)| assert_eq!(graph.nodes(), 1))
    .unwrap();
}

/// y = w · x, by a frozen or a trainable w, with the values pooled and apart.
#[test]
fn plans_compute_with_parameters() {
    let cpu = Device::cpu().unwrap();
    for placement in common::PLACEMENTS {
        for trainable in [false, true] {
            let w = one(F32, &[2, 3]);
            let (graph, (x, y)) = Graph::build(|g| {
                let (x, x_in) = g.input("x", F32, [2, 1])?;
                let weight = if trainable {
                    g.param(&w)?
                } else {
                    g.weight(&w)?
                };
                Ok((x_in, g.output("y", weight.mul_mat(x)?)?))
            })
            .unwrap();
            let mut backend = cpu.open().unwrap();
            let mut plan = Plan::new(graph, &backend, PlanOptions { placement }).unwrap();
            plan.set_f32(&x, &[1.0, 10.0]).unwrap();
            assert!(text(plan.run(&mut backend)).contains("parameter `w` has no values"));
            // After the plan was made: neither allocating nor poisoning may touch what is there.
            w.set_f32(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
            plan.run(&mut backend).unwrap();
            assert_eq!(plan.read_f32(&y).unwrap(), [21.0, 43.0, 65.0]);
            w.set_f32(&[1.0; 6]).unwrap();
            plan.run(&mut backend).unwrap();
            assert_eq!(plan.read_f32(&y).unwrap(), [11.0; 3]);
        }
    }
}

#[test]
fn making_a_plan_leaves_set_parameters_alone() {
    for placement in common::PLACEMENTS {
        let w = one(F32, &[8]);
        w.set_f32(&[7.0; 8]).unwrap();
        let build = || Graph::build(|g| g.output("y", g.weight(&w)?.scale(2.0)?)).unwrap();
        let mut backend = Device::cpu().unwrap().open().unwrap();
        for _ in 0..2 {
            let (graph, y) = build();
            let mut plan = Plan::new(graph, &backend, PlanOptions { placement }).unwrap();
            assert_eq!(w.read_f32().unwrap(), [7.0; 8], "{placement:?}");
            plan.run(&mut backend).unwrap();
            assert_eq!(plan.read_f32(&y).unwrap(), [14.0; 8]);
        }
        assert_eq!(w.read_f32().unwrap(), [7.0; 8]);
    }
}

/// w += 1 in every run; the output is the parameter itself.
fn counting(w: &Param) -> (Graph, (Input, Output)) {
    Graph::build(|g| {
        let (one, one_in) = g.input("one", F32, w.shape())?;
        let held = g.weight(w)?;
        let next = held.add(one)?.cpy(held)?;
        Ok((one_in, g.output("next", next)?))
    })
    .unwrap()
}

#[test]
fn what_a_graph_writes_is_the_parameters() {
    for placement in common::PLACEMENTS {
        let w = one(F32, &[5]);
        w.zero().unwrap();
        let mut backend = Device::cpu().unwrap().open().unwrap();
        let mut plans: Vec<_> = (0..2)
            .map(|_| {
                let (graph, (one, next)) = counting(&w);
                let mut plan = Plan::new(graph, &backend, PlanOptions { placement }).unwrap();
                plan.set_f32(&one, &[1.0; 5]).unwrap();
                (plan, next)
            })
            .collect();
        for round in 0..3 {
            for (i, (plan, next)) in plans.iter_mut().enumerate() {
                plan.run(&mut backend).unwrap();
                let count = (2 * round + i + 1) as f32;
                assert_eq!(plan.read_f32(next).unwrap(), [count; 5]);
                assert_eq!(w.read_f32().unwrap(), [count; 5]);
            }
        }
        // An output that is a parameter shows the parameter's present values.
        w.set_f32(&[100.0; 5]).unwrap();
        assert_eq!(plans[0].0.read_f32(&plans[0].1).unwrap(), [100.0; 5]);
    }
}

#[test]
fn graphs_and_plans_keep_the_memory() {
    let (graph, y) = {
        let w = one(F32, &[4]);
        w.set_f32(&[3.0; 4]).unwrap();
        Graph::build(|g| g.output("y", g.weight(&w)?.relu()?)).unwrap()
    };
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.run(&mut backend).unwrap();
    assert_eq!(plan.read_f32(&y).unwrap(), [3.0; 4]);
}

/// A parameter that no output needs is not asked for values.
#[test]
fn unused_parameters_are_dropped() {
    let (used, unused) = (one(F32, &[2]), one(F32, &[2]));
    used.set_f32(&[1.0; 2]).unwrap();
    let (graph, _) = Graph::build(|g| {
        g.weight(&unused)?.relu()?;
        g.output("y", g.weight(&used)?.relu()?)
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    Plan::new(graph, &backend, PlanOptions::default())
        .unwrap()
        .run(&mut backend)
        .unwrap();
}

#[test]
fn memory_is_told_before_and_after() {
    let w = one(F32, &[1000]);
    let (graph, _) = Graph::build(|g| g.output("y", g.weight(&w)?.relu()?)).unwrap();
    let backend = Device::cpu().unwrap().open().unwrap();
    for placement in common::PLACEMENTS {
        let options = PlanOptions { placement };
        let uses = Plan::measure(&graph, &backend, options).unwrap();
        assert_eq!(uses.len(), 1);
        assert!(
            uses[0].tensors >= 4000 && uses[0].tensors < 4000 + 4096 + 64,
            "{uses:?}"
        );
        assert!(uses[0].params >= 4000 && uses[0].params < 4100, "{uses:?}");
        assert_eq!(
            uses[0].total(),
            uses[0].tensors + uses[0].scratch + uses[0].params
        );
    }
    let before = Plan::measure(&graph, &backend, PlanOptions::default()).unwrap();
    let plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    assert_eq!(plan.memory(), before);
}
