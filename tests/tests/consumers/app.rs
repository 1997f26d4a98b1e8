//! A program of a user's: a small graph on the CPU.

use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};

fn main() -> Result<(), ggml_rs::Error> {
    let (graph, (weight, x, y)) = Graph::build(|g| {
        let (weight, weight_in) = g.input("weight", DType::F32, [3, 2])?;
        let (x, x_in) = g.input("x", DType::F32, [3, 1])?;
        let y = g.output("y", weight.mul_mat(x)?.relu()?)?;
        Ok((weight_in, x_in, y))
    })?;
    let device = Device::cpu()?;
    let mut backend = device.open()?;
    let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    plan.set_f32(&weight, &[1.0, 2.0, 3.0, -1.0, -2.0, -3.0])?;
    plan.set_f32(&x, &[1.0, 1.0, 1.0])?;
    plan.run(&mut backend)?;
    let y = plan.read_f32(&y)?;
    assert_eq!(y, [6.0, 0.0]);
    println!("{} {} on {}", y[0], y[1], device.name());
    Ok(())
}
