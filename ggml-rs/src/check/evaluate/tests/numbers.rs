//! Elementwise ops, GLUs, sums, normalisations, softmax, rope.

use ggml_sys as sys;

use super::harness::{F32, Raw, check, check_all};

/// One call of a ggml function on live tensors of one context.
macro_rules! ggml {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the test passes live tensors of one context that has room, with shapes that the function takes.
        unsafe { sys::$name($($argument),*) }
    };
}

#[test]
pub fn arithmetic_with_and_without_broadcast() {
    type Binary = unsafe extern "C-unwind" fn(*mut sys::ggml_context, Raw, Raw) -> Raw;
    for (name, function) in [
        ("add", sys::ggml_add as Binary),
        ("sub", sys::ggml_sub),
        ("mul", sys::ggml_mul),
        ("div", sys::ggml_div),
    ] {
        for b in [[6, 4, 3, 2], [6, 1, 1, 2], [1, 4, 3, 1], [3, 2, 1, 2]] {
            check(name, |t| {
                let (a, b) = (t.values(&[6, 4, 3, 2]), t.within(&b, 0.5, 2.0));
                // SAFETY: as in `ggml!`.
                unsafe { function(t.ctx(), a, b) }
            });
        }
    }
    check("add1", |t| {
        let (a, b) = (t.values(&[5, 3]), t.values(&[1]));
        ggml!(ggml_add1(t.ctx(), a, b))
    });
    check("scale_bias", |t| {
        let a = t.values(&[5, 3]);
        ggml!(ggml_scale_bias(t.ctx(), a, -1.7, 0.3))
    });
    check("clamp", |t| {
        let a = t.values(&[50]);
        ggml!(ggml_clamp(t.ctx(), a, -0.5, 1.25))
    });
    check("fill", |t| {
        let a = t.values(&[5, 2]);
        ggml!(ggml_fill(t.ctx(), a, 2.5))
    });
    check("arange", |t| ggml!(ggml_arange(t.ctx(), 1.5, 9.0, 0.75)));
}

#[test]
pub fn in_place_results_are_written_to_their_base() {
    check_all("in place", F32, |t| {
        let (a, b) = (t.values(&[6, 4]), t.values(&[6]));
        let sum = ggml!(ggml_add_inplace(t.ctx(), a, b));
        let scaled = ggml!(ggml_scale_inplace(t.ctx(), sum, 3.0));
        vec![scaled, a]
    });
}

#[test]
pub fn unary_functions() {
    for function in 0..sys::GGML_UNARY_OP_COUNT {
        // The kernels of two look GELU up in a table of F16, by arguments in F16.
        let table = [sys::GGML_UNARY_OP_GELU, sys::GGML_UNARY_OP_GELU_QUICK];
        // exp(x) - 1 and log(1 + exp(x)) cancel in f32.
        let cancels = [sys::GGML_UNARY_OP_EXPM1, sys::GGML_UNARY_OP_SOFTPLUS];
        let limit = match function {
            function if table.contains(&function) => 1e-3,
            function if cancels.contains(&function) => 1e-5,
            _ => F32,
        };
        if function == sys::GGML_UNARY_OP_XIELU {
            check("xielu", |t| {
                let a = t.within(&[300], -8.0, 8.0);
                ggml!(ggml_xielu(t.ctx(), a, 0.8, 0.9, 0.5, -1e-6))
            });
            continue;
        }
        check_all(&format!("unary {function}"), limit, |t| {
            let a = t.within(&[100, 3], -8.0, 8.0);
            vec![ggml!(ggml_unary(t.ctx(), a, function))]
        });
    }
    check("sqr", |t| {
        let a = t.values(&[100]);
        ggml!(ggml_sqr(t.ctx(), a))
    });
    check("leaky_relu", |t| {
        let a = t.values(&[100]);
        ggml!(ggml_leaky_relu(t.ctx(), a, 0.1, false))
    });
    type Unary = unsafe extern "C-unwind" fn(*mut sys::ggml_context, Raw) -> Raw;
    for (name, function) in [
        ("sqrt", sys::ggml_sqrt as Unary),
        ("log", sys::ggml_log),
        ("sin", sys::ggml_sin),
        ("cos", sys::ggml_cos),
    ] {
        check(name, |t| {
            let a = t.within(&[100], 0.1, 5.0);
            // SAFETY: as in `ggml!`.
            unsafe { function(t.ctx(), a) }
        });
    }
    check("silu_back", |t| {
        let (a, b) = (t.values(&[64, 3]), t.within(&[64, 3], -6.0, 6.0));
        ggml!(ggml_silu_back(t.ctx(), a, b))
    });
}

