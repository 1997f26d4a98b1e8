//! `OPT_STEP_ADAMW` and `OPT_STEP_SGD`. Upstream's `test_opt_step_adamw` and `test_opt_step_sgd`.

use ggml_rs::{AdamW, DType, Tensor};
use rand_chacha::ChaCha8Rng;

use crate::case::{Case, Leaves, smaller};
use crate::data::{Init, Operand};
use crate::vars::{Var, Vars};

/// Which optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// AdamW.
    AdamW,
    /// Gradient descent.
    Sgd,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Compared {
    /// The weights, as upstream does.
    Weights,
    /// The mean gradient, which AdamW writes as well.
    Mean,
    /// The mean square, which AdamW writes as well.
    Square,
}

impl Var for Compared {
    fn write(&self, out: &mut String) {
        out.push_str(match self {
            Self::Weights => "weights",
            Self::Mean => "mean",
            Self::Square => "square",
        });
    }
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct OptStep {
    /// Which optimizer.
    pub optimizer: Optimizer,
    /// Type of all.
    pub dtype: DType,
    /// Shape of the weights.
    pub ne: [usize; 4],
    /// What is compared.
    pub compared: Compared,
    /// Whether it is a step of training: small, with moments that began at 0. Upstream's parameters are random.
    pub training: bool,
}

impl OptStep {
    /// How many parameters the optimizer takes.
    fn params_len(&self) -> usize {
        match self.optimizer {
            Optimizer::AdamW => 7,
            Optimizer::Sgd => 2,
        }
    }
}

impl Case for OptStep {
    fn op(&self) -> &'static str {
        match self.optimizer {
            Optimizer::AdamW => "OPT_STEP_ADAMW",
            Optimizer::Sgd => "OPT_STEP_SGD",
        }
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with_unless_default("compared", self.compared, Compared::Weights)
            .with_unless_default("training", self.training, false)
            .to_string()
    }

    /// Not below 0: two of them are roots' arguments, others factors that make no sense below.
    fn operands(&self) -> Vec<Operand> {
        let unit = Init::Uniform([0.0, 1.0]);
        let of = |name| Operand::new(name, self.dtype, self.ne).init(unit);
        let params = Operand::new("params", DType::F32, [self.params_len(), 1, 1, 1]);
        let (gradient, params) = match self.training {
            true => (of("grad").within(1.0), params.init(Init::Drawn(first_step))),
            false => (of("grad"), params.init(unit)),
        };
        let mut operands = vec![of("a"), gradient, params];
        if self.optimizer == Optimizer::AdamW {
            let moments = if self.training {
                Init::Constant(0.0)
            } else {
                unit
            };
            operands.extend([of("grad_m").init(moments), of("grad_v").init(moments)]);
        }
        operands
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (a, grad, params) = (leaves[0].set_param()?, leaves[1], leaves[2]);
        if self.optimizer == Optimizer::Sgd {
            return a.opt_step_sgd(grad, params);
        }
        let (m, v) = (leaves[3], leaves[4]);
        let stepped = a.opt_step_adamw(grad, m, v, params)?;
        let moment = match self.compared {
            Compared::Weights => return Ok(stepped),
            Compared::Mean => m,
            Compared::Square => v,
        };
        // A step runs only if an output depends on it; what is read after it is new.
        leaves.graph().output("stepped", stepped)?;
        moment.scale(1.0)
    }
}

/// The parameters of the first of many steps: of AdamW, and of gradient descent, which has two.
fn first_step(operand: &Operand, _rng: &mut ChaCha8Rng) -> Vec<f32> {
    let options = AdamW {
        weight_decay: 0.01,
        ..AdamW::default()
    };
    match operand.ne[0] {
        2 => vec![options.learning_rate, options.weight_decay],
        _ => options.values(1).into(),
    }
}

/// All.
pub(super) fn cases() -> Vec<OptStep> {
    let mut cases = Vec::new();
    for optimizer in [Optimizer::AdamW, Optimizer::Sgd] {
        let upstream = OptStep {
            optimizer,
            dtype: DType::F32,
            ne: [10, 5, 4, 3],
            compared: Compared::Weights,
            training: false,
        };
        cases.push(upstream.clone());
        for ne in [[1, 1, 1, 1], [31, 1, 1, 1], [33, 7, 1, 1], [1025, 3, 2, 1]] {
            cases.extend([false, true].map(|training| OptStep {
                ne,
                training,
                ..upstream.clone()
            }));
        }
        if optimizer == Optimizer::AdamW {
            for compared in [Compared::Mean, Compared::Square] {
                cases.extend([false, true].map(|training| OptStep {
                    compared,
                    training,
                    ..upstream.clone()
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
        let [adamw, sgd] = [0, 13].map(|i| cases()[i].name());
        assert_eq!(adamw, "OPT_STEP_ADAMW(type=f32,ne=[10,5,4,3])");
        assert_eq!(sgd, "OPT_STEP_SGD(type=f32,ne=[10,5,4,3])");
    }
}
