//! State-space models, linear attention and triangular systems against loops in f64, on the CPU and on the simulated Metal
//! device.

use ggml_rs::DType::{F32, I32};
use ggml_rs::{Device, Error, GatedDeltaNet, Graph, Plan, PlanOptions, Result, SsmScan};

use crate::common::{Operand, PLACEMENTS, devices, run, run_on};

#[track_caller]
fn assert_close(got: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let got = f64::from(got);
        assert!(
            (got - expected).abs() <= tolerance * expected.abs().max(1.0),
            "{what}: element {i} is {got}, not {expected}"
        );
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

#[test]
fn convolutions_run_along_tokens() {
    for device in devices() {
        for (k, tokens) in [(4, 1), (4, 9), (3, 40)] {
            let (n, sequences) = (6, 2);
            let a = Operand::new(F32, &[k - 1 + tokens, n, sequences], 1);
            let kernel = Operand::new(F32, &[k, n], 2);
            let got = run(device, &[&a, &kernel], |_, x| x[0].ssm_conv(x[1]));
            let row = k - 1 + tokens;
            let mut expected = Vec::new();
            for s in 0..sequences {
                for t in 0..tokens {
                    for i in 0..n {
                        let product = |j: usize| {
                            let x = a.values[(s * n + i) * row + t + j];
                            f64::from(x) * f64::from(kernel.values[i * k + j])
                        };
                        expected.push((0..k).map(product).sum());
                    }
                }
            }
            assert_close(
                &got,
                &expected,
                1e-5,
                &format!("{k} {tokens} on {}", device.name()),
            );
        }
    }
}

/// Sizes of a scan.
#[derive(Clone, Copy)]
struct Scan {
    state: usize,
    dim: usize,
    heads: usize,
    groups: usize,
    tokens: usize,
    sequences: usize,
    mamba1: bool,
    states: usize,
}

const SLOTS: usize = 5;
const IDS: [i32; 2] = [3, 0];

fn scan_operands(scan: Scan) -> [Operand; 6] {
    let Scan {
        state,
        dim,
        heads,
        groups,
        tokens,
        sequences,
        ..
    } = scan;
    let mut decay = Operand::new(F32, &[if scan.mamba1 { state } else { 1 }, heads], 4);
    decay.values.iter_mut().for_each(|a| *a = -a.abs());
    [
        Operand::new(F32, &[state, dim, heads, SLOTS], 1),
        Operand::new(F32, &[dim, heads, tokens, sequences], 2),
        Operand::new(F32, &[heads, tokens, sequences], 3),
        decay,
        Operand::new(F32, &[state, groups, tokens, sequences], 5),
        Operand::new(F32, &[state, groups, tokens, sequences], 6),
    ]
}

fn scan_expected(scan: Scan, operands: &[Operand; 6]) -> Vec<f64> {
    let Scan {
        state: n,
        dim,
        heads,
        groups,
        tokens,
        sequences,
        ..
    } = scan;
    let [s, x, dt, a, b, c] = operands.each_ref().map(|operand| wide(&operand.values));
    let whole = n * dim * heads;
    let mut outputs = vec![0.0; dim * heads * tokens * sequences];
    let mut states = vec![0.0; whole * sequences * scan.states];
    for q in 0..sequences {
        let mut current = s[IDS[q] as usize * whole..][..whole].to_vec();
        for t in 0..tokens {
            let at = q * tokens + t;
            for h in 0..heads {
                let step = (1.0 + dt[at * heads + h].exp()).ln();
                let group = (at * groups + h / (heads / groups)) * n;
                for d in 0..dim {
                    let place = at * dim * heads + h * dim + d;
                    let row = &mut current[(h * dim + d) * n..][..n];
                    for (i, value) in row.iter_mut().enumerate() {
                        let decay = if scan.mamba1 { a[h * n + i] } else { a[h] };
                        *value = *value * (step * decay).exp() + b[group + i] * x[place] * step;
                        outputs[place] += *value * c[group + i];
                    }
                }
            }
            let slot = tokens - 1 - t;
            if slot < scan.states {
                states[(slot * sequences + q) * whole..][..whole].copy_from_slice(&current);
            }
        }
    }
    outputs.extend(states);
    outputs
}

/// Not [`run`]: ids are an input that is not set in F32.
fn run_scan(device: Device, scan: Scan, operands: &[Operand; 6]) -> Result<Vec<f32>> {
    let (graph, (tokens, ids, out)) = Graph::build(|g| {
        let mut pairs = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            pairs.push(g.input(&format!("input {i}"), operand.dtype, operand.shape)?);
        }
        let (x, tokens): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let (ids, ids_in) = g.row_ids("ids", [IDS.len()], SLOTS)?;
        let out = x[0].ssm_scan(SsmScan {
            x: x[1],
            dt: x[2],
            a: x[3],
            b: x[4],
            c: x[5],
            ids,
            states: scan.states,
        })?;
        Ok((tokens, ids_in, g.output("out", out)?))
    })?;
    let mut backend = device.open()?;
    let mut plan = Plan::new(
        graph,
        &backend,
        PlanOptions {
            placement: PLACEMENTS[1],
        },
    )?;
    for (token, operand) in tokens.iter().zip(operands) {
        plan.set_f32(token, &operand.values)?;
    }
    plan.set_i32(&ids, &IDS)?;
    plan.run(&mut backend)?;
    plan.check_sentinels()?;
    plan.read_f32(&out)
}

