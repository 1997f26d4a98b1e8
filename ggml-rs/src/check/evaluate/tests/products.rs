//! Products of matrices, rows by ids, optimizers.

use ggml_sys as sys;

use super::harness::{F32, check, check_all, check_sets};
use crate::dtype::DType;

macro_rules! ggml {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the test passes live tensors of one context that has room, with shapes that the function takes.
        unsafe { sys::$name($($argument),*) }
    };
}

#[test]
pub fn products_broadcast_their_first_operand() {
    for a in [[16, 5, 1, 1], [16, 5, 2, 1], [16, 5, 4, 3]] {
        check("mul_mat", |t| {
            let (a, b) = (t.values(&a), t.values(&[16, 7, 4, 3]));
            ggml!(ggml_mul_mat(t.ctx(), a, b))
        });
    }
    for a in [[5, 16, 1, 1], [5, 16, 2, 1], [5, 16, 4, 3]] {
        check("out_prod", |t| {
            let (a, b) = (t.values(&a), t.values(&[7, 16, 4, 3]));
            ggml!(ggml_out_prod(t.ctx(), a, b))
        });
    }
    check("mul_mat_id", |t| {
        let (a, b) = (t.values(&[16, 5, 4]), t.values(&[16, 1, 3]));
        let ids = t.ids(&[2, 3], &[0, 2, 3, 1, 1, 0]);
        ggml!(ggml_mul_mat_id(t.ctx(), a, b, ids))
    });
    check("mul_mat_id", |t| {
        let (a, b) = (t.values(&[16, 5, 4]), t.values(&[16, 2, 3]));
        let ids = t.ids(&[2, 3], &[0, 2, 3, 1, 1, 0]);
        ggml!(ggml_mul_mat_id(t.ctx(), a, b, ids))
    });
}

#[test]
pub fn quantized_operands_are_read_from_their_bytes() {
    // The kernel rounds `b` to blocks of 8-bit numbers, or to F16.
    for (dtype, limit) in [(DType::F16, 1e-3), (DType::Q8_0, 1e-2), (DType::Q4_K, 1e-2)] {
        check_all("mul_mat", limit, |t| {
            let (a, b) = (t.typed(dtype, &[256, 5]), t.values(&[256, 7]));
            vec![ggml!(ggml_mul_mat(t.ctx(), a, b))]
        });
    }
    for dtype in [DType::F16, DType::Q8_0, DType::Q4_K] {
        check("out_prod", |t| {
            let (a, b) = (t.typed(dtype, &[256, 5]), t.values(&[7, 5]));
            ggml!(ggml_out_prod(t.ctx(), a, b))
        });
        check("get_rows", |t| {
            let (a, ids) = (t.typed(dtype, &[256, 5]), t.ids_below(&[9], 5));
            ggml!(ggml_get_rows(t.ctx(), a, ids))
        });
    }
}

#[test]
pub fn rows_by_ids() {
    check("get_rows", |t| {
        let (a, ids) = (t.values(&[6, 5, 3, 2]), t.ids_below(&[4, 3, 2], 5));
        ggml!(ggml_get_rows(t.ctx(), a, ids))
    });
    check("get_rows_back", |t| {
        let (a, ids, c) = (t.values(&[6, 9]), t.ids_below(&[9], 5), t.values(&[6, 5]));
        ggml!(ggml_get_rows_back(t.ctx(), a, ids, c))
    });
    check_all("set_rows", F32, |t| {
        let (a, rows) = (t.values(&[6, 5, 4, 2]), t.values(&[6, 3, 4, 2]));
        let ids = t.ids(&[3, 2, 1], &[4, 0, 2, 1, 3, 0]);
        vec![ggml!(ggml_set_rows(t.ctx(), a, rows, ids)), a]
    });
    check("add_id", |t| {
        let (a, b) = (t.values(&[6, 3, 4]), t.values(&[6, 5]));
        let ids = t.ids_below(&[3, 4], 5);
        ggml!(ggml_add_id(t.ctx(), a, b, ids))
    });
}

#[test]
pub fn columns_by_value() {
    for order in [sys::GGML_SORT_ORDER_ASC, sys::GGML_SORT_ORDER_DESC] {
        check("argsort", |t| {
            let a = t.values(&[9, 4, 2]);
            ggml!(ggml_argsort(t.ctx(), a, order))
        });
    }
    for k in [1, 2, 5, 9] {
        check_sets("top_k", k as usize, |t| {
            let a = t.values(&[9, 4, 2]);
            ggml!(ggml_top_k(t.ctx(), a, k))
        });
    }
    check("count_equal", |t| {
        // The kernel finds the rows of matrices alone.
        let (a, b) = (t.ids_below(&[9, 12], 3), t.ids_below(&[9, 12], 3));
        ggml!(ggml_count_equal(t.ctx(), a, b))
    });
    check("argmax", |t| {
        let a = t.values(&[9, 4]);
        ggml!(ggml_argmax(t.ctx(), a))
    });
}

#[test]
pub fn optimizers_write_weights_and_momenta() {
    check_all("opt_step_adamw", F32, |t| {
        let (w, g, m) = (t.values(&[6, 5]), t.values(&[6, 5]), t.values(&[6, 5]));
        let v = t.within(&[6, 5], 0.1, 1.0);
        let params = t.given(&[7], &[0.01, 0.9, 0.99, 1e-3, 0.1, 2.0, 3.0]);
        ggml!(ggml_set_param(w));
        vec![
            ggml!(ggml_opt_step_adamw(t.ctx(), w, g, m, v, params)),
            w,
            m,
            v,
        ]
    });
    check_all("opt_step_sgd", F32, |t| {
        let (w, g) = (t.values(&[6, 5]), t.values(&[6, 5]));
        let params = t.given(&[2], &[0.01, 0.1]);
        ggml!(ggml_set_param(w));
        vec![ggml!(ggml_opt_step_sgd(t.ctx(), w, g, params)), w]
    });
}
