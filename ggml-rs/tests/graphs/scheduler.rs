//! Plans over several backends. What crosses devices is tested on random graphs in `src/plan/partition/tests.rs`; here, with
//! the simulated device beside the CPU where it is built.

use ggml_rs::DType::{BF16, F32};
use ggml_rs::{
    Backend, Builder, Device, Error, Fallback, Graph, Input, Output, Plan, PlanOptions, Result,
    Scheduler,
};

fn cpu() -> Backend {
    Device::cpu().unwrap().open().unwrap()
}

/// A product that no Metal kernel takes (b of type bf16), between nodes that are run there.
fn mixed(g: Builder<'_>) -> Result<(Input, Input, Output)> {
    let (w, w_in) = g.input("w", BF16, [64, 8])?;
    let (x, x_in) = g.input("x", F32, [64, 4])?;
    let doubled = x.scale(2.0)?.named("doubled")?;
    let product = w.mul_mat(doubled.cast(BF16)?)?.named("product")?;
    Ok((w_in, x_in, g.output("y", product.relu()?)?))
}

#[test]
fn a_scheduler_of_one_is_a_backend() {
    let (graph, (w, x, y)) = Graph::build(mixed).unwrap();
    let mut scheduler = Scheduler::new([cpu()]).unwrap();
    let mut plan = Plan::new(graph, &scheduler, PlanOptions::default()).unwrap();
    plan.set_f32(&w, &[1.0; 512]).unwrap();
    plan.set_f32(&x, &[0.5; 256]).unwrap();
    plan.run(&mut scheduler).unwrap();
    plan.run(&mut cpu()).unwrap();
    assert_eq!(plan.read_f32(&y).unwrap(), [64.0; 32]);
    assert_eq!((plan.splits(), plan.copies()), (1, 0));
    let nodes: Vec<_> = plan.assigned().collect();
    let ops: Vec<_> = nodes.iter().map(|node| node.op.as_str()).collect();
    assert_eq!(ops, ["SCALE", "CPY", "MUL_MAT", "RELU"]);
    assert!(
        nodes
            .iter()
            .all(|node| node.device == Device::cpu().unwrap() && node.reason.is_none())
    );
}

