//! Convolutions, and the windows that they are made of.

pub(crate) mod col2im_1d;
pub(crate) mod conv_2d;
pub(crate) mod conv_2d_dw;
pub(crate) mod conv_3d;
mod conv_transpose_1d;
pub(crate) mod conv_transpose_2d;
pub(crate) mod im2col;
mod im2col_3d;
mod im2col_back;
mod pool_1d;
mod pool_2d;

use ggml_rs::{Pool, Tensor};

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(im2col::cases())
        .chain(boxed(im2col_3d::cases()))
        .chain(boxed(im2col_back::cases()))
        .chain(boxed(col2im_1d::cases()))
        .chain(boxed(conv_2d::cases()))
        .chain(boxed(conv_2d_dw::cases()))
        .chain(boxed(conv_3d::cases()))
        .chain(boxed(conv_transpose_1d::cases()))
        .chain(boxed(conv_transpose_2d::cases()))
        .chain(boxed(pool_1d::cases()))
        .chain(boxed(pool_2d::cases()))
        .chain(boxed(pool_2d::back_cases()))
        .collect()
}

const POOLS: [Pool; 2] = [Pool::Average, Pool::Max];

/// Upstream's name.
fn pool_name(pool: Pool) -> &'static str {
    match pool {
        Pool::Average => "avg",
        Pool::Max => "max",
    }
}

/// How often a kernel fits, with stride, padding and dilation; 0 where it does not.
fn outputs(image: usize, kernel: usize, [stride, padding, dilation]: [usize; 3]) -> usize {
    let reach = dilation * (kernel - 1) + 1;
    (image + 2 * padding)
        .checked_sub(reach)
        .map_or(0, |rest| rest / stride + 1)
}

/// An image and a kernel of the same shapes, whose channels lie next to each other.
fn by_channel<'g>(
    image: Tensor<'g>,
    kernel: Tensor<'g>,
) -> ggml_rs::Result<(Tensor<'g>, Tensor<'g>)> {
    let image = image.permute([1, 2, 0, 3])?.cont()?;
    let kernel = kernel.permute([2, 3, 1, 0])?.cont()?;
    Ok((image.permute([2, 0, 1, 3])?, kernel.permute([3, 2, 0, 1])?))
}