#[test]
fn scans_forget_and_learn() {
    let scan = Scan {
        state: 32,
        dim: 8,
        heads: 4,
        groups: 2,
        tokens: 7,
        sequences: 2,
        mamba1: false,
        states: 1,
    };
    for device in devices() {
        for scan in [
            scan,
            Scan { states: 3, ..scan },
            Scan {
                tokens: 1,
                state: 128,
                ..scan
            },
            Scan {
                dim: 1,
                groups: 1,
                state: 16,
                mamba1: true,
                ..scan
            },
            // Long enough for Metal's kernel of matrices.
            Scan {
                dim: 64,
                tokens: 150,
                state: 64,
                ..scan
            },
        ] {
            let operands = scan_operands(scan);
            let got = run_scan(device, scan, &operands).unwrap();
            let what = format!(
                "{} x {} of {} on {}",
                scan.state,
                scan.dim,
                scan.tokens,
                device.name()
            );
            assert_close(&got, &scan_expected(scan, &operands), 2e-3, &what);
        }
    }
}

const N: usize = 64;
const HEADS: usize = 2;
const TOKENS: usize = 6;
const SEQUENCES: usize = 2;

/// Operands of [N, HEADS, TOKENS], with values in [0, 1) where they are decays, and one of states.
fn linear_operands(count: usize, decays: &[usize]) -> Vec<Operand> {
    let mut operands: Vec<Operand> = (0..count)
        .map(|i| Operand::new(F32, &[N, HEADS, TOKENS], i as u64))
        .collect();
    for operand in &mut operands {
        operand.values.iter_mut().for_each(|x| *x *= 0.25);
    }
    for &decay in decays {
        operands[decay]
            .values
            .iter_mut()
            .for_each(|x| *x = x.abs() * 4.0);
    }
    operands.push(Operand::new(F32, &[N * N * HEADS, SEQUENCES], 99));
    operands
}

/// Runs a recurrence of heads' matrices in ggml's layout, in which `state[i * N + j]` is row `i`: `step` is given
/// the token's values of all operands, the head's matrix, and the head's outputs.
fn linear_expected(
    operands: &[Operand],
    step: impl Fn(&[Vec<f64>], usize, &mut [f64], &mut [f64]),
) -> Vec<f64> {
    let (state, tokens) = operands.split_last().unwrap();
    let values: Vec<Vec<f64>> = tokens.iter().map(|operand| wide(&operand.values)).collect();
    let mut states = wide(&state.values);
    let mut outputs = vec![0.0; N * HEADS * TOKENS];
    for t in 0..TOKENS {
        for h in 0..HEADS {
            let at = (t * HEADS + h) * N;
            let token: Vec<Vec<f64>> = values.iter().map(|x| x[at..][..N].to_vec()).collect();
            let sequence = t / (TOKENS / SEQUENCES);
            let matrix = &mut states[(sequence * HEADS + h) * N * N..][..N * N];
            step(&token, h, matrix, &mut outputs[at..][..N]);
        }
    }
    outputs.extend(states);
    outputs
}

