//! Attention and its companions against formulas in f64, on the CPU and on the simulated Metal device.

use ggml_rs::DType::{self, BF16, F16, F32, Q8_0};
use ggml_rs::{Backend, Device, FlashAttn, Graph, Plan, PlanOptions, Shape, Tensor};
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
use ggml_rs::{Error, Scheduler, Staging};

use crate::common::{Operand, assert_close, devices, run};
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
use crate::common::{PLACEMENTS, run_on};

/// Sizes and parameters of an attention.
#[derive(Clone, Copy)]
struct Case {
    dk: usize,
    dv: usize,
    n: usize,
    kv: usize,
    heads: usize,
    kv_heads: usize,
    batch: usize,
    masked: bool,
    sinks: bool,
    max_bias: f32,
    softcap: f32,
    float: bool,
}

const CASE: Case = Case {
    dk: 64,
    dv: 64,
    n: 3,
    kv: 37,
    heads: 4,
    kv_heads: 2,
    batch: 2,
    masked: false,
    sinks: false,
    max_bias: 0.0,
    softcap: 0.0,
    float: false,
};

const SCALE: f32 = 0.25;

/// The slope of a head in ALiBi.
fn slope(case: Case, head: usize) -> f64 {
    if case.max_bias == 0.0 {
        return 1.0;
    }
    let power = 1_usize << case.heads.ilog2();
    let bias = f64::from(case.max_bias);
    if head < power {
        (-bias / power as f64 * (head + 1) as f64).exp2()
    } else {
        (-bias / 2.0 / power as f64 * (2 * (head - power) + 1) as f64).exp2()
    }
}

struct Values {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    mask: Vec<f32>,
    sinks: Vec<f32>,
}

fn expected(case: Case, values: &Values) -> Vec<f64> {
    let mut out = Vec::new();
    for b in 0..case.batch {
        for i in 0..case.n {
            for h in 0..case.heads {
                out.extend(one(case, values, [b, i, h]));
            }
        }
    }
    out
}

fn one(case: Case, values: &Values, [b, i, h]: [usize; 3]) -> Vec<f64> {
    let kv_head = b * case.kv_heads + h / (case.heads / case.kv_heads);
    let q = &values.q[((b * case.heads + h) * case.n + i) * case.dk..][..case.dk];
    let score = |j: usize| {
        let k = &values.k[(kv_head * case.kv + j) * case.dk..][..case.dk];
        let dot: f64 = q
            .iter()
            .zip(k)
            .map(|(&q, &k)| f64::from(q) * f64::from(k))
            .sum();
        let (scaled, cap) = (dot * f64::from(SCALE), f64::from(case.softcap));
        let capped = if cap == 0.0 {
            scaled
        } else {
            cap * (scaled / cap).tanh()
        };
        let masked = case
            .masked
            .then(|| slope(case, h) * f64::from(values.mask[i * case.kv + j]));
        capped + masked.unwrap_or(0.0)
    };
    let scores: Vec<f64> = (0..case.kv).map(score).collect();
    let sink = case.sinks.then(|| f64::from(values.sinks[h]));
    let largest = scores
        .iter()
        .copied()
        .chain(sink)
        .fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let sum: f64 = weights.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - largest).exp());
    let value = |d: usize| {
        let at = |j: usize| f64::from(values.v[(kv_head * case.kv + j) * case.dv + d]);
        weights
            .iter()
            .enumerate()
            .map(|(j, w)| w * at(j))
            .sum::<f64>()
            / sum
    };
    (0..case.dv).map(value).collect()
}

