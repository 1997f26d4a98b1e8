//! What mode `perf` measures by default: upstream's list, as far as there are cases for its ops, with shapes of models that
//! people run, and OUT_PROD at the sizes of a training step.
//!
//! An op is added with one line in [`cases`].

use ggml_rs::DType::{BF16, F16, F32, IQ2_XS, MXFP4, Q4_0, Q4_K, Q6_K, Q8_0};
use ggml_rs::{DType, SortOrder};

use crate::case::{Case, Layout, boxed};
use crate::cases::arrange::{TRANSPOSED, UNPERMUTED};
use crate::cases::attention::flash::FlashCase;
use crate::cases::conv::col2im_1d::Col2im1d;
use crate::cases::conv::conv_2d::Conv2dDirect;
use crate::cases::conv::conv_2d_dw::Conv2dDw;
use crate::cases::conv::conv_3d::Conv3dDirect;
use crate::cases::conv::conv_transpose_2d::ConvTranspose2d;
use crate::cases::conv::im2col::Im2col;
use crate::cases::matmul::hadamard::{self, Hadamard};
use crate::cases::matmul::mul_mat_id::{experts, fusion::MulMatIdFusion};
use crate::cases::recurrent::gated_delta_net::DeltaNet;
use crate::cases::recurrent::ssm_conv::{SsmConv, Then};
use crate::cases::recurrent::ssm_scan::Scan;
use crate::cases::rope::rotate;
use crate::cases::softmax::soft_max::SoftMaxCase;
use crate::cases::sort::{argmax::Argmax, argsort::Argsort, top_k::TopK};
use crate::cases::{Binary, Cpy, MulMat, MulMatId, OutProd};

/// The list, in upstream's order, then ours.
#[must_use]
pub fn cases() -> Vec<Box<dyn Case>> {
    boxed(conv_2d())
        .chain(boxed(conv_3d()))
        .chain(boxed(add()))
        .chain(boxed(cpy()))
        .chain(boxed(soft_max()))
        .chain(boxed(argmax()))
        .chain(boxed(hadamard()))
        .chain(boxed(mul_mat()))
        .chain(boxed(mul_mat_id()))
        .chain(boxed(mul_mat_id_fusion()))
        .chain(boxed(im2col()))
        .chain(boxed(flash_attn()))
        .chain(boxed(conv_2d_dw()))
        .chain(boxed(conv_transpose_2d()))
        .chain(boxed(col2im_1d()))
        .chain(boxed(rotate::perf()))
        .chain(boxed(argsort()))
        .chain(boxed(top_k()))
        .chain(boxed(ssm_conv()))
        .chain(boxed(ssm_scan()))
        .chain(boxed(gated_delta_net()))
        .chain(boxed(out_prod()))
        .collect()
}

/// A square image and kernel, channels out and in, images: products of 4096, edges, and layers of networks.
fn conv_2d() -> Vec<Conv2dDirect> {
    const SHAPES: [[usize; 5]; 11] = [
        [19, 4, 4096, 256, 16],
        [19, 4, 128, 8, 16],
        [19, 4, 130, 8, 16],
        [19, 2, 4, 4, 16],
        [224, 3, 8, 3, 1],
        [224, 2, 8, 1, 1],
        [224, 2, 8, 1, 8],
        [58, 3, 64, 32, 1],
        [58, 3, 64, 32, 8],
        [16, 3, 512, 128, 8],
        [1536, 3, 64, 32, 1],
    ];
    let case = |type_kernel| {
        SHAPES.map(|[image, kernel, out, channels, images]| Conv2dDirect {
            ne_input: [image, image, channels, images],
            ne_kernel: [kernel, kernel, channels, out],
            type_kernel,
            stride: [1, 1],
            padding: [0, 0],
            dilation: [1, 1],
            cwhn: false,
            layout: Layout::Plain,
        })
    };
    [F32, F16].into_iter().flat_map(case).collect()
}

/// Layers of a video model: channels and the image's width and height.
fn conv_3d() -> Vec<Conv3dDirect> {
    const SHAPES: [(usize, [usize; 2]); 5] = [
        (320, [26, 38]),
        (1280, [26, 38]),
        (320, [52, 76]),
        (1280, [52, 76]),
        (320, [104, 152]),
    ];
    let case = |type_kernel| {
        SHAPES.map(|(ic, [width, height])| Conv3dDirect {
            n: 1,
            ic,
            oc: 1280,
            image: [width, height, 8],
            kernel: [3, 3, 3],
            stride: [1, 1, 1],
            padding: [1, 1, 1],
            dilation: [1, 1, 1],
            type_kernel,
        })
    };
    [F32, F16].into_iter().flat_map(case).collect()
}

