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
/// What the mat-vec kernels are named after, and what all products are.
const MAT_VEC_PREFIX: &str = "kernel_mul_mv";
const PRODUCT_PREFIX: &str = "kernel_mul_m";
/// What the direct kernels of OUT_PROD are named after.
const DIRECT_PREFIX: &str = "kernel_out_prod_";

/// Elements of the tiles of `a` and `b`, as all batched kernels cut them.
const TILE_A: usize = 64 * 32;
const TILE_B: usize = 32 * 32;
/// Both tiles as float.
const DIRECT_BYTES: usize = (TILE_A + TILE_B) * 4;

/// What a device must dispatch for a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// This batched product, and no other one.
    Batched(Product),
    /// This batched product with the matrices of experts, and no other one.
    Experts(ExpertProduct),
    /// Mat-vec kernels: no batched product.
    MatVec,
    /// Any product but a float-staged one.
    NotFloatStaged,
    /// OUT_PROD's kernel that makes no temporaries, with these types of `a` and `b`, and nothing besides.
    Direct([DType; 2]),
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
            Self::Experts(product) => batched().find(|d| !sorts_experts(d) && !product.is(d)),
            Self::MatVec => batched().next(),
            Self::NotFloatStaged => batched().find(|d| d.pipeline.contains(FLOAT_SUFFIX)),
            Self::Direct(types) => dispatches.iter().find(|d| !is_direct(types, d)),
        };
        let found = match wrong {
            Some(other) => format!("{} with {} bytes", other.pipeline, other.threadgroup_bytes),
            None => {
                let prefix = self.prefix();
                let is_product = |d: &Dispatch| d.pipeline.starts_with(prefix) && !sorts_experts(d);
                if dispatches.iter().any(is_product) {
                    return Ok(());
                }
                format!("no {prefix}* among {} dispatches", dispatches.len())
            }
        };
        Err(format!("expected {self}, dispatched {found}"))
    }

    /// What one dispatch at least must begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Batched(_) | Self::Experts(_) => BATCHED_PREFIX,
            Self::MatVec => MAT_VEC_PREFIX,
            Self::NotFloatStaged => PRODUCT_PREFIX,
            Self::Direct(_) => DIRECT_PREFIX,
        }
    }
}

/// The direct kernel's name up to the rest of its constants.
fn direct_name([a, b]: [DType; 2]) -> String {
    format!("{DIRECT_PREFIX}{a}_{b}_")
}

fn is_direct(types: [DType; 2], dispatch: &Dispatch) -> bool {
    dispatch.pipeline.starts_with(&direct_name(types)) && dispatch.threadgroup_bytes == DIRECT_BYTES
}

/// The kernels that prepare a batched product with experts: which tokens each expert has, and how far they are rescaled.
fn sorts_experts(dispatch: &Dispatch) -> bool {
    ["map0", "amax"].iter().any(|part| {
        dispatch
            .pipeline
            .starts_with(&format!("{BATCHED_PREFIX}id_{part}"))
    })
}

impl std::fmt::Display for Routing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Batched(product) => product.fmt(f),
            Self::Experts(product) => product.fmt(f),
            Self::MatVec => f.write_str("mat-vec kernels"),
            Self::NotFloatStaged => f.write_str("a product that is not float-staged"),
            Self::Direct(types) => {
                let name = direct_name(*types);
                write!(f, "{name}* with {DIRECT_BYTES} threadgroup bytes alone")
            }
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

/// A batched product of MUL_MAT_ID. The simdgroup and the tensor kernel have the same names and stage the same operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertProduct {
    /// Type of the weights.
    pub weights: DType,
    /// Type of the activations; anything but F32 is staged as half, whatever is asked.
    pub activations: DType,
    /// How the operands are staged.
    pub staging: Staging,
}

impl ExpertProduct {
    fn staging(self) -> Staging {
        if self.activations == DType::F32 {
            self.staging
        } else {
            Staging::Half
        }
    }

