//! RWKV's recurrences and gated linear attention: a matrix for each head that forgets and learns from token to token.

use ggml_sys as sys;

use super::{check_contiguous, check_float};
use crate::dtype::DType::F32;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl<'g> Tensor<'g> {
    /// RWKV 6: keys `self`, values, receptances and decays [n, heads, tokens], `bonus` [n, heads] and states
    /// [n * n * heads, sequences], all F32, give [n * heads, tokens + n * sequences]: the outputs, and after them the
    /// states. The tokens are those of the first sequence, then those of the second, and so on. For each head
    /// `out[j] = sum over i of r[i] * (bonus[i] * k[i] * v[j] + state[j, i])`, then
    /// `state[j, i] = state[j, i] * decay[i] + k[i] * v[j]`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above and the sequences divide the tokens;
    /// [`Error::DType`](crate::Error::DType) unless F32; [`Error::Layout`](crate::Error::Layout) unless contiguous.
    #[doc(alias = "ggml_rwkv_wkv6")]
    #[track_caller]
    pub fn rwkv_wkv6(
        self,
        v: Tensor<'g>,
        r: Tensor<'g>,
        bonus: Tensor<'g>,
        decay: Tensor<'g>,
        state: Tensor<'g>,
    ) -> Result<Self> {
        let at = here();
        let [k_, v_, r_, bonus_, decay_, state_] =
            [self, v, r, bonus, decay, state].map(Tensor::layout);
        let tokens = [("k", k_), ("v", v_), ("r", r_), ("decay", decay_)];
        check("rwkv_wkv6", &tokens, Some(bonus_), state_).at(at)?;
        // SAFETY: the tensors are alive, and the check is stricter than ggml_rwkv_wkv6's assertions.
        self.make("rwkv_wkv6", |context| unsafe {
            let [k, v, r, bonus, decay, state] =
                [self, v, r, bonus, decay, state].map(Tensor::as_ptr);
            sys::ggml_rwkv_wkv6(context, k, v, r, bonus, decay, state)
        })
    }

    /// RWKV 7: receptances `self`, decays, keys, values, `a` and `b` [n, heads, tokens] and states
    /// [n * n * heads, sequences], all F32, give outputs and states as in [`Tensor::rwkv_wkv6`]. For each head
    /// `state[j, i] = state[j, i] * w[j] + v[i] * k[j] + b[j] * sum over l of a[l] * state[l, i]`, then
    /// `out[i] = sum over j of state[j, i] * r[j]`.
    ///
    /// The CPU takes heads of a multiple of 64 only, Metal those of 64.
    ///
    /// # Errors
    /// As [`Tensor::rwkv_wkv6`].
    #[doc(alias = "ggml_rwkv_wkv7")]
    #[track_caller]
    pub fn rwkv_wkv7(
        self,
        w: Tensor<'g>,
        k: Tensor<'g>,
        v: Tensor<'g>,
        a: Tensor<'g>,
        b: Tensor<'g>,
        state: Tensor<'g>,
    ) -> Result<Self> {
        let at = here();
        let [r_, w_, k_, v_, a_, b_, state_] = [self, w, k, v, a, b, state].map(Tensor::layout);
        let tokens = [
            ("r", r_),
            ("w", w_),
            ("k", k_),
            ("v", v_),
            ("a", a_),
            ("b", b_),
        ];
        check("rwkv_wkv7", &tokens, None, state_).at(at)?;
        // SAFETY: the tensors are alive, and the check is stricter than ggml_rwkv_wkv7's assertions.
        self.make("rwkv_wkv7", |context| unsafe {
            let [r, w, k, v, a, b, state] = [self, w, k, v, a, b, state].map(Tensor::as_ptr);
            sys::ggml_rwkv_wkv7(context, r, w, k, v, a, b, state)
        })
    }

    /// Gated linear attention: keys `self`, values, queries and gates [n, heads, tokens] and states
    /// [n * n * heads, sequences], all F32, give outputs and states as in [`Tensor::rwkv_wkv6`]. For each head
    /// `state[j, i] = state[j, i] * g[i] + k[i] * v[j]`, then `out[j] = sum over i of state[j, i] * q[i] * scale`.
    ///
    /// # Errors
    /// As [`Tensor::rwkv_wkv6`].
    #[doc(alias = "ggml_gated_linear_attn")]
    #[track_caller]
    pub fn gated_linear_attn(
        self,
        v: Tensor<'g>,
        q: Tensor<'g>,
        g: Tensor<'g>,
        state: Tensor<'g>,
        scale: f32,
    ) -> Result<Self> {
        let at = here();
        let [k_, v_, q_, g_, state_] = [self, v, q, g, state].map(Tensor::layout);
        let tokens = [("k", k_), ("v", v_), ("q", q_), ("g", g_)];
        check("gated_linear_attn", &tokens, None, state_).at(at)?;
        // SAFETY: the tensors are alive, and the check is stricter than ggml_gated_linear_attn's assertions.
        self.make("gated_linear_attn", |context| unsafe {
            let [k, v, q, g, state] = [self, v, q, g, state].map(Tensor::as_ptr);
            sys::ggml_gated_linear_attn(context, k, v, q, g, state, scale)
        })
    }
}

