//! What graphs are drawn from: each pattern adds a few nodes. A new fusion, or a new way to share memory, gets one here.

mod chains;
mod moves;
mod products;
mod simple;
mod writes;

use crate::draw::Draw;

/// Adds some nodes; `None` where ggml-rs refused one of them, which leaves those before it.
pub type Draws = for<'g> fn(&mut Draw<'g>) -> Option<()>;

/// A pattern, and how often it is drawn compared with others.
pub type Pattern = (&'static str, usize, Draws);

/// All patterns.
pub fn all() -> Vec<Pattern> {
    [
        simple::PATTERNS,
        chains::PATTERNS,
        moves::PATTERNS,
        products::PATTERNS,
        writes::PATTERNS,
    ]
    .concat()
}

/// Draws a graph of some patterns.
pub fn draw(draw: &mut Draw<'_>, patterns: &[Pattern]) {
    let weight: usize = patterns.iter().map(|(_, weight, _)| weight).sum();
    for _ in 0..draw.pick(&[1, 1, 2, 2, 3, 4, 6]) {
        let mut left = draw.below(weight);
        for (place, &(_, weight, make)) in patterns.iter().enumerate() {
            if left < weight {
                draw.pattern = place;
                make(draw);
                break;
            }
            left -= weight;
        }
    }
}
