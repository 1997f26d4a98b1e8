//! Largest and smallest elements. ggml has no op for them: pooling a whole row gives its maximum, and the minimum is the
//! negated maximum of what was negated.

use ggml_sys as sys;

use crate::error::{Error, Result};
use crate::graph::Tensor;

/// The longest row that is left to one thread of a GPU.
const LONG_ROW: usize = 1024;

impl Tensor<'_> {
    /// The largest element of all, `[1, 1, 1, 1]`, in the type of `a`: F32, F16 or BF16, in any layout. Exact.
    ///
    /// NaN anywhere gives NaN. Infinities are values like others. Whether the result is 0 or -0 where `a` has both is not
    /// specified.
    ///
    /// ```
    /// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::BF16, [2, 2])?;
    ///     Ok((x_in, g.output("y", x.max()?)?))
    /// })?;
    /// # let mut backend = Device::cpu()?.open()?;
    /// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[-3.0, -0.5, -2.0, f32::NEG_INFINITY])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [-0.5]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) for another type; [`Error::Shape`](crate::Error::Shape) for a dimension beyond 2^31 - 1.
    #[doc(alias = "ggml_pool_1d")]
    #[track_caller]
    pub fn max(self) -> Result<Self> {
        self.reduced("max", Self::largest)
    }

    /// The largest element of each row, `[1, ne[1], ne[2], ne[3]]`, in the type of `a`. As [`Tensor::max`] otherwise.
    ///
    /// ```
    /// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::F16, [3, 2])?;
    ///     Ok((x_in, g.output("y", x.max_rows()?)?))
    /// })?;
    /// # let mut backend = Device::cpu()?.open()?;
    /// # let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[1.0, 3.0, 2.0, 4.0, f32::NAN, 5.0])?;
    /// plan.run(&mut backend)?;
    /// let y = plan.read_f32(&y)?;
    /// assert!(y[0] == 3.0 && y[1].is_nan());
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::max`].
    #[doc(alias = "ggml_pool_1d")]
    #[track_caller]
    pub fn max_rows(self) -> Result<Self> {
        self.reduced("max_rows", Self::largest_of_rows)
    }

    /// The smallest element of all, `[1, 1, 1, 1]`, in the type of `a`. As [`Tensor::max`] otherwise.
    ///
    /// ```
    /// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::F32, [2, 2])?;
    ///     Ok((x_in, g.output("y", x.min()?)?))
    /// })?;
    /// # let mut backend = Device::cpu()?.open()?;
    /// # let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[3.0, 0.5, 2.0, f32::INFINITY])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [0.5]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::max`].
    #[doc(alias = "ggml_pool_1d")]
    #[track_caller]
    pub fn min(self) -> Result<Self> {
        self.reduced("min", |a| a.negated()?.largest()?.negated())
    }

    /// The smallest element of each row, `[1, ne[1], ne[2], ne[3]]`, in the type of `a`. As [`Tensor::max`] otherwise.
    ///
    /// ```
    /// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::BF16, [3, 2])?;
    ///     Ok((x_in, g.output("y", x.min_rows()?)?))
    /// })?;
    /// # let mut backend = Device::cpu()?.open()?;
    /// # let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[1.0, 3.0, 2.0, 4.0, -6.0, 5.0])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [1.0, -6.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::max`].
    #[doc(alias = "ggml_pool_1d")]
    #[track_caller]
    pub fn min_rows(self) -> Result<Self> {
        self.reduced("min_rows", |a| a.negated()?.largest_of_rows()?.negated())
    }

    #[track_caller]
    fn negated(self) -> Result<Self> {
        self.scale(-1.0)
    }

    #[track_caller]
    fn largest(self) -> Result<Self> {
        self.by_rows_and_rest(Self::largest_of_rows, Self::largest_of_rows)
    }

    /// The maximum of each row of a contiguous F32 tensor. Long rows are cut into windows first, because Metal's kernel
    /// leaves a window to one thread.
    #[track_caller]
    fn largest_of_rows(self) -> Result<Self> {
        let windows = match Windows::cut(self.shape().ne()[0]) {
            Some(windows) => self.node_pool_max(windows)?,
            None => self,
        };
        windows.node_pool_max(Windows::one(windows.shape().ne()[0]))
    }

    /// POOL_1D of a contiguous F32 tensor.
    #[track_caller]
    fn node_pool_max(self, windows: Windows) -> Result<Self> {
        // Rows are checked to have no more than 2^31 - 1 elements, and windows have no more than rows.
        let (width, padding) = (windows.width as i32, windows.padding as i32);
        // SAFETY: the tensor is alive; ggml_pool_1d asserts that there is a window, and there is one.
        let pooled = self.make("pool_1d", |context| unsafe {
            let max = sys::GGML_OP_POOL_MAX;
            sys::ggml_pool_1d(context, self.as_ptr(), max, width, width, padding)
        })?;
        // One less, and elements at the end would be left out in silence.
        if pooled.shape().ne()[0] != windows.count {
            return Err(Error::Internal {
                step: "pool_1d",
                message: format!("{windows:?} became {}", pooled.shape()),
            });
        }
        Ok(pooled)
    }
}

