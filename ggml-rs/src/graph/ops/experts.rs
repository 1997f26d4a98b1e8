//! Products with the matrices of a mixture's experts.

use ggml_sys as sys;

use super::matmul::multiplies;
use crate::dtype::DType;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::{ExpertIds, Tensor};
use crate::layout::{Layout, Refusal};

impl<'g> Tensor<'g> {
    /// The products of tokens with their experts' matrices: `a` [k, m, experts], `b` [k, r, tokens] and ids
    /// [used, tokens] give [m, used, tokens] of f32, with
    /// `out[i, e, t] = sum over k of a[k, i, ids[e, t]] * b[k, e % r, t]`. With r = 1 a token's experts share its row.
    ///
    /// Metal stages operands as f16 unless [`Tensor::set_staging`] says otherwise, and takes 1, 2, 4, 5, 6, 8, 10, 16 or 22
    /// experts per token in a batch of 32 tokens and more. The CPU converts `b` to the type that it multiplies `a` in:
    /// with quantized weights NaN is lost there.
    ///
    /// ```
    /// use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    ///
    /// // Three experts, each a [2, 1] matrix; two tokens, two experts each.
    /// let (graph, (weights, rows, choice, out)) = Graph::build(|g| {
    ///     let (a, weights) = g.input("weights", DType::F32, [2, 1, 3])?;
    ///     let (b, rows) = g.input("rows", DType::F32, [2, 1, 2])?;
    ///     let (ids, choice) = g.expert_ids("choice", 2, 2, 3)?;
    ///     Ok((weights, rows, choice, g.output("out", a.mul_mat_id(b, ids)?)?))
    /// })?;
    /// let mut backend = Device::cpu()?.open()?;
    /// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&weights, &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?;
    /// plan.set_f32(&rows, &[1.0, 2.0, 30.0, 40.0])?;
    /// assert!(plan.set_i32(&choice, &[0, 3, 0, 1]).is_err()); // there is no expert 3
    /// plan.set_i32(&choice, &[0, 2, 1, 2])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&out)?, [1.0, 3.0, 40.0, 70.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `ne[0]` agree, `a` has as many matrices as the ids choose from, `b` as many
    /// as there are tokens, and r divides the experts per token; [`Error::Layout`](crate::Error::Layout) for a transposed `a` or
    /// `b`; [`Error::DType`](crate::Error::DType) for operands that are not numbers to multiply.
    #[doc(alias = "ggml_mul_mat_id")]
    #[track_caller]
    pub fn mul_mat_id(self, b: Tensor<'g>, ids: ExpertIds<'g>) -> Result<Self> {
        let at = here();
        check_mul_mat_id(self.layout(), b.layout(), ids.tensor.layout(), ids.experts).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_mul_mat_id's assertions. The ids are below the number of
        // matrices: the plan has checked them, or a sort made them.
        self.make("mul_mat_id", |context| unsafe {
            sys::ggml_mul_mat_id(context, self.as_ptr(), b.as_ptr(), ids.tensor.as_ptr())
        })
    }
}

/// Mirrors `ggml_mul_mat_id`.
fn check_mul_mat_id(a: Layout, b: Layout, ids: Layout, experts: usize) -> Checked {
    let refusal = Refusal {
        op: "mul_mat_id",
        operands: &[("a", a), ("b", b), ("ids", ids)],
    };
    let [used, tokens, ..] = ids.ne;
    if a.ne[0] != b.ne[0] {
        return Err(refusal.shape("ne[0] of a and b, the dimension summed over, must be the same"));
    }
    if a.ne[3] != 1 || b.ne[3] != 1 {
        return Err(refusal.shape("ne[3] of a and b must be 1"));
    }
    if a.ne[2] != experts {
        return Err(refusal.shape(format!(
            "the ids choose from {experts} experts, and a must have one matrix (ne[2]) for each"
        )));
    }
    if b.ne[2] != tokens {
        return Err(
            refusal.shape("b must have one matrix (ne[2]) for each token, ne[1] of the ids")
        );
    }
    if !used.is_multiple_of(b.ne[1]) {
        return Err(refusal
            .shape("the experts per token, ne[0] of the ids, must be a multiple of ne[1] of b"));
    }
    if a.is_transposed() || b.is_transposed() {
        return Err(refusal.layout("a and b must not be transposed: call cont() first"));
    }
    if !multiplies(a.dtype) || !multiplies(b.dtype) {
        return Err(refusal.dtype("operands must be of a floating-point or quantized type"));
    }
    refusal.check_result(DType::F32, [a.ne[1], used, tokens, 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    fn check(a: &[usize], b: &[usize], ids: &[usize], experts: usize) -> Checked {
        check_mul_mat_id(
            layout(DType::F32, a),
            layout(DType::F32, b),
            layout(DType::I32, ids),
            experts,
        )
    }

    #[test]
    fn a_token_has_one_row_or_one_for_each_expert() {
        check(&[64, 8, 4], &[64, 1, 5], &[2, 5], 4).unwrap();
        check(&[64, 8, 4], &[64, 2, 5], &[2, 5], 4).unwrap();
        check(&[64, 8, 4], &[64, 2, 5], &[4, 5], 4).unwrap();
    }

    #[test]
    fn shapes_that_do_not_fit_are_named() {
        for (a, b, ids, experts, why) in [
            (
                &[64, 8, 4][..],
                &[32, 1, 5][..],
                &[2, 5][..],
                4,
                "ne[0] of a and b",
            ),
            (
                &[64, 8, 3],
                &[64, 1, 5],
                &[2, 5],
                4,
                "choose from 4 experts",
            ),
            (&[64, 8, 4], &[64, 1, 6], &[2, 5], 4, "for each token"),
            (
                &[64, 8, 4],
                &[64, 2, 5],
                &[3, 5],
                4,
                "multiple of ne[1] of b",
            ),
            (&[64, 8, 4, 2], &[64, 1, 5], &[2, 5], 4, "must be 1"),
        ] {
            let error = check(a, b, ids, experts).unwrap_err();
            assert!(
                matches!(error, Refused::Shape(_)) && error.to_string().contains(why),
                "{error}"
            );
        }
    }

    #[test]
    fn operands_are_numbers_and_not_transposed() {
        let (b, ids) = (layout(DType::F32, &[64, 1, 5]), layout(DType::I32, &[2, 5]));
        let turned = transposed(layout(DType::F32, &[8, 64, 4]));
        assert!(matches!(
            check_mul_mat_id(turned, b, ids, 4),
            Err(Refused::Layout(_))
        ));
        let integers = layout(DType::I32, &[64, 8, 4]);
        assert!(matches!(
            check_mul_mat_id(integers, b, ids, 4),
            Err(Refused::DType(_))
        ));
    }
}
