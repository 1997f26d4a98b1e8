//! Metal's kernels read what their operands hold, and nothing behind it: on a GPU it is another tensor's memory, or another
//! process's. A child runs on a simulated device whose buffers end at pages that cannot be read.

#![cfg(all(feature = "metal-sim", not(target_os = "macos")))]

use std::process::Command;

use ggml_rs::DType::{self, F16, F32, Q4_0};
use ggml_rs::check::{Interpreter, compare};
use ggml_rs::quantize::{dequantize, quantize};
use ggml_rs::{
    Builder, Device, FlashAttn, Graph, Input, Placement, Plan, PlanOptions, Result, Route, Tensor,
};

use crate::common::{Operand, Random};

/// Nothing lies behind a tensor.
const BARE: PlanOptions = PlanOptions {
    placement: Placement::Separate { sentinel_bytes: 0 },
};
/// The NMSE that upstream allows products: batches are staged in half precision.
const LIMIT: f64 = 5e-4;
/// At least as many types of weights are multiplied.
const TYPES: usize = 20;
/// Says that this is the child.
const CHILD: &str = "GGML_RS_TESTS_BOUNDS";

/// Whether the tests of reads behind buffers run here.
fn is_guarded() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn no_read_leaves_a_buffer() {
    if is_guarded() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, "1")
        .env("METAL_SIM_BEHIND", "guard")
        .args(["operand_bounds::", "--test-threads", "1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("7 passed"),
        "{}: {text}",
        output.status
    );
}

