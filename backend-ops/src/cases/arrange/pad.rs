//! `PAD`: zeros around a tensor, or the tensor itself again. Upstream's `test_pad` and `test_pad_ext`.

use ggml_rs::{DType, Tensor};

use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, as_floats, boxed, laid_out, with_extremes,
};
use crate::data::Operand;
use crate::vars::Vars;

/// Behind the first two dimensions.
#[derive(Clone, Debug)]
pub struct Pad {
    dtype: DType,
    ne_a: [usize; 4],
    pad: [usize; 2],
    circular: bool,
}

impl Case for Pad {
    fn op(&self) -> &'static str {
        "PAD"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne_a", self.ne_a)
            .with("pad_0", self.pad[0])
            .with("pad_1", self.pad[1])
            .with("circular", self.circular)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne_a)]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let after = [self.pad[0], self.pad[1], 0, 0];
        match self.circular {
            true => leaves[0].pad_circular(after),
            false => leaves[0].pad(after),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        // Ours: nothing is computed.
        0.0
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

/// On both sides of every dimension.
#[derive(Clone, Debug)]
pub struct PadExt {
    dtype: DType,
    ne_a: [usize; 4],
    /// Before dimension i.
    lp: [usize; 4],
    /// Behind dimension i.
    rp: [usize; 4],
    /// 0: the tensor. 1: its first half in every dimension. 2: with dimensions 0 and 2 exchanged.
    tfrm: usize,
    circular: bool,
}

impl Case for PadExt {
    fn op(&self) -> &'static str {
        "PAD"
    }

    fn params(&self) -> String {
        const NAMES: [(&str, &str); 4] = [
            ("lp0", "rp0"),
            ("lp1", "rp1"),
            ("lp2", "rp2"),
            ("lp3", "rp3"),
        ];
        let mut vars = Vars::new().with("type", self.dtype).with("ne_a", self.ne_a);
        for (i, (before, after)) in NAMES.into_iter().enumerate() {
            vars = vars.with(before, self.lp[i]).with(after, self.rp[i]);
        }
        vars.with("tfrm", self.tfrm)
            .with("circular", self.circular)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, self.ne_a)]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let [_, nb @ ..] = leaves[0].strides();
        let a = match self.tfrm {
            1 => leaves[0].view(self.ne_a.map(|n| n.div_ceil(2)), nb, 0)?,
            2 => leaves[0].permute([2, 1, 0, 3])?,
            _ => leaves[0],
        };
        match self.circular {
            true => a.pad_ext_circular(self.lp, self.rp),
            false => a.pad_ext(self.lp, self.rp),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        // Ours: nothing is computed.
        0.0
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            dtype: DType::F32,
            ..self.clone()
        };
        as_floats(self.dtype, floats)
    }
}

fn pad(ne_a: [usize; 4], pad: [usize; 2], circular: bool) -> Pad {
    Pad {
        dtype: DType::F32,
        ne_a,
        pad,
        circular,
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Box<dyn Case>> {
    const ROWS: [([usize; 4], [usize; 2]); 13] = [
        ([1024, 1, 1, 1], [1, 0]),
        ([1024, 2, 1, 1], [1, 0]),
        ([1024, 16, 1, 1], [0, 1]),
        ([1023, 1, 1, 1], [1, 0]),
        ([1023, 8, 1, 1], [1, 0]),
        ([1025, 1, 1, 1], [1, 0]),
        ([1025, 8, 1, 1], [1, 0]),
        ([2048, 1, 1, 1], [1, 0]),
        ([2048, 4, 1, 1], [1, 0]),
        ([2049, 1, 1, 1], [1, 0]),
        ([100, 1, 1, 1], [100, 0]),
        ([100, 1, 1, 1], [0, 100]),
        ([100, 100, 1, 1], [50, 50]),
    ];
    let mut plain = vec![
        pad([512, 512, 1, 1], [1, 1], false),
        pad([33, 17, 2, 1], [4, 3], true),
    ];
    plain.extend(ROWS.map(|(ne, after)| pad(ne, after, false)));
    let ext = |ne_a, lp, rp, tfrm, circular| PadExt {
        dtype: DType::F32,
        ne_a,
        lp,
        rp,
        tfrm,
        circular,
    };
    let mut around = vec![ext([512, 512, 3, 1], [1; 4], [1; 4], 0, false)];
    for tfrm in 0..3 {
        for circular in [false, true] {
            around.extend([
                ext([512, 512, 1, 1], [0; 4], [1, 1, 0, 0], tfrm, circular),
                ext([11, 22, 33, 44], [1, 3, 5, 7], [2, 4, 6, 8], tfrm, circular),
            ]);
        }
    }
    boxed(plain).chain(boxed(around)).collect()
}

/// Ours: single values, ragged rows, more than once around, halves, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let ext = |dtype, circular| PadExt {
        dtype,
        ne_a: [33, 3, 4, 2],
        lp: [2, 1, 0, 1],
        rp: [31, 2, 1, 0],
        tfrm: 0,
        circular,
    };
    let plain = vec![
        pad([1; 4], [32, 2], false),
        pad([1; 4], [1, 1], true),
        pad([31, 3, 1, 1], [2, 0], false),
        // Twice around, behind.
        pad([5, 3, 1, 1], [11, 7], true),
    ];
    let both = [false, true].map(|circular| ext(DType::F32, circular));
    let halves = [DType::F16, DType::BF16].map(|dtype| ext(dtype, false));
    boxed(plain)
        .chain(boxed(halves.to_vec()))
        .chain(laid_out(both.clone(), Layout::OTHERS))
        .chain(with_extremes(both))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let names: Vec<_> = cases().iter().map(|case| case.name()).collect();
        assert_eq!(
            names[1],
            "PAD(type=f32,ne_a=[33,17,2,1],pad_0=4,pad_1=3,circular=1)"
        );
        assert_eq!(
            names[17],
            "PAD(type=f32,ne_a=[11,22,33,44],lp0=1,rp0=2,lp1=3,rp1=4,lp2=5,rp2=6,lp3=7,rp3=8,tfrm=0,circular=0)"
        );
        assert_eq!(names.len(), 28);
    }
}