fn check(device: Device, dtype: DType, case: Case) {
    let q = Operand::new(F32, &[case.dk, case.n, case.heads, case.batch], 1);
    let k = Operand::new(dtype, &[case.dk, case.kv, case.kv_heads, case.batch], 2);
    let v = Operand::new(dtype, &[case.dv, case.kv, case.kv_heads, case.batch], 3);
    let mut mask = Operand::new(F16, &[case.kv, case.n], 4);
    for (at, value) in mask.values.iter_mut().enumerate() {
        if at % 5 == 2 {
            *value = f32::NEG_INFINITY;
        }
    }
    let sinks = Operand::new(F32, &[case.heads], 5);
    let got = run(device, &[&q, &k, &v, &mask, &sinks], |_, x| {
        let mut options = FlashAttn::new(SCALE)
            .max_bias(case.max_bias)
            .logit_softcap(case.softcap);
        if case.masked {
            options = options.mask(x[3]);
        }
        if case.sinks {
            options = options.sinks(x[4]);
        }
        if case.float {
            options = options.float();
        }
        x[0].flash_attn_ext(x[1], x[2], options)
    });
    let values = Values {
        q: q.values.clone(),
        k: k.rounded(),
        v: v.rounded(),
        mask: mask.rounded(),
        sinks: sinks.values.clone(),
    };
    let tolerance = if case.float || (dtype == F32 && device.name() == "CPU") {
        1e-5
    } else {
        2e-2
    };
    let what = format!(
        "{dtype} {} x {} x {}, mask {}, sinks {}, bias {}, cap {}, float {} on {}",
        case.dk,
        case.n,
        case.kv,
        case.masked,
        case.sinks,
        case.max_bias,
        case.softcap,
        case.float,
        device.name()
    );
    assert_close(&got, &expected(case, &values), tolerance, &what);
}

#[test]
fn attention_is_a_softmax_of_products() {
    for device in devices() {
        for dtype in [F32, F16, BF16, Q8_0] {
            check(device, dtype, CASE);
            check(
                device,
                dtype,
                Case {
                    masked: true,
                    ..CASE
                },
            );
            // Batches take other kernels, and so does one query with many keys.
            check(
                device,
                dtype,
                Case {
                    n: 70,
                    masked: true,
                    ..CASE
                },
            );
            check(
                device,
                dtype,
                Case {
                    n: 1,
                    kv: 700,
                    batch: 1,
                    ..CASE
                },
            );
            check(
                device,
                dtype,
                Case {
                    dk: 192,
                    dv: 128,
                    masked: true,
                    ..CASE
                },
            );
        }
        for n in [3, 70] {
            let case = Case {
                n,
                masked: true,
                ..CASE
            };
            check(
                device,
                F32,
                Case {
                    sinks: true,
                    ..case
                },
            );
            check(
                device,
                F32,
                Case {
                    softcap: 1.5,
                    ..case
                },
            );
            check(
                device,
                F32,
                Case {
                    max_bias: 8.0,
                    heads: 6,
                    ..case
                },
            );
        }
    }
}

/// Attention of queries and keys that are zero: the mean of values, each of which fills its head.
fn mean(backend: &mut Backend, dtype: DType, n: usize, values: &Operand) -> Vec<f32> {
    let [d, kv, ..] = values.shape.ne();
    let (graph, (q, k, v, y)) = Graph::build(|g| {
        let (q, q_in) = g.input("q", F32, [d, n])?;
        let (k, k_in) = g.input("k", dtype, [d, kv])?;
        let (v, v_in) = g.input("v", dtype, [d, kv])?;
        let y = q.flash_attn_ext(k, v, FlashAttn::new(1.0))?;
        Ok((q_in, k_in, v_in, g.output("y", y)?))
    })
    .unwrap();
    let mut plan = Plan::new(graph, backend, PlanOptions::default()).unwrap();
    plan.set_f32(&q, &vec![0.0; d * n]).unwrap();
    plan.set_f32(&k, &vec![0.0; d * kv]).unwrap();
    plan.set_f32(&v, &values.values).unwrap();
    plan.run(backend).unwrap();
    plan.read_f32(&y).unwrap()
}