/// A graph, the operands of its inputs, and its only output.
/// False where the device refuses.
fn check(
    what: &str,
    operands: &[Operand],
    build: impl for<'g> Fn(Builder<'g>, &[Tensor<'g>]) -> Result<Tensor<'g>>,
) -> bool {
    let graph = || {
        Graph::build(|g| {
            let inputs: Vec<_> = operands
                .iter()
                .map(|operand| g.input("", operand.dtype, operand.shape))
                .collect::<Result<_>>()?;
            let (tensors, inputs): (Vec<_>, Vec<Input>) = inputs.into_iter().unzip();
            Ok((inputs, g.output("y", build(g, &tensors)?)?))
        })
        .unwrap_or_else(|error| panic!("{what}: {error}"))
    };
    let mut backend = Device::by_name("MTL0").unwrap().open().unwrap();
    let (on_device, (inputs, y)) = graph();
    let Ok(mut plan) = Plan::new(on_device, &backend, BARE) else {
        return false;
    };
    let (defined, (defined_inputs, defined_y)) = graph();
    let mut reference = Interpreter::new(&defined).unwrap();
    for ((input, defined), operand) in inputs.iter().zip(&defined_inputs).zip(operands) {
        let bytes = bytes(operand);
        plan.set_bytes(input, &bytes).unwrap();
        reference.set_bytes(defined, &bytes).unwrap();
    }
    plan.run(&mut backend)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    reference.run().unwrap();
    let got = plan.read_f32(&y).unwrap();
    let found = compare(&reference.read(&defined_y).unwrap(), &got).unwrap();
    assert!(found.within(LIMIT), "{what}: {found:?}");
    true
}

/// The operand's values, or random blocks of a type whose tables take seconds to build.
fn bytes(operand: &Operand) -> Vec<u8> {
    let (dtype, shape) = (operand.dtype, operand.shape);
    let is_slow = ["iq1", "iq2", "iq3"]
        .iter()
        .any(|begin| dtype.name().starts_with(begin));
    if !is_slow {
        return quantize(dtype, &operand.values, shape.ne()[0]).unwrap();
    }
    let mut random = Random::new(7);
    let len = shape.elements() / dtype.block_len() * dtype.block_bytes();
    // Whatever two bytes are a scale is finite.
    (0..len).map(|_| random.next() as u8 & 0x3b).collect()
}

/// The types of weights that Metal multiplies.
fn weights() -> Vec<DType> {
    let is_multiplied =
        |dtype: &DType| dtype.dequantizes() || matches!(dtype, F32 | F16 | DType::BF16);
    DType::ALL.into_iter().filter(is_multiplied).collect()
}

/// Counts and says how many ran: a type that is refused everywhere would be no test.
fn check_products(
    name: &str,
    rows: &[usize],
    columns: &[usize],
    build: impl for<'g> Fn(Builder<'g>, &[Tensor<'g>]) -> Result<Tensor<'g>>,
) {
    let mut types = 0;
    for dtype in weights() {
        let block = dtype.block_len().max(32);
        let mut ran = 0;
        for k in [block, 4 * block.max(64)] {
            for &m in rows {
                for &n in columns {
                    let a = Operand::new(dtype, &[k, m], 1);
                    let b = Operand::new(F32, &[k, n], 2);
                    let what = format!("{name} of {dtype} [{k}, {m}] and [{k}, {n}]");
                    ran += usize::from(check(&what, &[a, b], &build));
                }
            }
        }
        types += usize::from(ran > 0);
    }
    assert!(types >= TYPES, "{types} types");
}

#[test]
fn products_read_rows_that_are_there() {
    if is_guarded() {
        let columns = [1, 2, 5, 9];
        check_products("mul_mat", &[1, 3, 7], &columns, |_, x| x[0].mul_mat(x[1]));
    }
}

#[test]
fn products_by_rows_read_rows_that_are_there() {
    if is_guarded() {
        let rows = [1, 2, 3, 5, 7, 9];
        check_products("mat-vec", &rows, &[1, 3], |_, x| {
            x[0].mul_mat(x[1])?.set_route(Route::MatVec)
        });
    }
}

#[test]
fn products_by_experts_read_rows_that_are_there() {
    if !is_guarded() {
        return;
    }
    let mut ran = 0;
    for dtype in weights() {
        for k in [dtype.block_len().max(32), 4 * dtype.block_len().max(64)] {
            for (rows, tokens) in [(1, 1), (3, 2), (7, 3), (3, 40)] {
                let a = Operand::new(dtype, &[k, rows, 2], 1);
                let b = Operand::new(F32, &[k, 2, tokens], 2);
                let scores = Operand::new(F32, &[2, tokens], 3);
                let what = format!("mul_mat_id of {dtype} [{k}, {rows}, 2], {tokens} tokens");
                // Both experts for each token, so that the last one's rows are read.
                let is_run = check(&what, &[a, b, scores], |_, x| {
                    x[0].mul_mat_id(x[1], x[2].argsort_top_k(2)?.experts()?)
                });
                ran += usize::from(is_run);
            }
        }
    }
    assert!(ran >= 8 * TYPES, "{ran} ran");
}

/// The stride between rows of which there is one.
#[test]
fn a_single_row_may_have_any_stride() {
    let mut ran = 0;
    for dtype in weights() {
        let k = 4 * dtype.block_len().max(64);
        let (row, block) = (dtype.row_bytes(k).unwrap(), dtype.block_bytes());
        for stride in [block, row, 48 << 20] {
            let stride = stride / block * block;
            let a = Operand::new(dtype, &[k], 1);
            let b = Operand::new(F32, &[k], 2);
            let what = format!("{dtype} [{k}, 1] with a stride of {stride}");
            let is_run = check(&what, &[a, b], |_, x| {
                let a = x[0].view([k, 1], [stride; 3], 0)?;
                a.mul_mat(x[1].view([k, 1], [48 << 20; 3], 0)?)
            });
            ran += usize::from(is_run);
        }
    }
    assert!(ran >= 3 * TYPES, "{ran} ran");
}

/// 12 MiB each: further apart than what a simulated device lets be read behind a buffer.
#[test]
fn vectors_of_12_mib_have_a_product() {
    const K: usize = 12 << 20 >> 2;
    let mut random = Random::new(5);
    let signs: Vec<f32> = (0..K).map(|_| random.pick(&[-1.0, 1.0])).collect();
    for dtype in [F32, F16, Q4_0] {
        let (graph, (a, b, y)) = Graph::build(|g| {
            let (a, a_in) = g.input("a", dtype, [K])?;
            let (b, b_in) = g.input("b", F32, [K])?;
            Ok((a_in, b_in, g.output("y", a.mul_mat(b)?)?))
        })
        .unwrap();
        let mut backend = Device::by_name("MTL0").unwrap().open().unwrap();
        let mut plan = Plan::new(graph, &backend, BARE).unwrap();
        let bytes = quantize(dtype, &signs, K).unwrap();
        plan.set_bytes(&a, &bytes).unwrap();
        plan.set_f32(&b, &signs).unwrap();
        plan.run(&mut backend).unwrap();
        let stored = dequantize(dtype, &bytes).unwrap();
        let products = stored.iter().zip(&signs).map(|(&a, &b)| f64::from(a * b));
        let expected: f64 = products.sum();
        let got = f64::from(plan.read_f32(&y).unwrap()[0]);
        let is_right = (got / expected - 1.0).abs() < 1e-5;
        assert!(is_right, "{dtype}: {got}, not {expected}");
    }
}

/// Heads that fill no whole number of blocks, and caches whose rows are further apart than they are long.
#[test]
fn attention_reads_heads_that_are_there() {
    if !is_guarded() {
        return;
    }
    for head in [40, 48, 64, 72, 80, 96, 112, 128] {
        for (kv, queries) in [(113, 1), (113, 9), (64, 9)] {
            let q = Operand::new(F32, &[head, queries, 2], 1);
            let [k, v] = [2, 3].map(|seed| Operand::new(F16, &[head, 2, kv], seed));
            let what = format!("heads of {head}, {kv} positions, {queries} queries");
            let ran = check(&what, &[q, k, v], |_, x| {
                let [k, v] = [x[1], x[2]].map(|cache| cache.permute([0, 2, 1, 3]));
                x[0].flash_attn_ext(k?, v?, FlashAttn::new(0.2))
            });
            assert!(ran, "{what}");
        }
    }
}
