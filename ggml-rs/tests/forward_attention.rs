//! Attention and its companions against formulas in f64, on the CPU and on the simulated Metal device.

mod common;

use common::{Operand, PLACEMENTS, assert_close, devices, run, run_on};
use ggml_rs::DType::{self, BF16, F16, F32, Q8_0};
use ggml_rs::{Device, Error, FlashAttn};

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
        x[0].flash_attn_ext(x[1], x[2], options)
    });
    let values = Values {
        q: q.values.clone(),
        k: k.rounded(),
        v: v.rounded(),
        mask: mask.rounded(),
        sinks: sinks.values.clone(),
    };
    let tolerance = if dtype == F32 && device.name() == "CPU" {
        1e-5
    } else {
        2e-2
    };
    let what = format!(
        "{dtype} {} x {} x {}, mask {}, sinks {}, bias {}, cap {} on {}",
        case.dk,
        case.n,
        case.kv,
        case.masked,
        case.sinks,
        case.max_bias,
        case.softcap,
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

#[test]
fn float_sums_are_refused_where_there_are_none() {
    let (q, kv) = (
        Operand::new(F32, &[64, 3], 1),
        Operand::new(F16, &[64, 9], 2),
    );
    let floats = Operand::new(F32, &[64, 9], 3);
    for device in devices() {
        let on = |kv: &Operand| {
            run_on(device, &[&q, kv], PLACEMENTS[0], |_, x| {
                x[0].flash_attn_ext(x[1], x[1], FlashAttn::new(1.0).float())
            })
        };
        assert!(
            matches!(on(&kv), Err(Error::Unsupported(_))),
            "on {}",
            device.name()
        );
        assert_eq!(on(&floats).is_ok(), device.name() == "CPU");
    }
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
