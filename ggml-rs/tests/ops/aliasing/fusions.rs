//! Backends compute several nodes in one pass and leave out what lies between. They must not where somebody else reads it: the
//! chain itself once more, a later node, whoever reads an output, a view.

use std::cell::Cell;

use ggml_rs::{DType, GatedDeltaNet, Result, RowIds, SortOrder, Tensor};

use super::{Built, Case, How, PLACEMENTS, RUNS, check, check_named, check_runs, devices};

/// The nodes of a chain that Metal computes in one pass, the result last.
type Chain = for<'g> fn(&mut Case<'g>) -> Result<Vec<Tensor<'g>>>;

const CHAINS: [(&str, Chain); 16] = [
    ("norm + mul", |case| {
        let n = case.input(&[64, 5])?.norm(1e-5)?;
        Ok(vec![n, n.mul(case.input(&[64])?)?])
    }),
    ("norm + mul + add", |case| {
        let n = case.input(&[64, 5])?.norm(1e-5)?;
        let product = n.mul(case.input(&[64])?)?;
        Ok(vec![n, product, product.add(case.input(&[64])?)?])
    }),
    ("norm + scale", |case| {
        let n = case.input(&[64, 5])?.norm(1e-5)?;
        Ok(vec![n, n.scale(3.0)?])
    }),
    ("rms_norm + mul", |case| {
        let n = case.input(&[64, 5])?.rms_norm(1e-5)?;
        Ok(vec![n, n.mul(case.input(&[64])?)?])
    }),
    ("rms_norm + mul + add", |case| {
        let n = case.input(&[64, 5])?.rms_norm(1e-5)?;
        let product = n.mul(case.input(&[64])?)?;
        Ok(vec![n, product, product.add(case.input(&[64])?)?])
    }),
    ("rms_norm + scale", |case| {
        let n = case.input(&[64, 5])?.rms_norm(1e-5)?;
        Ok(vec![n, n.scale(3.0)?])
    }),
    ("two sums", |case| sums(case, 2)),
    ("seven sums", |case| sums(case, 7)),
    ("snake", |case| {
        let (x, a) = (case.input(&[64, 8])?, case.input(&[1, 8])?);
        let inverse = case.input(&[1, 8])?;
        let product = x.mul(a)?;
        let sine = product.sin()?;
        let square = sine.sqr()?;
        let wave = square.mul(inverse)?;
        Ok(vec![product, sine, square, wave, x.add(wave)?])
    }),
    ("delta net and cache", |case| {
        let (net, states) = delta_net(case)?;
        let cache = case.input(&[N * N])?;
        Ok(vec![net, states, states.cpy(cache)?])
    }),
    ("router", |case| Ok(route(case, Router::default())?.0)),
    ("router with a scale", |case| {
        let router = Router {
            scale: Some((2.5, 0.0)),
            ..Router::default()
        };
        Ok(route(case, router)?.0)
    }),
    ("normalizing router with a scale", |case| {
        let router = Router {
            normalized: Some((2, f32::INFINITY)),
            scale: Some((2.5, 0.0)),
            ..Router::default()
        };
        Ok(route(case, router)?.0)
    }),
    ("experts' sum", |case| {
        let (experts, weights) = (case.input(&[16, 3, 5])?, case.input(&[1, 3, 5])?);
        let product = experts.mul(weights)?;
        let row = 4 * 16;
        let view = |i| product.view([16, 5], [3 * row; 3], i * row);
        let (a, b, c) = (view(0)?, view(1)?, view(2)?);
        let sum = a.add(b)?;
        Ok(vec![product, a, b, c, sum, sum.add(c)?])
    }),
    ("ssm_conv + silu", |case| {
        let (x, kernel) = (case.input(&[8, 6, 2])?, case.input(&[4, 6])?);
        let conv = x.ssm_conv(kernel)?;
        Ok(vec![conv, conv.silu()?])
    }),
    ("mul_mat + add", |case| {
        let product = case.input(&[64, 16])?.mul_mat(case.input(&[64, 8])?)?;
        Ok(vec![product, product.add(case.input(&[16, 8])?)?])
    }),
];

fn sums<'g>(case: &mut Case<'g>, n: usize) -> Result<Vec<Tensor<'g>>> {
    let first = case.input(&[64, 5])?.add(case.input(&[64, 5])?)?;
    let mut nodes = vec![first];
    for _ in 1..n {
        nodes.push(nodes[nodes.len() - 1].add(case.input(&[64, 5])?)?);
    }
    Ok(nodes)
}