/// Scores of attention, then long rows.
fn soft_max() -> Vec<SoftMaxCase> {
    const SCORES: [[usize; 4]; 8] = [
        [4096, 4096, 5, 1],
        [12888, 256, 5, 1],
        [77, 4096, 5, 1],
        [1024, 1024, 10, 1],
        [77, 1024, 10, 1],
        [256, 256, 20, 1],
        [64, 64, 20, 1],
        [77, 64, 20, 1],
    ];
    let long = (13..=19).flat_map(|log| [1, 4, 16].map(|rows| [1 << log, rows, 1, 1]));
    let shapes = SCORES.into_iter().chain(long);
    shapes.map(|ne| SoftMaxCase::new(ne, 1.0)).collect()
}

fn argmax() -> Vec<Argmax> {
    [[32, 10, 1, 1], [1024, 10, 1, 1], [32000, 512, 1, 1]]
        .map(|ne| Argmax {
            dtype: F32,
            ne,
            layout: Layout::Plain,
            negative: false,
        })
        .to_vec()
}

fn hadamard() -> Vec<Hadamard> {
    [(128, 1), (64, 1), (256, 1), (128, 32)]
        .map(|(k, n)| hadamard::case(F32, k, n, [1, 1]))
        .to_vec()
}

fn im2col() -> Vec<Im2col> {
    let mut cases = Vec::new();
    for kernel in [3, 5] {
        for (channels, images) in [(256, &[32, 64, 256][..]), (2560, &[32, 64])] {
            cases.extend(images.iter().map(|&image| {
                Im2col::new([F32, F16, F32])
                    .of([image, image, channels, 1], [kernel, kernel, channels, 1])
            }));
        }
    }
    cases
}

/// A layer of a vision model, then a token and a batch over a long context.
fn flash_attn() -> Vec<FlashCase> {
    let heads = |size, nr, kv, nb| FlashCase::new([size, size], 8, [nr, 1], kv, nb).masked();
    let mut cases = vec![
        FlashCase::new([72, 72], 16, [1, 1], 5776, 5776),
        heads(64, 8, 7680, 1),
        heads(64, 8, 7680, 4),
    ];
    for cache in [Q4_0, Q8_0] {
        cases.extend([1, 512].map(|nb| heads(64, 8, 7680, nb).cached_as(cache)));
    }
    for kv in [4096, 8192, 16384] {
        for size in [64, 128] {
            cases.extend([1, 4].map(|nr| heads(size, nr, kv, 1)));
        }
    }
    cases
}

fn conv_2d_dw() -> Vec<Conv2dDw> {
    [false, true]
        .map(|cwhn| Conv2dDw {
            ne_input: [512, 512, 256, 1],
            ne_kernel: [3, 3, 1, 256],
            stride: 1,
            padding: 1,
            dilation: 1,
            cwhn,
            type_kernel: F32,
            layout: Layout::Plain,
        })
        .to_vec()
}

fn conv_transpose_2d() -> Vec<ConvTranspose2d> {
    const SHAPES: [([usize; 4], [usize; 4], usize); 3] = [
        ([256, 256, 256, 1], [3, 3, 16, 256], 1),
        ([16, 16, 16, 1], [3, 3, 8, 16], 1),
        ([10, 10, 9, 1], [3, 3, 1, 9], 2),
    ];
    let case = |kernel_type| {
        SHAPES.map(|(ne_input, ne_kernel, stride)| ConvTranspose2d {
            kernel_type,
            ne_input,
            ne_kernel,
            stride,
            layout: Layout::Plain,
        })
    };
    [F32, F16].into_iter().flat_map(case).collect()
}

/// Stages of a vocoder.
fn col2im_1d() -> Vec<Col2im1d> {
    [
        (F32, [16, 512, 2048, 8]),
        (F32, [4, 128, 65536, 2]),
        (F16, [16, 512, 2048, 8]),
    ]
    .map(|(dtype, [k, oc, t_in, s0])| Col2im1d {
        dtype,
        k,
        oc,
        t_in,
        s0,
        p0: 0,
    })
    .to_vec()
}

fn argsort() -> Vec<Argsort> {
    [[65000, 16, 1, 1], [200_000, 1, 1, 1], [200_000, 16, 1, 1]]
        .map(|ne| Argsort::new(ne, SortOrder::Ascending))
        .to_vec()
}

