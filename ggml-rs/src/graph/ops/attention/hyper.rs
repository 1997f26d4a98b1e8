//! DeepSeek V4's hyper-connections: several residual streams, mixed before and after each layer.

use ggml_sys as sys;

use crate::dtype::DType::F32;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// The number of streams that DSV4_HC_COMB is written for.
const STREAMS: usize = 4;
/// Its mixes: before, after, and from each stream to each.
const MIXES: usize = (2 + STREAMS) * STREAMS;
/// Iterations are loops of a kernel, which nothing interrupts.
const MOST_ITERATIONS: usize = 1 << 16;

impl<'g> Tensor<'g> {
    /// The matrices that mix 4 streams: mixes `self` [24, tokens], scale [3 or more] and base `[24]`, all of F32, give
    /// [4, 4, tokens]. The softmax of `self[8 + i + 4 * j] * scale[2] + base[8 + i + 4 * j]` over `i`, plus `eps`, is divided
    /// by its sums (plus `eps`) over `j`, then `iterations - 1` times by those over `i` and over `j`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above; [`Error::DType`](crate::Error::DType) unless F32;
    /// [`Error::Param`](crate::Error::Param) unless there are 1 to 65536 iterations.
    #[doc(alias = "ggml_dsv4_hc_comb")]
    #[track_caller]
    pub fn dsv4_hc_comb(
        self,
        scale: Tensor<'g>,
        base: Tensor<'g>,
        eps: f32,
        iterations: usize,
    ) -> Result<Self> {
        let at = here();
        check_comb(self.layout(), scale.layout(), base.layout(), iterations).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_dsv4_hc_comb's assertions.
        self.make("dsv4_hc_comb", |context| unsafe {
            let (mixes, scale, base) = (self.as_ptr(), scale.as_ptr(), base.as_ptr());
            sys::ggml_dsv4_hc_comb(context, mixes, scale, base, eps, iterations as i32)
        })
    }

    /// The sum of streams: `self` [n, streams, tokens] and weights [streams, tokens], both F32, give [n, tokens] with
    /// `out[i, t] = sum over s of self[i, s, t] * weights[s, t]`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above; [`Error::DType`](crate::Error::DType) unless F32.
    #[doc(alias = "ggml_dsv4_hc_pre")]
    #[track_caller]
    pub fn dsv4_hc_pre(self, weights: Tensor<'g>) -> Result<Self> {
        let at = here();
        let [_, streams, tokens, _] = self.shape().ne();
        check_pre(self.layout(), weights.layout(), [streams, tokens, 1, 1]).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_dsv4_hc_pre's assertions.
        self.make("dsv4_hc_pre", |context| unsafe {
            sys::ggml_dsv4_hc_pre(context, self.as_ptr(), weights.as_ptr())
        })
    }

    /// The gated sum of streams: `self` and gate [n, streams, tokens], both F32, give [n, tokens] with
    /// `out[i, t] = scale * sum over s of self[i, s, t] * sigmoid(gate[i, s, t])`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above; [`Error::DType`](crate::Error::DType) unless F32.
    #[doc(alias = "ggml_dsv4_hc_pre_gated")]
    #[track_caller]
    pub fn dsv4_hc_pre_gated(self, gate: Tensor<'g>, scale: f32) -> Result<Self> {
        let at = here();
        check_pre(self.layout(), gate.layout(), self.shape().ne()).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_dsv4_hc_pre_gated's assertions.
        self.make("dsv4_hc_pre_gated", |context| unsafe {
            sys::ggml_dsv4_hc_pre_gated(context, self.as_ptr(), gate.as_ptr(), scale)
        })
    }

    /// Streams after a layer: its result `self` [n, tokens], residuals [n, streams, tokens], post [streams, tokens] and comb
    /// [streams, streams, tokens], all F32, give [n, streams, tokens] with
    /// `out[i, s, t] = self[i, t] * post[s, t] + sum over r of residual[i, r, t] * comb[s, r, t]`. Without `comb` each stream
    /// keeps its residual.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above; [`Error::DType`](crate::Error::DType) unless F32.
    #[doc(alias = "ggml_dsv4_hc_post")]
    #[track_caller]
    pub fn dsv4_hc_post(
        self,
        residual: Tensor<'g>,
        post: Tensor<'g>,
        comb: Option<Tensor<'g>>,
    ) -> Result<Self> {
        let at = here();
        let layouts = [self.layout(), residual.layout(), post.layout()];
        check_post(layouts, comb.map(Tensor::layout)).at(at)?;
        let comb = comb.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        // SAFETY: the tensors are alive, and the check mirrors ggml_dsv4_hc_post's assertions; it takes no comb.
        self.make("dsv4_hc_post", |context| unsafe {
            let (x, residual, post) = (self.as_ptr(), residual.as_ptr(), post.as_ptr());
            sys::ggml_dsv4_hc_post(context, x, residual, post, comb)
        })
    }
}

