//! Plans: tokens, repeated runs, memory that starts as NaN, and limits.

mod common;

use ggml_rs::DType::{F16, F32, I32};
use ggml_rs::{
    Backend, Builder, DType, Device, Error, Graph, Input, Output, Placement, Plan, PlanOptions,
    RegistryOptions, Result,
};

fn sum_of_two(g: Builder<'_>) -> Result<(Input, Input, Output)> {
    let (a, a_in) = g.input("a", F32, [4])?;
    let (b, b_in) = g.input("b", F32, [4])?;
    Ok((a_in, b_in, g.output("y", a.add(b)?.scale(1.0)?)?))
}

fn plan() -> (Plan, Backend, (Input, Input, Output)) {
    let (graph, tokens) = Graph::build(sum_of_two).unwrap();
    let backend = Device::cpu().unwrap().open().unwrap();
    (
        Plan::new(graph, &backend, PlanOptions::default()).unwrap(),
        backend,
        tokens,
    )
}

#[test]
fn inputs_keep_their_values_between_runs() {
    let (mut plan, mut backend, (a, b, y)) = plan();
    plan.set_f32(&a, &[1.0; 4]).unwrap();
    plan.set_f32(&b, &[2.0; 4]).unwrap();
    plan.run(&mut backend).unwrap();
    plan.run(&mut backend).unwrap();
    assert_eq!(plan.read_f32(&y).unwrap(), [3.0; 4]);
    plan.set_f32(&a, &[5.0; 4]).unwrap();
    plan.run(&mut backend).unwrap();
    assert_eq!(plan.read_f32(&y).unwrap(), [7.0; 4]);
    assert!(
        plan.run_traced(&mut backend).unwrap().is_empty(),
        "the CPU keeps no record of dispatches"
    );
}

#[test]
fn misuse_is_an_error_that_says_what_to_do() {
    let (mut plan, mut backend, (a, b, y)) = plan();
    let message = |result: Result<()>| result.unwrap_err().to_string();
    assert!(message(plan.read_f32(&y).map(drop)).contains("call run() first"));
    plan.set_f32(&a, &[1.0; 4]).unwrap();
    assert!(message(plan.run(&mut backend)).contains("input `b` has no values"));
    assert!(message(plan.set_f32(&b, &[1.0; 3])).contains("3 values for an input of 4"));
    assert!(message(plan.set_bytes(&b, &[0; 15])).contains("15 bytes for an input of 16"));
    assert!(message(plan.check_sentinels()).contains("Placement::Separate"));
    let (_, (other_a, _, other_y)) = Graph::build(sum_of_two).unwrap();
    assert!(message(plan.set_f32(&other_a, &[1.0; 4])).contains("another graph"));
    assert!(message(plan.read_f32(&other_y).map(drop)).contains("another graph"));
}

#[test]
fn graphs_need_an_output_and_outputs_need_to_be_contiguous() {
    let none = Graph::build(|g| g.input("a", F32, [4]).map(drop)).unwrap_err();
    assert!(none.to_string().contains("no output"), "{none}");
    let strided = Graph::build(|g| {
        let (a, _) = g.input("a", F32, [4, 2])?;
        g.output("y", a.transpose()?)
    });
    assert!(matches!(strided, Err(Error::Layout(_))));
    for name in ["x".repeat(64), "a\0b".to_owned()] {
        let error = Graph::build(|g| g.input(&name, F32, [4]).map(drop)).unwrap_err();
        assert!(matches!(error, Error::Param(_)), "{error}");
    }
}

#[test]
fn memory_starts_as_nan() {
    for placement in common::PLACEMENTS {
        let (graph, y) =
            Graph::build(|g| g.output("y", g.empty("never written", F32, [8])?.scale(1.0)?))
                .unwrap();
        let mut backend = Device::cpu().unwrap().open().unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions { placement }).unwrap();
        plan.run(&mut backend).unwrap();
        assert!(
            plan.read_f32(&y)
                .unwrap()
                .iter()
                .all(|value| value.is_nan()),
            "{placement:?}"
        );
    }
}

