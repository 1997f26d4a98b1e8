//! `ROPE` and `ROPE_BACK`: pairs of a row turned by their token's position, in every mode. Upstream's `test_rope`.

use ggml_rs::graph::Rope;
use ggml_rs::{DType, Tensor};

use super::positions::{self, Mode};
use crate::case::{Case, Gradient, Leaves, smaller};
use crate::cases::views;
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One case of ROPE or ROPE_BACK.
#[derive(Clone, Debug)]
pub struct RopeCase {
    dtype: DType,
    ne: [usize; 4],
    n_dims: usize,
    mode: Mode,
    numbers: Numbers,
    /// Whether there are frequency factors.
    ff: bool,
    v: Lies,
    forward: bool,
    inplace: bool,
    /// Ours: the first turned element.
    offset: usize,
}

/// YaRN's numbers, by upstream's names.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Numbers {
    /// Scale of the frequencies.
    fs: f32,
    /// How much of YaRN.
    ef: f32,
    /// What results are multiplied by.
    af: f32,
}

/// All that differ from what leaves no trace.
const ODD: Numbers = Numbers {
    fs: 1.4245,
    ef: 0.7465,
    af: 1.4245,
};

/// How the operand lies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lies {
    Contiguous,
    /// The first rows of larger ones.
    Padded,
    /// The second half of each row.
    SecondHalf,
}

/// Positions are below this.
const N_CTX: usize = positions::BOUND;

impl RopeCase {
    fn new(dtype: DType, ne: [usize; 4], n_dims: usize, mode: Mode, numbers: Numbers) -> Self {
        Self {
            dtype,
            ne,
            n_dims,
            mode,
            numbers,
            ff: false,
            v: Lies::Contiguous,
            forward: true,
            inplace: false,
            offset: 0,
        }
    }

    fn stored(&self) -> [usize; 4] {
        let [n0, n1, n2, n3] = self.ne;
        match self.v {
            Lies::Contiguous => self.ne,
            Lies::Padded => [n0 * 2, n1 * 4, n2 * 3, n3],
            Lies::SecondHalf => [n0 * 2, n1, n2, n3],
        }
    }

    fn options<'g>(&self, leaves: &Leaves<'g>) -> Rope<'g> {
        Rope {
            mode: positions::rope_mode(self.mode, self.n_dims),
            dims: Some(positions::dims(self.mode, self.n_dims)),
            offset: self.offset,
            freq_scale: self.numbers.fs,
            ext_factor: self.numbers.ef,
            attn_factor: self.numbers.af,
            beta_fast: 1.0,
            beta_slow: 1.0,
            freq_factors: self.ff.then(|| leaves[2]),
            ..Rope::default()
        }
    }
}

impl Case for RopeCase {
    fn op(&self) -> &'static str {
        match self.forward {
            true => "ROPE",
            false => "ROPE_BACK",
        }
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne)
            .with("n_dims", self.n_dims)
            .with("mode", self.mode.number())
            .with("n_ctx", N_CTX)
            .with("fs", self.numbers.fs)
            .with("ef", self.numbers.ef)
            .with("af", self.numbers.af)
            .with("ff", self.ff)
            .with("v", self.v as i32)
            .with("inplace", self.inplace)
            .with_unless_default("offset", self.offset, 0)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let a = Operand::new("a", self.dtype, self.stored());
        let a = if self.forward { a.trained() } else { a };
        let mut operands = vec![a, positions::operand(self.mode, self.ne[2])];
        if self.ff {
            // Upstream has one for each pair that is turned; ggml's CPU kernel reads one for each pair of a row, and ggml-rs asks
            // for them.
            let factors = Operand::new("freq", DType::F32, [self.ne[0] / 2, 1, 1, 1]);
            operands.push(factors.init(Init::Uniform([0.9, 1.1])));
        }
        operands
    }

    /// The kernel multiplies its way from one frequency to the next, each time with a factor that is itself rounded: the angle of
    /// pair i is off by some 2 i + 5 units of f32. Angles reach 810 (512 positions, scaled by 1.42, divided by factors of 0.9) and
    /// fall by 0.87 a pair, which makes 3.5e-4 at the worst pair. An element is two products with weights of the loss, up to 1.5
    /// where the gradient's rms is 1: twice that. The largest seen is 7.8e-4.
    fn gradient(&self) -> Gradient {
        Gradient::default().tolerance(1e-3)
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let a = match self.v {
            Lies::Contiguous => leaves[0],
            Lies::Padded => views::first(leaves[0], self.ne)?,
            Lies::SecondHalf => views::from(leaves[0], self.ne, self.ne[0])?,
        };
        let (positions, options) = (leaves[1], self.options(leaves));
        match (self.forward, self.inplace) {
            (true, false) => a.rope(positions, options),
            // The result lies where the operand does, and only what has no gaps is read.
            (true, true) if self.v != Lies::Contiguous => {
                a.rope_inplace(positions, options)?.cont()
            }
            (true, true) => a.rope_inplace(positions, options),
            (false, _) => a.rope_back(positions, options),
        }
    }
}

