//! What mode `perf` measures by default: upstream's list, as far as there are cases for its ops, with shapes of models that
//! people run, and OUT_PROD at the sizes of a training step.
//!
//! An op is added with one line in [`cases`].

use ggml_rs::DType;
use ggml_rs::DType::{BF16, F16, F32, IQ2_XS, MXFP4, Q4_0, Q4_K, Q6_K, Q8_0};

use crate::case::{Case, boxed};
use crate::cases::arrange::{TRANSPOSED, UNPERMUTED};
use crate::cases::matmul::mul_mat_id::experts;
use crate::cases::{Binary, Cpy, MulMat, MulMatId, OutProd};

/// The list, in upstream's order, then ours.
#[must_use]
pub fn cases() -> Vec<Box<dyn Case>> {
    boxed(add())
        .chain(boxed(cpy()))
        .chain(boxed(mul_mat()))
        .chain(boxed(mul_mat_id()))
        .chain(boxed(out_prod()))
        .collect()
}

fn add() -> Vec<Binary> {
    [[1, 1, 1, 1], [1, 512, 1, 1]]
        .map(|nr| Binary::add(F32, [4096, 1, 1, 1], nr))
        .to_vec()
}

/// Conversions, permutations of attention heads and transposes.
fn cpy() -> Vec<Cpy> {
    const HEADS: [usize; 4] = [0, 2, 1, 3];
    let transposed = |dtype, ne| Cpy::new(dtype, dtype, ne, TRANSPOSED);
    vec![
        Cpy::new(F32, F16, [512, 3072, 1, 1], UNPERMUTED),
        Cpy::new(F32, F32, [8192, 512, 2, 1], HEADS),
        Cpy::new(F32, F32, [3072, 512, 2, 1], HEADS),
        Cpy::new(F32, Q4_0, [8192, 512, 2, 1], UNPERMUTED),
        Cpy::new(Q4_0, F32, [8192, 512, 2, 1], UNPERMUTED),
        transposed(F32, [768 * 1024, 256, 1, 1]),
        transposed(F16, [768 * 1024, 256, 1, 1]),
        transposed(F16, [768, 1024, 256, 1]),
        transposed(BF16, [768, 1024, 256, 1]),
    ]
}

/// A feed-forward layer of 4096 with batches from a token to a prompt, in every type of weights.
fn mul_mat() -> Vec<MulMat> {
    const BATCHES: [usize; 7] = [1, 2, 3, 4, 5, 8, 512];
    let weights = || {
        DType::ALL
            .into_iter()
            .filter(|dtype| matches!(dtype, F32 | F16 | BF16) || dtype.dequantizes())
    };
    BATCHES
        .into_iter()
        .flat_map(|n| weights().map(move |type_a| MulMat::new(type_a, [4096, n, 14336])))
        .collect()
}

/// Routed layers of three models.
fn mul_mat_id() -> Vec<MulMatId> {
    const TYPES: [DType; 7] = [F32, F16, Q4_0, Q8_0, Q4_K, Q6_K, IQ2_XS];
    const BATCHES: [usize; 8] = [1, 4, 8, 32, 64, 128, 256, 512];
    let mut cases = Vec::new();
    for (all, used, m) in [(128, 8, 768), (32, 4, 1792)] {
        for n in BATCHES {
            let case = |type_a| MulMatId::new(type_a, experts(all, used, false), [m, n, 2048]);
            cases.extend(TYPES.map(case));
        }
    }
    let mxfp4 = |n| MulMatId::new(MXFP4, experts(32, 4, false), [2880, n, 2880]);
    cases.extend([1, 4, 8, 512].map(mxfp4));
    cases
}

/// Ours: upstream measures none. The gradients of a layer's activations and of a LoRA adapter, the gradient as it is and
/// transposed, as the backward of MUL_MAT has it.
fn out_prod() -> Vec<OutProd> {
    let mut cases = Vec::new();
    for type_a in [F32, F16, Q8_0, Q4_K] {
        for mnk in [[1024, 512, 1024], [4096, 512, 4096], [4096, 16, 512]] {
            let case = OutProd::new(type_a, F32, mnk);
            cases.extend([false, true].map(|trans_b| case.clone().transposed(trans_b)));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn upstreams_names_are_kept() {
        let names: Vec<_> = cases().iter().map(|case| case.name()).collect();
        for name in [
            "ADD(type=f32,ne=[4096,1,1,1],nr=[1,512,1,1],nf=1,perm1=0,src_overlap=0)",
            "CPY(type_src=f32,type_dst=f16,ne_src=[512,3072,1,1],permute_src=[0,0,0,0],permute_dst=[0,0,0,0],_src_transpose=0)",
            "MUL_MAT(type_a=q4_K,type_b=f32,m=4096,n=512,k=14336,bs=[1,1],nr=[1,1],per=[0,1,2,3],k_v=0,o=1)",
            "MUL_MAT_ID(type_a=mxfp4,type_b=f32,n_mats=32,n_used=4,b=0,m=2880,n=8,k=2880)",
        ] {
            assert!(names.iter().any(|other| other == name), "{name}");
        }
        let distinct: HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn every_product_has_flops() {
        for case in cases() {
            assert_eq!(
                case.flops().is_some(),
                !matches!(case.op(), "ADD" | "CPY"),
                "{}",
                case.name()
            );
        }
    }
}
