//! `TOPK_MOE`: the choice of experts, which backends fuse. Upstream's `test_topk_moe`.

use ggml_rs::{DType, SoftMax, Tensor};

use crate::case::{Case, Choices, Leaves, Measure, smaller};
use crate::data::Operand;
use crate::vars::{Var, Vars};

/// What makes probabilities of logits. Upstream prints its number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gating {
    /// The softmax of all experts.
    Softmax,
    /// The sigmoid of each.
    Sigmoid,
    /// The softmax of those that were chosen.
    SoftmaxWeight,
}

impl Var for Gating {
    fn write(&self, out: &mut String) {
        (*self as i32).write(out);
    }
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct TopkMoe {
    /// Shape of the logits: experts and tokens.
    pub ne: [usize; 4],
    /// Experts that are chosen for a token.
    pub n_expert_used: usize,
    /// Whether weights are divided by their sum.
    pub with_norm: bool,
    /// Whether a bias takes part in the choice.
    pub bias_probs: bool,
    /// What makes probabilities.
    pub gating_func: Gating,
    /// What weights are multiplied by; not at all for 0.
    pub scale_w: f32,
    /// Whether the chosen experts are the result, not their weights. Upstream compares both of one graph.
    pub experts: bool,
}

impl Case for TopkMoe {
    fn op(&self) -> &'static str {
        "TOPK_MOE"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("ne", self.ne)
            .with("n_expert_used", self.n_expert_used)
            .with("with_norm", self.with_norm)
            .with("bias_probs", self.bias_probs)
            .with("gating_func", self.gating_func)
            .with("scale_w", self.scale_w)
            .with_unless_default("experts", self.experts, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let mut operands = vec![Operand::new("logits", DType::F32, self.ne)];
        if self.bias_probs {
            let bias = [self.ne[0], 1, 1, 1];
            operands.push(Operand::new("exp_probs_b", DType::F32, bias));
        }
        operands
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let [experts, tokens, ..] = self.ne;
        let used = self.n_expert_used;
        let logits = leaves[0];
        let probs = match self.gating_func {
            Gating::Softmax => logits.soft_max()?,
            Gating::Sigmoid => logits.sigmoid()?,
            Gating::SoftmaxWeight => logits,
        };
        let selection = match self.bias_probs {
            true => probs.add(leaves[1])?,
            false => probs,
        };
        let selected = selection.argsort_top_k(used)?;
        let mut weights = probs.reshape([1, experts, tokens])?.get_rows(selected)?;
        if self.gating_func == Gating::SoftmaxWeight {
            let chosen = weights
                .reshape([used, tokens])?
                .soft_max_ext(SoftMax::default())?;
            weights = chosen.reshape([1, used, tokens])?;
        }
        if self.with_norm {
            let row = weights.reshape([used, tokens])?;
            // Half's smallest normal number.
            let sum = row.sum_rows()?.clamp(1.0 / 16384.0, f32::INFINITY)?;
            weights = row.div(sum)?.reshape([1, used, tokens])?;
        }
        if self.scale_w != 0.0 {
            weights = weights.scale(self.scale_w)?;
        }
        match self.experts {
            // The weights as well, which make it the graph that is fused.
            true => {
                let ids = selected.to_tensor()?;
                leaves.graph().output("weights", weights)?;
                Ok(ids)
            }
            false => Ok(weights),
        }
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        if self.experts { 0.0 } else { 1e-7 }
    }

    /// Upstream sorts all values of all tokens; here those of each token.
    fn measure(&self) -> Measure {
        Measure::RowSets(self.n_expert_used)
    }

    fn is_fusion(&self) -> bool {
        true
    }
}

/// All of upstream's, then all again with the experts as their result.
pub(super) fn cases() -> Vec<TopkMoe> {
    [false, true].into_iter().flat_map(grid).collect()
}

fn grid(experts: bool) -> Vec<TopkMoe> {
    const SIZES: [([usize; 2], usize); 8] = [
        ([8, 22], 4),
        ([31, 22], 8),
        ([32, 22], 8),
        ([40, 22], 8),
        ([71, 22], 8),
        ([128, 1], 128),
        ([129, 1], 128),
        ([160, 4], 160),
    ];
    let mut cases = Vec::new();
    for gating_func in [Gating::Softmax, Gating::Sigmoid, Gating::SoftmaxWeight] {
        for [with_norm, bias_probs] in [[false, false], [false, true], [true, false], [true, true]]
        {
            for scale_w in [0.0, 2.0] {
                cases.extend(SIZES.map(|([all, tokens], n_expert_used)| TopkMoe {
                    ne: [all, tokens, 1, 1],
                    n_expert_used,
                    with_norm,
                    bias_probs,
                    gating_func,
                    scale_w,
                    experts,
                }));
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let cases = cases();
        assert_eq!(cases.len(), 2 * 192);
        assert_eq!(
            cases[191].name(),
            "TOPK_MOE(ne=[160,4,1,1],n_expert_used=160,with_norm=1,bias_probs=1,gating_func=2,scale_w=2.000000)"
        );
    }
}
