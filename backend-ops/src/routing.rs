//! Which kernel did the work.
//!
//! OUT_PROD's limit is so wide that half staging passes it unless a value overflows, so a pass does not show which
//! kernel ran. On a Metal device every OUT_PROD case therefore also asserts the pipeline of its matrix product, by name
//! and by threadgroup memory.

use ggml_rs::Staging;
use ggml_rs::trace::Dispatch;

/// What every product of the family `kernel_mul_mm_*` is named after.
const PRODUCT_PREFIX: &str = "kernel_mul_mm_";
const F32_PRODUCT: &str = "kernel_mul_mm_f32_f32";
const FLOAT_STAGED_PRODUCT: &str = "kernel_mul_mm_f32_f32_fp32";

/// Elements of the tiles of `a` and `b`, as both kernels cut them.
const TILE_A: usize = 64 * 32;
const TILE_B: usize = 32 * 32;

/// The kernel that must compute OUT_PROD's matrix product: one of two families, one of two stagings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// The cooperative-tensor kernel, which stages `a` alone and reads `b` in place; else the simdgroup kernel.
    tensor_api: bool,
    staging: Staging,
}

impl Product {
    /// The product that a Metal device must use.
    #[must_use]
    pub fn expected(tensor_api: bool, staging: Staging) -> Self {
        Self {
            tensor_api,
            staging,
        }
    }

    fn name(self) -> &'static str {
        match self.staging {
            Staging::Float => FLOAT_STAGED_PRODUCT,
            Staging::Half => F32_PRODUCT,
        }
    }

    /// The threadgroup memory that the product may have: the tiles, and in the simdgroup kernel with half staging the 64x32
    /// floats of the result, with which it checks bounds.
    fn threadgroup_bytes(self) -> &'static [usize] {
        match (self.tensor_api, self.staging) {
            (true, Staging::Float) => &[TILE_A * 4],
            (true, Staging::Half) => &[TILE_A * 2],
            (false, Staging::Float) => &[(TILE_A + TILE_B) * 4],
            (false, Staging::Half) => &[(TILE_A + TILE_B) * 2, TILE_A * 4],
        }
    }

    /// Whether a dispatch is this product.
    fn is(self, dispatch: &Dispatch) -> bool {
        let float_staged = dispatch.pipeline.starts_with(FLOAT_STAGED_PRODUCT);
        dispatch.pipeline.starts_with(self.name())
            && float_staged == (self.staging == Staging::Float)
            && self
                .threadgroup_bytes()
                .contains(&dispatch.threadgroup_bytes)
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
        let kernel = if self.tensor_api {
            "the tensor kernel"
        } else {
            "the simdgroup kernel"
        };
        let bytes: Vec<_> = self
            .threadgroup_bytes()
            .iter()
            .map(usize::to_string)
            .collect();
        write!(
            f,
            "{kernel} {}* with {} threadgroup bytes",
            self.name(),
            bytes.join(" or ")
        )
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

    /// The pipelines' names are the same in both families: the threadgroup memory tells them apart.
    #[test]
    fn each_product_accepts_its_own_kernel_only() {
        const FLOAT: &str = "kernel_mul_mm_f32_f32_fp32_bci=0_bco=1_ne12=1_ne13=1_r2=1_r3=1";
        const HALF: &str = "kernel_mul_mm_f32_f32_bci=0_bco=1_ne12=1_ne13=1_r2=1_r3=1";
        let all = [
            (
                Product::expected(false, Staging::Float),
                dispatch(FLOAT, 12288),
            ),
            (
                Product::expected(false, Staging::Half),
                dispatch(HALF, 8192),
            ),
            (
                Product::expected(true, Staging::Float),
                dispatch(FLOAT, 8192),
            ),
            (Product::expected(true, Staging::Half), dispatch(HALF, 4096)),
        ];
        for (product, own) in &all {
            for (_, other) in &all {
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
        let error = Product::expected(false, Staging::Float)
            .check(&[short])
            .expect_err("8192 bytes are too few");
        assert!(error.contains("12288") && error.contains("8192"), "{error}");
    }

    #[test]
    fn one_wrong_product_among_right_ones_is_found() {
        let float = dispatch("kernel_mul_mm_f32_f32_fp32_x", 12288);
        let copy = dispatch("kernel_cpy_f32_f32", 0);
        let half = dispatch("kernel_mul_mm_f32_f32_x", 8192);
        let product = Product::expected(false, Staging::Float);
        assert!(product.check(&[copy.clone(), float.clone()]).is_ok());
        assert!(product.check(&[float, copy.clone(), half]).is_err());
        assert!(product.check(&[copy]).is_err(), "no product at all");
    }
}