/// The size of a state.
const N: usize = 32;

/// A delta net of one token, and a view of its state.
fn delta_net<'g>(case: &mut Case<'g>) -> Result<(Tensor<'g>, Tensor<'g>)> {
    let net = GatedDeltaNet {
        k: case.input(&[N, 1])?,
        v: case.input(&[N, 1])?,
        g: case.input(&[1, 1])?,
        beta: case.input(&[1, 1])?,
        state: case.input(&[N, N])?,
        states: 1,
    };
    let net = case.input(&[N, 1])?.gated_delta_net(net)?;
    Ok((net, net.view([N * N], [4 * N * N; 3], 4 * N)?))
}

const EXPERTS: usize = 8;
const TOKENS: usize = 4;

/// How experts are chosen and weighted.
struct Router {
    order: SortOrder,
    /// Which of the sorted experts: the first, and how many.
    chosen: (usize, usize),
    /// How many weights add up to one sum, and what bounds the sum from above.
    normalized: Option<(usize, f32)>,
    scale: Option<(f32, f32)>,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            order: SortOrder::Descending,
            chosen: (0, 2),
            normalized: None,
            scale: None,
        }
    }
}

fn route<'g>(case: &mut Case<'g>, router: Router) -> Result<(Vec<Tensor<'g>>, RowIds<'g>)> {
    let (start, used) = router.chosen;
    let p = case.input(&[EXPERTS, TOKENS])?.soft_max()?;
    let rows = p.reshape([1, EXPERTS, TOKENS])?;
    let ids = p.argsort(router.order)?.narrow(0, start, used)?;
    let mut nodes = vec![p, rows, rows.get_rows(ids)?];
    if let Some((together, most)) = router.normalized {
        let weights = nodes[2].reshape([together, used * TOKENS / together])?;
        let sum = weights.sum_rows()?;
        let bounded = sum.clamp(1e-4, most)?;
        let normalized = weights.div(bounded)?;
        let shaped = normalized.reshape([1, used, TOKENS])?;
        nodes.extend([weights, sum, bounded, normalized, shaped]);
    }
    if let Some((factor, bias)) = router.scale {
        nodes.push(nodes[nodes.len() - 1].scale_bias(factor, bias)?);
    }
    Ok((nodes, ids))
}

/// Who reads a node besides the chain.
#[derive(Debug, Clone, Copy)]
enum Reader {
    Node,
    /// Whoever reads outputs.
    Output,
    ViewAsOutput,
    NodeOfView,
}

impl Reader {
    const ALL: [Self; 4] = [
        Self::Node,
        Self::Output,
        Self::ViewAsOutput,
        Self::NodeOfView,
    ];

    fn read<'g>(self, case: &mut Case<'g>, tensor: Tensor<'g>) -> Result<()> {
        let last = 4 * (tensor.shape().ne()[0] - 1);
        let element = |tensor: Tensor<'g>| tensor.view([1], [4; 3], last);
        case.output(match self {
            Self::Node => tensor.neg()?,
            // A view with gaps is no output.
            Self::Output if tensor.is_contiguous() => tensor,
            Self::Output => element(tensor)?,
            Self::ViewAsOutput => element(tensor)?,
            Self::NodeOfView => element(tensor)?.neg()?,
        })
    }
}

/// How many nodes a chain has.
fn length(chain: Chain) -> usize {
    let length = Cell::new(0);
    let built = Built::new(&|case| {
        let nodes = chain(case)?;
        length.set(nodes.len());
        case.output(nodes[nodes.len() - 1].neg()?)
    });
    drop(built.unwrap());
    length.get()
}

/// Otherwise nothing here is tested.
#[test]
fn each_chain_is_one_pass() {
    for (name, chain) in CHAINS {
        for device in devices().into_iter().skip(1) {
            let built = Built::new(&|case| {
                let nodes = chain(case)?;
                case.output(nodes[nodes.len() - 1].neg()?)
            });
            let run = built.unwrap().run(device, PLACEMENTS[0], How::Traced);
            assert_eq!(run.unwrap().1, 2, "{name}");
        }
    }
}

#[test]
fn what_a_chain_leaves_out_is_there_for_all_who_read_it() {
    for (name, chain) in CHAINS {
        for at in 0..length(chain) - 1 {
            for reader in Reader::ALL {
                check_runs(
                    &RUNS[..1],
                    &format!("{name}, node {at} for {reader:?}"),
                    |case| {
                        let nodes = chain(case)?;
                        case.output(nodes[nodes.len() - 1].neg()?)?;
                        reader.read(case, nodes[at])
                    },
                );
            }
        }
    }
}