#[test]
fn what_nothing_runs_is_refused_either_way() {
    for fallback in [Fallback::Allow, Fallback::Forbid] {
        let (graph, _) = Graph::build(|g| {
            let (x, _) = g.input("x", ggml_rs::DType::I32, [8])?;
            g.output("y", x.relu()?)
        })
        .unwrap();
        let scheduler = Scheduler::new([cpu()]).unwrap().with_fallback(fallback);
        let error = Plan::new(graph, &scheduler, PlanOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }
}

#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
mod simulated {
    use ggml_rs::check::nmse;
    use ggml_rs::{Param, Params};

    use super::*;
    use crate::common;

    fn metal() -> Device {
        Device::by_name("MTL0").unwrap()
    }

    fn both(fallback: Fallback) -> Scheduler {
        let backends = [metal().open().unwrap(), cpu()];
        Scheduler::new(backends).unwrap().with_fallback(fallback)
    }

    #[test]
    fn the_cpu_runs_what_the_first_does_not() {
        let (w_values, x_values) = (common::values(512, 1), common::values(256, 2));
        let (graph, (w, x, y)) = Graph::build(mixed).unwrap();
        let mut alone = cpu();
        let mut plan = Plan::new(graph, &alone, PlanOptions::default()).unwrap();
        plan.set_f32(&w, &w_values).unwrap();
        plan.set_f32(&x, &x_values).unwrap();
        plan.run(&mut alone).unwrap();
        let expected: Vec<_> = plan
            .read_f32(&y)
            .unwrap()
            .into_iter()
            .map(f64::from)
            .collect();

        for placement in common::PLACEMENTS {
            let (graph, (w, x, y)) = Graph::build(mixed).unwrap();
            let mut scheduler = both(Fallback::Allow);
            let before = Plan::measure(&graph, &scheduler, PlanOptions { placement }).unwrap();
            let mut plan = Plan::new(graph, &scheduler, PlanOptions { placement }).unwrap();
            assert_eq!(plan.memory(), before);
            assert!(before.iter().all(|used| used.tensors > 0), "{before:?}");
            let product = plan.assigned().find(|node| node.node == "product").unwrap();
            assert_eq!(product.device, Device::cpu().unwrap());
            assert!(product.reason.unwrap().contains("bf16"));
            let first = plan.assigned().find(|node| node.node == "doubled").unwrap();
            assert_eq!((first.device, first.reason), (metal(), None));
            assert!(plan.splits() >= 3 && plan.copies() >= 2);
            plan.set_f32(&w, &w_values).unwrap();
            plan.set_f32(&x, &x_values).unwrap();
            for _ in 0..2 {
                plan.run(&mut scheduler).unwrap();
                assert!(
                    nmse(&expected, &plan.read_f32(&y).unwrap()) < 1e-10,
                    "{placement:?}"
                );
            }
            if placement != common::PLACEMENTS[0] {
                plan.check_sentinels().unwrap();
            }
        }
    }

    #[test]
    fn fallback_can_be_forbidden() {
        let (graph, _) = Graph::build(mixed).unwrap();
        let error = Plan::new(graph, &both(Fallback::Forbid), PlanOptions::default()).unwrap_err();
        match error {
            Error::Unsupported(why) => {
                assert_eq!(
                    (why.device.as_str(), why.node.as_str()),
                    ("MTL0", "product")
                );
            }
            other => panic!("{other}"),
        }
    }

    fn param(device: Device, value: f32) -> Param {
        let builder = Params::builder().tensor("w", F32, [16]).unwrap();
        let param = builder.allocate(device).unwrap().get("w").unwrap();
        param.set_f32(&[value; 16]).unwrap();
        param
    }

    #[test]
    fn a_parameter_elsewhere_is_an_error_on_one_device_and_a_copy_on_two() {
        let (here, there) = (param(metal(), 2.0), param(Device::cpu().unwrap(), 3.0));
        let build = || {
            Graph::build(|g| {
                let (here, there) = (g.weight(&here)?, g.weight(&there)?);
                let sum = here.add(there)?;
                // Both are written where they lie.
                g.output("here", sum.cpy(here)?)?;
                g.output("there", sum.scale(10.0)?.cpy(there)?)
            })
            .unwrap()
        };
        for device in [metal(), Device::cpu().unwrap()] {
            let error = Plan::new(build().0, &device.open().unwrap(), PlanOptions::default());
            let text = error.unwrap_err().to_string();
            assert!(
                text.contains("parameter `w`") && text.contains("allocate it there"),
                "{text}"
            );
        }
        let mut scheduler = both(Fallback::Allow);
        let mut plan = Plan::new(build().0, &scheduler, PlanOptions::default()).unwrap();
        plan.run(&mut scheduler).unwrap();
        assert_eq!(here.read_f32().unwrap(), [5.0; 16]);
        assert_eq!(there.read_f32().unwrap(), [50.0; 16]);
        plan.run(&mut scheduler).unwrap();
        assert_eq!(here.read_f32().unwrap(), [55.0; 16]);
        assert_eq!(there.read_f32().unwrap(), [550.0; 16]);
    }

    #[test]
    fn a_plan_on_two_does_not_run_on_one() {
        let (graph, (w, x, _)) = Graph::build(mixed).unwrap();
        let mut plan = Plan::new(graph, &both(Fallback::Allow), PlanOptions::default()).unwrap();
        plan.set_f32(&w, &[1.0; 512]).unwrap();
        plan.set_f32(&x, &[1.0; 256]).unwrap();
        let error = plan.run(&mut cpu()).unwrap_err().to_string();
        assert!(
            error.contains("the plan is on MTL0 and CPU, the backend on CPU"),
            "{error}"
        );
    }
}