#[test]
pub fn gated_linear_units() {
    for function in 0..sys::GGML_GLU_OP_COUNT {
        let table = [sys::GGML_GLU_OP_GEGLU, sys::GGML_GLU_OP_GEGLU_QUICK];
        let limit = if table.contains(&function) { 1e-3 } else { F32 };
        let bounded = [sys::GGML_GLU_OP_SWIGLU_OAI, sys::GGML_GLU_OP_SWIGLU_CLAMP];
        if bounded.contains(&function) {
            continue;
        }
        for swapped in [false, true] {
            check_all(&format!("glu {function}"), limit, |t| {
                let a = t.within(&[20, 3, 2], -3.0, 3.0);
                vec![ggml!(ggml_glu(t.ctx(), a, function, swapped))]
            });
        }
        check_all(&format!("split glu {function}"), limit, |t| {
            let (a, b) = (t.values(&[10, 3]), t.values(&[10, 3]));
            vec![ggml!(ggml_glu_split(t.ctx(), a, b, function))]
        });
    }
    check("swiglu_oai", |t| {
        let (a, b) = (t.within(&[40, 3], -4.0, 4.0), t.within(&[40, 3], -4.0, 4.0));
        ggml!(ggml_swiglu_oai(t.ctx(), a, b, 1.7, 2.0))
    });
    check("swiglu_clamp", |t| {
        let (a, b) = (t.within(&[40, 3], -4.0, 4.0), t.within(&[40, 3], -4.0, 4.0));
        ggml!(ggml_swiglu_clamp(t.ctx(), a, b, 1.5))
    });
}

#[test]
pub fn sums_and_repeats() {
    for name in ["sum", "sum_rows", "mean", "cumsum"] {
        check(name, |t| {
            // All of one sign, so that sums do not cancel.
            let a = t.within(&[50, 4, 3, 2], 0.5, 1.5);
            match name {
                "sum" => ggml!(ggml_sum(t.ctx(), a)),
                "sum_rows" => ggml!(ggml_sum_rows(t.ctx(), a)),
                "mean" => ggml!(ggml_mean(t.ctx(), a)),
                _ => ggml!(ggml_cumsum(t.ctx(), a)),
            }
        });
    }
    check("repeat", |t| {
        let (a, b) = (t.values(&[3, 2, 1, 2]), t.values(&[6, 4, 3, 2]));
        ggml!(ggml_repeat(t.ctx(), a, b))
    });
    check("repeat_back", |t| {
        let (a, b) = (t.values(&[6, 4, 3, 2]), t.values(&[3, 2, 1, 2]));
        ggml!(ggml_repeat_back(t.ctx(), a, b))
    });
}

#[test]
pub fn normalisations() {
    check("norm", |t| {
        let a = t.values(&[50, 3, 2]);
        ggml!(ggml_norm(t.ctx(), a, 1e-3))
    });
    check("rms_norm", |t| {
        let a = t.values(&[50, 3, 2]);
        ggml!(ggml_rms_norm(t.ctx(), a, 0.1))
    });
    check("rms_norm_back", |t| {
        let (a, b) = (t.values(&[50, 3, 2]), t.values(&[50, 3, 2]));
        ggml!(ggml_rms_norm_back(t.ctx(), a, b, 0.1))
    });
    for eps in [1e-6, 20.0] {
        check("l2_norm", |t| {
            let a = t.values(&[50, 3, 2]);
            ggml!(ggml_l2_norm(t.ctx(), a, eps))
        });
    }
    // Even groups, and a last one that is smaller.
    for (channels, groups) in [(6, 3), (5, 2), (4, 1)] {
        check("group_norm", |t| {
            let a = t.values(&[7, 3, channels, 2]);
            ggml!(ggml_group_norm(t.ctx(), a, groups, 1e-3))
        });
    }
}

#[test]
pub fn softmax_and_its_loss() {
    check("soft_max", |t| {
        let a = t.values(&[17, 5, 3, 2]);
        ggml!(ggml_soft_max(t.ctx(), a))
    });
    for heads in [4, 6] {
        for max_bias in [0.0, 8.0] {
            for sinks in [false, true] {
                check("soft_max_ext", |t| {
                    let a = t.values(&[17, 5, heads, 2]);
                    let mask = t.values(&[17, 8, heads / 2, 1]);
                    let out = ggml!(ggml_soft_max_ext(t.ctx(), a, mask, 0.4, max_bias));
                    if sinks {
                        let sinks = t.values(&[heads]);
                        ggml!(ggml_soft_max_add_sinks(out, sinks));
                    }
                    out
                });
            }
        }
    }
    check("soft_max_ext_back", |t| {
        let (a, b) = (t.values(&[17, 5, 3]), t.within(&[17, 5, 3], 0.0, 0.1));
        ggml!(ggml_soft_max_ext_back(t.ctx(), a, b, 0.4, 0.0))
    });
    check("cross_entropy_loss", |t| {
        let (a, b) = (t.values(&[17, 5, 2]), t.within(&[17, 5, 2], 0.0, 0.2));
        ggml!(ggml_cross_entropy_loss(t.ctx(), a, b))
    });
    check("cross_entropy_loss_back", |t| {
        let gradient = t.given(&[1], &[0.7]);
        let (a, b) = (t.values(&[17, 5, 2]), t.within(&[17, 5, 2], 0.0, 0.2));
        ggml!(ggml_cross_entropy_loss_back(t.ctx(), gradient, a, b))
    });
    check("diag_mask_zero", |t| {
        let a = t.values(&[7, 5, 2]);
        ggml!(ggml_diag_mask_zero(t.ctx(), a, 2))
    });
    check("diag_mask_inf", |t| {
        let a = t.values(&[7, 5, 2]);
        let masked = ggml!(ggml_diag_mask_inf(t.ctx(), a, 1));
        ggml!(ggml_soft_max(t.ctx(), masked))
    });
    check("diag", |t| {
        let a = t.values(&[7, 1, 3]);
        ggml!(ggml_diag(t.ctx(), a))
    });
}

