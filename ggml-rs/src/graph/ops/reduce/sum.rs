//! Sums and means.

use ggml_sys as sys;

use crate::error::Result;
use crate::graph::Tensor;

impl Tensor<'_> {
    /// The sum of all elements, `[1, 1, 1, 1]`, in the type of `a`: F32, F16 or BF16, in any layout.
    ///
    /// F16 and BF16 are added in F32 and rounded once, at the end. A sum beyond the range of the type (65504 for F16)
    /// becomes infinite there; an F16 sum that only passes it on the way does not, while one that passes F32's range may.
    /// NaN, and infinities of both signs, give NaN.
    ///
    /// The error is at most half a unit in the last place of the type, plus `d * 2^-24` times the sum of all magnitudes.
    /// `d` is the length of the longest chain of F32 additions: 2 on the CPU, which adds in F64 and rounds each row's
    /// sum; on Metal, where up to 1024 threads share a row, `n / 1024 + 13` for a row of `n`, once for the rows and
    /// once for their sums.
    ///
    /// ```
    /// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// // In BF16, a running sum of ones would stop at 256.
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::BF16, [512, 2])?;
    ///     Ok((x_in, g.output("y", x.sum()?)?))
    /// })?;
    /// # let mut backend = Device::cpu()?.open()?;
    /// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[1.0; 1024])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [1024.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) for another type; [`Error::Shape`](crate::Error::Shape) for a dimension beyond 2^31 - 1.
    #[doc(alias = "ggml_sum")]
    #[track_caller]
    pub fn sum(self) -> Result<Self> {
        self.reduced("sum", |a| {
            a.by_rows_and_rest(Self::node_sum_rows, Self::node_sum)
        })
    }

    /// The sum of each row, `[1, ne[1], ne[2], ne[3]]`, in the type of `a`. Types, range and NaN as in [`Tensor::sum`]; its
    /// bound holds with `d` = 1 on the CPU and `n / 1024 + 13` on Metal.
    ///
    /// ```
    /// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::F16, [3, 2])?;
    ///     Ok((x_in, g.output("y", x.sum_rows()?)?))
    /// })?;
    /// # let mut backend = Device::cpu()?.open()?;
    /// # let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[60000.0, 60000.0, -60000.0, 1.0, 2.0, 3.0])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [60000.0, 6.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    #[doc(alias = "ggml_sum_rows")]
    #[track_caller]
    pub fn sum_rows(self) -> Result<Self> {
        self.reduced("sum_rows", Self::node_sum_rows)
    }

    /// The mean of all elements, `[1, 1, 1, 1]`, in the type of `a`: the mean of the rows' means. Types and NaN as in
    /// [`Tensor::sum`].
    ///
    /// The mean of F16 values never overflows. That of F32 or BF16 is infinite when the sum of a row, or of the rows' means,
    /// passes F32's range (3.4e38) on the way. The error is bounded as a sum's, divided by the number of elements, with 2
    /// more in `d` for the divisions.
    ///
    /// ```
    /// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::F16, [4, 2])?;
    ///     Ok((x_in, g.output("y", x.mean()?)?))
    /// })?;
    /// # let mut backend = Device::cpu()?.open()?;
    /// # let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[65504.0; 8])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [65504.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    #[doc(alias = "ggml_mean")]
    #[track_caller]
    pub fn mean(self) -> Result<Self> {
        self.reduced("mean", |a| {
            a.by_rows_and_rest(Self::node_mean, Self::node_mean)
        })
    }

    /// The mean of each row, `[1, ne[1], ne[2], ne[3]]`, in the type of `a`. Types, range, error and NaN as in
    /// [`Tensor::mean`].
    ///
    /// ```
    /// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::BF16, [2, 3])?;
    ///     // Over columns: rows of the transposed tensor.
    ///     Ok((x_in, g.output("y", x.transpose()?.mean_rows()?)?))
    /// })?;
    /// # let mut backend = Device::cpu()?.open()?;
    /// # let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[1.0, 10.0, 2.0, 20.0, 3.0, 60.0])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [2.0, 30.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    #[doc(alias = "ggml_mean")]
    #[track_caller]
    pub fn mean_rows(self) -> Result<Self> {
        self.reduced("mean_rows", Self::node_mean)
    }

    /// SUM of a contiguous F32 tensor: with another stride, upstream's kernels add other elements.
    #[track_caller]
    fn node_sum(self) -> Result<Self> {
        // SAFETY: the tensor is alive; ggml_sum asserts nothing.
        self.make("sum", |context| unsafe {
            sys::ggml_sum(context, self.as_ptr())
        })
    }

    /// SUM_ROWS of a contiguous F32 tensor.
    #[track_caller]
    fn node_sum_rows(self) -> Result<Self> {
        // SAFETY: the tensor is alive; ggml_sum_rows asserts nothing, and the result is no larger than the operand.
        self.make("sum_rows", |context| unsafe {
            sys::ggml_sum_rows(context, self.as_ptr())
        })
    }

    /// MEAN of a contiguous F32 tensor's rows.
    #[track_caller]
    fn node_mean(self) -> Result<Self> {
        // SAFETY: as in `node_sum_rows`.
        self.make("mean", |context| unsafe {
            sys::ggml_mean(context, self.as_ptr())
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Graph, Plan, PlanOptions};

    #[test]
    fn a_transposed_sum_is_the_same() {
        // The CPU's kernel takes any strides; sum() copies for devices that do not.
        let (graph, (x, y)) = Graph::build(|g| {
            let (x, x_in) = g.input("x", DType::F32, [5, 3])?;
            let [_, nb @ ..] = x.strides();
            let part = x.view([2, 3], nb, x.strides()[0])?;
            Ok((x_in, g.output("y", part.transpose()?.node_sum()?)?))
        })
        .unwrap();
        let mut backend = Device::cpu().unwrap().open().unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        let values: Vec<f32> = (0..15).map(|i| (1 << i) as f32).collect();
        plan.set_f32(&x, &values).unwrap();
        plan.run(&mut backend).unwrap();
        // Elements 1 and 2 of each row.
        let expected: f32 = [1, 2, 6, 7, 11, 12].iter().map(|&i| values[i]).sum();
        assert_eq!(plan.read_f32(&y).unwrap(), [expected]);
    }
}