/// Numbers from 0 to 1 in an order that is not theirs, two of 40000, whose sum is no half, and thousands of ones, which a half
/// stops counting at 2048.
#[test]
fn values_are_added_up_in_float() {
    let count = 16384;
    let numbers = (0..count).map(|i| (i * 7919 % count) as f32 / count as f32);
    let inputs = [vec![40000.0; 2], vec![1.0; 4096], numbers.collect()];
    for device in devices() {
        let (d, most_threads) = match device.name() {
            "CPU" => (1, 8),
            _ => (64, 1),
        };
        let mut backend = device.open().unwrap();
        for dtype in [F16, BF16, F32] {
            for values in &inputs {
                let operand = Operand {
                    dtype,
                    shape: Shape::new(&[d, values.len()]).unwrap(),
                    values: values.iter().flat_map(|&v| vec![v; d]).collect(),
                };
                let sum: f64 = operand.rounded().into_iter().map(f64::from).sum();
                let right = sum / operand.values.len() as f64;
                // The bound of sums of so many F32, one after the other, and of a quotient.
                let rounding = (values.len() + 2) as f64 * f64::from(f32::EPSILON) / 2.0;
                for n in [1, 3, 64] {
                    let what = format!("{n} x {} of {dtype} on {}", values.len(), device.name());
                    let mut of = |threads| {
                        backend.set_threads(threads).unwrap();
                        mean(&mut backend, dtype, n, &operand)
                    };
                    let one = of(1);
                    assert_close(&one, &vec![right; one.len()], right * rounding, &what);
                    for threads in 2..=most_threads {
                        assert_eq!(of(threads), one, "{what}, {threads} threads");
                    }
                }
            }
        }
    }
}

/// Half of the queries are masked away from an infinite value, which whole tiles of them skip; a tile with one of the other half
/// multiplies it with 0. Which queries share a tile must not depend on the number of threads.
#[test]
fn masked_infinities_do_not_depend_on_threads() {
    let (d, n) = (64, 128);
    let (graph, (q, k, v, mask, y)) = Graph::build(|g| {
        let (q, q_in) = g.input("q", F32, [d, n])?;
        let (k, k_in) = g.input("k", F32, [d, n])?;
        let (v, v_in) = g.input("v", F32, [d, n])?;
        let (mask, mask_in) = g.input("mask", F16, [n, n])?;
        let y = q.flash_attn_ext(k, v, FlashAttn::new(1.0).mask(mask))?;
        Ok((q_in, k_in, v_in, mask_in, g.output("y", y)?))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    let mut values = vec![1.0; d * n];
    values[d * 100..d * 101].fill(f32::INFINITY);
    let hidden = |i: usize| {
        if i / n < 64 && i % n >= 64 {
            f32::NEG_INFINITY
        } else {
            0.0
        }
    };
    let masked: Vec<f32> = (0..n * n).map(hidden).collect();
    for (input, values) in [
        (&q, &vec![0.0; d * n]),
        (&k, &vec![0.0; d * n]),
        (&v, &values),
        (&mask, &masked),
    ] {
        plan.set_f32(input, values).unwrap();
    }
    for threads in 1..=8 {
        backend.set_threads(threads).unwrap();
        plan.run(&mut backend).unwrap();
        let got = plan.read_f32(&y).unwrap();
        let (masked, others) = got.split_at(d * 64);
        assert!(masked.iter().all(|&y| y == 1.0), "{threads} threads");
        assert!(
            others.iter().all(|&y| y == f32::INFINITY),
            "{threads} threads"
        );
    }
}

#[test]
fn float_rounds_nothing_on_the_cpu() {
    let cpu = Device::cpu().unwrap();
    for dtype in [F32, F16, BF16, Q8_0] {
        for (n, kv, batch) in [(3, 37, 2), (1, 700, 1), (70, 37, 2)] {
            let case = Case {
                n,
                kv,
                batch,
                masked: true,
                float: true,
                ..CASE
            };
            check(cpu, dtype, case);
        }
    }
}

/// A query beyond what a half holds, and two keys: their scores are about 1 and 0, and so are the values.
fn large_query() -> ([Operand; 2], f64) {
    let q = Operand {
        values: [vec![1e5], vec![0.0; 63]].concat(),
        ..Operand::new(F32, &[64, 1], 1)
    };
    let kv = Operand {
        values: [vec![1e-4], vec![1.0; 63], vec![0.0; 64]].concat(),
        ..Operand::new(F16, &[64, 2], 2)
    };
    let key = f64::from(kv.rounded()[0]);
    let weight = 1.0 / (1.0 + (-1e5 * 0.1 * key).exp());
    ([q, kv], weight)
}

fn float_attention<'g>(x: &[Tensor<'g>]) -> ggml_rs::Result<Tensor<'g>> {
    x[0].flash_attn_ext(x[1], x[1], FlashAttn::new(0.1).float())
}

