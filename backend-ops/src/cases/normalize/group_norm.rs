//! `GROUP_NORM`: NORM over groups of channels, alone and with a product and a sum behind it, `GROUP_NORM_MUL_ADD`. Upstream's
//! `test_group_norm` and `test_group_norm_mul_add`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One GROUP_NORM case.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    ne: [usize; 4],
    num_groups: usize,
    eps: f32,
    /// Whether it is multiplied and added to.
    fused: bool,
    /// Ours: written over its operand.
    inplace: bool,
}

impl Case for GroupNorm {
    fn op(&self) -> &'static str {
        match self.fused {
            true => "GROUP_NORM_MUL_ADD",
            false => "GROUP_NORM",
        }
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", DType::F32)
            .with("ne", self.ne)
            .with("num_groups", self.num_groups)
            .with("eps", self.eps)
            .with_unless_default("inplace", self.inplace, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let names: &[_] = if self.fused { &["a", "w", "b"] } else { &["a"] };
        let operand = |&name| Operand::new(name, DType::F32, self.ne);
        let operands = names.iter().map(operand);
        match self.fused {
            true => operands.map(Operand::trained).collect(),
            false => operands.collect(),
        }
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let normalized = match self.inplace {
            true => leaves[0].group_norm_inplace(self.num_groups, self.eps)?,
            false => leaves[0].group_norm(self.num_groups, self.eps)?,
        };
        match self.fused {
            true => normalized.mul(leaves[1])?.add(leaves[2]),
            false => Ok(normalized),
        }
    }

    fn is_fusion(&self) -> bool {
        self.fused
    }
}

fn case(ne: [usize; 4], num_groups: usize, eps: f32, fused: bool) -> GroupNorm {
    GroupNorm {
        ne,
        num_groups,
        eps,
        fused,
        inplace: false,
    }
}

/// Upstream's: the shapes of an image model.
pub(super) fn cases() -> Vec<GroupNorm> {
    const SHAPES: [[usize; 4]; 2] = [[64, 64, 320, 1], [9, 9, 1280, 1]];
    let alone = SHAPES.map(|ne| case(ne, 32, 1e-6, false));
    let fused = SHAPES.map(|ne| case(ne, 4, 1e-5, true));
    alone.into_iter().chain(fused).collect()
}

/// Several images, groups of one channel and of all, ragged planes, in place.
pub(super) fn ours() -> Vec<GroupNorm> {
    let mut cases = Vec::new();
    for fused in [false, true] {
        for (ne, groups) in [
            ([1, 1, 1, 1], 1),
            ([7, 5, 6, 3], 1),
            ([7, 5, 6, 3], 2),
            ([7, 5, 6, 3], 6),
            ([33, 1, 4, 2], 2),
            ([129, 9, 2, 1], 2),
        ] {
            cases.push(case(ne, groups, 1e-5, fused));
        }
    }
    cases.push(GroupNorm {
        inplace: true,
        ..case([7, 5, 6, 3], 2, 1e-5, false)
    });
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let names: Vec<_> = cases().iter().map(Case::name).collect();
        assert_eq!(
            names[0],
            "GROUP_NORM(type=f32,ne=[64,64,320,1],num_groups=32,eps=0.000001)"
        );
        assert_eq!(
            names[3],
            "GROUP_NORM_MUL_ADD(type=f32,ne=[9,9,1280,1],num_groups=4,eps=0.000010)"
        );
    }
}
