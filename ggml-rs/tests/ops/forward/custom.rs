//! Ops computed by closures: who is called, what it sees, and where a panic goes. On the CPU; other devices refuse them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ggml_rs::DType::{F16, F32, I32};
use ggml_rs::{
    Builder, CustomTask, Device, Error, Graph, Plan, PlanOptions, Result, Tasks, Tensor,
};

use crate::common::{Operand, PLACEMENTS, devices, run_on, values};

const TASKS: [Tasks; 2] = [Tasks::One, Tasks::Threads];

/// Runs on several threads with both placements, which must agree.
fn run(
    inputs: &[&Operand],
    build: impl for<'g> Fn(Builder<'g>, &[Tensor<'g>]) -> Result<Tensor<'g>>,
) -> Vec<f32> {
    let [pooled, separate] =
        PLACEMENTS.map(|placement| run_on_threads(inputs, placement, &build).unwrap());
    assert_eq!(pooled, separate);
    pooled
}

fn run_on_threads(
    inputs: &[&Operand],
    placement: ggml_rs::Placement,
    build: &impl for<'g> Fn(Builder<'g>, &[Tensor<'g>]) -> Result<Tensor<'g>>,
) -> Result<Vec<f32>> {
    let (graph, (tokens, y)) = Graph::build(|g| {
        let mut pairs = Vec::new();
        for (i, input) in inputs.iter().enumerate() {
            pairs.push(g.input(&format!("input {i}"), input.dtype, input.shape)?);
        }
        let (tensors, tokens): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        // Another op that takes all threads, so that ggml has them.
        let y = build(g, &tensors)?;
        Ok((tokens, g.output("y", y)?))
    })?;
    let mut backend = Device::cpu()?.open()?;
    backend.set_threads(4)?;
    let mut plan = Plan::new(graph, &backend, PlanOptions { placement })?;
    for (token, input) in tokens.iter().zip(inputs) {
        if plan.needs(token)? {
            plan.set_f32(token, &input.values)?;
        }
    }
    plan.run(&mut backend)?;
    if matches!(placement, ggml_rs::Placement::Separate { .. }) {
        plan.check_sentinels()?;
    }
    plan.read_f32(&y)
}

/// `out[row] = sum of the operands' rows`, counted in calls.
fn add_rows(task: &mut CustomTask<'_>) {
    for row in task.rows() {
        let inputs = task.inputs().to_vec();
        let out = task.row_mut::<f32>(row).unwrap();
        for (i, out) in out.iter_mut().enumerate() {
            *out = inputs.iter().map(|x| x.row::<f32>(row).unwrap()[i]).sum();
        }
    }
}

#[test]
fn closures_see_all_operands_and_write_all_rows() {
    let operands: Vec<Operand> = (0..4)
        .map(|seed| Operand::new(F32, &[5, 3, 2, 2], seed))
        .collect();
    let inputs: Vec<&Operand> = operands.iter().collect();
    let sum = |n: usize| -> Vec<f32> {
        (0..60)
            .map(|i| operands[..n].iter().map(|x| x.values[i]).sum())
            .collect()
    };
    for tasks in TASKS {
        let got = run(&inputs[..1], |_, x| x[0].map_custom1(tasks, add_rows));
        assert_eq!(got, sum(1));
        let got = run(&inputs[..2], |_, x| x[0].map_custom2(x[1], tasks, add_rows));
        assert_eq!(got, sum(2));
        let got = run(&inputs[..3], |_, x| {
            x[0].map_custom3(x[1], x[2], tasks, add_rows)
        });
        assert_eq!(got, sum(3));
        let got = run(&inputs, |g, x| {
            g.custom_4d(F32, [5, 3, 2, 2], x, tasks, add_rows)
        });
        assert_eq!(got, sum(4));
        // A result without operands, of another type.
        let got = run(&inputs[..1], |g, _| {
            let ones = g.custom_4d(I32, [7, 3], &[], tasks, |task| {
                task.out::<i32>().unwrap().fill(3)
            })?;
            ones.cast(F32)
        });
        assert_eq!(got, [3.0; 21]);
    }
}

/// `out[row] = 2 * out[row] + sum of the operands' rows`.
fn double_and_add(task: &mut CustomTask<'_>) {
    for row in task.rows() {
        let inputs = task.inputs().to_vec();
        let out = task.row_mut::<f32>(row).unwrap();
        for (i, out) in out.iter_mut().enumerate() {
            *out = 2.0 * *out
                + inputs
                    .iter()
                    .map(|x| x.row::<f32>(row).unwrap()[i])
                    .sum::<f32>();
        }
    }
}

#[test]
fn closures_work_in_place() {
    let operands: Vec<Operand> = (0..4)
        .map(|seed| Operand::new(F32, &[5, 6], seed))
        .collect();
    let inputs: Vec<&Operand> = operands.iter().collect();
    let expected = |n: usize| -> Vec<f32> {
        let sum = |i: usize| operands[1..n].iter().map(|x| x.values[i]).sum::<f32>();
        (0..30)
            .map(|i| 2.0 * operands[0].values[i] + sum(i))
            .collect()
    };
    for tasks in TASKS {
        // A copy first, so that a second placement starts from the same values.
        let got = run(&inputs[..1], |_, x| {
            x[0].scale(1.0)?.map_custom1_inplace(tasks, double_and_add)
        });
        assert_eq!(got, expected(1));
        let got = run(&inputs[..2], |_, x| {
            x[0].scale(1.0)?
                .map_custom2_inplace(x[1], tasks, double_and_add)
        });
        assert_eq!(got, expected(2));
        let got = run(&inputs[..3], |_, x| {
            x[0].scale(1.0)?
                .map_custom3_inplace(x[1], x[2], tasks, double_and_add)
        });
        assert_eq!(got, expected(3));
        let got = run(&inputs, |_, x| {
            x[0].scale(1.0)?
                .custom_inplace(&x[1..], tasks, double_and_add)
        });
        assert_eq!(got, expected(4));
    }
}

#[test]
fn operands_are_refused_that_a_task_would_see_change() {
    Graph::build(|g| {
        let (a, _) = g.input("a", F32, [4, 4])?;
        let part = a.view([4, 2], [16, 32, 32], 0)?;
        let refused =
            |outcome: Result<Tensor<'_>>| assert!(matches!(outcome, Err(Error::Layout(_))));
        refused(a.map_custom2_inplace(part, Tasks::One, |_| ()));
        refused(part.map_custom3_inplace(a, a, Tasks::One, |_| ()));
        refused(a.custom_inplace(&[part], Tasks::One, |_| ()));
        refused(a.transpose()?.map_custom1_inplace(Tasks::One, |_| ()));
        let nine = [a; 9];
        let outcome = g.custom_4d(F32, [1], &nine, Tasks::One, |_| ());
        assert!(matches!(outcome, Err(Error::Param(_))));
        assert!(matches!(
            g.custom_4d(F32, [0], &[], Tasks::One, |_| ()),
            Err(Error::Shape(_))
        ));
        g.output("a", a)
    })
    .unwrap();
}

#[test]
fn one_task_is_one_call_although_there_are_threads() {
    let calls = Arc::new(AtomicUsize::new(0));
    let a = Operand::new(F32, &[64, 64], 1);
    let seen = Arc::clone(&calls);
    run(&[&a], move |_, x| {
        let seen = Arc::clone(&seen);
        // The product before it takes all threads.
        x[0].mul_mat(x[0])?.map_custom1(Tasks::One, move |task| {
            assert_eq!((task.index(), task.count(), task.rows()), (0, 1, 0..64));
            assert_eq!((task.dtype(), task.shape().ne()), (F32, [64, 64, 1, 1]));
            task.out::<f32>().unwrap().fill(1.0);
            seen.fetch_add(1, Ordering::Relaxed);
        })
    });
    assert_eq!(calls.load(Ordering::Relaxed), PLACEMENTS.len());
}

#[test]
fn every_layout_is_seen_as_it_is() {
    let a = Operand::new(F16, &[6, 4], 1);
    let expected = a.rounded();
    let got = run(&[&a], |g, x| {
        g.custom_4d(F32, [4, 6], &[x[0].transpose()?], Tasks::Threads, |task| {
            let from = task.input(0);
            assert!(from.values::<half::f16>().is_none() && from.strides()[0] > from.strides()[1]);
            for row in task.rows() {
                for (i, to) in task.row_mut::<f32>(row).unwrap().iter_mut().enumerate() {
                    *to = from.get::<half::f16>([i, row, 0, 0]).unwrap().to_f32();
                }
            }
        })
    });
    let turned: Vec<f32> = (0..24).map(|i| expected[i % 4 * 6 + i / 4]).collect();
    assert_eq!(got, turned);
}

#[test]
fn a_panic_continues_after_the_run_and_poisons_nothing() {
    let angry = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&angry);
    let (graph, (a, y)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", F32, [8, 8])?;
        let y = a.map_custom1(Tasks::Threads, move |task| {
            assert!(
                !seen.load(Ordering::Relaxed),
                "task {} is angry",
                task.index()
            );
            task.out::<f32>().unwrap().fill(2.0);
        })?;
        Ok((a_in, g.output("y", y.scale(2.0)?)?))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    backend.set_threads(3).unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a, &values(64, 1)).unwrap();
    let payload = catch_unwind(AssertUnwindSafe(|| plan.run(&mut backend))).unwrap_err();
    let message = payload.downcast_ref::<String>().unwrap();
    assert!(message.contains("is angry"), "{message}");
    assert!(!backend.is_poisoned());
    // There are no results of that run, and no panic left for the next.
    assert!(plan.read_f32(&y).is_err());
    angry.store(false, Ordering::Relaxed);
    plan.run(&mut backend).unwrap();
    assert_eq!(plan.read_f32(&y).unwrap(), [4.0; 64]);
}

#[test]
fn other_devices_refuse_closures() {
    let a = Operand::new(F32, &[4], 1);
    for device in devices()
        .into_iter()
        .filter(|device| device.name() != "CPU")
    {
        let outcome = run_on(device, &[&a], PLACEMENTS[0], |_, x| {
            x[0].map_custom1(Tasks::One, |_| ())
        });
        assert!(
            matches!(outcome, Err(Error::Unsupported(_))),
            "on {}",
            device.name()
        );
    }
}
