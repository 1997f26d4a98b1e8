//! Convolutions, scaling, windows, positions.

use ggml_sys as sys;

use super::harness::{F32, check, check_all};
use crate::dtype::DType;

macro_rules! ggml {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the test passes live tensors of one context that has room, with shapes that the function takes.
        unsafe { sys::$name($($argument),*) }
    };
}

/// Strides, padding and dilation of a convolution.
const WINDOWS: [[i32; 6]; 3] = [[1, 1, 0, 0, 1, 1], [2, 1, 1, 2, 1, 2], [3, 2, 2, 1, 2, 1]];

#[test]
pub fn convolutions() {
    for [s0, s1, p0, p1, d0, d1] in WINDOWS {
        // With a kernel in F16 the image is rounded to it.
        for (dtype, limit) in [(DType::F32, F32), (DType::F16, 1e-3)] {
            check_all("conv_2d", limit, |t| {
                let (kernel, image) = (t.typed(dtype, &[3, 2, 3, 4]), t.values(&[9, 8, 3, 2]));
                vec![ggml!(ggml_conv_2d_direct(
                    t.ctx(),
                    kernel,
                    image,
                    s0,
                    s1,
                    p0,
                    p1,
                    d0,
                    d1
                ))]
            });
        }
        check("conv_2d_dw", |t| {
            let (kernel, image) = (t.values(&[3, 2, 1, 5]), t.values(&[9, 8, 5, 2]));
            ggml!(ggml_conv_2d_dw_direct(
                t.ctx(),
                kernel,
                image,
                s0,
                s1,
                p0,
                p1,
                d0,
                d1
            ))
        });
        check("conv_2d_dw, channels first in memory", |t| {
            let (kernel, image) = (t.values(&[5, 1, 3, 2]), t.values(&[5, 9, 8, 2]));
            let kernel = ggml!(ggml_permute(t.ctx(), kernel, 3, 2, 0, 1));
            let image = ggml!(ggml_permute(t.ctx(), image, 2, 0, 1, 3));
            let out = ggml!(ggml_conv_2d_dw_direct(
                t.ctx(),
                kernel,
                image,
                s0,
                s1,
                p0,
                p1,
                d0,
                d1
            ));
            ggml!(ggml_cont(t.ctx(), out))
        });
        let (s2, p2, d2) = (s1, p0, d1);
        check("conv_3d", |t| {
            let (kernel, image) = (t.values(&[3, 2, 2, 3 * 4]), t.values(&[9, 8, 7, 3 * 2]));
            ggml!(ggml_conv_3d_direct(
                t.ctx(),
                kernel,
                image,
                s0,
                s1,
                s2,
                p0,
                p1,
                p2,
                d0,
                d1,
                d2,
                3,
                2,
                4
            ))
        });
        check("im2col_3d", |t| {
            let (kernel, image) = (t.values(&[3, 2, 2, 3 * 4]), t.values(&[9, 8, 7, 3 * 2]));
            let f32 = sys::GGML_TYPE_F32;
            ggml!(ggml_im2col_3d(
                t.ctx(),
                kernel,
                image,
                3,
                s0,
                s1,
                s2,
                p0,
                p1,
                p2,
                d0,
                d1,
                d2,
                f32
            ))
        });
    }
}

#[test]
pub fn transposed_convolutions() {
    for stride in [1, 2, 3] {
        check("conv_transpose_1d", |t| {
            let (kernel, image) = (t.values(&[3, 4, 5]), t.values(&[7, 5]));
            ggml!(ggml_conv_transpose_1d(t.ctx(), kernel, image, stride, 0, 1))
        });
        check("conv_transpose_2d", |t| {
            let (kernel, image) = (t.values(&[3, 2, 4, 5]), t.values(&[7, 6, 5, 2]));
            ggml!(ggml_conv_transpose_2d_p0(t.ctx(), kernel, image, stride))
        });
        for pad in [0, 1] {
            check("col2im_1d", |t| {
                let columns = t.values(&[3 * 4, 7]);
                ggml!(ggml_col2im_1d(t.ctx(), columns, stride, 4, pad))
            });
        }
    }
}

#[test]
pub fn scaling() {
    let corners = sys::GGML_SCALE_FLAG_ALIGN_CORNERS;
    let antialias = sys::GGML_SCALE_FLAG_ANTIALIAS;
    for mode in [
        sys::GGML_SCALE_MODE_NEAREST,
        sys::GGML_SCALE_MODE_NEAREST | corners,
        sys::GGML_SCALE_MODE_BILINEAR,
        sys::GGML_SCALE_MODE_BILINEAR | corners,
        sys::GGML_SCALE_MODE_BILINEAR | antialias,
        sys::GGML_SCALE_MODE_BICUBIC,
        sys::GGML_SCALE_MODE_BICUBIC | corners,
    ] {
        for [w, h] in [[12, 15], [3, 2], [7, 11], [5, 4], [1, 1]] {
            check(&format!("upscale {mode} to {w}x{h}"), |t| {
                let a = t.values(&[6, 5, 3, 2]);
                ggml!(ggml_interpolate(t.ctx(), a, w, h, 6, 2, mode as u32))
            });
        }
    }
    for len in [8, 9] {
        check("timestep_embedding", |t| {
            let steps = t.within(&[4], 0.0, 3.0);
            ggml!(ggml_timestep_embedding(t.ctx(), steps, len, 1000))
        });
    }
}

#[test]
pub fn windows_and_positions() {
    for size in [2, 3, 4] {
        check("win_part", |t| {
            let a = t.values(&[3, 7, 8]);
            ggml!(ggml_win_part(t.ctx(), a, size))
        });
        check("win_unpart", |t| {
            let a = t.values(&[3, 7, 8]);
            let parts = ggml!(ggml_win_part(t.ctx(), a, size));
            ggml!(ggml_win_unpart(t.ctx(), parts, 7, 8, size))
        });
    }
    check("get_rel_pos", |t| {
        let a = t.typed(DType::F16, &[6, 9]);
        ggml!(ggml_get_rel_pos(t.ctx(), a, 5, 5))
    });
    for inplace in [false, true] {
        check("add_rel_pos", |t| {
            let a = t.values(&[9, 6, 4]);
            let (by_x, by_y) = (t.values(&[3, 2, 3, 4]), t.values(&[3, 2, 3, 4]));
            match inplace {
                true => ggml!(ggml_add_rel_pos_inplace(t.ctx(), a, by_x, by_y)),
                false => ggml!(ggml_add_rel_pos(t.ctx(), a, by_x, by_y)),
            }
        });
    }
}

#[test]
pub fn rows_continued_and_turned() {
    check("pad_reflect_1d", |t| {
        let a = t.values(&[7, 3, 2]);
        ggml!(ggml_pad_reflect_1d(t.ctx(), a, 6, 2))
    });
    check("roll", |t| {
        let a = t.values(&[7, 5, 4, 3]);
        ggml!(ggml_roll(t.ctx(), a, 2, -3, 1, -1))
    });
}