/// A model's shape: a row of heads, what is turned of it, and how.
type Model = ([usize; 4], usize, Mode);

/// One for every combination of numbers and operands.
const FIRST: Model = ([128, 32, 2, 1], 128, Mode::Normal);
const LAST: Model = ([64, 128, 2, 1], 64, Mode::Neox);

/// The others, in upstream's order, for the first combination of numbers.
const MODELS: [Model; 25] = [
    ([128, 40, 2, 1], 128, Mode::Normal),
    ([128, 52, 2, 1], 128, Mode::Normal),
    ([128, 64, 2, 1], 128, Mode::Normal),
    ([16, 16, 8192, 1], 16, Mode::Normal),
    ([64, 1, 2, 1], 64, Mode::Neox),
    ([64, 71, 2, 1], 64, Mode::Neox),
    ([64, 8, 2, 1], 64, Mode::Neox),
    ([80, 32, 2, 1], 20, Mode::Normal),
    ([80, 32, 2, 1], 32, Mode::Normal),
    ([80, 32, 4, 1], 32, Mode::Normal),
    ([80, 32, 2, 1], 20, Mode::Neox),
    ([80, 32, 2, 1], 32, Mode::Neox),
    ([80, 32, 4, 1], 32, Mode::Neox),
    ([16, 16, 8192, 1], 16, Mode::Neox),
    ([128, 12, 2, 1], 128, Mode::Mrope),
    ([128, 28, 2, 1], 128, Mode::Mrope),
    ([128, 12, 2, 1], 20, Mode::Mrope),
    ([128, 28, 2, 1], 32, Mode::Mrope),
    ([128, 12, 2, 1], 128, Mode::Imrope),
    ([128, 28, 2, 1], 128, Mode::Imrope),
    ([128, 12, 2, 1], 20, Mode::Imrope),
    ([128, 28, 2, 1], 32, Mode::Imrope),
    ([80, 16, 2, 1], 80, Mode::Vision),
    ([128, 16, 2, 1], 128, Mode::Imrope),
    ([16, 16, 8192, 1], 16, Mode::Imrope),
];

const TYPES: [DType; 2] = [DType::F32, DType::F16];

fn combinations() -> Vec<Numbers> {
    let mut all = Vec::new();
    for fs in [1.0, ODD.fs] {
        for ef in [0.0, ODD.ef] {
            all.extend([1.0, ODD.af].map(|af| Numbers { fs, ef, af }));
        }
    }
    all
}

/// Upstream's: models' shapes with every combination of numbers, forwards and backwards, then in place.
pub(super) fn cases() -> Vec<RopeCase> {
    let mut cases = Vec::new();
    for forward in [true, false] {
        // Of the many shapes upstream tests all with the first combination of numbers and type alone.
        let mut models = MODELS.to_vec();
        for numbers in combinations() {
            for dtype in TYPES {
                for ff in [false, true] {
                    let case = |(ne, n_dims, mode), v| RopeCase {
                        ff,
                        v,
                        forward,
                        ..RopeCase::new(dtype, ne, n_dims, mode, numbers)
                    };
                    for v in [Lies::Contiguous, Lies::Padded] {
                        cases.push(case(FIRST, v));
                        cases.extend(models.iter().map(|&model| case(model, v)));
                        cases.push(case(LAST, v));
                    }
                    let tokens = [36, 16, 2457, 1];
                    cases.extend(Mode::ALL.map(|mode| case((tokens, 36, mode), Lies::SecondHalf)));
                }
                models.clear();
            }
        }
    }
    cases.extend(in_place());
    cases
}

