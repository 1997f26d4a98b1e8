//! Random graphs: whatever ops, types, shapes and layouts come together, the answer is a
//! result or an error. An assertion of ggml would end this process, which fails the test; a write past a
//! tensor changes its sentinel.

mod common;

use common::Random;
use ggml_rs::{
    Backend, Builder, DType, Device, Error, Graph, Input, Output, Placement, Plan, PlanOptions,
    Precision, Result, Route, Staging, Tensor,
};

const DTYPES: [DType; 14] = {
    use DType::*;
    [
        F32, F32, F32, F16, BF16, I32, I16, F64, Q8_0, Q4_0, Q4_K, Q8_1, IQ4_NL, Q8_K,
    ]
};
const DIMS: [usize; 8] = [1, 1, 2, 3, 4, 32, 64, 256];

fn shape(random: &mut Random) -> [usize; 4] {
    std::array::from_fn(|i| {
        if i < 2 || random.below(4) == 0 {
            random.pick(&DIMS[..8 - 2 * i])
        } else {
            1
        }
    })
}

/// An input and the bytes to set it to.
type Set = (Input, Vec<u8>);

/// One op on random operands; most are refused, and that is the point.
fn step<'g>(
    g: Builder<'g>,
    x: &[Tensor<'g>],
    inputs: &mut Vec<Set>,
    random: &mut Random,
) -> Result<Tensor<'g>> {
    let (a, b) = (random.pick(x), random.pick(x));
    let [n0, n1, n2, n3] = a.shape().ne();
    match random.below(20) {
        0 => a.out_prod(b),
        1 => choose(a.mul_mat(b)?, random),
        18 => routed(g, a, b, inputs, random),
        2 => a.transpose(),
        3 => a.permute(random.pick(&[
            [0, 2, 1, 3],
            [1, 0, 2, 3],
            [3, 2, 1, 0],
            [0, 1, 3, 2],
            [0, 0, 1, 2],
        ])),
        4 => {
            a.reshape(random.pick(&[[n1, n0, n2, n3], [n0 * n1, 1, n2, n3], [n0, n1 * n2, 1, n3]]))
        }
        5 => a.view(
            [n0.div_ceil(2), n1, 1, 1],
            [a.strides()[1], a.strides()[2], a.strides()[3]],
            0,
        ),
        6 => a.view(
            shape(random),
            std::array::from_fn(|_| random.below(600)),
            random.below(64),
        ),
        7 => a.cont(),
        8 => a.cpy(b),
        9 => a.cpy(g.empty("", random.pick(&DTYPES), [n0, n1, n2, n3])?),
        10 => a.add(b),
        11 => a.sub(b),
        12 => a.mul(b),
        13 => a.div(b),
        14 => a.scale(0.5),
        15 => {
            if random.below(2) == 0 {
                a.relu()
            } else {
                a.sum()
            }
        }
        16 => reduction(a, random),
        17 => a.cast(random.pick(&DTYPES)),
        _ => a.repeat(random.pick(&[
            [n0 * 2, n1, n2, n3],
            [n0, n1 * 3, n2, 2 * n3],
            [n0 + 1, n1, n2, n3],
        ])),
    }
}

const STAGINGS: [Staging; 4] = [
    Staging::Float,
    Staging::FloatWeights,
    Staging::FloatActivations,
    Staging::Half,
];

/// A product as it is, or with a staging or a route.
fn choose<'g>(product: Tensor<'g>, random: &mut Random) -> Result<Tensor<'g>> {
    match random.below(4) {
        0 => product.set_staging(random.pick(&STAGINGS)),
        1 => product.set_route(random.pick(&[Route::Auto, Route::MatVec])),
        2 => product.set_src_precision(
            random.pick(&[Precision::F32, Precision::Bf16, Precision::Q8]),
            random.below(2),
        ),
        _ => Ok(product),
    }
}

