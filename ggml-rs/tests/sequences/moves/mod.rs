//! The moves, by family.

mod arithmetic;
mod arrange;
mod attention;
mod conv;
mod copy;
pub mod custom;
mod image;
mod norm;
mod products;
mod recurrent;
mod rows;
mod training;
mod unary;

use crate::table::Move;

pub const FAMILIES: &[&[Move]] = &[
    arithmetic::MOVES,
    arrange::MOVES,
    attention::MOVES,
    conv::MOVES,
    copy::MOVES,
    custom::MOVES,
    image::MOVES,
    norm::MOVES,
    products::MOVES,
    recurrent::MOVES,
    rows::MOVES,
    training::MOVES,
    training::OTHERS,
    unary::MOVES,
];
