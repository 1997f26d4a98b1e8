//! Scores by which sparse attention chooses its keys.

use ggml_sys as sys;

use crate::dtype::DType::{BF16, F16, F32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl<'g> Tensor<'g> {
    /// Scores of keys: queries `self` [n, heads, tokens, streams] of F32, keys [n, 1, kv, streams], weights
    /// [heads, tokens, 1, streams] of F32 and a mask [kv, tokens, 1, s] of F16, where `s` divides the streams, give
    /// [kv, tokens, 1, streams] of F32 with
    /// `out[j, t] = mask[j, t] + sum over h of weights[h, t] * max(<q[:, h, t], k[:, 0, j]>, 0)`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes fit as above; [`Error::DType`](crate::Error::DType) for other
    /// types, and keys that are no floats and do not dequantize.
    #[doc(alias = "ggml_lightning_indexer")]
    #[track_caller]
    pub fn lightning_indexer(
        self,
        k: Tensor<'g>,
        weights: Tensor<'g>,
        mask: Tensor<'g>,
    ) -> Result<Self> {
        let at = here();
        check(self.layout(), k.layout(), weights.layout(), mask.layout()).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_lightning_indexer's assertions.
        self.make("lightning_indexer", |context| unsafe {
            let (q, k) = (self.as_ptr(), k.as_ptr());
            sys::ggml_lightning_indexer(context, q, k, weights.as_ptr(), mask.as_ptr())
        })
    }
}

/// Mirrors `ggml_lightning_indexer`.
fn check(q: Layout, k: Layout, weights: Layout, mask: Layout) -> Checked {
    let refusal = Refusal {
        op: "lightning_indexer",
        operands: &[("q", q), ("k", k), ("weights", weights), ("mask", mask)],
    };
    let [n, heads, tokens, streams] = q.ne;
    let kv = k.ne[2];
    if k.ne != [n, 1, kv, streams] {
        return Err(
            refusal.shape("k must be [n, 1, kv, streams] for q of [n, heads, tokens, streams]")
        );
    }
    if weights.ne != [heads, tokens, 1, streams] {
        return Err(refusal.shape("the weights must be [heads, tokens, 1, streams]"));
    }
    let covers = mask.ne[..3] == [kv, tokens, 1] && streams.is_multiple_of(mask.ne[3]);
    if !covers {
        return Err(
            refusal.shape("the mask must be [kv, tokens, 1, s], where s divides the streams")
        );
    }
    if q.dtype != F32 || weights.dtype != F32 || mask.dtype != F16 {
        return Err(refusal.dtype("q and weights must be F32, and the mask F16"));
    }
    if !matches!(k.dtype, F32 | F16 | BF16) && !k.dtype.dequantizes() {
        return Err(refusal.dtype("k must be a float, or of a type that dequantizes"));
    }
    refusal.check_result(F32, [kv, tokens, 1, streams])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::I32;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn keys_weights_and_mask_fit_the_queries() {
        let q = layout(F32, &[128, 8, 5, 2]);
        let k = layout(F16, &[128, 1, 9, 2]);
        let weights = layout(F32, &[8, 5, 1, 2]);
        let mask = layout(F16, &[9, 5]);
        check(q, k, weights, mask).unwrap();
        let shape = |result: Checked| assert!(matches!(result, Err(Refused::Shape(_))));
        shape(check(q, layout(F16, &[128, 2, 9, 2]), weights, mask));
        shape(check(q, k, layout(F32, &[8, 5, 2, 1]), mask));
        shape(check(q, k, weights, layout(F16, &[9, 4])));
        shape(check(q, k, weights, layout(F16, &[9, 5, 1, 3])));
        let dtype = |result: Checked| assert!(matches!(result, Err(Refused::DType(_))));
        dtype(check(q, layout(I32, &[128, 1, 9, 2]), weights, mask));
        dtype(check(q, k, weights, layout(F32, &[9, 5])));
    }
}
