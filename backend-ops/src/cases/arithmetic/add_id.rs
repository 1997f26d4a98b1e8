//! `ADD_ID`: each row of `a` gets the row of `b` that an id names. Upstream's `test_add_id`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Layout, Leaves, boxed, laid_out, smaller, with_extremes};
use crate::data::Operand;
use crate::vars::Vars;

/// One ADD_ID case.
#[derive(Clone, Debug)]
pub struct AddId {
    type_a: DType,
    type_b: DType,
    n_embd: usize,
    n_experts: usize,
    n_experts_used: usize,
    n_token: usize,
}

impl Case for AddId {
    fn op(&self) -> &'static str {
        "ADD_ID"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type_a", self.type_a)
            .with("type_b", self.type_b)
            .with("n_embd", self.n_embd)
            .with("n_experts", self.n_experts)
            .with("n_experts_used", self.n_experts_used)
            .with("n_token", self.n_token)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let a = [self.n_embd, self.n_experts_used, self.n_token, 1];
        let ids = [self.n_experts, self.n_token, 1, 1];
        vec![
            Operand::new("a", self.type_a, a),
            Operand::new("b", self.type_b, [self.n_embd, self.n_experts, 1, 1]),
            Operand::row_ids("ids", ids, self.n_experts, true),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            vec![
                &mut case.n_embd,
                &mut case.n_experts_used,
                &mut case.n_token,
            ]
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let ids = leaves.rows(2);
        let ids = match self.n_experts_used == self.n_experts {
            true => ids,
            false => ids.narrow(0, 0, self.n_experts_used)?,
        };
        leaves[0].add_id(leaves[1], ids.experts()?)
    }
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<AddId> {
    let mut cases = Vec::new();
    for n_experts in [4, 8] {
        for n_experts_used in [1, 2, 4] {
            for n_embd in [32, 129] {
                cases.extend([1, 32, 129].map(|n_token| AddId {
                    type_a: DType::F32,
                    type_b: DType::F32,
                    n_embd,
                    n_experts,
                    n_experts_used,
                    n_token,
                }));
            }
        }
    }
    cases
}

/// Ours: one value, more experts than a SIMD group has lanes, other layouts, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let case = |n_embd, n_experts, n_experts_used, n_token| AddId {
        type_a: DType::F32,
        type_b: DType::F32,
        n_embd,
        n_experts,
        n_experts_used,
        n_token,
    };
    boxed(vec![case(1, 1, 1, 1), case(33, 40, 33, 3)])
        .chain(laid_out([case(33, 5, 3, 4)], Layout::OTHERS))
        .chain(with_extremes([case(33, 5, 3, 4)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_string_is_upstreams() {
        assert_eq!(
            cases()[0].name(),
            "ADD_ID(type_a=f32,type_b=f32,n_embd=32,n_experts=4,n_experts_used=1,n_token=1)"
        );
        assert_eq!(cases().len(), 36);
    }
}