    fn suffix(self) -> &'static str {
        match self.staging() {
            Staging::Float => "_fp32",
            Staging::FloatWeights => "_fp32_src0",
            Staging::FloatActivations => "_fp32_src1",
            _ => "",
        }
    }

    /// The pipeline's name up to the constants that it was made with.
    fn name(self) -> String {
        let Self {
            weights,
            activations,
            ..
        } = self;
        format!(
            "{BATCHED_PREFIX}id_{weights}_{activations}{}_bci=",
            self.suffix()
        )
    }

    /// The tiles, or the 64x32 floats of the result, which take their place.
    fn threadgroup_bytes(self) -> usize {
        let size = |is_float| if is_float { 4 } else { 2 };
        let staging = self.staging();
        let a = size(matches!(staging, Staging::Float | Staging::FloatWeights));
        let b = size(matches!(
            staging,
            Staging::Float | Staging::FloatActivations
        ));
        (TILE_A * a + TILE_B * b).max(TILE_A * 4)
    }

    /// Whether a dispatch is this product.
    #[must_use]
    pub fn is(self, dispatch: &Dispatch) -> bool {
        dispatch.pipeline.starts_with(&self.name())
            && dispatch.threadgroup_bytes == self.threadgroup_bytes()
    }
}

impl std::fmt::Display for ExpertProduct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.threadgroup_bytes();
        write!(f, "{}* with {bytes} threadgroup bytes", self.name())
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
        for nothing in [Routing::MatVec, Routing::NotFloatStaged] {
            assert!(
                nothing.check(&[]).is_err() && nothing.check(&[dispatch("kernel_cpy", 0)]).is_err()
            );
        }
    }

    #[test]
    fn each_arm_of_the_experts_accepts_its_own_kernel_only() {
        let arms = [
            (Staging::Half, "", 8192),
            (Staging::FloatWeights, "_fp32_src0", 10240),
            (Staging::FloatActivations, "_fp32_src1", 8192),
            (Staging::Float, "_fp32", 12288),
        ];
        let product = |staging| ExpertProduct {
            weights: DType::Q4_K,
            activations: DType::F32,
            staging,
        };
        let map = dispatch("kernel_mul_mm_id_map0_ne02_8_ne20_2", 32);
        for (staging, suffix, bytes) in arms {
            let routing = Routing::Experts(product(staging));
            for (other, suffix_of_other, _) in arms {
                let name = format!("kernel_mul_mm_id_q4_K_f32{suffix_of_other}_bci=0_amax=0");
                let verdict = routing.check(&[map.clone(), dispatch(&name, bytes)]);
                assert_eq!(verdict.is_ok(), other == staging, "{verdict:?}");
            }
            let name = format!("kernel_mul_mm_id_q4_K_f32{suffix}_bci=0_amax=0");
            assert!(routing.check(&[dispatch(&name, bytes + 1024)]).is_err());
            assert!(
                routing.check(std::slice::from_ref(&map)).is_err(),
                "no product at all"
            );
        }
        let plain = Routing::Batched(Product::new(DType::Q4_K, false, Staging::Half));
        assert!(
            plain
                .check(&[dispatch("kernel_mul_mm_id_q4_K_f32_bci=0", 8192)])
                .is_err()
        );
    }

    #[test]
    fn the_direct_route_is_one_kernel_of_these_types() {
        let routing = Routing::Direct([DType::Q4_K, DType::F32]);
        let own = dispatch("kernel_out_prod_q4_K_f32_checked=0", 12288);
        assert_eq!(routing.check(std::slice::from_ref(&own)), Ok(()));
        let others = [
            dispatch("kernel_out_prod_q4_K_f16_checked=0", 12288),
            dispatch("kernel_out_prod_q8_0_f32_checked=0", 12288),
            dispatch("kernel_out_prod_q4_K_f32_checked=0", 8192),
            dispatch("kernel_cpy_f32_f32", 0),
        ];
        for other in others {
            assert!(routing.check(&[own.clone(), other]).is_err());
        }
        assert!(routing.check(&[]).is_err(), "no product at all");
        let split = Routing::Batched(Product::of_f32(false, Staging::Float));
        assert!(split.check(&[own]).is_err());
    }

    #[test]
    fn half_activations_are_staged_as_half() {
        let product = ExpertProduct {
            weights: DType::F16,
            activations: DType::F16,
            staging: Staging::Float,
        };
        assert!(product.is(&dispatch("kernel_mul_mm_id_f16_f16_bci=0_amax=0", 8192)));
    }
}
