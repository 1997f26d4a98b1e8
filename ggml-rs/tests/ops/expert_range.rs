//! MUL_MAT_ID with activations beyond half's range, on the simulated Metal device: which stagings overflow, and that the
//! rescale which f32 as source precision turns on keeps all of them finite and right.
#![cfg(all(feature = "metal-sim", not(target_os = "macos")))]

use ggml_rs::DType::{F32, Q8_0};
use ggml_rs::check::compare;
use ggml_rs::check::reference::{self, Values};
use ggml_rs::{Device, Graph, Plan, PlanOptions, Precision, Staging};

use crate::common::{Operand, traced};

const K: usize = 96;
const ROWS: usize = 70;
const EXPERTS: usize = 4;
const USED: usize = 2;
/// Enough for the batched kernel, and for no whole tile.
const TOKENS: usize = 37;

const STAGINGS: [Staging; 4] = [
    Staging::Half,
    Staging::FloatWeights,
    Staging::FloatActivations,
    Staging::Float,
];

struct Layer {
    weights: Operand,
    activations: Operand,
    ids: Vec<i32>,
}

impl Layer {
    fn new(weights: ggml_rs::DType) -> Self {
        let mut activations = Operand::new(F32, &[K, 1, TOKENS], 2);
        activations.values.iter_mut().for_each(|v| *v *= 1.5e5);
        assert!(activations.values.iter().any(|v| v.abs() > 65504.0));
        let ids = (0..TOKENS).flat_map(|t| [t % EXPERTS, (t + 1 + t % 3) % EXPERTS]);
        Self {
            weights: Operand::new(weights, &[K, ROWS, EXPERTS], 1),
            activations,
            ids: ids.map(|id| id as i32).collect(),
        }
    }

    fn reference(&self) -> Vec<f64> {
        let weights = self.weights.rounded();
        let a = Values::contiguous(&weights, self.weights.shape.ne()).unwrap();
        let b = Values::contiguous(&self.activations.values, self.activations.shape.ne()).unwrap();
        reference::mul_mat_id(a, b, &self.ids).unwrap()
    }

    fn run(&self, staging: Staging, rescale: bool) -> Vec<f32> {
        let (graph, (a_in, b_in, ids_in, y)) = Graph::build(|g| {
            let (a, a_in) = g.input("a", self.weights.dtype, self.weights.shape)?;
            let (b, b_in) = g.input("b", F32, self.activations.shape)?;
            let (ids, ids_in) = g.expert_ids("ids", USED, TOKENS, EXPERTS)?;
            let mut y = a.mul_mat_id(b, ids)?.set_staging(staging)?;
            if rescale {
                y = y.set_src_precision(Precision::F32, 1)?;
            }
            Ok((a_in, b_in, ids_in, g.output("y", y)?))
        })
        .unwrap();
        let mut backend = Device::by_name("MTL0").unwrap().open().unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.set_f32(&a_in, &self.weights.values).unwrap();
        plan.set_f32(&b_in, &self.activations.values).unwrap();
        plan.set_i32(&ids_in, &self.ids).unwrap();
        let dispatches = plan.run_with(&mut backend, traced()).unwrap().dispatches;
        let amax = format!("_amax={}", u8::from(rescale));
        let is_product = |name: &str| name.contains("mul_mm_id_") && name.ends_with(&amax);
        assert!(
            dispatches.iter().any(|d| is_product(&d.pipeline)),
            "no batched product with {amax}: {dispatches:?}"
        );
        plan.read_f32(&y).unwrap()
    }
}

/// Half of the activations rounds; the limit is far below what an overflow or a wrong scale would leave.
fn limit(staging: Staging) -> f64 {
    match staging {
        Staging::Float => 1e-12,
        _ => 1e-6,
    }
}

#[test]
fn the_rescale_keeps_every_staging_finite_and_right() {
    for dtype in [F32, Q8_0] {
        let layer = Layer::new(dtype);
        let expected = layer.reference();
        for staging in STAGINGS {
            let found = compare(&expected, &layer.run(staging, true)).unwrap();
            assert!(
                found.within(limit(staging)),
                "{dtype} {staging:?}: {found:?}"
            );
        }
    }
}

#[test]
fn without_the_rescale_exactly_half_activations_overflow() {
    for dtype in [F32, Q8_0] {
        let layer = Layer::new(dtype);
        let expected = layer.reference();
        for staging in STAGINGS {
            let got = layer.run(staging, false);
            if matches!(staging, Staging::Half | Staging::FloatWeights) {
                let lost = got.iter().filter(|value| !value.is_finite()).count();
                assert!(lost > got.len() / 2, "{dtype} {staging:?}: {lost} lost");
            } else {
                let found = compare(&expected, &got).unwrap();
                assert!(
                    found.within(limit(staging)),
                    "{dtype} {staging:?}: {found:?}"
                );
            }
        }
    }
}