fn top_k() -> Vec<TopK> {
    let mut cases = vec![TopK::new([2, 1, 1, 1], 1, false)];
    for k in [1, 10, 40, 400] {
        for rows in [1, 16] {
            let columns = [k, 1000, 65000, 200_000];
            cases.extend(columns.map(|columns| TopK::new([columns, rows, 1, 1], k, false)));
        }
    }
    cases
}

/// A prompt and a token of hybrid models.
fn ssm_conv() -> Vec<SsmConv> {
    let biased = Then::Silu { fuse_bias: true };
    [
        (515, 3328, Then::Nothing),
        (937, 8192, Then::Nothing),
        (4, 3328, Then::Nothing),
        (515, 3328, biased),
        (4, 3328, biased),
    ]
    .map(|(tokens, channels, then)| SsmConv {
        dtype: F32,
        ne_a: [tokens, channels, 1, 1],
        ne_b: [4, channels, 1, 1],
        then,
        layout: Layout::Plain,
    })
    .to_vec()
}

fn ssm_scan() -> Vec<Scan> {
    [512, 1]
        .map(|tokens| Scan::new([128, 64, 48, 1, tokens, 1]))
        .to_vec()
}

/// Heads, their size and tokens; KDA has a gate for every element.
fn gated_delta_net() -> Vec<DeltaNet> {
    let mut cases: Vec<_> = [
        [32, 128, 1],
        [16, 64, 1],
        [32, 128, 64],
        [32, 128, 256],
        [32, 128, 512],
        [32, 128, 1024],
        [4, 128, 64],
        [4, 128, 256],
        [4, 128, 512],
        [4, 128, 1024],
    ]
    .map(|[heads, size, tokens]| DeltaNet::new([heads, size, tokens, 1]))
    .into();
    cases.extend([1, 64].map(|tokens| DeltaNet {
        kda: true,
        ..DeltaNet::new([32, 128, tokens, 1])
    }));
    cases
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

/// Two products with a cache of keys and values, then a feed-forward layer of 4096 with batches from a token to a prompt, in every type of weights.
fn mul_mat() -> Vec<MulMat> {
    const BATCHES: [usize; 7] = [1, 2, 3, 4, 5, 8, 512];
    let weights = || {
        DType::ALL
            .into_iter()
            .filter(|dtype| matches!(dtype, F32 | F16 | BF16) || dtype.dequantizes())
    };
    const CONTEXT: usize = 16416;
    let cache = |mnk| MulMat {
        bs: [8, 1],
        nr: [4, 1],
        ..MulMat::new(F16, mnk)
    };
    let mut cases = vec![
        MulMat {
            per: [0, 2, 1, 3],
            ..cache([CONTEXT, 1, 128])
        },
        MulMat {
            k_v: 2 * CONTEXT,
            ..cache([128, 1, CONTEXT])
        },
    ];
    for n in BATCHES {
        cases.extend(weights().map(|type_a| MulMat::new(type_a, [4096, n, 14336])));
    }
    cases
}

/// Routed layers of three models: type, experts and those of a token, m, n and k.
fn routed() -> Vec<(DType, [usize; 2], [usize; 3])> {
    const TYPES: [DType; 7] = [F32, F16, Q4_0, Q8_0, Q4_K, Q6_K, IQ2_XS];
    const BATCHES: [usize; 8] = [1, 4, 8, 32, 64, 128, 256, 512];
    let mut layers = Vec::new();
    for (all, m) in [([128, 8], 768), ([32, 4], 1792)] {
        for n in BATCHES {
            layers.extend(TYPES.map(|type_a| (type_a, all, [m, n, 2048])));
        }
    }
    layers.extend([1, 4, 8, 512].map(|n| (MXFP4, [32, 4], [2880, n, 2880])));
    layers
}

fn mul_mat_id() -> Vec<MulMatId> {
    routed()
        .into_iter()
        .map(|(type_a, [all, used], mnk)| MulMatId::new(type_a, experts(all, used, false), mnk))
        .collect()
}

fn mul_mat_id_fusion() -> Vec<MulMatIdFusion> {
    routed()
        .into_iter()
        .map(|(type_a, all, mnk)| MulMatIdFusion::of_one(type_a, all, mnk))
        .collect()
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
            let op = case.op();
            let multiplies = ["MUL_MAT", "OUT_PROD", "CONV_2D", "CONV_3D", "FLASH_ATTN"];
            if multiplies.iter().any(|name| op.starts_with(name)) && op != "CONV_2D_DW" {
                assert!(case.flops().is_some(), "{}", case.name());
            }
        }
    }
}