/// One choice of ROPE's parameters.
#[derive(Clone, Copy)]
struct Rope {
    n_dims: i32,
    mode: u32,
    sections: [i32; 4],
    scale: f32,
    ext: f32,
    factors: bool,
    offset: i32,
    back: bool,
}

fn rope(case: Rope) {
    // The kernel multiplies its way from one frequency to the next; angles are up to 40.
    check_all("rope", 2e-5, |t| {
        let a = t.values(&[16, 3, 4, 2]);
        let many = case.mode & sys::GGML_ROPE_TYPE_MROPE != 0;
        let positions = t.ids_below(&[if many { 16 } else { 4 }], 40);
        let factors = if case.factors {
            t.within(&[8], 0.5, 2.0)
        } else {
            std::ptr::null_mut()
        };
        let mut sections = case.sections;
        let Rope {
            n_dims, scale, ext, ..
        } = case;
        let mode = case.mode as i32;
        let out = match (many, case.back) {
            (false, false) => ggml!(ggml_rope_ext(
                t.ctx(),
                a,
                positions,
                factors,
                n_dims,
                mode,
                64,
                1e4,
                scale,
                ext,
                1.2,
                32.0,
                1.0
            )),
            (false, true) => ggml!(ggml_rope_ext_back(
                t.ctx(),
                a,
                positions,
                factors,
                n_dims,
                mode,
                64,
                1e4,
                scale,
                ext,
                1.2,
                32.0,
                1.0
            )),
            (true, false) => ggml!(ggml_rope_multi(
                t.ctx(),
                a,
                positions,
                factors,
                n_dims,
                sections.as_mut_ptr(),
                mode,
                64,
                1e4,
                scale,
                ext,
                1.2,
                32.0,
                1.0
            )),
            (true, true) => ggml!(ggml_rope_multi_back(
                t.ctx(),
                a,
                positions,
                factors,
                n_dims,
                sections.as_mut_ptr(),
                mode,
                64,
                1e4,
                scale,
                ext,
                1.2,
                32.0,
                1.0
            )),
        };
        if case.offset > 0 {
            ggml!(ggml_rope_set_offset(out, case.offset));
        }
        vec![out]
    });
}

#[test]
pub fn rope_in_every_mode() {
    let plain = Rope {
        n_dims: 16,
        mode: sys::GGML_ROPE_TYPE_NORMAL,
        sections: [0; 4],
        scale: 1.0,
        ext: 0.0,
        factors: false,
        offset: 0,
        back: false,
    };
    for mode in [sys::GGML_ROPE_TYPE_NORMAL, sys::GGML_ROPE_TYPE_NEOX] {
        let plain = Rope { mode, ..plain };
        rope(plain);
        rope(Rope {
            back: true,
            ..plain
        });
        rope(Rope { n_dims: 8, ..plain });
        rope(Rope {
            n_dims: 8,
            offset: 4,
            ..plain
        });
        rope(Rope {
            scale: 0.5,
            factors: true,
            ..plain
        });
        rope(Rope {
            scale: 0.25,
            ext: 1.0,
            ..plain
        });
        rope(Rope {
            scale: 0.25,
            ext: 0.7,
            factors: true,
            back: true,
            ..plain
        });
    }
    for (mode, n_dims, sections) in [
        (sys::GGML_ROPE_TYPE_MROPE, 16, [2, 3, 2, 1]),
        (sys::GGML_ROPE_TYPE_MROPE, 12, [1, 1, 1, 0]),
        (sys::GGML_ROPE_TYPE_IMROPE, 16, [3, 3, 2, 0]),
        (sys::GGML_ROPE_TYPE_IMROPE, 16, [2, 2, 1, 3]),
        (sys::GGML_ROPE_TYPE_VISION, 8, [4, 4, 0, 0]),
    ] {
        for back in [false, true] {
            rope(Rope {
                mode,
                n_dims,
                sections,
                back,
                ..plain
            });
        }
    }
}