#[test]
fn float_keeps_queries_that_no_half_holds() {
    let ([q, kv], weight) = large_query();
    let got = run(Device::cpu().unwrap(), &[&q, &kv], |_, x| {
        float_attention(x)
    });
    assert_close(&got[1..], &[weight; 63], 1e-6, "float()");
}

/// Metal rounds queries whatever is asked for: it refuses, and says what to do. Both ways that it names are right.
#[test]
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
fn float_has_two_ways_out_on_metal() {
    let metal = Device::by_name("MTL0").unwrap();
    let ([q, kv], weight) = large_query();
    let error = run_on(metal, &[&q, &kv], PLACEMENTS[0], |_, x| float_attention(x));
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    for part in ["rounds queries", "Scheduler", "Staging::Float"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }

    let composed = run(metal, &[&q, &kv], |_, x| {
        let scores = x[1].mul_mat(x[0])?.set_staging(Staging::Float)?;
        let weights = scores.scale(0.1)?.soft_max()?;
        let values = x[1].transpose()?.cont()?;
        values.mul_mat(weights)?.set_staging(Staging::Float)
    });
    assert_close(&composed[1..], &[weight; 63], 1e-6, "composed");

    let (graph, (q_in, kv_in, y)) = Graph::build(|g| {
        let (q, q_in) = g.input("q", F32, [64, 1])?;
        let (kv, kv_in) = g.input("kv", F16, [64, 2])?;
        Ok((q_in, kv_in, g.output("y", float_attention(&[q, kv])?)?))
    })
    .unwrap();
    let backends = [metal, Device::cpu().unwrap()].map(|device| device.open().unwrap());
    let mut scheduler = Scheduler::new(backends).unwrap();
    let mut plan = Plan::new(graph, &scheduler, PlanOptions::default()).unwrap();
    plan.set_f32(&q_in, &q.values).unwrap();
    plan.set_f32(&kv_in, &kv.values).unwrap();
    plan.run(&mut scheduler).unwrap();
    let got = plan.read_f32(&y).unwrap();
    assert_close(&got[1..], &[weight; 63], 1e-6, "scheduled");
}

#[test]
fn keys_are_scored_for_every_query() {
    let [n, heads, tokens, streams, kv] = [128, 8, 5, 2, 9];
    for device in devices() {
        for dtype in [F32, F16, Q8_0] {
            let q = Operand::new(F32, &[n, heads, tokens, streams], 1);
            let k = Operand::new(dtype, &[n, 1, kv, streams], 2);
            let weights = Operand::new(F32, &[heads, tokens, 1, streams], 3);
            let mask = Operand::new(F16, &[kv, tokens], 4);
            let got = run(device, &[&q, &k, &weights, &mask], |_, x| {
                x[0].lightning_indexer(x[1], x[2], x[3])
            });
            let (keys, masked) = (k.rounded(), mask.rounded());
            let mut expected = Vec::new();
            for s in 0..streams {
                for t in 0..tokens {
                    for j in 0..kv {
                        let mut sum = f64::from(masked[t * kv + j]);
                        for h in 0..heads {
                            let q = &q.values[((s * tokens + t) * heads + h) * n..][..n];
                            let k = &keys[(s * kv + j) * n..][..n];
                            let dot: f64 = q
                                .iter()
                                .zip(k)
                                .map(|(&q, &k)| f64::from(q) * f64::from(k))
                                .sum();
                            sum += dot.max(0.0)
                                * f64::from(weights.values[(s * tokens + t) * heads + h]);
                        }
                        expected.push(sum);
                    }
                }
            }
            let tolerance = if device.name() == "CPU" { 1e-4 } else { 5e-2 };
            assert_close(
                &got,
                &expected,
                tolerance,
                &format!("{dtype} on {}", device.name()),
            );
        }
    }
}

fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}

