//! Attention, recurrences, residual streams, triangles.

use std::ptr::null_mut;

use ggml_sys as sys;

use super::harness::{Bench, F32, Raw, check, check_all};
use crate::dtype::DType;

macro_rules! ggml {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the test passes live tensors of one context that has room, with shapes that the function takes.
        unsafe { sys::$name($($argument),*) }
    };
}

/// One choice of FLASH_ATTN_EXT's operands and parameters.
#[derive(Clone, Copy)]
struct Attention {
    dtype: DType,
    heads: [usize; 2],
    batch: usize,
    mask: bool,
    sinks: bool,
    max_bias: f32,
    softcap: f32,
}

fn attend(case: Attention, limit: f64) {
    check_all("flash_attn_ext", limit, |t| {
        let [heads, kv_heads] = case.heads;
        let q = t.values(&[64, 5, heads, case.batch]);
        let k = t.typed(case.dtype, &[64, 96, kv_heads, case.batch]);
        let v = t.typed(case.dtype, &[32, 96, kv_heads, case.batch]);
        let mask = match case.mask {
            true => masked(t, &[96, 5, heads / 2, 1]),
            false => null_mut(),
        };
        let (scale, bias, cap) = (0.3, case.max_bias, case.softcap);
        let out = ggml!(ggml_flash_attn_ext(
            t.ctx(),
            q,
            k,
            v,
            mask,
            scale,
            bias,
            cap
        ));
        if case.sinks {
            let sinks = t.values(&[heads]);
            ggml!(ggml_flash_attn_ext_add_sinks(out, sinks));
        }
        vec![out]
    });
}

/// A mask in F16: numbers, a quarter of its places closed, and the second row closed entirely.
fn masked(t: &mut Bench, dims: &[usize]) -> Raw {
    let closed = |i: usize| i % 4 == 1 || i / dims[0] == 1;
    t.typed_by(DType::F16, dims, |i, value| match closed(i) {
        true => f32::NEG_INFINITY,
        false => value,
    })
}

#[test]
pub fn attention() {
    let plain = Attention {
        dtype: DType::F32,
        heads: [4, 4],
        batch: 2,
        mask: false,
        sinks: false,
        max_bias: 0.0,
        softcap: 0.0,
    };
    attend(plain, F32);
    attend(
        Attention {
            heads: [6, 2],
            ..plain
        },
        F32,
    );
    attend(
        Attention {
            mask: true,
            ..plain
        },
        F32,
    );
    attend(
        Attention {
            sinks: true,
            ..plain
        },
        F32,
    );
    attend(
        Attention {
            softcap: 2.0,
            mask: true,
            sinks: true,
            ..plain
        },
        F32,
    );
    for heads in [[8, 4], [6, 3]] {
        let bias = Attention {
            heads,
            mask: true,
            max_bias: 8.0,
            ..plain
        };
        attend(bias, 5e-6);
    }
    // The kernel rounds queries to F16, and adds values up in it.
    attend(
        Attention {
            dtype: DType::F16,
            mask: true,
            ..plain
        },
        2e-3,
    );
    // Queries to blocks of 8-bit numbers.
    attend(
        Attention {
            dtype: DType::Q8_0,
            mask: true,
            ..plain
        },
        2e-2,
    );
}

#[test]
pub fn the_indexer() {
    check("lightning_indexer", |t| {
        let (q, k) = (t.values(&[32, 4, 5, 2]), t.values(&[32, 1, 48, 2]));
        let (weights, mask) = (t.values(&[4, 5, 1, 2]), t.typed(DType::F16, &[48, 5]));
        ggml!(ggml_lightning_indexer(t.ctx(), q, k, weights, mask))
    });
}

#[test]
pub fn state_space_models() {
    check("ssm_conv", |t| {
        let (x, weights) = (t.values(&[9, 6, 2]), t.values(&[4, 6]));
        ggml!(ggml_ssm_conv(t.ctx(), x, weights))
    });
    // One decay a head, with one slot of states and with as many as tokens; or one for each element.
    for (decays, slots) in [(1, 1), (1, 3), (8, 1)] {
        check("ssm_scan", |t| {
            let (states, x) = (t.values(&[8, 4, 6, 3]), t.values(&[4, 6, 3, 2]));
            let (steps, decay) = (t.values(&[6, 3, 2]), t.within(&[decays, 6], -2.0, 0.0));
            let (b, c) = (t.values(&[8, 2, 3, 2]), t.values(&[8, 2, 3, 2]));
            let ids = t.ids(&[2], &[2, 0]);
            ggml!(ggml_ssm_scan(
                t.ctx(),
                states,
                x,
                steps,
                decay,
                b,
                c,
                ids,
                slots
            ))
        });
    }
}

