//! Backwards on the simulated device: computed again bit for bit, and staged as asked.

use ggml_rs::DType::F32;
use ggml_rs::trace::Dispatch;
use ggml_rs::{BackwardOptions, Device, Graph, Plan, PlanOptions, Result, Route, Staging};

use super::recompute::chain_on;
use crate::common::{traced, values};

fn metal() -> Device {
    Device::by_name("MTL0").unwrap()
}

#[test]
fn gradients_are_the_same_with_and_without_checkpoints() {
    let mut found = Vec::new();
    for staging in [Staging::Float, Staging::Half] {
        let options = BackwardOptions::default().staging(staging);
        let (kept, all) = chain_on(metal(), 4, options.recompute(false));
        let (again, less) = chain_on(metal(), 4, options.recompute(true));
        assert!(kept.iter().all(|&bits| f32::from_bits(bits).is_finite()));
        assert_eq!(kept, again, "{staging:?}");
        assert!(less < all, "{staging:?}: {less} bytes, {all} without");
        found.push(kept);
    }
    assert_ne!(found[0], found[1], "both stagings gave the same");
}

const K: usize = 64;
const M: usize = 64;
const EXPERTS: usize = 4;
const TOKENS: usize = 40;

/// What a forward and, with options, a backward through experts dispatches.
fn dispatches(backward: Option<BackwardOptions>) -> Vec<Dispatch> {
    let (graph, (a, b, ids)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", F32, [K, M, EXPERTS])?;
        let (b, b_in) = g.input("b", F32, [K, 2, TOKENS])?;
        let (ids, ids_in) = g.expert_ids("ids", 2, TOKENS, EXPERTS)?;
        let (a, b) = (a.set_param()?, b.set_param()?);
        let y = a.mul_mat_id(b, ids)?;
        let loss = y.mul(y)?.sum()?;
        match backward {
            Some(options) => {
                let gradients = g.backward_with(loss, options)?;
                g.output("da", gradients.of(a)?.cont()?)?;
                g.output("db", gradients.of(b)?.cont()?)?;
            }
            None => {
                g.output("loss", loss)?;
            }
        }
        Result::Ok((a_in, b_in, ids_in))
    })
    .unwrap();
    let mut backend = metal().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a, &values(K * M * EXPERTS, 1)).unwrap();
    plan.set_f32(&b, &values(K * 2 * TOKENS, 2)).unwrap();
    let chosen = (0..TOKENS).flat_map(|t| [t % EXPERTS, (t + 1) % EXPERTS]);
    let chosen: Vec<i32> = chosen.map(|id| id as i32).collect();
    plan.set_i32(&ids, &chosen).unwrap();
    plan.run_with(&mut backend, traced()).unwrap().dispatches
}

/// How many dispatches are of a kernel: those with float staging, and the others.
fn count(dispatches: &[Dispatch], kernel: &str) -> [usize; 2] {
    let of = dispatches.iter().filter(|d| d.pipeline.starts_with(kernel));
    let (float, half): (Vec<_>, Vec<_>) = of.partition(|d| d.pipeline.contains("_fp32"));
    [float.len(), half.len()]
}

#[test]
fn products_by_ids_are_float_staged_in_a_backward() {
    const BY_ID: &str = "kernel_mul_mm_id_f32";
    let forward = dispatches(None);
    assert_eq!(count(&forward, BY_ID), [0, 1], "{forward:?}");
    let options = BackwardOptions::default();
    // The forward's product, that of the activations' gradient, and the outer product of the experts'.
    let float = dispatches(Some(options));
    assert_eq!(count(&float, BY_ID), [1, 1], "{float:?}");
    let [outer, _] = count(&float, "kernel_mul_mm_f32");
    assert!(outer >= 1, "{float:?}");
    let half = dispatches(Some(options.staging(Staging::Half)));
    assert_eq!(count(&half, BY_ID), [0, 2], "{half:?}");
}

/// OUT_PRODs that a backward makes take the route that is asked for; the forward's keep theirs.
#[test]
fn outer_products_of_a_backward_take_the_direct_route_where_asked() {
    let dispatched = |options: BackwardOptions| {
        let (graph, (w, x)) = Graph::build(|g| {
            let (w, w_in) = g.input("w", F32, [K, M])?;
            let (x, x_in) = g.input("x", F32, [K, TOKENS])?;
            let y = w.set_param()?.mul_mat(x.set_param()?)?;
            let gradients = g.backward_with(y.mul(y)?.sum()?, options)?;
            g.output("dw", gradients.of(w)?.cont()?)?;
            g.output("dx", gradients.of(x)?.cont()?)?;
            Result::Ok((w_in, x_in))
        })
        .unwrap();
        let mut backend = metal().open().unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.set_f32(&w, &values(K * M, 1)).unwrap();
        plan.set_f32(&x, &values(K * TOKENS, 2)).unwrap();
        let dispatches = plan.run_with(&mut backend, traced()).unwrap().dispatches;
        let direct = dispatches
            .iter()
            .filter(|d| d.pipeline.starts_with("kernel_out_prod_f32_f32"));
        direct.count()
    };
    let options = BackwardOptions::default();
    assert_eq!(dispatched(options), 0);
    assert_eq!(dispatched(options.route(Route::Direct)), 2);
}

#[test]
fn a_backward_has_no_route_of_mul_mat() {
    Graph::build(|g| {
        let (x, _) = g.input("x", F32, [4])?;
        let x = x.set_param()?;
        let options = BackwardOptions::default().route(Route::MatVec);
        let refused = g.backward_with(x.mul(x)?.sum()?, options);
        assert!(matches!(refused.err(), Some(ggml_rs::Error::Param(_))));
        g.output("x", x.relu()?)
    })
    .unwrap();
}