/// Mirrors all three, and what their kernels take for granted: that sequences divide the tokens.
fn check(
    op: &'static str,
    tokens: &[(&'static str, Layout)],
    bonus: Option<Layout>,
    state: Layout,
) -> Checked {
    let mut operands = tokens.to_vec();
    operands.extend(bonus.map(|bonus| ("bonus", bonus)));
    operands.push(("state", state));
    let refusal = Refusal {
        op,
        operands: &operands,
    };
    check_float(&refusal)?;
    let [n, heads, count, _] = tokens[0].1.ne;
    if tokens.iter().any(|(_, x)| x.ne != [n, heads, count, 1]) {
        return Err(refusal.shape("all but the state must be [n, heads, tokens]"));
    }
    if bonus.is_some_and(|bonus| bonus.ne != [n, heads, 1, 1]) {
        return Err(refusal.shape("the bonus must be [n, heads]"));
    }
    let sequences = state.ne[1];
    let matrices = n
        .checked_mul(n)
        .and_then(|square| square.checked_mul(heads));
    if state.ne[2..] != [1, 1] || Some(state.ne[0]) != matrices {
        return Err(refusal.shape("the state must be [n * n * heads, sequences]"));
    }
    if !count.is_multiple_of(sequences) {
        return Err(refusal.shape("the sequences, ne[1] of the state, must divide the tokens"));
    }
    check_contiguous(&refusal)?;
    let rows = n
        .checked_mul(sequences)
        .and_then(|rows| rows.checked_add(count));
    match rows {
        Some(rows) => refusal.check_result(F32, [n * heads, rows, 1, 1]),
        None => Err(refusal.shape("the result overflows")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F16;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn sequences_divide_tokens_and_states_fit_heads() {
        let with = |k: Layout, v: &[usize], bonus: &[usize], state: &[usize]| {
            let tokens = [("k", k), ("v", layout(F32, v))];
            check(
                "rwkv_wkv6",
                &tokens,
                Some(layout(F32, bonus)),
                layout(F32, state),
            )
        };
        let k = layout(F32, &[4, 3, 6]);
        with(k, &[4, 3, 6], &[4, 3], &[48, 2]).unwrap();
        for (v, bonus, state) in [
            (&[4, 3, 5][..], &[4, 3][..], &[48, 2][..]),
            (&[4, 3, 6], &[4, 2], &[48, 2]),
            (&[4, 3, 6], &[4, 3], &[48, 4]),
            (&[4, 3, 6], &[4, 3], &[24, 2]),
            (&[4, 3, 6], &[4, 3], &[24, 2, 2]),
        ] {
            assert!(
                matches!(with(k, v, bonus, state), Err(Refused::Shape(_))),
                "{v:?} {state:?}"
            );
        }
        let turned = with(
            transposed(layout(F32, &[3, 4, 6])),
            &[4, 3, 6],
            &[4, 3],
            &[48, 2],
        );
        assert!(matches!(turned, Err(Refused::Layout(_))));
        let halves = with(layout(F16, &[4, 3, 6]), &[4, 3, 6], &[4, 3], &[48, 2]);
        assert!(matches!(halves, Err(Refused::DType(_))));
    }
}
