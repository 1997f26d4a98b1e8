//! `SOFT_MAX_BACK`: the gradient of SOFT_MAX. Upstream's `test_soft_max_back`.

use std::panic::Location;

use ggml_rs::error::OpError;
use ggml_rs::{DType, Error, Tensor};

use crate::case::{Case, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One SOFT_MAX_BACK case.
#[derive(Clone, Debug)]
pub struct SoftMaxBack {
    ne: [usize; 4],
    scale: f32,
    /// ggml takes it and has no kernel with it; ggml-rs has no place for it.
    max_bias: f32,
    /// Ours: written over the gradient.
    inplace: bool,
}

impl Case for SoftMaxBack {
    fn op(&self) -> &'static str {
        "SOFT_MAX_BACK"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", DType::F32)
            .with("ne", self.ne)
            .with("scale", self.scale)
            .with("max_bias", self.max_bias)
            .with_unless_default("inplace", self.inplace, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        ["a", "b"]
            .map(|name| Operand::new(name, DType::F32, self.ne))
            .to_vec()
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        if self.max_bias != 0.0 {
            return Err(Error::Param(Box::new(OpError {
                op: "soft_max_ext_back",
                detail: "no kernel of ggml takes a max_bias, so ggml-rs has no place for one"
                    .to_owned(),
                operands: Vec::new(),
                at: Location::caller(),
            })));
        }
        match self.inplace {
            true => leaves[0].soft_max_ext_back_inplace(leaves[1], self.scale),
            false => leaves[0].soft_max_ext_back(leaves[1], self.scale),
        }
    }
}

fn case(ne: [usize; 4], scale: f32, max_bias: f32) -> SoftMaxBack {
    SoftMaxBack {
        ne,
        scale,
        max_bias,
        inplace: false,
    }
}

/// Upstream's: short and long, few and many rows.
pub(super) fn cases() -> Vec<SoftMaxBack> {
    let mut cases = Vec::new();
    for max_bias in [0.0, 8.0] {
        for scale in [1.0, 0.1] {
            for (n0, n1) in [(16, 16), (16, 1024), (1024, 16), (1024, 1024)] {
                let shapes = [[n0, n1, 1, 1], [n0 - 1, n1 - 1, 1, 1], [n0, n1, 2, 3]];
                cases.extend(shapes.map(|ne| case(ne, scale, max_bias)));
            }
        }
    }
    cases
}

/// Ragged rows, and in place.
pub(super) fn ours() -> Vec<SoftMaxBack> {
    [1, 2, 3, 31, 33, 130]
        .into_iter()
        .flat_map(|n| {
            [false, true].map(|inplace| SoftMaxBack {
                inplace,
                ..case([n, 3, 2, 2], 0.5, 0.0)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[1].name(),
            "SOFT_MAX_BACK(type=f32,ne=[15,15,1,1],scale=1.000000,max_bias=0.000000)"
        );
    }
}
