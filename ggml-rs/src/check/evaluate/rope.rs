//! Rotary position embedding, in all of ggml's modes.

use std::f64::consts::PI;

use ggml_sys as sys;

use super::call::{Call, Operand};
use super::memory::place;
use crate::error::Result;

/// Parameters of ROPE and ROPE_BACK.
struct Params {
    n_dims: usize,
    mode: u32,
    n_ctx_orig: f64,
    freq_base: f64,
    freq_scale: f64,
    ext_factor: f64,
    attn_factor: f64,
    beta_fast: f64,
    beta_slow: f64,
    sections: [usize; 4],
    /// The first rotated dimension.
    offset: usize,
}

impl Params {
    fn read(call: &Call<'_>) -> Self {
        Self {
            n_dims: call.int(1) as usize,
            mode: call.int(2) as u32,
            n_ctx_orig: call.int(4) as f64,
            freq_base: call.float(5),
            freq_scale: call.float(6),
            ext_factor: call.float(7),
            attn_factor: call.float(8),
            beta_fast: call.float(9),
            beta_slow: call.float(10),
            sections: [11, 12, 13, 14].map(|index| call.int(index) as usize),
            offset: call.int(15) as usize,
        }
    }

    fn is_vision(&self) -> bool {
        self.mode == sys::GGML_ROPE_TYPE_VISION
    }

    fn has_sections(&self) -> bool {
        self.mode & sys::GGML_ROPE_TYPE_MROPE != 0
    }

    /// How many pairs are rotated, and how far apart the two of a pair lie.
    fn pairs(&self, row: usize) -> (usize, usize) {
        match self.mode {
            sys::GGML_ROPE_TYPE_NORMAL => (self.n_dims / 2, 1),
            sys::GGML_ROPE_TYPE_VISION => (row / 2, self.n_dims),
            _ => (self.n_dims / 2, self.n_dims / 2),
        }
    }

    /// The first element of a pair.
    fn first(&self, pair: usize) -> usize {
        let step = if self.mode == sys::GGML_ROPE_TYPE_NORMAL {
            2
        } else {
            1
        };
        self.offset + pair * step
    }

    /// Which of the four position ids a pair turns by, and with which power of the base.
    fn section(&self, pair: usize) -> (usize, usize) {
        if !self.has_sections() {
            return (0, pair);
        }
        let [a, b, c, d] = self.sections;
        let within = pair % (a + b + c + d);
        let section = if self.mode == sys::GGML_ROPE_TYPE_IMROPE {
            interleaved(within, self.sections)
        } else {
            [a, a + b, a + b + c]
                .iter()
                .filter(|&&end| within >= end)
                .count()
        };
        let begins = [0, a, a + b, a + b + c][section];
        (
            section,
            if self.is_vision() {
                within - begins
            } else {
                pair
            },
        )
    }

    /// The angle of a pair at a position, and the factor that its length is multiplied with.
    fn angle(&self, pair: usize, position: f64, power: usize, factor: f64) -> (f64, f64) {
        let frequency = self
            .freq_base
            .powf(-2.0 * power as f64 / self.n_dims as f64);
        let extrapolated = position * frequency / factor;
        let interpolated = self.freq_scale * extrapolated;
        if self.ext_factor == 0.0 {
            return (interpolated, self.attn_factor);
        }
        let mix = self.ramp(pair) * self.ext_factor;
        let length = self.attn_factor * (1.0 + 0.1 * (1.0 / self.freq_scale).ln());
        (interpolated * (1.0 - mix) + extrapolated * mix, length)
    }

    /// YaRN: 1 for the pairs that turn often within the original context, 0 for those that turn seldom.
    fn ramp(&self, pair: usize) -> f64 {
        let dims = self.n_dims as f64;
        let dimension = |turns: f64| {
            dims * (self.n_ctx_orig / (turns * 2.0 * PI)).ln() / (2.0 * self.freq_base.ln())
        };
        let low = dimension(self.beta_fast).floor().max(0.0);
        let high = dimension(self.beta_slow).ceil().min(dims - 1.0);
        let along = (pair as f64 - low) / (high - low).max(f64::from(0.001_f32));
        1.0 - along.clamp(0.0, 1.0)
    }
}

/// Interleaved sections take turns, each as long as it lasts; the fourth takes what remains.
fn interleaved(within: usize, sections: [usize; 4]) -> usize {
    let turn = within % 3;
    if within < 3 * sections[turn] { turn } else { 3 }
}

/// ROPE (`direction` 1) and ROPE_BACK (-1): turns pairs of dimensions by their positions' angles.
pub fn rope(call: &Call<'_>, direction: f64) -> Result<Vec<f64>> {
    let (a, positions, factors) = (call.src(0)?, call.src(1)?, call.optional(2));
    let params = Params::read(call);
    let mut out = a.values.to_vec();
    let (pairs, apart) = params.pairs(a.ne[0]);
    for (number, row) in out.chunks_mut(a.ne[0]).enumerate() {
        let [_, token, ..] = place([a.ne[1], a.ne[2], a.ne[3], 1], number);
        for pair in 0..pairs {
            let (section, power) = params.section(pair);
            let position = positions.values[token + a.ne[2] * section];
            let factor = factor(factors.as_ref(), pair);
            let (angle, length) = params.angle(pair, position, power, factor);
            turn(row, params.first(pair), apart, direction * angle, length);
        }
    }
    Ok(out)
}

fn factor(factors: Option<&Operand<'_>>, pair: usize) -> f64 {
    factors.map_or(1.0, |factors| factors.values[pair])
}

fn turn(row: &mut [f64], first: usize, apart: usize, angle: f64, length: f64) {
    let (x, y) = (row[first], row[first + apart]);
    let (sin, cos) = angle.sin_cos();
    row[first] = length * (x * cos - y * sin);
    row[first + apart] = length * (x * sin + y * cos);
}
