//! Copies, and tensors rearranged: repeated, joined, padded, rolled.

mod acc;
mod concat;
mod cont;
mod copy;
mod dup;
mod order;
mod pad;
mod pad_reflect_1d;
mod repeat;
mod repeat_back;
mod roll;
mod set;
mod views;

pub use acc::Acc;
pub use concat::Concat;
pub use cont::Cont;
pub use copy::Cpy;
pub use dup::Dup;
pub(crate) use order::{TRANSPOSED, UNPERMUTED};
pub use pad::{Pad, PadExt};
pub use pad_reflect_1d::PadReflect1d;
pub use repeat::Repeat;
pub use repeat_back::RepeatBack;
pub use roll::Roll;
pub use set::SetWindow;
pub use views::Looks;

use crate::case::{Case, boxed};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    upstreams().chain(ours()).collect()
}

fn upstreams() -> impl Iterator<Item = Box<dyn Case>> {
    boxed(repeat::cases())
        .chain(boxed(repeat_back::cases()))
        .chain(boxed(dup::cases()))
        .chain(boxed(set::cases()))
        .chain(boxed(copy::cases()))
        .chain(boxed(cont::cases()))
        .chain(boxed(concat::cases()))
        .chain(boxed(acc::cases()))
        .chain(pad::cases())
        .chain(boxed(pad_reflect_1d::cases()))
        .chain(boxed(roll::cases()))
}

fn ours() -> impl Iterator<Item = Box<dyn Case>> {
    let ours = [
        repeat::ours,
        repeat_back::ours,
        dup::ours,
        set::ours,
        copy::ours,
        cont::ours,
        concat::ours,
        acc::ours,
        pad::ours,
        pad_reflect_1d::ours,
        roll::ours,
        views::ours,
    ];
    ours.into_iter().flat_map(|cases| cases())
}
