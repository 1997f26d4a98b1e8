//! Attention in one op, and the scores that choose what to attend to.

use super::call::{Call, Operand};
use super::memory::places;
use super::norm::dot;
use super::softmax::slope;
use crate::error::Result;

/// Operands and parameters of FLASH_ATTN_EXT.
struct Attention<'a> {
    q: Operand<'a>,
    k: Operand<'a>,
    v: Operand<'a>,
    mask: Option<Operand<'a>>,
    sinks: Option<Operand<'a>>,
    scale: f64,
    max_bias: f64,
    softcap: f64,
}

impl<'a> Attention<'a> {
    fn read(call: &Call<'a>) -> Result<Self> {
        Ok(Self {
            q: call.src(0)?,
            k: call.src(1)?,
            v: call.src(2)?,
            mask: call.optional(3),
            sinks: call.optional(4),
            scale: call.float(0),
            max_bias: call.float(1),
            softcap: call.float(2),
        })
    }

    /// What a query makes of each key. The cap applies before the mask.
    fn logits(&self, token: usize, head: usize, batch: usize) -> Vec<f64> {
        let q = self.q.row(token, head, batch);
        let (heads, batches) = (self.q.ne[2] / self.k.ne[2], self.q.ne[3] / self.k.ne[3]);
        let keys = (0..self.k.ne[1]).map(|key| self.k.row(key, head / heads, batch / batches));
        let mut logits: Vec<f64> = keys.map(|k| self.capped(dot(q, k) * self.scale)).collect();
        if let Some(mask) = &self.mask {
            let slope = slope(self.max_bias, head, self.q.ne[2]);
            let mask = mask.row(token, head % mask.ne[2], batch % mask.ne[3]);
            let pairs = logits.iter_mut().zip(mask);
            pairs.for_each(|(logit, mask)| *logit += slope * mask);
        }
        logits
    }

    fn capped(&self, logit: f64) -> f64 {
        match self.softcap {
            0.0 => logit,
            cap => cap * (logit / cap).tanh(),
        }
    }

    /// The values' mean, weighted by the exponentials of the logits. A sink has a weight and no value. Where every key is
    /// masked the result is zero.
    fn row(&self, token: usize, head: usize, batch: usize) -> Vec<f64> {
        let logits = self.logits(token, head, batch);
        let sink = self.sinks.as_ref().map(|sinks| sinks.values[head]);
        let all = logits.iter().copied().chain(sink);
        let most = all.fold(f64::NEG_INFINITY, f64::max);
        let (heads, batches) = (self.q.ne[2] / self.v.ne[2], self.q.ne[3] / self.v.ne[3]);
        let mut out = vec![0.0; self.v.ne[0]];
        let mut sum = sink.map_or(0.0, |sink| (sink - most).exp());
        for (key, logit) in logits.into_iter().enumerate() {
            if logit == f64::NEG_INFINITY {
                continue;
            }
            let weight = (logit - most).exp();
            sum += weight;
            let v = self.v.row(key, head / heads, batch / batches);
            out.iter_mut()
                .zip(v)
                .for_each(|(out, v)| *out += weight * v);
        }
        if sum != 0.0 {
            out.iter_mut().for_each(|out| *out /= sum);
        }
        out
    }
}

/// FLASH_ATTN_EXT: operands are queries, keys, values, and perhaps a mask and a sink for each head. The heads of a token lie
/// side by side in the result.
pub fn flash_attn_ext(call: &Call<'_>) -> Result<Vec<f64>> {
    let attention = Attention::read(call)?;
    let [_, tokens, heads, batches] = attention.q.ne;
    let rows = places([heads, tokens, batches, 1]);
    Ok(rows
        .flat_map(|[head, token, batch, _]| attention.row(token, head, batch))
        .collect())
}

/// LIGHTNING_INDEXER: for each token and key the sum over heads of `weight * relu(q . k)`, plus the mask.
pub fn lightning_indexer(call: &Call<'_>) -> Result<Vec<f64>> {
    let (q, k) = (call.src(0)?, call.src(1)?);
    let (weights, mask) = (call.src(2)?, call.src(3)?);
    let score = |[key, token, _, stream]: [usize; 4]| {
        let k = k.row(0, key, stream);
        let heads = (0..q.ne[1]).map(|head| {
            dot(q.row(head, token, stream), k).max(0.0) * weights.at([head, token, 0, stream])
        });
        heads.sum::<f64>() + mask.at([key, token, 0, stream % mask.ne[3]])
    };
    Ok(places(call.ne()).map(score).collect())
}
