//! `ACC`: adds to a window of a tensor. Upstream's `test_acc`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Layout, Leaves, boxed, laid_out, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One ACC case.
#[derive(Clone, Debug)]
pub struct Acc {
    ne_a: [usize; 4],
    ne_b: [usize; 4],
    /// The dimension in which `b` is a window of a larger tensor, from its second row on; -1 for none. Upstream counts the
    /// offset in rows whatever the dimension.
    stride_dim: i64,
    /// Ours: whether the result is written over `a`.
    in_place: bool,
}

impl Acc {
    fn new(ne_a: [usize; 4], ne_b: [usize; 4], stride_dim: i64) -> Self {
        Self {
            ne_a,
            ne_b,
            stride_dim,
            in_place: false,
        }
    }

    /// The dimension in which `b` is a window.
    fn strided(&self) -> Option<usize> {
        usize::try_from(self.stride_dim).ok()
    }
}

impl Case for Acc {
    fn op(&self) -> &'static str {
        "ACC"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", DType::F32)
            .with("ne_a", self.ne_a)
            .with("ne_b", self.ne_b)
            .with("stride_dim", self.stride_dim)
            .with_unless_default("inplace", self.in_place, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let mut stored = self.ne_b;
        if let Some(dim) = self.strided() {
            stored[dim] += 1;
        }
        [("a", self.ne_a), ("b", stored)]
            .map(|(name, ne)| Operand::new(name, DType::F32, ne).trained())
            .to_vec()
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let [_, nb @ ..] = leaves[1].strides();
        let b = match self.strided() {
            Some(_) => leaves[1].view(self.ne_b, nb, nb[0])?,
            None => leaves[1],
        };
        let [_, nb @ ..] = leaves[0].strides();
        match self.in_place {
            true => leaves[0].acc_inplace(b, nb, 0),
            false => leaves[0].acc(b, nb, 0),
        }
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Acc> {
    let one = [256, 17, 1, 1];
    let many = [256, 17, 2, 3];
    vec![
        Acc::new(one, [256, 16, 1, 1], -1),
        Acc::new(many, [256, 16, 2, 3], -1),
        Acc::new(many, [128, 16, 2, 3], -1),
        Acc::new(many, [256, 16, 2, 3], 1),
        Acc::new(many, [128, 16, 2, 3], 2),
        Acc::new(many, [64, 16, 2, 3], 3),
    ]
}

/// Ours: in place, ragged rows, rows longer than a threadgroup, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let case = Acc::new([33, 4, 3, 2], [31, 3, 2, 2], -1);
    let mut plain = vec![
        Acc::new([1, 1, 1, 1], [1, 1, 1, 1], -1),
        Acc::new([1025, 2, 1, 1], [1024, 1, 1, 1], -1),
        case.clone(),
    ];
    plain.extend([0, 1].map(|which| Acc {
        in_place: true,
        ..plain[which + 1].clone()
    }));
    boxed(plain)
        .chain(laid_out([case.clone()], Layout::OTHERS))
        .chain(with_extremes([case]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "ACC(type=f32,ne_a=[256,17,1,1],ne_b=[256,16,1,1],stride_dim=-1)"
        );
    }
}