#[test]
fn linear_attention_forgets_and_learns() {
    for device in devices() {
        let mut operands = linear_operands(4, &[3]);
        let bonus = Operand::new(F32, &[N, HEADS], 50);
        let expected = linear_expected(&operands, |x, h, matrix, out| {
            let [k, v, r, decay] = [&x[0], &x[1], &x[2], &x[3]];
            for i in 0..N {
                let bonus = f64::from(bonus.values[h * N + i]);
                for j in 0..N {
                    let kv = k[i] * v[j];
                    out[j] += r[i] * (kv * bonus + matrix[i * N + j]);
                    matrix[i * N + j] = matrix[i * N + j] * decay[i] + kv;
                }
            }
        });
        operands.insert(3, bonus);
        let inputs: Vec<&Operand> = operands.iter().collect();
        let got = run(device, &inputs, |_, x| {
            x[0].rwkv_wkv6(x[1], x[2], x[3], x[4], x[5])
        });
        assert_close(&got, &expected, 1e-4, &format!("wkv6 on {}", device.name()));

        let operands = linear_operands(6, &[1]);
        let expected = linear_expected(&operands, |x, _, matrix, out| {
            let [r, w, k, v, a, b] = [&x[0], &x[1], &x[2], &x[3], &x[4], &x[5]];
            for i in 0..N {
                let row = &mut matrix[i * N..][..N];
                let sum: f64 = row.iter().zip(a).map(|(s, a)| s * a).sum();
                for j in 0..N {
                    row[j] = row[j] * w[j] + v[i] * k[j] + sum * b[j];
                    out[i] += row[j] * r[j];
                }
            }
        });
        let inputs: Vec<&Operand> = operands.iter().collect();
        let got = run(device, &inputs, |_, x| {
            x[0].rwkv_wkv7(x[1], x[2], x[3], x[4], x[5], x[6])
        });
        assert_close(&got, &expected, 1e-4, &format!("wkv7 on {}", device.name()));
    }
    let operands = linear_operands(4, &[3]);
    let expected = linear_expected(&operands, |x, _, matrix, out| {
        let [k, v, q, g] = [&x[0], &x[1], &x[2], &x[3]];
        for i in 0..N {
            for j in 0..N {
                matrix[i * N + j] = matrix[i * N + j] * g[i] + k[i] * v[j];
                out[j] += matrix[i * N + j] * q[i] * 0.5;
            }
        }
    });
    let inputs: Vec<&Operand> = operands.iter().collect();
    let got = run(Device::cpu().unwrap(), &inputs, |_, x| {
        x[0].gated_linear_attn(x[1], x[2], x[3], x[4], 0.5)
    });
    assert_close(&got, &expected, 1e-4, "gated linear attention");
}

#[test]
fn heads_that_are_no_whole_vectors_are_refused() {
    let token = Operand::new(F32, &[32, 1, 2], 1);
    let state = Operand::new(F32, &[1024, 1], 2);
    for device in devices() {
        let outcome = run_on(device, &[&token, &state], PLACEMENTS[0], |_, x| {
            x[0].rwkv_wkv7(x[0], x[0], x[0], x[0], x[0], x[1])
        });
        assert!(
            matches!(outcome, Err(Error::Unsupported(_))),
            "on {}",
            device.name()
        );
    }
}