#[test]
fn sums_may_add_a_sum_of_the_chain_again() {
    fn pair<'g>(case: &mut Case<'g>) -> Result<Tensor<'g>> {
        case.input(&[64, 5])?.add(case.input(&[64, 5])?)
    }
    check_named("s + s", |case| {
        let s = pair(case)?;
        case.output(s.add(s)?)
    });
    check_named("(s + c) + s", |case| {
        let s = pair(case)?;
        let t = s.add(case.input(&[64, 5])?)?;
        case.output(t.add(s)?)
    });
    check_named("(s + s) + c", |case| {
        let s = pair(case)?;
        let t = s.add(s)?;
        let u = t.add(case.input(&[64, 5])?)?;
        case.output(u)
    });
    check_named("t + t, t = s + c", |case| {
        let t = pair(case)?.add(case.input(&[64, 5])?)?;
        case.output(t.add(t)?)
    });
    check_named("doubled six times", |case| {
        let mut s = pair(case)?;
        for _ in 0..6 {
            s = s.add(s)?;
        }
        case.output(s)
    });
    check_named("in place", |case| {
        let s = pair(case)?;
        case.output(s.add_inplace(s)?)
    });
}

#[test]
fn a_norm_may_be_multiplied_and_added_to_itself() {
    type Norm = for<'g> fn(&mut Case<'g>) -> Result<Tensor<'g>>;
    let norms: [(&str, Norm); 2] = [
        ("norm", |case| case.input(&[64, 5])?.norm(1e-5)),
        ("rms_norm", |case| case.input(&[64, 5])?.rms_norm(1e-5)),
    ];
    for (name, norm) in norms {
        check_named(&format!("{name}: n * n"), |case| {
            let n = norm(case)?;
            case.output(n.mul(n)?)
        });
        check_named(&format!("{name}: n * w + n"), |case| {
            let n = norm(case)?;
            let product = n.mul(case.input(&[64])?)?;
            case.output(product.add(n)?)
        });
        check_named(&format!("{name}: w * n"), |case| {
            let w = case.input(&[64, 5])?;
            let n = norm(case)?;
            case.output(w.mul(n)?)
        });
        check_named(&format!("{name}: n * n + n"), |case| {
            let n = norm(case)?;
            case.output(n.mul(n)?.add(n)?)
        });
        check_named(&format!("{name}: p + p, p = n * w"), |case| {
            let product = norm(case)?.mul(case.input(&[64])?)?;
            case.output(product.add(product)?)
        });
    }
}

#[test]
fn a_wave_may_be_its_own_factor() {
    for (name, own) in [("square * square", true), ("square * sine", false)] {
        check_named(name, |case| {
            let (x, a) = (case.input(&[1, 8])?, case.input(&[1, 8])?);
            let sine = x.mul(a)?.sin()?;
            let square = sine.sqr()?;
            let wave = square.mul(if own { square } else { sine })?;
            case.output(x.add(wave)?)
        });
    }
}

#[test]
fn a_product_may_be_added_to_any_product() {
    check_named("p + p", |case| {
        let p = case.input(&[64, 16])?.mul_mat(case.input(&[64, 8])?)?;
        case.output(p.add(p)?)
    });
    for swapped in [false, true] {
        check_named(&format!("p + q, swapped {swapped}"), |case| {
            let p = case.input(&[64, 16])?.mul_mat(case.input(&[64, 8])?)?;
            let q = case.input(&[64, 16])?.mul_mat(case.input(&[64, 8])?)?;
            case.output(if swapped { q.add(p)? } else { p.add(q)? })
        });
    }
}

#[test]
fn states_may_be_read_in_another_part_of_a_run() {
    check(|case| {
        let (_, states) = delta_net(case)?;
        let cache = case.input(&[N * N])?;
        let stored = states.cpy(cache)?;
        // More nodes than a part of a cancellable run has.
        let mut x = case.input(&[8])?;
        for _ in 0..40 {
            x = x.neg()?;
        }
        case.output(x)?;
        case.output(states.scale(1.0)?)?;
        case.output(stored.scale(1.0)?)
    });
}

