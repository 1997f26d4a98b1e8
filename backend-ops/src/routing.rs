//! Which kernel did the work.
//!
//! The limits of products are so wide that half staging passes them unless a value overflows, so a pass does not show which
//! kernel ran. On a Metal device every case of a product therefore also asserts what was dispatched, by name and by
//! threadgroup memory.

use ggml_rs::trace::Dispatch;
use ggml_rs::{DType, Staging};

/// What every batched product is named after, and what float staging adds to the name.
const BATCHED_PREFIX: &str = "kernel_mul_mm_";
const FLOAT_SUFFIX: &str = "_fp32";

/// Elements of the tiles of `a` and `b`, as all batched kernels cut them.
const TILE_A: usize = 64 * 32;
const TILE_B: usize = 32 * 32;

/// What a device must dispatch for a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// This batched product, and no other one.
    Batched(Product),
    /// Products of a matrix and a vector: no batched product.
    MatVec,
    /// Anything but a float-staged product.
    NotFloatStaged,
}

impl Routing {
    /// Checks the dispatches of a case.
    ///
    /// # Errors
    /// Says what was expected and what was dispatched.
    pub fn check(self, dispatches: &[Dispatch]) -> Result<(), String> {
        let batched = || {
            dispatches
                .iter()
                .filter(|d| d.pipeline.starts_with(BATCHED_PREFIX))
        };
        let wrong = match self {
            Self::Batched(product) => batched().find(|d| !product.is(d)),
            Self::MatVec => batched().next(),
            Self::NotFloatStaged => batched().find(|d| d.pipeline.contains(FLOAT_SUFFIX)),
        };
        let found = match wrong {
            Some(other) => format!("{} with {} bytes", other.pipeline, other.threadgroup_bytes),
            None if matches!(self, Self::Batched(_)) && batched().next().is_none() => {
                format!("no {BATCHED_PREFIX}* among {} dispatches", dispatches.len())
            }
            None => return Ok(()),
        };
        Err(format!("expected {self}, dispatched {found}"))
    }
}

impl std::fmt::Display for Routing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Batched(product) => product.fmt(f),
            Self::MatVec => f.write_str("products of a matrix and a vector"),
            Self::NotFloatStaged => f.write_str("no float-staged product"),
        }
    }
}

/// A batched product of OUT_PROD or MUL_MAT: one of two families, one of two stagings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Type of the weights; the activations are F32.
    weights: DType,
    /// The cooperative-tensor kernel, which stages `a` alone and reads `b` in place; else the simdgroup kernel.
    tensor_api: bool,
    staging: Staging,
}

impl Product {
    /// A product with weights of some type, as MUL_MAT must use.
    #[must_use]
    pub fn new(weights: DType, tensor_api: bool, staging: Staging) -> Self {
        Self {
            weights,
            tensor_api,
            staging,
        }
    }

    /// The product of floats that OUT_PROD must use, whatever its weights are.
    #[must_use]
    pub fn of_f32(tensor_api: bool, staging: Staging) -> Self {
        Self::new(DType::F32, tensor_api, staging)
    }

    fn is_float(self) -> bool {
        self.staging == Staging::Float
    }

    fn name(self) -> String {
        let suffix = if self.is_float() { FLOAT_SUFFIX } else { "" };
        format!("{BATCHED_PREFIX}{}_f32{suffix}", self.weights)
    }

    /// The threadgroup memory that the product may have: the tiles, and in the simdgroup kernel with half staging the 64x32
    /// floats of the result, with which it checks bounds.
    fn threadgroup_bytes(self) -> &'static [usize] {
        match (self.tensor_api, self.is_float()) {
            (true, true) => &[TILE_A * 4],
            (true, false) => &[TILE_A * 2],
            (false, true) => &[(TILE_A + TILE_B) * 4],
            (false, false) => &[(TILE_A + TILE_B) * 2, TILE_A * 4],
        }
    }

    /// Whether a dispatch is this product.
    fn is(self, dispatch: &Dispatch) -> bool {
        dispatch.pipeline.starts_with(&self.name())
            && dispatch.pipeline.contains(FLOAT_SUFFIX) == self.is_float()
            && self
                .threadgroup_bytes()
                .contains(&dispatch.threadgroup_bytes)
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
                Product::of_f32(false, Staging::Float),
                dispatch(FLOAT, 12288),
            ),
            (Product::of_f32(false, Staging::Half), dispatch(HALF, 8192)),
            (Product::of_f32(true, Staging::Float), dispatch(FLOAT, 8192)),
            (Product::of_f32(true, Staging::Half), dispatch(HALF, 4096)),
        ];
        for (product, own) in &all {
            for (_, other) in &all {
                assert_eq!(
                    Routing::Batched(*product)
                        .check(std::slice::from_ref(other))
                        .is_ok(),
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
        let error = Routing::Batched(Product::of_f32(false, Staging::Float))
            .check(&[short])
            .expect_err("8192 bytes are too few");
        assert!(error.contains("12288") && error.contains("8192"), "{error}");
    }

    #[test]
    fn one_wrong_product_among_right_ones_is_found() {
        let float = dispatch("kernel_mul_mm_f32_f32_fp32_x", 12288);
        let copy = dispatch("kernel_cpy_f32_f32", 0);
        let half = dispatch("kernel_mul_mm_f32_f32_x", 8192);
        let product = Routing::Batched(Product::of_f32(false, Staging::Float));
        assert!(product.check(&[copy.clone(), float.clone()]).is_ok());
        assert!(product.check(&[float, copy.clone(), half]).is_err());
        assert!(product.check(&[copy]).is_err(), "no product at all");
    }

    #[test]
    fn weights_name_their_kernel() {
        let float = dispatch("kernel_mul_mm_q4_K_f32_fp32_bci=0", 12288);
        let half = dispatch("kernel_mul_mm_q4_K_f32_bci=0", 8192);
        let vector = dispatch("kernel_mul_mv_q4_K_f32_nsg=2", 0);
        let all = [float, half, vector];
        let accepted = |routing: Routing| {
            all.each_ref()
                .map(|d| routing.check(std::slice::from_ref(d)).is_ok())
        };
        let product = |weights| Routing::Batched(Product::new(weights, false, Staging::Float));
        assert_eq!(accepted(product(DType::Q4_K)), [true, false, false]);
        assert_eq!(accepted(product(DType::Q8_0)), [false; 3]);
        assert_eq!(accepted(Routing::MatVec), [false, false, true]);
        assert_eq!(accepted(Routing::NotFloatStaged), [false, true, true]);
    }
}
