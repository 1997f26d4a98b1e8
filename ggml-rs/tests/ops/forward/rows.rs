//! Rows chosen by ids, and sorts: against plain loops, on the CPU and on the simulated Metal device.

use ggml_rs::quantize::{dequantize, quantize};
use ggml_rs::{
    Builder, DType, Device, Error, Graph, Input, Placement, Plan, PlanOptions, Result, RowIds,
    RowIdsOptions, SortOrder, Tensor,
};

use crate::common::{self, devices, traced, values};

/// Values for an input.
enum Set {
    F32(Vec<f32>),
    I32(Vec<i32>),
    I64(Vec<i64>),
}

/// Builds, sets every input in order, runs with both placements, and returns the output of both, which must agree.
fn run(
    device: Device,
    sets: &[Set],
    build: impl for<'g> Fn(Builder<'g>) -> Result<(Vec<Input>, Tensor<'g>)>,
) -> Vec<f32> {
    let [pooled, separate] = common::PLACEMENTS.map(|placement| {
        let out = run_once(device, sets, placement, &build);
        out.unwrap_or_else(|error| panic!("{}: {error}", device.name()))
    });
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&pooled), bits(&separate), "on {}", device.name());
    pooled
}

fn run_once(
    device: Device,
    sets: &[Set],
    placement: Placement,
    build: &impl for<'g> Fn(Builder<'g>) -> Result<(Vec<Input>, Tensor<'g>)>,
) -> Result<Vec<f32>> {
    let (graph, (inputs, out)) = Graph::build(|g| {
        let (inputs, out) = build(g)?;
        Ok((inputs, g.output("out", out)?))
    })?;
    let mut backend = device.open()?;
    let mut plan = Plan::new(graph, &backend, PlanOptions { placement })?;
    for (input, set) in inputs.iter().zip(sets) {
        match set {
            Set::F32(values) => plan.set_f32(input, values)?,
            Set::I32(values) => plan.set_i32(input, values)?,
            Set::I64(values) => plan.set_i64(input, values)?,
        }
    }
    plan.run(&mut backend)?;
    if matches!(placement, Placement::Separate { .. }) {
        plan.check_sentinels()?;
    }
    if out.dtype() == DType::I32 {
        let ids: Vec<i32> = bytemuck::pod_collect_to_vec(&plan.read_bytes(&out)?);
        return Ok(ids.into_iter().map(|id| id as f32).collect());
    }
    plan.read_f32(&out)
}

fn as_stored(dtype: DType, values: &[f32], row: usize) -> Vec<f32> {
    dequantize(dtype, &quantize(dtype, values, row).unwrap()).unwrap()
}

#[test]
fn rows_are_those_that_the_ids_name() {
    // [n, 5, 2, 3] by ids [4, 2, 3].
    let ids: Vec<i32> = (0..24).map(|i| i * 7 % 5).collect();
    for device in devices() {
        for (dtype, n) in [
            (DType::F32, 9),
            (DType::F16, 9),
            (DType::BF16, 8),
            (DType::Q8_0, 32),
            (DType::Q4_K, 256),
        ] {
            let a = values(n * 30, 1);
            let got = run(device, &[Set::F32(a.clone()), Set::I32(ids.clone())], |g| {
                let (a, a_in) = g.input("a", dtype, [n, 5, 2, 3])?;
                let (ids, ids_in) = g.row_ids("ids", [4, 2, 3], 5)?;
                Ok((vec![a_in, ids_in], a.get_rows(ids)?))
            });
            let a = as_stored(dtype, &a, n);
            let expected: Vec<f32> = ids
                .iter()
                .enumerate()
                .flat_map(|(i, &id)| {
                    let row = i / 4 * 5 + id as usize;
                    a[row * n..][..n].to_vec()
                })
                .collect();
            assert_eq!(got, expected, "{dtype} on {}", device.name());
        }
    }
}

#[test]
fn gradients_of_rows_add_up() {
    let ids = [2, 0, 2, 2];
    let a: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let got = run(
        Device::cpu().unwrap(),
        &[Set::F32(a), Set::I32(ids.to_vec())],
        |g| {
            let (a, a_in) = g.input("a", DType::F32, [3, 4])?;
            let (ids, ids_in) = g.row_ids("ids", [4], 4)?;
            // Its shape alone is taken.
            let like = g.empty("like", DType::F32, [3, 4])?;
            Ok((vec![a_in, ids_in], a.get_rows_back(ids, like)?))
        },
    );
    assert_eq!(got[..6], [3.0, 4.0, 5.0, 0.0, 0.0, 0.0]);
    assert_eq!(got[6..], [15.0, 18.0, 21.0, 0.0, 0.0, 0.0]);
}

