//! Parts of tensors: ACC, SET, CONCAT, PAD, patches and pooling.

use ggml_rs::DType::F32;
use ggml_rs::check::Data;
use ggml_rs::{Conv1d, Conv2d, Pool, Pool2d, Result, Tensor};

use super::Case;

type Region = for<'g> fn(Tensor<'g>, Tensor<'g>, [usize; 3], usize) -> Result<Tensor<'g>>;

fn regions(name: &'static str, op: Region) -> Vec<Case> {
    vec![
        Case::new(name, "rows", move |t| {
            let (a, b) = (
                t.trained([4, 6], Data::unit())?,
                t.trained([4, 2], Data::unit())?,
            );
            let [_, nb1, nb2, nb3] = a.strides();
            op(a.mul(a)?, b.mul(b)?, [nb1, nb2, nb3], 3 * nb1)
        }),
        Case::new(name, "a block, strided", move |t| {
            let a = t.trained([6, 4, 3], Data::unit())?;
            let b = t.trained([3, 2, 2], Data::unit())?;
            let [_, nb1, nb2, nb3] = a.strides();
            op(a.mul(a)?, b, [2 * nb1, nb2, nb3], nb2 + 8)
        }),
        Case::new(name, "the first operand is used again", move |t| {
            let (a, b) = (
                t.trained([4, 3], Data::unit())?,
                t.trained([2, 1], Data::unit())?,
            );
            let [_, nb1, nb2, nb3] = a.strides();
            op(a, b, [nb1, nb2, nb3], nb1 + 4)?.mul(a)
        }),
    ]
}

fn concat() -> Vec<Case> {
    let along = |dim: usize| {
        Case::new("CONCAT", format!("along {dim}"), move |t| {
            let mut ne = [3, 4, 2, 2];
            let a = t.trained(ne, Data::unit())?;
            ne[dim] = 5;
            a.concat(t.trained(ne, Data::unit())?, dim)
        })
    };
    let mut cases: Vec<_> = (0..4).map(along).collect();
    cases.push(Case::new("CONCAT", "with itself", |t| {
        let a = t.trained([3, 4], Data::unit())?;
        a.mul(a)?.concat(a, 1)
    }));
    cases
}

fn pads() -> Vec<Case> {
    vec![
        Case::new("PAD", "behind", |t| {
            let a = t.trained([3, 2, 2], Data::unit())?;
            a.mul(a)?.pad([2, 1, 0, 1])
        }),
        Case::new("PAD", "on both sides", |t| {
            let a = t.trained([3, 2, 2, 2], Data::unit())?;
            a.pad_ext([1, 0, 2, 1], [2, 3, 0, 1])
        }),
    ]
}

/// Strides, paddings and dilations of convolutions.
const WINDOWS: [[[usize; 2]; 3]; 3] = [
    [[1, 1], [0, 0], [1, 1]],
    [[2, 1], [1, 2], [1, 2]],
    [[3, 2], [2, 1], [2, 1]],
];

fn patches() -> Vec<Case> {
    let mut cases = Vec::new();
    for [stride, padding, dilation] in WINDOWS {
        let window = Conv2d::default();
        let window = window.stride(stride).padding(padding).dilation(dilation);
        let of_row = Conv1d::default().stride([stride[0]]);
        let of_row = of_row.padding([padding[0]]).dilation([dilation[0]]);
        cases.push(Case::new("IM2COL", format!("{window:?}"), move |t| {
            let kernel = t.fixed(F32, [3, 2, 2, 4], Data::unit())?;
            kernel.im2col(t.trained([7, 6, 2, 2], Data::unit())?, window, F32)
        }));
        cases.push(Case::new("IM2COL", format!("{of_row:?}"), move |t| {
            let kernel = t.fixed(F32, [3, 4, 5], Data::unit())?;
            kernel.im2col_1d(t.trained([7, 4, 2], Data::unit())?, of_row, F32)
        }));
        cases.push(Case::new(
            "IM2COL",
            format!("conv_2d, {window:?}"),
            move |t| {
                let kernel = t.trained([3, 2, 2, 4], Data::unit())?;
                kernel.conv_2d(t.trained([7, 6, 2, 2], Data::unit())?, window)
            },
        ));
    }
    cases.push(Case::new("IM2COL", "kernel and image trained", |t| {
        let kernel = t.trained([3, 3, 2, 4], Data::unit())?;
        let image = t.trained([6, 5, 2, 2], Data::unit())?;
        let patches = kernel.im2col(image, Conv2d::default(), F32)?;
        kernel.reshape([18, 4])?.mul_mat(patches.reshape([18, 24])?)
    }));
    // The gradient of the kernel comes to it after that of the patches.
    cases.push(Case::new("IM2COL", "conv_2d_dw", |t| {
        let kernel = t.trained([3, 2, 1, 2], Data::unit())?;
        kernel.conv_2d_dw(t.trained([6, 5, 2, 2], Data::unit())?, Conv2d::default())
    }));
    cases.push(Case::new("IM2COL", "conv_1d_dw", |t| {
        let kernel = t.trained([3, 1, 4], Data::unit())?;
        kernel.conv_1d_dw(t.trained([7, 2], Data::unit())?, Conv1d::default())
    }));
    cases
}

fn pools() -> Vec<Case> {
    let mut cases = Vec::new();
    for pool in [Pool::Max, Pool::Average] {
        for padding in [[0, 0], [1, 0], [1, 1]] {
            let options = Pool2d::new(pool, [3, 2]).stride([2, 1]).padding(padding);
            cases.push(Case::new("POOL_2D", format!("{options:?}"), move |t| {
                t.trained([7, 6, 2, 2], Data::Distinct(-4.0, 4.0))?
                    .pool_2d(options)
            }));
        }
        cases.push(Case::new(
            "POOL_2D",
            format!("{pool:?}, used again, permuted"),
            move |t| {
                let a = t.trained([6, 4, 2], Data::Distinct(-2.0, 2.0))?;
                let pooled = a.pool_2d(Pool2d::new(pool, [2, 2]))?;
                pooled.permute([2, 0, 1, 3])?.cont()
            },
        ));
    }
    cases
}

pub fn cases() -> Vec<Case> {
    let mut cases = regions("ACC", |a, b, nb, at| a.acc(b, nb, at));
    cases.extend(regions("SET", |a, b, nb, at| a.set(b, nb, at)));
    cases.extend(concat());
    cases.extend(pads());
    cases.extend(patches());
    cases.extend(pools());
    cases
}
