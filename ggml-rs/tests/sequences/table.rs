//! The moves of a sequence, and which of them were made and ran.

use ggml_rs::Result;

use crate::draw::{Draw, Made};
use crate::moves;

/// One op's constructor on drawn operands.
#[derive(Clone, Copy)]
pub struct Move {
    /// The method that it calls.
    pub name: &'static str,
    pub make: for<'g> fn(&mut Draw<'g>) -> Result<Made<'g>>,
}

/// Moves, each of which calls the method that it is named after: `name(d) { statements } receiver(arguments);`
macro_rules! family {
    ($($name:ident($d:ident) { $($body:tt)* } $receiver:ident($($argument:expr),*);)*) => {
        pub const MOVES: &[$crate::table::Move] = &[$($crate::table::Move {
            name: stringify!($name),
            make: {
                #[allow(unused_variables, reason = "some draw nothing but their receiver")]
                fn make<'g>(
                    $d: &mut $crate::draw::Draw<'g>,
                ) -> ggml_rs::Result<$crate::draw::Made<'g>> {
                    $($body)*
                    Ok($receiver.$name($($argument),*)?.into())
                }
                make
            },
        }),*];
    };
}
pub(crate) use family;

/// Every move, by family.
pub fn all() -> Vec<Move> {
    moves::FAMILIES.iter().copied().flatten().copied().collect()
}

/// A set of moves, by their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bits([u64; 5]);

impl Bits {
    pub fn with(mut self, place: usize) -> Self {
        self.0[place / 64] |= 1 << (place % 64);
        self
    }

    pub fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub fn has(self, place: usize) -> bool {
        self.0[place / 64] >> (place % 64) & 1 == 1
    }
}