#[test]
pub fn linear_attention() {
    // The kernels take whole vectors of a head.
    let token = [64, 3, 6];
    let state = |t: &mut Bench| t.values(&[64 * 64 * 3, 2]);
    check("rwkv_wkv6", |t| {
        let (k, v, r) = (t.values(&token), t.values(&token), t.values(&token));
        let (bonus, decay) = (t.values(&[64, 3]), t.within(&token, 0.1, 0.9));
        let state = state(t);
        ggml!(ggml_rwkv_wkv6(t.ctx(), k, v, r, bonus, decay, state))
    });
    check("rwkv_wkv7", |t| {
        let (r, w, k) = (
            t.values(&token),
            t.within(&token, 0.1, 0.9),
            t.values(&token),
        );
        let (v, a, b) = (
            t.values(&token),
            t.within(&token, -0.2, 0.2),
            t.values(&token),
        );
        let state = state(t);
        ggml!(ggml_rwkv_wkv7(t.ctx(), r, w, k, v, a, b, state))
    });
    check("gated_linear_attn", |t| {
        let (k, v, q) = (t.values(&token), t.values(&token), t.values(&token));
        let (gate, state) = (t.within(&token, 0.1, 0.9), state(t));
        ggml!(ggml_gated_linear_attn(t.ctx(), k, v, q, gate, state, 0.7))
    });
}

#[test]
pub fn delta_rule() {
    // A gate of a head or of each column; queries of every head and sequence, or shared.
    for (gates, heads, sequences, slots) in [(1, 4, 2, 1), (16, 4, 2, 1), (1, 2, 1, 3)] {
        check("gated_delta_net", |t| {
            let shared = [16, heads, 3, sequences];
            let (q, k) = (t.within(&shared, -0.5, 0.5), t.within(&shared, -0.5, 0.5));
            let v = t.values(&[16, 4, 3, 2]);
            let gate = t.within(&[gates, 4, 3, 2], -1.0, 0.0);
            let beta = t.within(&[1, 4, 3, 2], 0.0, 1.0);
            let state = t.values(&[16, 16, 4, 2]);
            ggml!(ggml_gated_delta_net(
                t.ctx(),
                q,
                k,
                v,
                gate,
                beta,
                state,
                slots
            ))
        });
    }
}

#[test]
pub fn residual_streams() {
    for rounds in [1, 5] {
        check("dsv4_hc_comb", |t| {
            let (mixes, scale, base) = (t.values(&[24, 5]), t.values(&[3]), t.values(&[24]));
            ggml!(ggml_dsv4_hc_comb(t.ctx(), mixes, scale, base, 1e-3, rounds))
        });
    }
    check("dsv4_hc_pre", |t| {
        let (x, weights) = (t.values(&[16, 4, 5]), t.values(&[4, 5]));
        ggml!(ggml_dsv4_hc_pre(t.ctx(), x, weights))
    });
    check("dsv4_hc_pre_gated", |t| {
        let (x, gate) = (t.values(&[16, 4, 5]), t.values(&[16, 4, 5]));
        ggml!(ggml_dsv4_hc_pre_gated(t.ctx(), x, gate, 0.7))
    });
    for mixed in [false, true] {
        check("dsv4_hc_post", |t| {
            let (x, residual, post) =
                (t.values(&[16, 5]), t.values(&[16, 4, 5]), t.values(&[4, 5]));
            let comb = if mixed {
                t.values(&[4, 4, 5])
            } else {
                null_mut()
            };
            ggml!(ggml_dsv4_hc_post(t.ctx(), x, residual, post, comb))
        });
    }
}

#[test]
pub fn triangles() {
    for kind in [
        sys::GGML_TRI_TYPE_UPPER_DIAG,
        sys::GGML_TRI_TYPE_UPPER,
        sys::GGML_TRI_TYPE_LOWER_DIAG,
        sys::GGML_TRI_TYPE_LOWER,
    ] {
        check("tri", |t| {
            let a = t.values(&[6, 6, 3, 2]);
            ggml!(ggml_tri(t.ctx(), a, kind))
        });
    }
    check("solve_tri", |t| {
        // A diagonal far from zero; what stands above it is not read.
        let a = t.typed_by(DType::F32, &[7, 7, 3, 2], |i, value| {
            if i % 7 == i / 7 % 7 {
                2.0 + value
            } else {
                value
            }
        });
        let b = t.values(&[4, 7, 3, 2]);
        ggml!(ggml_solve_tri(t.ctx(), a, b, true, true, false))
    });
}
