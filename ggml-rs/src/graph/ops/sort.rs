//! The order of a row's elements, as ids.

use ggml_sys as sys;

use crate::dtype::DType::{F32, I32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::{RowIds, Tensor};
use crate::layout::{Layout, Refusal};

/// Which elements come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ggml_sort_order")]
pub enum SortOrder {
    /// The smallest.
    Ascending,
    /// The largest.
    Descending,
}

impl SortOrder {
    fn raw(self) -> sys::ggml_sort_order {
        match self {
            Self::Ascending => sys::GGML_SORT_ORDER_ASC,
            Self::Descending => sys::GGML_SORT_ORDER_DESC,
        }
    }
}

impl<'g> Tensor<'g> {
    /// For each row of F32 the ids of its elements in order: the same shape, distinct, below `ne[0]`. Equal elements come in
    /// no particular order. NaN counts as larger than all numbers, or as smaller where its sign is set, and -0 as smaller
    /// than 0, as in [`f32::total_cmp`].
    ///
    /// ```
    /// use ggml_rs::{DType, Device, Graph, Plan, PlanOptions, SortOrder};
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::F32, [4])?;
    ///     let order = x.argsort(SortOrder::Descending)?;
    ///     // The two largest elements: an element is a row of one.
    ///     let largest = x.reshape([1, 4])?.get_rows(order.narrow(0, 0, 2)?)?;
    ///     Ok((x_in, g.output("y", largest)?))
    /// })?;
    /// let mut backend = Device::cpu()?.open()?;
    /// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[3.0, 1.0, 7.0, 5.0])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [7.0, 5.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless F32; [`Error::Shape`](crate::Error::Shape) for rows beyond 2^31 - 1.
    #[doc(alias = "ggml_argsort")]
    #[track_caller]
    pub fn argsort(self, order: SortOrder) -> Result<RowIds<'g>> {
        let at = here();
        check_sort("argsort", self.layout(), 1).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_argsort's assertion.
        let tensor = self.make("argsort", |context| unsafe {
            sys::ggml_argsort(context, self.as_ptr(), order.raw())
        })?;
        Ok(self.sorted(tensor))
    }

    /// For each row of F32 the ids of its `k` largest elements, largest first: [k, ...], distinct, below `ne[0]`. As
    /// [`Tensor::argsort`] otherwise, of which it is a part.
    ///
    /// # Errors
    /// As [`Tensor::argsort`]; [`Error::Param`](crate::Error::Param) unless 1 <= k <= `ne[0]`.
    #[doc(alias = "ggml_argsort_top_k")]
    #[track_caller]
    pub fn argsort_top_k(self, k: usize) -> Result<RowIds<'g>> {
        let at = here();
        check_sort("argsort_top_k", self.layout(), k).at(at)?;
        self.argsort(SortOrder::Descending)?.narrow(0, 0, k)
    }

    /// For each row of F32 the ids of its `k` largest elements in no particular order: [k, ...], distinct, below `ne[0]`.
    /// NaN counts as in [`Tensor::argsort`].
    ///
    /// # Errors
    /// As [`Tensor::argsort_top_k`].
    #[doc(alias = "ggml_top_k")]
    #[track_caller]
    pub fn top_k(self, k: usize) -> Result<RowIds<'g>> {
        let at = here();
        check_sort("top_k", self.layout(), k).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_top_k's assertion; k fits an int, as ne[0] does.
        let tensor = self.make("top_k", |context| unsafe {
            sys::ggml_top_k(context, self.as_ptr(), k as i32)
        })?;
        Ok(self.sorted(tensor))
    }

    fn sorted(self, tensor: Self) -> RowIds<'g> {
        RowIds {
            tensor,
            rows: self.layout().ne[0],
            distinct: true,
        }
    }
}

/// Mirrors `ggml_argsort` and `ggml_top_k`.
fn check_sort(op: &'static str, a: Layout, k: usize) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    if a.dtype != F32 {
        return Err(refusal.dtype("only F32 is sorted"));
    }
    if a.ne[0] > i32::MAX as usize {
        return Err(refusal.shape("a row has more than 2^31 - 1 elements"));
    }
    if k == 0 || k > a.ne[0] {
        return Err(refusal.param(format!("there are no {k} largest of {}", a.ne[0])));
    }
    refusal.check_result(I32, a.ne)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn as_many_are_chosen_as_there_are() {
        let a = layout(F32, &[5, 3]);
        check_sort("top_k", a, 5).unwrap();
        for k in [0, 6] {
            assert!(matches!(check_sort("top_k", a, k), Err(Refused::Param(_))));
        }
        let halves = layout(DType::F16, &[5]);
        assert!(matches!(
            check_sort("top_k", halves, 1),
            Err(Refused::DType(_))
        ));
        let long = layout(F32, &[1 << 31]);
        assert!(matches!(
            check_sort("top_k", long, 1),
            Err(Refused::Shape(_))
        ));
    }
}