#[test]
fn rows_are_written_where_the_ids_name() {
    let n = 32;
    let (a, b) = (values(n * 6 * 4, 1), values(n * 2 * 4, 2));
    // A list for each second plane.
    let ids = [4, 1, 0, 5];
    for device in devices() {
        for (dtype, wide) in [
            (DType::F32, false),
            (DType::F32, true),
            (DType::F16, true),
            (DType::Q8_0, false),
        ] {
            let set_ids = if wide {
                Set::I64(ids.map(i64::from).to_vec())
            } else {
                Set::I32(ids.to_vec())
            };
            let sets = [Set::F32(a.clone()), Set::F32(b.clone()), set_ids];
            let got = run(device, &sets, |g| {
                let (a, a_in) = g.input("a", dtype, [n, 6, 4])?;
                let (b, b_in) = g.input("b", DType::F32, [n, 2, 4])?;
                let options = RowIdsOptions::new(6).distinct();
                let options = if wide { options.wide() } else { options };
                let (ids, ids_in) = g.row_ids_with("ids", [2, 2], options)?;
                Ok((vec![a_in, b_in, ids_in], a.set_rows(b, ids)?))
            });
            let mut expected = as_stored(dtype, &a, n);
            let rows = as_stored(dtype, &b, n);
            for (from, row) in rows.chunks(n).enumerate() {
                let (plane, i) = (from / 2, from % 2);
                let to = plane * 6 + ids[plane % 2 * 2 + i] as usize;
                expected[to * n..][..n].copy_from_slice(row);
            }
            let close =
                |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-2 * f32::from(dtype == DType::Q8_0);
            assert!(
                got.iter().zip(&expected).all(close),
                "{dtype} on {}",
                device.name()
            );
        }
    }
}

#[test]
fn tokens_get_their_experts_row() {
    let (a, b) = (values(5 * 2 * 3, 1), values(5 * 4, 2));
    let ids = [3, 0, 1, 2, 2, 3];
    for device in devices() {
        let sets = [
            Set::F32(a.clone()),
            Set::F32(b.clone()),
            Set::I32(ids.to_vec()),
        ];
        let got = run(device, &sets, |g| {
            let (a, a_in) = g.input("a", DType::F32, [5, 2, 3])?;
            let (b, b_in) = g.input("b", DType::F32, [5, 4])?;
            let (ids, ids_in) = g.expert_ids("ids", 2, 3, 4)?;
            Ok((vec![a_in, b_in, ids_in], a.add_id(b, ids)?))
        });
        let expected: Vec<f32> = (0..30)
            .map(|i| a[i] + b[ids[i / 5] as usize * 5 + i % 5])
            .collect();
        assert_eq!(got, expected, "on {}", device.name());
    }
}

/// A kind of sort: how many ids of a row it makes, and whether they are in order.
struct Sort {
    name: &'static str,
    by: for<'g> fn(Tensor<'g>, usize) -> Result<RowIds<'g>>,
    ascending: bool,
    ordered: bool,
}

const SORTS: [Sort; 4] = [
    Sort {
        name: "argsort, ascending",
        by: |a, _| a.argsort(SortOrder::Ascending),
        ascending: true,
        ordered: true,
    },
    Sort {
        name: "argsort, descending",
        by: |a, _| a.argsort(SortOrder::Descending),
        ascending: false,
        ordered: true,
    },
    Sort {
        name: "argsort_top_k",
        by: |a, k| a.argsort_top_k(k),
        ascending: false,
        ordered: true,
    },
    Sort {
        name: "top_k",
        by: |a, k| a.top_k(k),
        ascending: false,
        ordered: false,
    },
];

fn ids_of(device: Device, a: &[f32], row: usize, k: usize, sort: &Sort) -> Vec<usize> {
    let got = run(device, &[Set::F32(a.to_vec())], |g| {
        let (a, a_in) = g.input("a", DType::F32, [row, a.len() / row])?;
        Ok((vec![a_in], (sort.by)(a, k)?.to_tensor()?))
    });
    got.into_iter().map(|id| id as usize).collect()
}

