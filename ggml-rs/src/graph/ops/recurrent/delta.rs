//! The gated delta rule.

use ggml_sys as sys;

use super::{check_float, check_snapshots};
use crate::dtype::DType::F32;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// The operands of [`Tensor::gated_delta_net`], but for the queries.
#[derive(Debug, Clone, Copy)]
pub struct GatedDeltaNet<'g> {
    /// Keys [n, key heads, tokens, sequences].
    pub k: Tensor<'g>,
    /// Values [n, heads, tokens, sequences].
    pub v: Tensor<'g>,
    /// Logarithms of the gates [1 or n, heads, tokens, sequences].
    pub g: Tensor<'g>,
    /// How much is learned [1, heads, tokens, sequences].
    pub beta: Tensor<'g>,
    /// States [n, n, heads, sequences].
    pub state: Tensor<'g>,
    /// How many of the last states are kept.
    pub states: usize,
}

impl<'g> Tensor<'g> {
    /// The gated delta rule: queries `self` [n, query heads, tokens, sequences] and the operands, all F32, give
    /// [n * heads, tokens * sequences + states * n * sequences]: the outputs, and after them the states, the last one
    /// first. Head `h` reads query and key heads `h % query heads` and `h % key heads`. From token to token
    /// `state[i, j] *= exp(g[i])`, `d[j] = beta * (v[j] - sum over i of state[i, j] * k[i])`,
    /// `state[i, j] += k[i] * d[j]`, and the output is `sum over i of state[i, j] * q[i] / sqrt(n)`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as in [`GatedDeltaNet`] and heads of queries and keys divide
    /// those of values; [`Error::DType`](crate::Error::DType) unless F32; [`Error::Layout`](crate::Error::Layout) unless
    /// `g`, `beta` and `state` are contiguous, and rows of the others packed; [`Error::Param`](crate::Error::Param) for no
    /// state to keep, or more than tokens.
    #[doc(alias = "ggml_gated_delta_net")]
    #[track_caller]
    pub fn gated_delta_net(self, net: GatedDeltaNet<'g>) -> Result<Self> {
        let at = here();
        let GatedDeltaNet {
            k,
            v,
            g,
            beta,
            state,
            states,
        } = net;
        check([self, k, v, g, beta, state].map(Tensor::layout), states).at(at)?;
        // SAFETY: the tensors are alive, and the check is stricter than ggml_gated_delta_net's assertions.
        self.make("gated_delta_net", |context| unsafe {
            let [q, k, v, g, beta, state] = [self, k, v, g, beta, state].map(Tensor::as_ptr);
            sys::ggml_gated_delta_net(context, q, k, v, g, beta, state, states as i64)
        })
    }
}

/// Mirrors `ggml_gated_delta_net`, and what its kernels take for granted.
fn check([q, k, v, g, beta, state]: [Layout; 6], states: usize) -> Checked {
    let refusal = Refusal {
        op: "gated_delta_net",
        operands: &[
            ("q", q),
            ("k", k),
            ("v", v),
            ("g", g),
            ("beta", beta),
            ("state", state),
        ],
    };
    check_float(&refusal)?;
    let [n, heads, tokens, sequences] = v.ne;
    let reads =
        |x: Layout| x.ne == [n, x.ne[1], tokens, sequences] && heads.is_multiple_of(x.ne[1]);
    if !reads(q) || !reads(k) {
        return Err(refusal.shape("q and k must be [n, their heads, tokens, sequences], and their heads divide those of v"));
    }
    if g.ne[1..] != v.ne[1..] || (g.ne[0] != 1 && g.ne[0] != n) {
        return Err(refusal.shape("g must be [1 or n, heads, tokens, sequences]"));
    }
    if beta.ne != [1, heads, tokens, sequences] {
        return Err(refusal.shape("beta must be [1, heads, tokens, sequences]"));
    }
    if state.ne != [n, n, heads, sequences] {
        return Err(refusal.shape("the state must be [n, n, heads, sequences]"));
    }
    if ![g, beta, state].iter().all(Layout::is_contiguous) {
        return Err(refusal.layout("g, beta and the state must be contiguous: call cont() first"));
    }
    if ![q, k, v].iter().all(Layout::has_packed_rows) {
        return Err(refusal.layout("rows of q, k and v must be packed: call cont() first"));
    }
    check_snapshots(&refusal, states, tokens)?;
    let kept = states
        .checked_mul(n)
        .and_then(|rows| rows.checked_mul(sequences));
    match kept.and_then(|kept| kept.checked_add(tokens * sequences)) {
        Some(rows) => refusal.check_result(F32, [n * heads, rows, 1, 1]),
        None => Err(refusal.shape("the result overflows")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    fn operands() -> [Layout; 6] {
        [
            layout(F32, &[8, 2, 5, 3]),
            layout(F32, &[8, 1, 5, 3]),
            layout(F32, &[8, 4, 5, 3]),
            layout(F32, &[1, 4, 5, 3]),
            layout(F32, &[1, 4, 5, 3]),
            layout(F32, &[8, 8, 4, 3]),
        ]
    }

    #[test]
    fn operands_fit_the_values() {
        check(operands(), 2).unwrap();
        let changed = |place: usize, dims: &[usize]| {
            let mut operands = operands();
            operands[place] = layout(F32, dims);
            check(operands, 1)
        };
        changed(3, &[8, 4, 5, 3]).unwrap();
        for (place, dims) in [
            (0, &[8, 3, 5, 3]),
            (1, &[8, 2, 4, 3]),
            (3, &[2, 4, 5, 3]),
            (4, &[1, 4, 4, 3]),
            (5, &[8, 8, 4, 2]),
        ] {
            assert!(
                matches!(changed(place, dims), Err(Refused::Shape(_))),
                "{place}"
            );
        }
        for states in [0, 6] {
            assert!(matches!(check(operands(), states), Err(Refused::Param(_))));
        }
        let mut gaps = operands();
        gaps[0].nb[0] *= 2;
        assert!(matches!(check(gaps, 1), Err(Refused::Layout(_))));
    }
}
