//! Which kernel did the work.
//!
//! OUT_PROD's limit is so wide that half staging passes it unless a value overflows, so a pass does not show which
//! kernel ran. On a Metal device every OUT_PROD case therefore also asserts the pipeline of its matrix product, by name
//! and by threadgroup memory.

use ggml_rs::Staging;
use ggml_rs::trace::Dispatch;

/// Threadgroup bytes of the float-staged product: 64x32 floats of `a` and 32x32 of `b`.
const FLOAT_STAGED_BYTES: usize = 64 * 32 * 4 + 32 * 32 * 4;

/// Threadgroup bytes of the tensor kernel: 64x32 halves of `a`; `b` is read from device memory.
const TENSOR_BYTES: usize = 64 * 32 * 2;

/// What every product of the family `kernel_mul_mm_*` is named after.
const PRODUCT_PREFIX: &str = "kernel_mul_mm_";
const F32_PRODUCT: &str = "kernel_mul_mm_f32_f32";
const FLOAT_STAGED_PRODUCT: &str = "kernel_mul_mm_f32_f32_fp32";

/// The kernel that must compute OUT_PROD's matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// The simdgroup kernel with both operands staged as float.
    FloatStaged,
    /// The simdgroup kernel with both operands staged as half.
    HalfStaged,
    /// The cooperative-tensor kernel.
    Tensor,
}

impl Product {
    /// The product that a Metal device must use. With the tensor API on, staging has no say.
    #[must_use]
    pub fn expected(tensor_api: bool, staging: Staging) -> Self {
        match (tensor_api, staging) {
            (true, _) => Self::Tensor,
            (false, Staging::Float) => Self::FloatStaged,
            (false, Staging::Half) => Self::HalfStaged,
        }
    }

    /// Whether a dispatch is this product.
    fn is(self, dispatch: &Dispatch) -> bool {
        let name = dispatch.pipeline.as_str();
        let bytes = dispatch.threadgroup_bytes;
        let float_staged = name.starts_with(FLOAT_STAGED_PRODUCT);
        match self {
            Self::FloatStaged => float_staged && bytes == FLOAT_STAGED_BYTES,
            Self::HalfStaged => {
                name.starts_with(F32_PRODUCT) && !float_staged && bytes != TENSOR_BYTES
            }
            Self::Tensor => name.starts_with(F32_PRODUCT) && !float_staged && bytes == TENSOR_BYTES,
        }
    }

    /// Checks the dispatches of a case: at least one product, and none of another kind.
    ///
    /// # Errors
    /// Says what was expected and what was dispatched.
    pub fn check(self, dispatches: &[Dispatch]) -> Result<(), String> {
        let products: Vec<_> = dispatches
            .iter()
            .filter(|d| d.pipeline.starts_with(PRODUCT_PREFIX))
            .collect();
        let wrong = match products.iter().find(|d| !self.is(d)) {
            Some(other) => format!("{} with {} bytes", other.pipeline, other.threadgroup_bytes),
            None if products.is_empty() => {
                format!("no {PRODUCT_PREFIX}* among {} dispatches", dispatches.len())
            }
            None => return Ok(()),
        };
        Err(format!("expected {self}, dispatched {wrong}"))
    }
}

impl std::fmt::Display for Product {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FloatStaged => write!(
                f,
                "{FLOAT_STAGED_PRODUCT}* with {FLOAT_STAGED_BYTES} threadgroup bytes"
            ),
            Self::HalfStaged => write!(f, "{F32_PRODUCT}* (not _fp32)"),
            Self::Tensor => write!(
                f,
                "the tensor kernel {F32_PRODUCT}* with {TENSOR_BYTES} threadgroup bytes"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatch(pipeline: &str, threadgroup_bytes: usize) -> Dispatch {
        Dispatch {
            pipeline: pipeline.into(),
            threadgroup_bytes,
        }
    }

    #[test]
    fn each_product_accepts_its_own_kernel_only() {
        let float = dispatch(
            "kernel_mul_mm_f32_f32_fp32_bci=0_bco=1_ne12=1_ne13=1_r2=1_r3=1",
            12288,
        );
        let half = dispatch(
            "kernel_mul_mm_f32_f32_bci=0_bco=1_ne12=1_ne13=1_r2=1_r3=1",
            8192,
        );
        let tensor = Dispatch {
            threadgroup_bytes: 4096,
            ..half.clone()
        };
        let all = [
            (Product::FloatStaged, &float),
            (Product::HalfStaged, &half),
            (Product::Tensor, &tensor),
        ];
        for (product, own) in all {
            for (_, other) in all {
                assert_eq!(
                    product.check(std::slice::from_ref(other)).is_ok(),
                    own == other,
                    "{product} on {other:?}"
                );
            }
        }
    }

    /// The mutant that leaves the float kernel with half's threadgroup memory.
    #[test]
    fn the_float_kernel_needs_its_bytes() {
        let short = dispatch("kernel_mul_mm_f32_f32_fp32_bci=0", 8192);
        let error = Product::FloatStaged
            .check(&[short])
            .expect_err("8192 bytes are too few");
        assert!(error.contains("12288") && error.contains("8192"), "{error}");
    }

    #[test]
    fn one_wrong_product_among_right_ones_is_found() {
        let float = dispatch("kernel_mul_mm_f32_f32_fp32_x", 12288);
        let copy = dispatch("kernel_cpy_f32_f32", 0);
        let half = dispatch("kernel_mul_mm_f32_f32_x", 8192);
        assert!(
            Product::FloatStaged
                .check(&[copy.clone(), float.clone()])
                .is_ok()
        );
        assert!(
            Product::FloatStaged
                .check(&[float, copy.clone(), half])
                .is_err()
        );
        assert!(
            Product::FloatStaged.check(&[copy]).is_err(),
            "no product at all"
        );
    }

    #[test]
    fn the_tensor_api_overrides_staging() {
        assert_eq!(Product::expected(true, Staging::Half), Product::Tensor);
        assert_eq!(Product::expected(false, Staging::Half), Product::HalfStaged);
        assert_eq!(
            Product::expected(false, Staging::Float),
            Product::FloatStaged
        );
    }
}
