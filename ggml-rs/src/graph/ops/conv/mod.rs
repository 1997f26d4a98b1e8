//! Convolutions and pooling.
//!
//! As in ggml the kernel comes first: `kernel.conv_2d(image, Conv2d::default())`. Dimensions of a kernel and its image are
//! in ne order: width, height (, depth), channels.
//!
//! ```
//! use ggml_rs::{Conv2d, DType, Device, Graph, Plan, PlanOptions};
//!
//! // The sums of all 2x2 squares of a 3x3 image, of one channel.
//! let (graph, (kernel, image, out)) = Graph::build(|g| {
//!     let (k, kernel) = g.input("kernel", DType::F32, [2, 2, 1, 1])?;
//!     let (x, image) = g.input("image", DType::F32, [3, 3, 1, 1])?;
//!     Ok((kernel, image, g.output("out", k.conv_2d(x, Conv2d::default())?)?))
//! })?;
//! let mut backend = Device::cpu()?.open()?;
//! let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
//! plan.set_f32(&kernel, &[1.0; 4])?;
//! plan.set_f32(&image, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])?;
//! plan.run(&mut backend)?;
//! assert_eq!(plan.read_f32(&out)?, [12.0, 16.0, 24.0, 28.0]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```

mod composed;
mod direct;
mod im2col;
mod pool;
mod transposed;

pub use pool::{Pool, Pool1d, Pool2d, PoolOptions};

use crate::error::Checked;
use crate::layout::Refusal;

/// How a kernel moves over its image, in `N` dimensions: a step of `stride` elements from output to output, `padding` zeros
/// on both sides of the image, and kernel elements `dilation` elements of the image apart.
///
/// ```
/// use ggml_rs::Conv2d;
/// let options = Conv2d::default().stride([2, 2]).padding([1, 1]);
/// assert_eq!(options.dilation, [1, 1]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ConvOptions<const N: usize> {
    /// Elements of the image from one output to the next.
    pub stride: [usize; N],
    /// Zeros on both sides of the image.
    pub padding: [usize; N],
    /// Elements of the image from one kernel element to the next.
    pub dilation: [usize; N],
}

/// A kernel that moves along `ne[0]`.
pub type Conv1d = ConvOptions<1>;
/// A kernel that moves along `ne[0]` and `ne[1]`.
pub type Conv2d = ConvOptions<2>;
/// A kernel that moves along `ne[0]`, `ne[1]` and `ne[2]`.
pub type Conv3d = ConvOptions<3>;

impl<const N: usize> Default for ConvOptions<N> {
    fn default() -> Self {
        Self {
            stride: [1; N],
            padding: [0; N],
            dilation: [1; N],
        }
    }
}

impl<const N: usize> ConvOptions<N> {
    /// With this stride.
    pub const fn stride(self, stride: [usize; N]) -> Self {
        Self { stride, ..self }
    }

    /// With this padding.
    pub const fn padding(self, padding: [usize; N]) -> Self {
        Self { padding, ..self }
    }

    /// With this dilation.
    pub const fn dilation(self, dilation: [usize; N]) -> Self {
        Self { dilation, ..self }
    }

    /// How many outputs there are along each dimension.
    fn outputs(
        self,
        refusal: &Refusal,
        image: [usize; N],
        kernel: [usize; N],
    ) -> Checked<[usize; N]> {
        let mut outputs = [0; N];
        for dim in 0..N {
            let [stride, padding, dilation] =
                [self.stride, self.padding, self.dilation].map(|x| x[dim]);
            // kernel < 2^30 is not checked yet, so this may saturate, far above any image.
            let reach = dilation.saturating_mul(kernel[dim] - 1).saturating_add(1);
            check_step(refusal, "dilation", dilation)?;
            outputs[dim] = windows(refusal, dim, image[dim], reach, stride, padding)?;
        }
        Ok(outputs)
    }

    /// The parameters as ggml's functions take them; [`ConvOptions::outputs`] has bounded them.
    fn raw(self) -> [[i32; N]; 3] {
        [self.stride, self.padding, self.dilation].map(|values| values.map(|value| value as i32))
    }
}

/// The largest step or padding: with [`MAX_SIZE`] it keeps what kernels compute in int far from overflow.
const MAX_STEP: usize = 1 << 24;
/// The largest image along a dimension.
const MAX_SIZE: usize = 1 << 30;

fn check_step(refusal: &Refusal, what: &str, step: usize) -> Checked {
    if step == 0 || step > MAX_STEP {
        return Err(refusal.param(format!("a {what} of {step}: it must be 1 to {MAX_STEP}")));
    }
    Ok(())
}

/// How many windows of `reach` elements fit along a dimension: `ggml_calc_conv_output_size`, which rounds towards zero and
/// so finds one where none fits.
fn windows(
    refusal: &Refusal,
    dim: usize,
    size: usize,
    reach: usize,
    stride: usize,
    padding: usize,
) -> Checked<usize> {
    check_step(refusal, "stride", stride)?;
    if padding > MAX_STEP {
        return Err(refusal.param(format!(
            "a padding of {padding}: it must be at most {MAX_STEP}"
        )));
    }
    if size > MAX_SIZE {
        return Err(refusal.shape(format!("dimension {dim} exceeds {MAX_SIZE} elements")));
    }
    let padded = size + 2 * padding;
    match padded.checked_sub(reach) {
        Some(rest) => Ok(rest / stride + 1),
        None => Err(refusal.shape(format!(
            "a kernel that reaches over {reach} elements of dimension {dim}, of which there are {padded} with padding"
        ))),
    }
}

/// A count that is handed to ggml as an int.
fn count(refusal: &Refusal, what: &str, count: usize) -> Checked<i32> {
    i32::try_from(count).map_err(|_| refusal.param(format!("{what}: {count} exceeds 2^31 - 1")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F32;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    fn outputs(options: Conv1d, image: usize, kernel: usize) -> Checked<usize> {
        let refusal = Refusal {
            op: "conv",
            operands: &[("a", layout(F32, &[1]))],
        };
        options.outputs(&refusal, [image], [kernel]).map(|[n]| n)
    }

    #[test]
    fn outputs_are_as_many_as_kernels_fit() {
        let options = Conv1d::default;
        assert_eq!(outputs(options(), 5, 3), Ok(3));
        assert_eq!(outputs(options().stride([2]), 6, 3), Ok(2));
        assert_eq!(outputs(options().padding([1]), 5, 3), Ok(5));
        assert_eq!(outputs(options().dilation([2]), 5, 3), Ok(1));
        assert_eq!(outputs(options().padding([2]).stride([3]), 1, 5), Ok(1));
    }

    #[test]
    fn what_overflows_or_does_not_fit_is_refused() {
        let options = Conv1d::default;
        for (options, image, kernel) in [
            (options(), 2, 3),
            // ggml finds one output here.
            (options().stride([4]), 3, 5),
            (options().dilation([2]), 4, 3),
            (options(), MAX_SIZE + 1, 3),
            (options().dilation([MAX_STEP]), 4, usize::MAX),
        ] {
            assert!(matches!(
                outputs(options, image, kernel),
                Err(Refused::Shape(_))
            ));
        }
        for options in [
            options().stride([0]),
            options().dilation([0]),
            options().stride([MAX_STEP + 1]),
            options().padding([usize::MAX]),
            options().dilation([1 << 31]),
        ] {
            assert!(matches!(outputs(options, 5, 3), Err(Refused::Param(_))));
        }
    }
}
