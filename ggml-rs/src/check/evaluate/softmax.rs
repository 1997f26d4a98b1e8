//! Softmax, its gradient, and the loss that is made of it.

use super::call::{Call, Operand};
use super::memory::place;
use super::norm::dot;
use crate::error::Result;

/// Parameters of SOFT_MAX and SOFT_MAX_BACK.
struct Params {
    scale: f64,
    max_bias: f64,
}

impl Params {
    fn read(call: &Call<'_>) -> Self {
        Self {
            scale: call.float(0),
            max_bias: call.float(1),
        }
    }
}

/// ALiBi's slope of a head: powers of one base for the first 2^k heads, odd powers of its root for the rest.
pub fn slope(max_bias: f64, head: usize, heads: usize) -> f64 {
    if max_bias <= 0.0 {
        return 1.0;
    }
    let power = 1 << heads.ilog2();
    if head < power {
        (-max_bias * (head + 1) as f64 / power as f64).exp2()
    } else {
        let odd = 2 * (head - power) + 1;
        (-max_bias / 2.0 * odd as f64 / power as f64).exp2()
    }
}

/// SOFT_MAX of `a * scale + slope * mask`, with a sink per head that takes its share and has no column.
pub fn soft_max(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, params) = (call.src(0)?, Params::read(call));
    let (mask, sinks) = (call.optional(1), call.optional(2));
    let mut out = Vec::with_capacity(a.values.len());
    for (number, row) in a.rows().enumerate() {
        let [i1, head, i3, _] = place([a.ne[1], a.ne[2], a.ne[3], 1], number);
        let mut logits: Vec<_> = row.iter().map(|x| x * params.scale).collect();
        if let Some(mask) = &mask {
            let slope = slope(params.max_bias, head, a.ne[2]);
            add_mask(
                &mut logits,
                slope,
                mask.row(i1, head % mask.ne[2], i3 % mask.ne[3]),
            );
        }
        let sink = sinks.as_ref().map(|sinks| sinks.values[head]);
        out.extend(shares(&logits, sink));
    }
    Ok(out)
}

fn add_mask(logits: &mut [f64], slope: f64, mask: &[f64]) {
    for (logit, mask) in logits.iter_mut().zip(mask) {
        *logit += slope * mask;
    }
}

/// exp of each value, divided by the sum of all and the sink's.
pub fn shares(logits: &[f64], sink: Option<f64>) -> Vec<f64> {
    let most = logits
        .iter()
        .copied()
        .chain(sink)
        .fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits
        .iter()
        .copied()
        .chain(sink)
        .map(|x| (x - most).exp())
        .sum();
    logits.iter().map(|x| (x - most).exp() / sum).collect()
}

/// SOFT_MAX_BACK: operand 0 is the gradient, operand 1 the op's result.
pub fn soft_max_back(call: &Call<'_>) -> Result<Vec<f64>> {
    let (gradient, y, params) = (call.src(0)?, call.src(1)?, Params::read(call));
    let back = |(dy, y): (&[f64], &[f64])| {
        let along = dot(dy, y);
        let pairs = dy.iter().zip(y);
        pairs
            .map(|(dy, y)| params.scale * y * (dy - along))
            .collect::<Vec<_>>()
    };
    Ok(gradient.rows().zip(y.rows()).flat_map(back).collect())
}

/// CROSS_ENTROPY_LOSS: the mean over rows of -sum(labels * log(softmax(x))).
pub fn cross_entropy_loss(call: &Call<'_>) -> Result<Vec<f64>> {
    let (x, labels) = (call.src(0)?, call.src(1)?);
    let loss = |(x, labels): (&[f64], &[f64])| {
        let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_sum = most + x.iter().map(|x| (x - most).exp()).sum::<f64>().ln();
        let pairs = x.iter().zip(labels);
        pairs.map(|(x, label)| label * (log_sum - x)).sum::<f64>()
    };
    let sum: f64 = x.rows().zip(labels.rows()).map(loss).sum();
    Ok(vec![sum / rows(&x)])
}

/// CROSS_ENTROPY_LOSS_BACK: operand 0 is the loss's gradient, operands 1 and 2 are the op's own.
///
/// It is the gradient where each row of labels adds up to 1, which is what ggml computes.
pub fn cross_entropy_loss_back(call: &Call<'_>) -> Result<Vec<f64>> {
    let (gradient, x, labels) = (call.src(0)?, call.src(1)?, call.src(2)?);
    let factor = gradient.values[0] / rows(&x);
    let back = |(x, labels): (&[f64], &[f64])| {
        let pairs = shares(x, None).into_iter().zip(labels);
        pairs
            .map(|(share, label)| (share - label) * factor)
            .collect::<Vec<_>>()
    };
    Ok(x.rows().zip(labels.rows()).flat_map(back).collect())
}

fn rows(x: &Operand<'_>) -> f64 {
    x.rows().len() as f64
}