#[test]
fn streams_are_mixed_before_and_after() {
    let [n, streams, tokens] = [40, 4, 5];
    for device in devices() {
        let x = Operand::new(F32, &[n, streams, tokens], 1);
        let weights = Operand::new(F32, &[streams, tokens], 2);
        let gate = Operand::new(F32, &[n, streams, tokens], 3);
        let at = |i: usize, s: usize, t: usize| (t * streams + s) * n + i;
        let sums = |weight: &dyn Fn(usize, usize, usize) -> f64| -> Vec<f64> {
            let sum = |t: usize, i: usize| {
                (0..streams)
                    .map(|s| f64::from(x.values[at(i, s, t)]) * weight(i, s, t))
                    .sum()
            };
            (0..tokens)
                .flat_map(|t| (0..n).map(move |i| (t, i)))
                .map(|(t, i)| sum(t, i))
                .collect()
        };
        let got = run(device, &[&x, &weights], |_, x| x[0].dsv4_hc_pre(x[1]));
        let expected = sums(&|_, s, t| f64::from(weights.values[t * streams + s]));
        assert_close(&got, &expected, 1e-5, device.name());
        let got = run(device, &[&x, &gate], |_, x| {
            x[0].dsv4_hc_pre_gated(x[1], 2.0)
        });
        let expected = sums(&|i, s, t| 2.0 * sigmoid(gate.values[at(i, s, t)]));
        assert_close(&got, &expected, 1e-4, device.name());

        let layer = Operand::new(F32, &[n, tokens], 4);
        let comb = Operand::new(F32, &[streams, streams, tokens], 5);
        for mixed in [false, true] {
            let got = run(device, &[&layer, &x, &weights, &comb], |_, x| {
                x[0].dsv4_hc_post(x[1], x[2], mixed.then_some(x[3]))
            });
            let mut expected = Vec::new();
            for t in 0..tokens {
                for s in 0..streams {
                    for i in 0..n {
                        let residual = |r: usize| f64::from(x.values[at(i, r, t)]);
                        let from =
                            |r: usize| f64::from(comb.values[(t * streams + r) * streams + s]);
                        let kept = if mixed {
                            (0..streams).map(|r| residual(r) * from(r)).sum()
                        } else {
                            residual(s)
                        };
                        let post = f64::from(weights.values[t * streams + s]);
                        expected.push(f64::from(layer.values[t * n + i]) * post + kept);
                    }
                }
            }
            assert_close(&got, &expected, 1e-5, device.name());
        }
    }
}

#[test]
fn mixes_are_balanced() {
    let (tokens, iterations, eps) = (5, 6, 1e-3);
    for device in devices() {
        let mixes = Operand::new(F32, &[24, tokens], 1);
        let (scale, base) = (Operand::new(F32, &[3], 2), Operand::new(F32, &[24], 3));
        let got = run(device, &[&mixes, &scale, &base], |_, x| {
            x[0].dsv4_hc_comb(x[1], x[2], eps, iterations)
        });
        let eps = f64::from(eps);
        let mut expected = Vec::new();
        for t in 0..tokens {
            let mut m = [[0.0; 4]; 4];
            for (j, row) in m.iter_mut().enumerate() {
                for (i, x) in row.iter_mut().enumerate() {
                    let at = 8 + i + 4 * j;
                    let mix = f64::from(mixes.values[t * 24 + at]) * f64::from(scale.values[2]);
                    *x = (mix + f64::from(base.values[at])).exp();
                }
                let sum: f64 = row.iter().sum();
                row.iter_mut().for_each(|x| *x = *x / sum + eps);
            }
            for round in 0..iterations {
                if round > 0 {
                    for row in &mut m {
                        let sum: f64 = row.iter().sum::<f64>() + eps;
                        row.iter_mut().for_each(|x| *x /= sum);
                    }
                }
                for i in 0..4 {
                    let sum: f64 = m.iter().map(|row| row[i]).sum::<f64>() + eps;
                    m.iter_mut().for_each(|row| row[i] /= sum);
                }
            }
            expected.extend(m.iter().flatten().copied());
        }
        assert_close(&got, &expected, 1e-4, device.name());
    }
}
