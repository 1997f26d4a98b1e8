//! Copies, views, parts of tensors, patches and pooling.

use ggml_sys as sys;

use super::harness::{Bench, F32, Raw, check, check_all};
use crate::dtype::DType;

macro_rules! ggml {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the test passes live tensors of one context that has room, with shapes that the function takes.
        unsafe { sys::$name($($argument),*) }
    };
}

/// The strides of a live tensor.
fn nb(tensor: Raw) -> [usize; 4] {
    // SAFETY: the test's tensors are alive.
    unsafe { (*tensor).nb }
}

#[test]
pub fn views_are_read_through_their_strides() {
    check("permute", |t| {
        let a = t.values(&[6, 5, 4, 3]);
        let permuted = ggml!(ggml_permute(t.ctx(), a, 2, 0, 3, 1));
        ggml!(ggml_cont(t.ctx(), permuted))
    });
    check("view and transpose", |t| {
        let a = t.values(&[8, 6, 4]);
        let [_, nb1, nb2, _] = nb(a);
        let part = ggml!(ggml_view_3d(
            t.ctx(),
            a,
            3,
            2,
            2,
            2 * nb1,
            nb2,
            nb2 + nb1 + 8
        ));
        let turned = ggml!(ggml_transpose(t.ctx(), part));
        ggml!(ggml_cont(t.ctx(), turned))
    });
    check("reshape and dup", |t| {
        let a = t.values(&[8, 6]);
        let shaped = ggml!(ggml_reshape_3d(t.ctx(), a, 4, 3, 4));
        ggml!(ggml_dup(t.ctx(), shaped))
    });
    check("view of quantized rows", |t| {
        let a = t.typed(DType::Q8_0, &[64, 6]);
        let [_, nb1, ..] = nb(a);
        let part = ggml!(ggml_view_2d(t.ctx(), a, 32, 3, 2 * nb1, nb1 + 34));
        ggml!(ggml_cast(t.ctx(), part, sys::GGML_TYPE_F32))
    });
}

#[test]
pub fn copies_write_through_views() {
    check_all("cpy into a view", F32, |t| {
        let (a, b) = (t.values(&[8, 6]), t.values(&[3, 4]));
        let [_, nb1, ..] = nb(a);
        let part = ggml!(ggml_view_2d(t.ctx(), a, 4, 3, 2 * nb1, nb1 + 8));
        let copy = ggml!(ggml_cpy(t.ctx(), b, part));
        // The copy is part of what the sum reads.
        let one = ggml!(ggml_cont(t.ctx(), copy));
        vec![one, a]
    });
    // Nothing is rounded here: the limit is half a unit in the last place of the type.
    for (dtype, limit) in [(DType::F16, 5e-4), (DType::BF16, 4e-3)] {
        check_all("cast", limit, |t| {
            let a = t.values(&[64]);
            vec![ggml!(ggml_cast(t.ctx(), a, dtype.raw()))]
        });
    }
    check("cast to i32 and back", |t| {
        let a = t.within(&[64], -9.0, 9.0);
        let whole = ggml!(ggml_cast(t.ctx(), a, sys::GGML_TYPE_I32));
        ggml!(ggml_cast(t.ctx(), whole, sys::GGML_TYPE_F32))
    });
}

#[test]
pub fn parts_of_tensors() {
    for dim in 0..4 {
        check("concat", |t| {
            let mut ne = [5, 4, 3, 2];
            let a = t.values(&ne);
            ne[dim as usize] = 6;
            let b = t.values(&ne);
            ggml!(ggml_concat(t.ctx(), a, b, dim))
        });
    }
    for inplace in [false, true] {
        check("acc", |t| {
            let (a, b) = (t.values(&[8, 6, 4]), t.values(&[3, 2, 2]));
            let [_, nb1, nb2, nb3] = nb(a);
            let at = nb2 + nb1 + 8;
            if inplace {
                ggml!(ggml_acc_inplace(t.ctx(), a, b, nb1, nb2, nb3, at))
            } else {
                ggml!(ggml_acc(t.ctx(), a, b, 2 * nb1, nb2, nb3, at))
            }
        });
        check("set", |t| {
            let (a, b) = (t.values(&[8, 6, 4]), t.values(&[3, 2, 2]));
            let [_, nb1, nb2, nb3] = nb(a);
            let at = nb2 + nb1 + 8;
            if inplace {
                ggml!(ggml_set_inplace(t.ctx(), a, b, 2 * nb1, nb2, nb3, at))
            } else {
                ggml!(ggml_set(t.ctx(), a, b, nb1, nb2, nb3, at))
            }
        });
    }
    check("pad", |t| {
        let a = t.values(&[5, 4, 3, 2]);
        ggml!(ggml_pad_ext(t.ctx(), a, 1, 2, 0, 3, 2, 0, 1, 1))
    });
    check("pad_circular", |t| {
        let a = t.values(&[5, 4, 3, 2]);
        ggml!(ggml_pad_ext_circular(t.ctx(), a, 1, 2, 0, 3, 2, 0, 1, 1))
    });
}

