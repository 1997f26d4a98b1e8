//! The lists of types that upstream's grids go through, in its order.

use ggml_rs::DType::{self, *};

/// Every type that tensors of models are stored in, but for the ternary ones.
pub(super) const ALL: [DType; 25] = [
    F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q1_0, MXFP4, NVFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,
    IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ1_S, IQ1_M, IQ4_NL, IQ3_S, IQ4_XS,
];

/// Those that have every shape of a product.
pub(super) const BASE: [DType; 10] = [
    F32, F16, Q8_0, Q1_0, Q4_0, Q4_1, Q4_K, MXFP4, NVFP4, IQ2_XXS,
];

/// Those that have a few shapes. Some are in both lists.
pub(super) const OTHER: [DType; 17] = [
    Q4_1, Q5_0, Q5_1, Q8_0, Q1_0, Q2_K, Q3_K, Q5_K, Q6_K, IQ2_XS, IQ2_S, IQ3_XXS, IQ1_S, IQ1_M,
    IQ4_NL, IQ3_S, IQ4_XS,
];