fn in_place() -> Vec<RopeCase> {
    let mut cases = Vec::new();
    for dtype in TYPES {
        for mode in Mode::ALL {
            for ff in [false, true] {
                for (n3, v) in [(1, Lies::Contiguous), (1, Lies::Padded), (3, Lies::Padded)] {
                    cases.push(RopeCase {
                        ff,
                        v,
                        inplace: true,
                        ..RopeCase::new(dtype, [128, 32, 2, n3], 128, mode, ODD)
                    });
                }
            }
        }
    }
    cases
}

/// Upstream's list for mode perf: a batch of models' heads, forwards and backwards.
pub(crate) fn perf() -> Vec<RopeCase> {
    const PLAIN: Numbers = Numbers {
        fs: 1.0,
        ef: 0.0,
        af: 1.0,
    };
    const HEADS: [([usize; 4], usize, Mode); 7] = [
        ([128, 32, 512, 1], 128, Mode::Normal),
        ([128, 64, 512, 1], 128, Mode::Normal),
        ([80, 32, 512, 1], 20, Mode::Neox),
        ([64, 8, 512, 1], 64, Mode::Neox),
        ([128, 12, 512, 1], 128, Mode::Mrope),
        ([128, 12, 512, 1], 128, Mode::Imrope),
        ([80, 16, 2, 1], 80, Mode::Vision),
    ];
    let mut cases = Vec::new();
    for forward in [true, false] {
        for dtype in TYPES {
            for ff in [false, true] {
                for v in [Lies::Contiguous, Lies::Padded] {
                    cases.extend(HEADS.map(|(ne, n_dims, mode)| RopeCase {
                        ff,
                        v,
                        forward,
                        ..RopeCase::new(dtype, ne, n_dims, mode, PLAIN)
                    }));
                }
            }
        }
    }
    cases
}

/// Parts of a row from some element on, the shortest rows, and several sequences.
pub(super) fn ours() -> Vec<RopeCase> {
    let mut cases = Vec::new();
    for dtype in TYPES {
        for mode in Mode::ALL {
            // Vision turns whole rows.
            if mode != Mode::Vision {
                for forward in [true, false] {
                    cases.push(RopeCase {
                        offset: 20,
                        forward,
                        ..RopeCase::new(dtype, [66, 3, 5, 2], 40, mode, ODD)
                    });
                }
            }
            for ne in [[12, 1, 1, 1], [36, 3, 5, 2]] {
                cases.push(RopeCase {
                    ff: true,
                    ..RopeCase::new(dtype, ne, ne[0], mode, ODD)
                });
            }
        }
        let plain = Numbers {
            fs: 1.0,
            ef: 0.0,
            af: 1.0,
        };
        for mode in [Mode::Normal, Mode::Neox] {
            cases.push(RopeCase::new(dtype, [2, 3, 7, 1], 2, mode, plain));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use ggml_rs::graph::RopeMode;

    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let cases = cases();
        assert_eq!(
            cases[0].name(),
            "ROPE(type=f32,ne_a=[128,32,2,1],n_dims=128,mode=0,n_ctx=512,fs=1.000000,ef=0.000000,af=1.000000,ff=0,v=0,inplace=0)"
        );
        let last = &cases[cases.len() - 1];
        assert_eq!(
            last.name(),
            "ROPE(type=f16,ne_a=[128,32,2,3],n_dims=128,mode=24,n_ctx=512,fs=1.424500,ef=0.746500,af=1.424500,ff=1,v=1,inplace=1)"
        );
        assert!(matches!(
            positions::rope_mode(last.mode, last.n_dims),
            RopeMode::Vision([32, 32, 0, 0])
        ));
    }
}
