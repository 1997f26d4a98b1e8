//! Order: sorting, the largest values, counting.

pub(crate) mod argmax;
pub(crate) mod argsort;
pub(crate) mod top_k;
mod topk_moe;

use rand_chacha::ChaCha8Rng;

use crate::case::{Case, boxed};
use crate::data::{Operand, permutations};

/// All of them.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    boxed(argsort::cases())
        .chain(boxed(top_k::cases()))
        .chain(boxed(argmax::cases()))
        .chain(boxed(argmax::count_cases()))
        .chain(boxed(topk_moe::cases()))
        .collect()
}

/// Different values throughout: of a view, whose rows are no rows of what is stored, as well.
fn distinct(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let all = Operand {
        ne: [operand.ne.iter().product(), 1, 1, 1],
        ..operand.clone()
    };
    permutations(&all, rng)
}