/// Without the patches, sorts compare NaN with `<`, which is no order: what lies around NaN is not sorted, Metal's merges
/// name an element twice, and a standard library may do anything.
#[test]
fn sorts_order_rows_and_nan_by_its_sign() {
    for device in devices() {
        for (row, rows, k) in [(1, 3, 1), (7, 3, 4), (100, 5, 8), (3000, 2, 17)] {
            for nan_every in [0, 1, 2, 5] {
                let mut a = values(row * rows, 3);
                for i in (0..a.len())
                    .step_by(nan_every.max(1))
                    .filter(|_| nan_every > 0)
                {
                    a[i] = if i % 4 < 2 { f32::NAN } else { -f32::NAN };
                }
                for sort in &SORTS {
                    check_sort(device, &a, row, k, sort);
                }
            }
        }
    }
}

fn check_sort(device: Device, a: &[f32], row: usize, k: usize, sort: &Sort) {
    let ids = ids_of(device, a, row, k, sort);
    let rows = a.len() / row;
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for (ids, a) in ids.chunks(ids.len() / rows).zip(a.chunks(row)) {
        let mut expected = a.to_vec();
        expected.sort_by(f32::total_cmp);
        if !sort.ascending {
            expected.reverse();
        }
        expected.truncate(ids.len());
        let mut got: Vec<f32> = ids.iter().map(|&id| a[id]).collect();
        if !sort.ordered {
            got.sort_by(f32::total_cmp);
            got.reverse();
        }
        let what = format!("{} of {row} on {}", sort.name, device.name());
        assert_eq!(bits(&got), bits(&expected), "{what}");
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), got.len(), "{what} names an element twice");
    }
}

/// On Metal, softmax, sort and rows run as one kernel, which chose expert -1 where the softmax of a row is NaN.
/// Softmax, sort and gather, in the order in which Metal takes them for its fused router: the ids and weights of 4 experts of
/// 16, for each of 3 tokens, and the kernels that ran.
fn route(device: Device, logits: &[f32]) -> Result<(Vec<i32>, Vec<f32>, Vec<String>)> {
    let (graph, (logits_in, ids, weights)) = Graph::build(|g| {
        let (logits, logits_in) = g.input("logits", DType::F32, [16, 3])?;
        let shares = logits.soft_max()?;
        let rows = shares.reshape([1, 16, 3])?;
        let chosen = shares.argsort_top_k(4)?;
        let weights = g.output("weights", rows.get_rows(chosen)?)?;
        Ok((logits_in, g.output("ids", chosen.to_tensor()?)?, weights))
    })?;
    let mut backend = device.open()?;
    let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    plan.set_f32(&logits_in, logits)?;
    let kernels = plan
        .run_with(&mut backend, traced())?
        .dispatches
        .into_iter()
        .map(|dispatch| dispatch.pipeline);
    let ids = bytemuck::pod_collect_to_vec(&plan.read_bytes(&ids)?);
    Ok((ids, plan.read_f32(&weights)?, kernels.collect()))
}

#[test]
fn a_router_of_non_numbers_chooses_experts_that_exist() {
    for device in devices() {
        let on = device.name();
        for logit in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut logits = values(16 * 3, 7);
            logits[16..32].fill(logit);
            let (ids, weights, kernels) = route(device, &logits).unwrap();
            for ids in ids.chunks(4) {
                let mut sorted = ids.to_vec();
                sorted.sort_unstable();
                sorted.dedup();
                let exist = ids.iter().all(|id| (0..16).contains(id));
                assert!(sorted.len() == 4 && exist, "{logit} on {on}: {ids:?}");
            }
            // Softmax of infinite logits is NaN. A NaN logit is the least one to the fused router, by upstream's choice.
            let is_nan = |token: usize| weights[token * 4..][..4].iter().all(|w| w.is_nan());
            let expected = [false, true, false];
            let right = (0..3).all(|token| is_nan(token) == expected[token]);
            assert!(right || logit.is_nan(), "{logit} on {on}: {weights:?}");
            // Unless the router is fused, another kernel is tested.
            let fused = kernels.iter().any(|kernel| kernel.contains("topk_moe"));
            assert!(fused || !device.is_simulated(), "on {on}: {kernels:?}");
        }
    }
}

