//! Triangular systems.

use ggml_sys as sys;

use super::{check_contiguous, check_float};
use crate::dtype::DType::F32;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

impl<'g> Tensor<'g> {
    /// Solves `a * x = b` for a lower triangular `a`: `self` [n, n, m2, m3] and `b` [k, n, m2, m3] of F32 give `x` like `b`
    /// with `b[c, i] = sum over j <= i of a[j, i] * x[c, j]`. What `a` holds above the diagonal is not read; zeros on
    /// the diagonal divide.
    ///
    /// ```
    /// use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// let (graph, (a, b, x)) = Graph::build(|g| {
    ///     let (a, a_in) = g.input("a", DType::F32, [2, 2])?;
    ///     let (b, b_in) = g.input("b", DType::F32, [1, 2])?;
    ///     Ok((a_in, b_in, g.output("x", a.solve_tri(b)?)?))
    /// })?;
    /// let mut backend = Device::cpu()?.open()?;
    /// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&a, &[2.0, 9.0, 1.0, 4.0])?; // rows 2 and 1 4
    /// plan.set_f32(&b, &[6.0, 11.0])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&x)?, [3.0, 2.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above; [`Error::DType`](crate::Error::DType) unless F32;
    /// [`Error::Layout`](crate::Error::Layout) unless contiguous.
    #[doc(alias = "ggml_solve_tri")]
    #[track_caller]
    pub fn solve_tri(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check(self.layout(), b.layout()).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_solve_tri's assertions, of which the last asks for just
        // this variant.
        self.make("solve_tri", |context| unsafe {
            sys::ggml_solve_tri(context, self.as_ptr(), b.as_ptr(), true, true, false)
        })
    }
}

/// Mirrors `ggml_solve_tri`.
fn check(a: Layout, b: Layout) -> Checked {
    let refusal = Refusal {
        op: "solve_tri",
        operands: &[("a", a), ("b", b)],
    };
    check_float(&refusal)?;
    if a.ne[0] != a.ne[1] || a.ne[1] != b.ne[1] || a.ne[2..] != b.ne[2..] {
        return Err(
            refusal.shape("a must be square matrices, as many as b's, and b have as many rows")
        );
    }
    check_contiguous(&refusal)?;
    refusal.check_result(F32, b.ne)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F16;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn systems_are_square() {
        let b = layout(F32, &[3, 5, 2]);
        check(layout(F32, &[5, 5, 2]), b).unwrap();
        for a in [&[5, 4, 2][..], &[3, 3, 2], &[5, 5, 1]] {
            assert!(matches!(check(layout(F32, a), b), Err(Refused::Shape(_))));
        }
        let turned = transposed(layout(F32, &[5, 5, 2]));
        assert!(matches!(check(turned, b), Err(Refused::Layout(_))));
        assert!(matches!(
            check(layout(F16, &[5, 5, 2]), b),
            Err(Refused::DType(_))
        ));
    }
}