#[test]
fn memory_that_does_not_exist_is_refused_before_it_is_asked_for() {
    let build = || {
        Graph::build(|g| g.output("y", g.input("a", F32, [1 << 30, 1 << 15])?.0.sum()?))
            .unwrap()
            .0
    };
    let backend = Device::cpu().unwrap().open().unwrap();
    for placement in common::PLACEMENTS {
        let error = Plan::new(build(), &backend, PlanOptions { placement }).unwrap_err();
        assert!(
            matches!(&error, Error::Alloc { bytes, .. } if *bytes >= 1 << 47),
            "{error}"
        );
    }
    let placement = Placement::Separate {
        sentinel_bytes: usize::MAX,
    };
    let (graph, _) = Graph::build(sum_of_two).unwrap();
    assert!(matches!(
        Plan::new(graph, &backend, PlanOptions { placement }),
        Err(Error::Alloc { .. })
    ));
}

#[test]
fn deep_and_wide_graphs_neither_overflow_the_stack_nor_the_arena() {
    const DEPTH: usize = 50_000;
    let (graph, (a, y)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", F32, [1])?;
        let mut x = a;
        for _ in 0..DEPTH {
            x = x.relu()?;
        }
        // Not an ancestor of the output, so not part of the graph.
        a.scale(3.0)?;
        Ok((a_in, g.output("y", x)?))
    })
    .unwrap();
    assert_eq!(graph.nodes(), DEPTH);
    let mut backend = Device::cpu().unwrap().open().unwrap();
    backend.set_threads(1).unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a, &[7.0]).unwrap();
    plan.run(&mut backend).unwrap();
    assert_eq!(plan.read_f32(&y).unwrap(), [7.0]);
}

#[test]
fn values_are_rounded_to_the_type_of_the_input() {
    let (graph, (a, y)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", F16, [2])?;
        Ok((a_in, g.output("y", a.cont()?)?))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a, &[1.0 + f32::EPSILON, 65520.0]).unwrap();
    plan.run(&mut backend).unwrap();
    assert_eq!(plan.read_f32(&y).unwrap(), [1.0, f32::INFINITY]);

    let (graph, token) = Graph::build(|g| {
        let (a, token) = g.input("a", I32, [2])?;
        g.output("y", a.repeat([4])?)?;
        Ok(token)
    })
    .unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    assert!(matches!(
        plan.set_f32(&token, &[1.0, 2.0]),
        Err(Error::DType(_))
    ));
    plan.set_bytes(&token, &[0; 8]).unwrap();
}

#[test]
fn plans_graphs_and_backends_move_between_threads() {
    fn send<T: Send + 'static>() {}
    fn sync<T: Sync>() {}
    send::<Graph>();
    send::<Plan>();
    send::<Backend>();
    send::<Device>();
    sync::<Device>();
    send::<Error>();
    sync::<Error>();
    send::<DType>();

    let (mut plan, mut backend, (a, b, y)) = plan();
    let result = std::thread::spawn(move || {
        plan.set_f32(&a, &[1.0; 4])?;
        plan.set_f32(&b, &[2.0; 4])?;
        plan.run(&mut backend)?;
        plan.read_f32(&y)
    });
    assert_eq!(result.join().unwrap().unwrap(), [3.0; 4]);
}

#[test]
fn devices_are_found_by_name_and_options_come_too_late() {
    let cpu = Device::cpu().unwrap();
    assert_eq!(cpu, Device::by_name("CPU").unwrap());
    assert!(!cpu.is_simulated() && !cpu.is_metal() && cpu.memory().total > 0);
    assert_eq!(cpu.tensor_api(), None);
    assert!(!Device::best().unwrap().is_simulated());
    let error = Device::by_name("MTL9").unwrap_err().to_string();
    assert!(
        error.contains("find device `MTL9`") && error.contains("CPU"),
        "{error}"
    );
    // SAFETY: without `tensor_api` and `backend_lib` nothing is asked of the caller.
    let error = unsafe { RegistryOptions::default().install() }.unwrap_err();
    assert!(
        error.to_string().contains("devices exist already"),
        "{error}"
    );
}
