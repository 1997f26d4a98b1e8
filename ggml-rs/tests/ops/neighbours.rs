//! The ops around the products, on the CPU backend, with exact small integers.

use ggml_rs::DType::{F16, F32, Q8_0};
use ggml_rs::{Builder, Device, Graph, Plan, PlanOptions, Result, Tensor};

use crate::common::{Operand, PLACEMENTS, run_on_cpu};

fn operand(dims: &[usize], values: &[f32]) -> Operand {
    Operand {
        values: values.to_vec(),
        ..Operand::new(F32, dims, 0)
    }
}

#[track_caller]
fn check(
    inputs: &[&Operand],
    expected: &[f32],
    build: impl for<'g> Fn(Builder<'g>, &[Tensor<'g>]) -> Result<Tensor<'g>>,
) {
    for placement in PLACEMENTS {
        assert_eq!(
            run_on_cpu(inputs, placement, &build).unwrap(),
            expected,
            "{placement:?}"
        );
    }
}

#[test]
fn arithmetic_repeats_b() {
    let a = operand(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let b = operand(&[2], &[2.0, 4.0]);
    check(&[&a, &b], &[3.0, 6.0, 5.0, 8.0], |_, x| x[0].add(x[1]));
    check(&[&a, &b], &[-1.0, -2.0, 1.0, 0.0], |_, x| x[0].sub(x[1]));
    check(&[&a, &b], &[2.0, 8.0, 6.0, 16.0], |_, x| x[0].mul(x[1]));
    check(&[&a, &b], &[0.5, 0.5, 1.5, 1.0], |_, x| x[0].div(x[1]));
    check(&[&a], &[-2.0, -4.0, -6.0, -8.0], |_, x| x[0].scale(-2.0));
}

#[test]
fn functions_and_reductions() {
    let a = operand(&[2, 2], &[-1.0, 2.0, -3.0, 4.0]);
    check(&[&a], &[0.0, 2.0, 0.0, 4.0], |_, x| x[0].relu());
    check(&[&a], &[2.0], |_, x| x[0].sum());
    let row = operand(&[2], &[1.0, 2.0]);
    check(
        &[&row],
        &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0],
        |_, x| x[0].repeat([4, 2]),
    );
}

#[test]
fn views_look_at_the_same_memory() {
    let a = operand(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    check(&[&a], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0], |_, x| {
        x[0].transpose()?.cont()
    });
    check(&[&a], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0], |_, x| {
        x[0].permute([1, 0, 2, 3])?.cont()
    });
    check(&[&a], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], |_, x| {
        x[0].reshape([2, 3])
    });
    check(&[&a], &[2.0, 3.0, 5.0, 6.0], |_, x| {
        x[0].view([2, 2], [12, 24, 24], 4)?.cont()
    });
    // A view of a view counts from the view's own first element.
    check(&[&a], &[5.0, 6.0], |_, x| {
        x[0].view([3], [12, 12, 12], 12)?
            .view([2], [8, 8, 8], 4)?
            .cont()
    });
}

#[test]
fn copies_convert() {
    // The largest value of a block is 127 steps, so these are exact in q8_0.
    let a = operand(&[32], &[127.0; 32]);
    check(&[&a], &[127.0; 32], |g, x| {
        x[0].cpy(g.empty("half", F16, [32])?)
    });
    check(&[&a], &[127.0; 32], |g, x| {
        x[0].cpy(g.empty("blocks", Q8_0, [32])?)?
            .cpy(g.empty("back", F32, [32])?)
    });
}

#[test]
fn a_copy_runs_where_it_was_written() {
    // Read, overwrite, read again: nodes run in the order of writing, so the sums differ.
    let (graph, (a_in, before, copied, after)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", F32, [4])?;
        let (b, b_in) = g.input("b", F32, [4])?;
        let before = g.output("before", b.sum()?)?;
        let copied = g.output("copied", a.cpy(b)?)?;
        let after = g.output("after", b.sum()?)?;
        Ok(((a_in, b_in), before, copied, after))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a_in.0, &[10.0; 4]).unwrap();
    plan.set_f32(&a_in.1, &[1.0; 4]).unwrap();
    plan.run(&mut backend).unwrap();
    let read = |output| plan.read_f32(output).unwrap();
    assert_eq!(
        (read(&before), read(&copied), read(&after)),
        (vec![4.0], vec![10.0; 4], vec![40.0])
    );
}
