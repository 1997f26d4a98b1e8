//! What OUT_PROD moves in device memory on its direct route, counted access by access on the simulated device: at most 1.15
//! times what a MUL_MAT of the same product moves, and no scratch. The route with temporaries stands beside it.
//!
//! Nothing is known of caches here: each load and each store counts.
#![cfg(not(target_os = "macos"))]

mod common;

use common::Operand;
use ggml_rs::DType::{F16, F32, Q4_K, Q8_0};
use ggml_rs::sim::Verifier;
use ggml_rs::{Backend, DType, Device, Graph, Plan, PlanOptions, Result, Route, Tensor};

/// m, n, k: whole tiles; ragged ones; a thin gradient; a LoRA's. Rows of either op's `a` are whole blocks.
const SHAPES: [[usize; 3]; 5] = [
    [256, 64, 256],
    [256, 77, 256],
    [512, 33, 256],
    [256, 32, 1024],
    [1024, 96, 256],
];
const LIMIT: f64 = 1.15;

/// What a graph of one product moves, and holds beside its operands and its result.
struct Cost {
    moved: u64,
    scratch: usize,
}

fn cost(
    backend: &mut Backend,
    operands: [&Operand; 2],
    product: impl for<'g> Fn([Tensor<'g>; 2]) -> Result<Tensor<'g>>,
) -> Cost {
    let [a, b] = operands;
    let (graph, (a_in, b_in, shape)) = Graph::build(|g| {
        let (left, a_in) = g.input("a", a.dtype, a.shape)?;
        let (right, b_in) = g.input("b", b.dtype, b.shape)?;
        let y = product([left, right])?;
        g.output("y", y)?;
        Result::Ok((a_in, b_in, y.shape()))
    })
    .unwrap();
    let bytes = |operand: &Operand| {
        let [row, rest @ ..] = operand.shape.ne();
        operand.dtype.row_bytes(row).unwrap() * rest.iter().product::<usize>()
    };
    let tensors = bytes(a) + bytes(b) + 4 * shape.elements();
    let mut plan = Plan::new(graph, backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a_in, &a.values).unwrap();
    plan.set_f32(&b_in, &b.values).unwrap();
    let verifier = Verifier::of(backend.device()).expect("the feature compiles the verifier in");
    let before = verifier.device_bytes();
    plan.run(backend).unwrap();
    let moved = (verifier.device_bytes() - before).total();
    assert_eq!(verifier.take_findings(), []);
    let held: usize = plan.memory().iter().map(|used| used.tensors).sum();
    Cost {
        moved,
        scratch: held - tensors,
    }
}

fn out_prod(
    backend: &mut Backend,
    dtype: DType,
    [m, n, k]: [usize; 3],
    transposed: bool,
    route: Route,
) -> Cost {
    let a = Operand::new(dtype, &[m, k], 1);
    let b = Operand::new(F32, &if transposed { [k, n] } else { [n, k] }, 2);
    cost(backend, [&a, &b], |[a, b]| {
        let b = if transposed { b.transpose()? } else { b };
        a.out_prod(b)?.set_route(route)
    })
}

fn mul_mat(backend: &mut Backend, dtype: DType, [m, n, k]: [usize; 3]) -> Cost {
    let a = Operand::new(dtype, &[k, m], 1);
    let b = Operand::new(F32, &[k, n], 2);
    cost(backend, [&a, &b], |[a, b]| a.mul_mat(b))
}

#[test]
fn the_direct_route_reads_no_more_than_a_mul_mat() {
    let mut backend = Device::by_name("MTL0").unwrap().open().unwrap();
    println!(
        "{:<6} {:>5} {:>4} {:>5} {:<10} {:>10} {:>10} {:>6} {:>10} {:>6} {:>8} {:>10}",
        "a",
        "m",
        "n",
        "k",
        "b",
        "MUL_MAT",
        "direct",
        "times",
        "split",
        "times",
        "scratch",
        "of split"
    );
    for dtype in [F32, F16, Q4_K, Q8_0] {
        for shape in SHAPES {
            let product = mul_mat(&mut backend, dtype, shape);
            for transposed in [false, true] {
                let direct = out_prod(&mut backend, dtype, shape, transposed, Route::Direct);
                let split = out_prod(&mut backend, dtype, shape, transposed, Route::Auto);
                let times = |cost: &Cost| cost.moved as f64 / product.moved as f64;
                let [m, n, k] = shape;
                println!(
                    "{:<6} {m:>5} {n:>4} {k:>5} {:<10} {:>10} {:>10} {:>6.3} {:>10} {:>6.3} {:>8} {:>10}",
                    dtype.name(),
                    if transposed { "transposed" } else { "plain" },
                    product.moved,
                    direct.moved,
                    times(&direct),
                    split.moved,
                    times(&split),
                    direct.scratch,
                    split.scratch
                );
                assert!(direct.moved > 0 && product.moved > 0, "nothing is counted");
                assert!(times(&direct) <= LIMIT, "{dtype} {shape:?}");
                assert_eq!(direct.scratch, 0, "{dtype} {shape:?}");
                // Else the comparison would not show what the route is for.
                assert!(split.scratch > 0 && times(&split) > times(&direct));
            }
        }
    }
}