/// Windows of `width` elements, next to each other, over a row with `padding` skipped elements on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Windows {
    width: usize,
    padding: usize,
    count: usize,
}

impl Windows {
    /// A single one.
    fn one(row: usize) -> Self {
        Self {
            width: row,
            padding: 0,
            count: 1,
        }
    }

    /// About as many as each has elements; `None` for a row that is short, or that ggml would not cut as wanted.
    fn cut(row: usize) -> Option<Self> {
        if row <= LONG_ROW {
            return None;
        }
        let root = row.isqrt();
        (root..root + 64)
            .map(|width| Self::of(row, width))
            .find(|windows| windows.count == ggml_count(row, windows.width, windows.padding))
    }

    /// As many of this width as cover the row. Half of what sticks out is skipped on each side, so none is empty.
    fn of(row: usize, width: usize) -> Self {
        let count = row.div_ceil(width);
        Self {
            width,
            padding: (count * width - row).div_ceil(2),
            count,
        }
    }
}

/// `ggml_calc_pool_output_size`, which calculates in `float`: that of a very long row is not what it should be.
fn ggml_count(row: usize, width: usize, padding: usize) -> usize {
    let [row, width, padding] = [row, width, padding].map(|n| n as f32);
    ((row + 2.0 * padding - width) / width + 1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a window begins.
    fn start(windows: Windows, i: usize) -> i64 {
        (i * windows.width) as i64 - windows.padding as i64
    }

    /// Whether every element lies in a window.
    fn cover(row: usize, windows: Windows) -> bool {
        start(windows, 0) <= 0 && start(windows, windows.count) >= row as i64
    }

    #[test]
    fn windows_cover_a_row_and_none_is_empty() {
        let rows = (1025..20_000).chain((0..2000).map(|i| (1 << 20) + 4013 * i));
        for row in rows {
            let windows = Windows::cut(row).expect("a row that ggml cuts as wanted");
            assert!(cover(row, windows), "{row}: {windows:?}");
            let last = windows.count - 1;
            let filled = start(windows, 1) > 0 && start(windows, last) < row as i64;
            assert!(filled, "{row}: {windows:?}");
        }
        assert_eq!(Windows::cut(LONG_ROW), None);
    }

    #[test]
    fn rows_beyond_the_integers_of_f32_are_covered_or_left_whole() {
        let mut cut = 0;
        for row in (0..5000).map(|i| i32::MAX as usize - 423_001 * i) {
            assert_eq!(ggml_count(row, row, 0), 1, "{row}");
            if let Some(windows) = Windows::cut(row) {
                assert!(cover(row, windows), "{row}: {windows:?}");
                cut += 1;
            }
        }
        assert!(cut > 4000, "{cut} of 5000");
    }
}