/// A product with ids that fit `a` and `b`, if any do.
fn routed<'g>(
    g: Builder<'g>,
    a: Tensor<'g>,
    b: Tensor<'g>,
    inputs: &mut Vec<Set>,
    random: &mut Random,
) -> Result<Tensor<'g>> {
    let (experts, tokens) = (a.shape().ne()[2], b.shape().ne()[2]);
    let used = b.shape().ne()[1] * (1 + random.below(2));
    let (ids, input) = g.expert_ids("ids", used, tokens, experts)?;
    let values: Vec<u8> = (0..tokens)
        .flat_map(|_| 0..used as i32)
        .flat_map(i32::to_ne_bytes)
        .collect();
    inputs.push((input, values));
    choose(a.mul_mat_id(b, ids)?, random)
}

fn reduction<'g>(a: Tensor<'g>, random: &mut Random) -> Result<Tensor<'g>> {
    match random.below(7) {
        0 => a.sum_rows(),
        1 => a.mean(),
        2 => a.mean_rows(),
        3 => a.max(),
        4 => a.max_rows(),
        5 => a.min(),
        _ => a.min_rows(),
    }
}

fn build(random: &mut Random) -> Result<(Graph, (Vec<Set>, Output))> {
    Graph::build(|g| {
        let (mut x, mut inputs) = (Vec::new(), Vec::new());
        while x.len() < 3 {
            if let Ok((tensor, input)) = g.input("in", random.pick(&DTYPES), shape(random)) {
                x.push(tensor);
                // Zero bytes are a valid value of every type.
                let zeros = vec![0; input.shape().bytes(input.dtype())?];
                inputs.push((input, zeros));
            }
        }
        for _ in 0..12 {
            match step(g, &x, &mut inputs, random) {
                Ok(tensor) => x.push(tensor),
                Err(error @ Error::Internal { .. }) => panic!("a check is missing: {error}"),
                Err(_) => {}
            }
        }
        let last = x[x.len() - 1];
        Ok((
            inputs,
            g.output(
                "y",
                if last.is_contiguous() {
                    last
                } else {
                    last.cont()?
                },
            )?,
        ))
    })
}

/// Runs the graphs of `seeds` on a device; returns how many ran and how many were refused.
fn sweep(device: Device, seeds: std::ops::Range<u64>) -> (usize, usize) {
    let mut backend = device.open().unwrap();
    let (mut ran, mut refused) = (0, 0);
    for seed in seeds {
        match run(&mut Random::new(seed), &mut backend) {
            Ok(()) => ran += 1,
            Err(Error::Unsupported(_)) => refused += 1,
            Err(error) => panic!("seed {seed} on {}: {error}", device.name()),
        }
    }
    println!(
        "{}: {ran} graphs ran, {refused} were refused",
        device.name()
    );
    (ran, refused)
}

fn run(random: &mut Random, backend: &mut Backend) -> Result<()> {
    let (graph, (inputs, output)) = build(random)?;
    let placement = random.pick(&[
        Placement::Pooled,
        Placement::Separate {
            sentinel_bytes: 512,
        },
    ]);
    let mut plan = Plan::new(graph, backend, PlanOptions { placement })?;
    for (input, bytes) in &inputs {
        plan.set_bytes(input, bytes)?;
    }
    plan.run(backend)?;
    plan.read_bytes(&output)?;
    match placement {
        Placement::Pooled => Ok(()),
        Placement::Separate { .. } => plan.check_sentinels(),
    }
}

#[test]
fn the_cpu_runs_or_refuses_random_graphs() {
    let (ran, refused) = sweep(Device::cpu().unwrap(), 0..3000);
    assert!(
        ran > 300 && refused > 300,
        "{ran} ran, {refused} refused: the mix shows too little"
    );
}

#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
#[test]
fn the_simulated_metal_device_runs_or_refuses_random_graphs() {
    let (ran, refused) = sweep(Device::by_name("MTL0").unwrap(), 0..1000);
    assert!(
        ran > 100 && refused > 100,
        "{ran} ran, {refused} refused: the mix shows too little"
    );
}
