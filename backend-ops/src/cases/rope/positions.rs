//! Modes of rotation, and the positions that they need.

use ggml_rs::DType;
use ggml_rs::graph::RopeMode;
use rand_chacha::ChaCha8Rng;

use crate::data::{Init, Operand, draw};

/// Positions are below this.
pub(super) const BOUND: usize = 512;

/// ggml's modes, without what goes with some of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Normal,
    Neox,
    Mrope,
    Imrope,
    Vision,
}

impl Mode {
    /// In upstream's order.
    pub(super) const ALL: [Self; 5] = [
        Self::Normal,
        Self::Neox,
        Self::Mrope,
        Self::Imrope,
        Self::Vision,
    ];

    /// ggml's number.
    pub(super) fn number(self) -> i32 {
        match self {
            Self::Normal => 0,
            Self::Neox => 2,
            Self::Mrope => 8,
            Self::Imrope => 40,
            Self::Vision => 24,
        }
    }

    fn has_sections(self) -> bool {
        !matches!(self, Self::Normal | Self::Neox)
    }
}

/// The mode with upstream's sections: thirds of what is turned, and for an image's two dimensions quarters.
pub(super) fn rope_mode(mode: Mode, n_dims: usize) -> RopeMode {
    let (third, quarter) = (n_dims / 3, n_dims / 4);
    match mode {
        Mode::Normal => RopeMode::Normal,
        Mode::Neox => RopeMode::Neox,
        Mode::Mrope => RopeMode::Mrope([third, third, third, 0]),
        Mode::Imrope => RopeMode::Imrope([third, third, third, 0]),
        Mode::Vision => RopeMode::Vision([quarter, quarter, 0, 0]),
    }
}

/// The number of turned elements as ggml wants it.
pub(super) fn dims(mode: Mode, n_dims: usize) -> usize {
    match mode {
        Mode::Vision => n_dims / 2,
        _ => n_dims,
    }
}

/// The positions of so many tokens.
pub(super) fn operand(mode: Mode, tokens: usize) -> Operand {
    let each = if mode.has_sections() { 4 } else { 1 };
    Operand::new("pos", DType::I32, [tokens * each, 1, 1, 1]).init(Init::Drawn(drawn))
}

fn drawn(operand: &Operand, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let positions = draw(rng, operand.ne[0], BOUND);
    positions
        .into_iter()
        .map(|position| position as f32)
        .collect()
}