#[test]
fn ids_that_an_op_made_choose_experts() {
    for device in devices() {
        let weights = values(8 * 4 * 6, 1);
        let (x, logits) = (values(8 * 3, 2), values(6 * 3, 3));
        let sets = [
            Set::F32(weights.clone()),
            Set::F32(x.clone()),
            Set::F32(logits.clone()),
        ];
        let got = run(device, &sets, |g| {
            let (w, w_in) = g.input("weights", DType::F32, [8, 4, 6])?;
            let (x, x_in) = g.input("x", DType::F32, [8, 1, 3])?;
            let (logits, logits_in) = g.input("logits", DType::F32, [6, 3])?;
            let experts = logits.argsort_top_k(2)?.experts()?;
            Ok((vec![w_in, x_in, logits_in], w.mul_mat_id(x, experts)?))
        });
        for (t, out) in got.chunks(8).enumerate() {
            let mut order: Vec<usize> = (0..6).collect();
            order.sort_by(|&a, &b| logits[t * 6 + b].total_cmp(&logits[t * 6 + a]));
            for (i, &y) in out.iter().enumerate() {
                let (expert, m) = (order[i / 4], i % 4);
                let w = &weights[(expert * 4 + m) * 8..][..8];
                let dot: f64 = w
                    .iter()
                    .zip(&x[t * 8..])
                    .map(|(&a, &b)| f64::from(a) * f64::from(b))
                    .sum();
                assert!((f64::from(y) - dot).abs() < 1e-2, "on {}", device.name());
            }
        }
    }
}

#[test]
fn wrong_ids_are_refused_before_a_run() {
    let (graph, (ids, wide)) = Graph::build(|g| {
        let (a, _) = g.input("a", DType::F32, [4, 3])?;
        let (ids, ids_in) = g.row_ids("ids", [2], 3)?;
        let options = RowIdsOptions::new(3).distinct().wide();
        let (wide, wide_in) = g.row_ids_with("wide", [2], options)?;
        g.output("a", a.get_rows(ids)?)?;
        g.output("b", wide.to_tensor()?)?;
        Ok((ids_in, wide_in))
    })
    .unwrap();
    let backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_i32(&ids, &[2, 2]).unwrap();
    plan.set_i64(&wide, &[2, 0]).unwrap();
    let refused =
        |result: Result<()>| assert!(matches!(result, Err(Error::Param(_))), "{result:?}");
    refused(plan.set_i32(&ids, &[3, 0]));
    refused(plan.set_i32(&ids, &[-1, 0]));
    refused(plan.set_bytes(&ids, &[0xff; 8]));
    refused(plan.set_i64(&wide, &[1, 1]));
    refused(plan.set_i64(&wide, &[1 << 32, 1]));
    assert!(matches!(plan.set_i64(&ids, &[0, 0]), Err(Error::DType(_))));
}

/// Found by random sequences: ggml planned scratch for one thread, and all wrote to it. The sum makes the graph run on all
/// threads; the rows are long, so that what lies behind the scratch is no memory of ours.
#[test]
fn rows_of_f16_are_converted_in_scratch_of_each_thread() {
    const ROW: usize = 1 << 18;
    const ROWS: usize = 32;
    let (graph, (b_in, ids_in, out)) = Graph::build(|g| {
        let (b, b_in) = g.input("b", DType::F16, [ROW, ROWS])?;
        let options = RowIdsOptions::new(ROWS).distinct();
        let (ids, ids_in) = g.row_ids_with("ids", [ROWS], options)?;
        let a = g.empty("a", DType::F32, [ROW, ROWS])?.set_rows(b, ids)?;
        Ok((b_in, ids_in, g.output("out", a.add(a)?.sum_rows()?)?))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    backend.set_threads(32).unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    let rows = (0..ROWS).flat_map(|row| std::iter::repeat_n(row as f32, ROW));
    plan.set_f32(&b_in, &rows.collect::<Vec<_>>()).unwrap();
    let backwards: Vec<i32> = (0..ROWS as i32).rev().collect();
    plan.set_i32(&ids_in, &backwards).unwrap();
    plan.run(&mut backend).unwrap();
    let expected: Vec<f32> = (0..ROWS).rev().map(|row| (2 * row * ROW) as f32).collect();
    assert_eq!(plan.read_f32(&out).unwrap(), expected);
}
