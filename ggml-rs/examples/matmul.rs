//! The product of two matrices, on the GPU where there is one: `cargo run --release -p ggml-rs --example matmul`

use ggml_rs::{DType, Device, Graph, Plan, PlanOptions, Result};

fn main() -> Result<()> {
    let (graph, (a, b, product)) = Graph::build(|g| {
        // Shapes begin with the length of a row. Each element of the product is a row of `a` times a row of `b`.
        let (a, a_in) = g.input("a", DType::F32, [2, 3])?;
        let (b, b_in) = g.input("b", DType::F32, [2, 2])?;
        Ok((a_in, b_in, g.output("product", a.mul_mat(b)?)?))
    })?;
    let mut backend = Device::best()?.open()?;
    let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    plan.set_f32(&a, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    plan.set_f32(&b, &[1.0, 0.0, 10.0, 100.0])?;
    plan.run(&mut backend)?;
    println!("{:?}", plan.read_f32(&product)?); // [1, 3, 5] for the first row of b, [210, 430, 650] for the second
    Ok(())
}