fn check_float(refusal: &Refusal) -> Checked {
    if refusal.operands.iter().any(|(_, x)| x.dtype != F32) {
        return Err(refusal.dtype("all must be F32"));
    }
    Ok(())
}

/// Mirrors `ggml_dsv4_hc_comb`.
fn check_comb(mixes: Layout, scale: Layout, base: Layout, iterations: usize) -> Checked {
    let refusal = Refusal {
        op: "dsv4_hc_comb",
        operands: &[("mixes", mixes), ("scale", scale), ("base", base)],
    };
    check_float(&refusal)?;
    let tokens = mixes.ne[1];
    if mixes.ne != [MIXES, tokens, 1, 1] || base.ne != [MIXES, 1, 1, 1] {
        return Err(refusal.shape("mixes must be [24, tokens], and base [24]"));
    }
    if scale.ne[0] < 3 || scale.ne[1..] != [1, 1, 1] {
        return Err(refusal.shape("scale must be one row of 3 or more"));
    }
    if iterations == 0 || iterations > MOST_ITERATIONS {
        return Err(refusal.param(format!(
            "{iterations} iterations: they must be 1 to {MOST_ITERATIONS}"
        )));
    }
    refusal.check_result(F32, [STREAMS, STREAMS, tokens, 1])
}

/// Mirrors `ggml_dsv4_hc_pre_impl`, for weights of this shape.
fn check_pre(x: Layout, weights: Layout, expected: [usize; 4]) -> Checked {
    let refusal = Refusal {
        op: "dsv4_hc_pre",
        operands: &[("x", x), ("weights", weights)],
    };
    check_float(&refusal)?;
    if x.ne[3] != 1 || weights.ne != expected {
        return Err(refusal.shape(format!(
            "x must be [n, streams, tokens], and the weights {expected:?}"
        )));
    }
    refusal.check_result(F32, [x.ne[0], x.ne[2], 1, 1])
}

/// Mirrors `ggml_dsv4_hc_post`.
fn check_post([x, residual, post]: [Layout; 3], comb: Option<Layout>) -> Checked {
    let mut operands = vec![("x", x), ("residual", residual), ("post", post)];
    operands.extend(comb.map(|comb| ("comb", comb)));
    let refusal = Refusal {
        op: "dsv4_hc_post",
        operands: &operands,
    };
    check_float(&refusal)?;
    let ([n, tokens, ..], streams) = (x.ne, residual.ne[1]);
    if x.ne[2..] != [1, 1] || residual.ne != [n, streams, tokens, 1] {
        return Err(refusal.shape("residual must be [n, streams, tokens] for x of [n, tokens]"));
    }
    if post.ne != [streams, tokens, 1, 1] {
        return Err(refusal.shape("post must be [streams, tokens]"));
    }
    if comb.is_some_and(|comb| comb.ne != [streams, streams, tokens, 1]) {
        return Err(refusal.shape("comb must be [streams, streams, tokens]"));
    }
    refusal.check_result(F32, residual.ne)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F16;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    fn shape(result: Checked) {
        assert!(matches!(result, Err(Refused::Shape(_))), "{result:?}");
    }

    #[test]
    fn mixes_are_of_four_streams() {
        let (mixes, scale, base) = (layout(F32, &[24, 5]), layout(F32, &[3]), layout(F32, &[24]));
        check_comb(mixes, scale, base, 20).unwrap();
        shape(check_comb(
            layout(F32, &[15, 5]),
            scale,
            layout(F32, &[15]),
            20,
        ));
        shape(check_comb(mixes, layout(F32, &[2]), base, 20));
        shape(check_comb(mixes, layout(F32, &[3, 2]), base, 20));
        for iterations in [0, 1 << 20] {
            let error = check_comb(mixes, scale, base, iterations);
            assert!(matches!(error, Err(Refused::Param(_))));
        }
        let halves = check_comb(mixes, scale, layout(F16, &[24]), 20);
        assert!(matches!(halves, Err(Refused::DType(_))));
    }

    #[test]
    fn streams_have_their_weights() {
        let x = layout(F32, &[8, 4, 5]);
        check_pre(x, layout(F32, &[4, 5]), [4, 5, 1, 1]).unwrap();
        shape(check_pre(x, layout(F32, &[5, 4]), [4, 5, 1, 1]));
        let (x, residual, post) = (layout(F32, &[8, 5]), x, layout(F32, &[4, 5]));
        check_post([x, residual, post], None).unwrap();
        check_post([x, residual, post], Some(layout(F32, &[4, 4, 5]))).unwrap();
        shape(check_post(
            [x, residual, post],
            Some(layout(F32, &[4, 3, 5])),
        ));
        shape(check_post([x, residual, layout(F32, &[4, 4])], None));
        shape(check_post([layout(F32, &[8, 4]), residual, post], None));
    }
}
