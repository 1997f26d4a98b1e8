//! The moves, by family.

mod arithmetic;
mod arrange;
mod conv;
mod copy;
mod norm;
mod products;
mod rows;
mod training;
mod unary;

use crate::table::Move;

pub const FAMILIES: &[&[Move]] = &[
    arithmetic::MOVES,
    arrange::MOVES,
    conv::MOVES,
    copy::MOVES,
    norm::MOVES,
    products::MOVES,
    rows::MOVES,
    training::MOVES,
    training::OTHERS,
    unary::MOVES,
];