#[test]
fn the_delta_rule_learns_what_is_missing() {
    let [n, heads, tokens, sequences] = [32, 4, 5, 2];
    for device in devices() {
        for (gates, states, q_heads, k_heads) in [(1, 1, 4, 4), (n, 3, 2, 1)] {
            let q = Operand::new(F32, &[n, q_heads, tokens, sequences], 1);
            let k = Operand::new(F32, &[n, k_heads, tokens, sequences], 2);
            let v = Operand::new(F32, &[n, heads, tokens, sequences], 3);
            let mut g = Operand::new(F32, &[gates, heads, tokens, sequences], 4);
            g.values.iter_mut().for_each(|g| *g = -g.abs());
            let mut beta = Operand::new(F32, &[1, heads, tokens, sequences], 5);
            beta.values.iter_mut().for_each(|b| *b *= 0.1);
            let state = Operand::new(F32, &[n, n, heads, sequences], 6);
            let got = run(device, &[&q, &k, &v, &g, &beta, &state], |_, x| {
                x[0].gated_delta_net(GatedDeltaNet {
                    k: x[1],
                    v: x[2],
                    g: x[3],
                    beta: x[4],
                    state: x[5],
                    states,
                })
            });
            let [q, k, v, g, beta, state] =
                [&q, &k, &v, &g, &beta, &state].map(|x| wide(&x.values));
            let mut outputs = vec![0.0; n * heads * tokens * sequences];
            let mut kept = vec![0.0; n * n * heads * sequences * states];
            for s in 0..sequences {
                for h in 0..heads {
                    // Column j of the state is row j of the memory.
                    let place = (s * heads + h) * n * n;
                    let mut m = state[place..][..n * n].to_vec();
                    for t in 0..tokens {
                        let token = s * tokens + t;
                        let at = token * heads + h;
                        let (q, k) = (
                            &q[(token * q_heads + h % q_heads) * n..][..n],
                            &k[(token * k_heads + h % k_heads) * n..][..n],
                        );
                        for j in 0..n {
                            let row = &mut m[j * n..][..n];
                            for (i, x) in row.iter_mut().enumerate() {
                                *x *= g[at * gates + i % gates].exp();
                            }
                            let known: f64 = row.iter().zip(k).map(|(x, k)| x * k).sum();
                            let missing = (v[at * n + j] - known) * beta[at];
                            row.iter_mut().zip(k).for_each(|(x, k)| *x += k * missing);
                            let out: f64 = row.iter().zip(q).map(|(x, q)| x * q).sum();
                            outputs[at * n + j] = out / (n as f64).sqrt();
                        }
                        let slot = tokens - 1 - t;
                        if slot < states {
                            kept[slot * n * n * heads * sequences + place..][..n * n]
                                .copy_from_slice(&m);
                        }
                    }
                }
            }
            outputs.extend(kept);
            let what = format!("{gates} gates, {states} states on {}", device.name());
            assert_close(&got, &outputs, 1e-4, &what);
        }
    }
}

#[test]
fn triangular_systems_are_solved() {
    for device in devices() {
        let sizes: &[[usize; 2]] = &[[32, 5], [64, 40], [7, 3]];
        for &[n, columns] in sizes {
            let mut a = Operand::new(F32, &[n, n, 2, 3], 1);
            for (at, x) in a.values.iter_mut().enumerate() {
                let (column, row) = (at % n, at / n % n);
                // Above the diagonal there is nothing to be read.
                *x = match column.cmp(&row) {
                    std::cmp::Ordering::Less => *x * 0.1,
                    std::cmp::Ordering::Equal => 1.0 + x.abs(),
                    std::cmp::Ordering::Greater => f32::NAN,
                };
            }
            let b = Operand::new(F32, &[columns, n, 2, 3], 2);
            let got = run(device, &[&a, &b], |_, x| x[0].solve_tri(x[1]));
            let mut expected = Vec::new();
            for batch in 0..6 {
                let (a, b) = (&a.values[batch * n * n..], &b.values[batch * n * columns..]);
                let mut x = vec![0.0; n * columns];
                for i in 0..n {
                    for c in 0..columns {
                        let known: f64 = (0..i)
                            .map(|j| f64::from(a[i * n + j]) * x[j * columns + c])
                            .sum();
                        x[i * columns + c] =
                            (f64::from(b[i * columns + c]) - known) / f64::from(a[i * n + i]);
                    }
                }
                expected.extend(x);
            }
            assert_close(&got, &expected, 1e-4, &format!("{n} on {}", device.name()));
        }
    }
}

#[test]
fn states_are_chosen_by_ids_that_exist() {
    let outcome = Graph::build(|g| {
        let scan = Scan {
            state: 16,
            dim: 2,
            heads: 1,
            groups: 1,
            tokens: 2,
            sequences: 2,
            mamba1: false,
            states: 1,
        };
        let mut x = Vec::new();
        for (i, operand) in scan_operands(scan).iter().enumerate() {
            x.push(
                g.input(&format!("input {i}"), operand.dtype, operand.shape)?
                    .0,
            );
        }
        let (ids, _) = g.row_ids("ids", [2], SLOTS + 1)?;
        let out = x[0].ssm_scan(SsmScan {
            x: x[1],
            dt: x[2],
            a: x[3],
            b: x[4],
            c: x[5],
            ids,
            states: 1,
        })?;
        assert_eq!(ids.dtype(), I32);
        g.output("out", out)
    });
    assert!(matches!(outcome, Err(Error::Shape(_))));
}
