//! Plans: tokens, repeated runs, memory that starts as NaN, and limits.

use ggml_rs::DType::{F16, F32, I32};
use ggml_rs::{
    Backend, Builder, Cancel, DType, Device, Error, Graph, Input, Output, Placement, Plan,
    PlanOptions, RegistryOptions, Result, RunOptions,
};

use crate::common::{self, traced};

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

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
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
        plan.run_with(&mut backend, traced())
            .unwrap()
            .dispatches
            .is_empty(),
        "the CPU keeps no record of dispatches"
    );
}

/// Every combination of a run's options runs, on every device, but for a repeated run that can be cancelled.
#[test]
fn options_of_runs_combine_or_are_refused() {
    for device in common::devices() {
        let (graph, (a, b, y)) = Graph::build(sum_of_two).unwrap();
        let mut backend = device.open().unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.set_f32(&a, &[1.0; 4]).unwrap();
        plan.set_f32(&b, &[2.0; 4]).unwrap();
        let switch = Cancel::new();
        for bits in 0..16 {
            let on = |bit: usize| bits >> bit & 1 == 1;
            let options = RunOptions {
                cancel: on(0).then_some(&switch),
                trace: on(1),
                repeat: if on(2) { 3 } else { 1 },
                try_: on(3),
            };
            let report = plan.run_with(&mut backend, options);
            if on(0) && on(2) {
                let text = message(report);
                assert!(
                    text.contains("repeated 3 times cannot be cancelled"),
                    "{text}"
                );
                continue;
            }
            let dispatches = report.unwrap().dispatches.len();
            let recorded = on(1) && device.is_metal();
            assert_eq!(dispatches > 0, recorded, "{options:?}: {dispatches}");
            assert_eq!(plan.read_f32(&y).unwrap(), [3.0; 4], "{options:?}");
        }
        let never = plan.run_with(&mut backend, common::repeated(0));
        assert!(message(never).contains("repeated 0 times"));
    }
}

#[test]
fn misuse_is_an_error_that_says_what_to_do() {
    let (mut plan, mut backend, (a, b, y)) = plan();
    let message = |result: Result<()>| result.unwrap_err().to_string();
    assert!(message(plan.read_f32(&y).map(drop)).contains("call run() first"));
    plan.set_f32(&a, &[1.0; 4]).unwrap();
    assert!(message(plan.run(&mut backend)).contains("input `b` has no values"));
    assert!(message(plan.set_f32(&b, &[1.0; 3])).contains("3 values for input `b` of 4"));
    assert!(message(plan.set_bytes(&b, &[0; 15])).contains("15 bytes for input `b` of 16"));
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

/// An input that nothing reads is not asked for, and setting it is an error that says what to do.
#[test]
fn an_input_without_effect_is_not_set() {
    let (graph, (x, labels, y)) = Graph::build(|g| {
        let (x, x_in) = g.input("x", DType::F32, [4])?;
        let (labels, labels_in) = g.input("labels", DType::F32, [4])?;
        let y = x.scale(2.0)?;
        // A loss that is no output.
        y.sub(labels)?.sqr()?.sum()?;
        Ok((x_in, labels_in, g.output("y", y)?))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    assert!(plan.needs(&x).unwrap() && !plan.needs(&labels).unwrap());
    for refused in [
        plan.set_f32(&labels, &[0.0; 4]),
        plan.set_bytes(&labels, &[0; 16]),
        plan.set_i32(&labels, &[0; 4]),
    ] {
        let text = message(refused);
        assert!(
            text.contains("no output depends on input `labels`")
                && text.contains("Builder::output"),
            "{text}"
        );
    }
    plan.set_f32(&x, &[1.0; 4]).unwrap();
    plan.run(&mut backend).unwrap();
    assert_eq!(plan.read_f32(&y).unwrap(), [2.0; 4]);
}

/// `argmax` gives i32, which has a reader of its own.
#[test]
fn integers_are_read_as_integers() {
    let (graph, (x, best, wide_in, wide)) = Graph::build(|g| {
        let (x, x_in) = g.input("x", DType::F32, [3, 2])?;
        let (wide, wide_in) = g.input("wide", DType::I64, [2])?;
        let best = g.output("best", x.argmax()?)?;
        Ok((x_in, best, wide_in, g.output("wide", wide)?))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&x, &[0.1, 0.7, 0.2, 0.9, 0.0, 0.1]).unwrap();
    plan.set_i64(&wide_in, &[1 << 40, -1]).unwrap();
    plan.run(&mut backend).unwrap();
    assert_eq!(plan.read_i32(&best).unwrap(), [1, 0]);
    assert_eq!(plan.read_i64(&wide).unwrap(), [1 << 40, -1]);
    for (answer, words) in [
        (
            plan.read_f32(&best).map(drop),
            "Plan::read_f32(): output `best`: i32 does not convert to f32: use read_i32",
        ),
        (
            plan.read_i32(&wide).map(drop),
            "output `wide`: i64 values: use read_i64",
        ),
    ] {
        let text = message(answer);
        assert!(text.contains(words), "{text}");
    }
}