#[test]
fn a_router_chooses_and_weights_as_it_is_told() {
    let check = |name: &str, router: fn() -> Router| {
        check_named(name, |case| {
            let (nodes, ids) = route(case, router())?;
            case.output(nodes[nodes.len() - 1])?;
            case.output(ids.to_tensor()?.cast(DType::F32)?)
        });
        check_named(&format!("{name}, its ids not read again"), |case| {
            let (nodes, _) = route(case, router())?;
            case.output(nodes[nodes.len() - 1])
        });
    };
    check("the least", || Router {
        order: SortOrder::Ascending,
        ..Router::default()
    });
    check("all but the first", || Router {
        chosen: (1, 2),
        ..Router::default()
    });
    check("a bias", || Router {
        scale: Some((2.0, 1.0)),
        ..Router::default()
    });
    check("a bias after normalizing", || Router {
        normalized: Some((2, f32::INFINITY)),
        scale: Some((2.0, 1.0)),
        ..Router::default()
    });
    check("a bound from above", || Router {
        normalized: Some((2, 0.1)),
        scale: Some((2.0, 0.0)),
        ..Router::default()
    });
    check("normalized over two tokens", || Router {
        normalized: Some((4, f32::INFINITY)),
        ..Router::default()
    });
    check("normalized alone", || Router {
        normalized: Some((1, f32::INFINITY)),
        ..Router::default()
    });
    check("as fused", || Router {
        normalized: Some((2, f32::INFINITY)),
        ..Router::default()
    });
}

/// Ids stay below the others of their row, which another view reads.
#[test]
fn ids_beside_the_chosen_ones_are_there() {
    check(|case| {
        let p = case.input(&[EXPERTS, TOKENS])?.soft_max()?;
        let rows = p.reshape([1, EXPERTS, TOKENS])?;
        let sorted = p.argsort(SortOrder::Descending)?;
        let weights = rows.get_rows(sorted.narrow(0, 0, 2)?)?;
        case.output(weights)?;
        let rest = sorted.narrow(0, 2, 2)?.to_tensor()?;
        case.output(rest.cast(DType::F32)?)
    });
}

/// The sorted ids lie where a dispatch before may still read, and no other node of the router's does.
#[test]
fn a_router_waits_for_whoever_reads_where_its_ids_go() {
    check(|case| {
        let logits = case.input(&[EXPERTS, TOKENS])?;
        let (x, y) = (case.input(&[EXPERTS, TOKENS])?, case.input(&[EXPERTS, 64])?);
        let v = case.input(&[8])?;
        // The allocator takes the smallest place that is free. Three with results between them: for the ids, twice as large
        // because argsort asks for that, the probabilities and the weights.
        let for_ids = y.scale(1.0)?;
        case.output(v.scale(2.0)?)?;
        let for_probabilities = x.scale(3.0)?;
        case.output(v.scale(4.0)?)?;
        let for_weights = v.scale(5.0)?;
        case.output(v.scale(6.0)?)?;
        let joined = for_probabilities.concat(for_weights, 1)?;
        case.output(joined)?;
        case.output(joined.scale(2.0)?)?;
        case.output(for_ids.sum_rows()?)?;
        let p = logits.soft_max()?;
        let rows = p.reshape([1, EXPERTS, TOKENS])?;
        let ids = p.argsort(SortOrder::Descending)?.narrow(0, 0, 2)?;
        case.output(rows.get_rows(ids)?)
    });
}

/// Factors that come from a dispatch just before, in every place of a chain.
#[test]
fn a_chain_waits_for_each_of_its_operands() {
    check(|case| {
        let (x, a) = (case.input(&[64, 8])?, case.input(&[1, 8])?);
        let inverse = case.input(&[1, 8])?.scale(2.0)?;
        let wave = x.mul(a)?.sin()?.sqr()?.mul(inverse)?;
        case.output(x.add(wave)?)
    });
    check(|case| {
        let x = case.input(&[64, 5])?;
        let (w, b) = (case.computed(&[64])?, case.computed(&[64])?);
        case.output(x.rms_norm(1e-5)?.mul(w)?.add(b)?)
    });
    check(|case| {
        let (x, y) = (case.input(&[64, 5])?, case.input(&[64, 5])?);
        let (z, w) = (case.computed(&[64, 5])?, case.input(&[64, 5])?);
        case.output(x.add(y)?.add(z)?.add(w)?)
    });
    check(|case| {
        let (a, b) = (case.input(&[64, 16])?, case.input(&[64, 8])?);
        let residual = case.computed(&[16, 8])?;
        case.output(a.mul_mat(b)?.add(residual)?)
    });
}
