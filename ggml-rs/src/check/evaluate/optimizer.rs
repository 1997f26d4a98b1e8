//! Steps of optimizers. They write in place, the momenta as well as the weights.

use super::call::Call;
use super::ops::Writes;
use crate::error::{Error, Result};

/// Parameters of an AdamW step, as its operand 4 holds them.
struct Params {
    alpha: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    decay: f64,
    /// 1 / (1 - beta^t): corrections for the momenta's start at zero.
    correction1: f64,
    correction2: f64,
}

impl Params {
    fn read(call: &Call<'_>) -> Result<Self> {
        let values = call.src(4)?.values;
        let [alpha, beta1, beta2, eps, decay, correction1, correction2] =
            <[f64; 7]>::try_from(&values[..]).map_err(|_| Error::Internal {
                step: "evaluate",
                message: format!("AdamW has {} parameters, not 7", values.len()),
            })?;
        Ok(Self {
            alpha,
            beta1,
            beta2,
            eps,
            decay,
            correction1,
            correction2,
        })
    }

    /// One weight's step, which changes its momenta.
    fn step(&self, weight: &mut f64, gradient: f64, mean: &mut f64, square: &mut f64) {
        *mean = self.beta1 * *mean + (1.0 - self.beta1) * gradient;
        *square = self.beta2 * *square + (1.0 - self.beta2) * gradient * gradient;
        let length = (*square * self.correction2).sqrt() + self.eps;
        let direction = *mean * self.correction1 / length;
        *weight -= self.alpha * (self.decay * *weight + direction);
    }
}

/// OPT_STEP_ADAMW: operands are weights, gradient, the momenta (of the gradient, of its square) and parameters.
pub fn adamw(call: &Call<'_>) -> Result<Writes> {
    let params = Params::read(call)?;
    let values = |index| Ok::<_, Error>(call.src(index)?.values.into_owned());
    let (mut weights, mut mean, mut square) = (values(0)?, values(2)?, values(3)?);
    for (i, gradient) in values(1)?.into_iter().enumerate() {
        params.step(&mut weights[i], gradient, &mut mean[i], &mut square[i]);
    }
    let mut writes = vec![(call.node.dst, weights)];
    for (source, values) in [(2, mean), (3, square)] {
        writes.extend(call.node.src[source].map(|view| (view, values)));
    }
    Ok(writes)
}

/// OPT_STEP_SGD: operands are weights, gradient, and two parameters: the rate and the decay.
pub fn sgd(call: &Call<'_>) -> Result<Vec<f64>> {
    let (weights, gradient, params) = (call.src(0)?, call.src(1)?, call.src(2)?);
    let (alpha, decay) = (params.values[0], params.values[1]);
    let step = |(w, g): (&f64, &f64)| w - alpha * (decay * w + g);
    Ok(weights
        .values
        .iter()
        .zip(gradient.values.iter())
        .map(step)
        .collect())
}