/// Strides, padding and dilation of a convolution.
const WINDOWS: [[i32; 6]; 3] = [[1, 1, 0, 0, 1, 1], [2, 1, 1, 2, 1, 2], [3, 2, 2, 1, 2, 1]];

#[test]
pub fn patches() {
    for [s0, s1, p0, p1, d0, d1] in WINDOWS {
        let f32 = sys::GGML_TYPE_F32;
        check("im2col", |t| {
            let (kernel, image) = (t.values(&[3, 2, 3, 4]), t.values(&[9, 8, 3, 2]));
            ggml!(ggml_im2col(
                t.ctx(),
                kernel,
                image,
                s0,
                s1,
                p0,
                p1,
                d0,
                d1,
                true,
                f32
            ))
        });
        check("im2col in one dimension", |t| {
            let (kernel, image) = (t.values(&[3, 4, 5]), t.values(&[9, 4, 2]));
            ggml!(ggml_im2col(
                t.ctx(),
                kernel,
                image,
                s0,
                0,
                p0,
                0,
                d0,
                0,
                false,
                f32
            ))
        });
        check("im2col_back", |t| {
            let (kernel, image) = (t.values(&[3, 2, 3, 4]), t.values(&[9, 8, 3, 2]));
            let patches = ggml!(ggml_im2col(
                t.ctx(),
                kernel,
                image,
                s0,
                s1,
                p0,
                p1,
                d0,
                d1,
                true,
                f32
            ));
            let mut ne = [9, 8, 3, 2];
            ggml!(ggml_im2col_back(
                t.ctx(),
                patches,
                kernel,
                ne.as_mut_ptr(),
                s0,
                s1,
                p0,
                p1,
                d0,
                d1,
                true
            ))
        });
        check("im2col_back in one dimension", |t| {
            let (kernel, image) = (t.values(&[3, 4, 5]), t.values(&[9, 4, 2]));
            let patches = ggml!(ggml_im2col(
                t.ctx(),
                kernel,
                image,
                s0,
                0,
                p0,
                0,
                d0,
                0,
                false,
                f32
            ));
            let mut ne = [9, 4, 2, 1];
            ggml!(ggml_im2col_back(
                t.ctx(),
                patches,
                kernel,
                ne.as_mut_ptr(),
                s0,
                0,
                p0,
                0,
                d0,
                0,
                false
            ))
        });
    }
}

#[test]
pub fn pooling() {
    let pool_2d = |t: &mut Bench, a: Raw, function, pad: f32| {
        ggml!(ggml_pool_2d(t.ctx(), a, function, 3, 2, 2, 1, pad, 0.0))
    };
    for function in [sys::GGML_OP_POOL_MAX, sys::GGML_OP_POOL_AVG] {
        for pad in [0, 1] {
            check("pool_1d", |t| {
                let a = t.values(&[9, 4, 3, 2]);
                ggml!(ggml_pool_1d(t.ctx(), a, function, 3, 2, pad))
            });
            check("pool_2d", |t| {
                let a = t.values(&[9, 8, 3, 2]);
                pool_2d(t, a, function, pad as f32)
            });
            check("pool_2d_back", |t| {
                let a = t.values(&[9, 8, 3, 2]);
                let forward = pool_2d(t, a, function, pad as f32);
                let pad = pad as f32;
                ggml!(ggml_pool_2d_back(
                    t.ctx(),
                    forward,
                    a,
                    function,
                    3,
                    2,
                    2,
                    1,
                    pad,
                    0.0
                ))
            });
        }
    }
}
