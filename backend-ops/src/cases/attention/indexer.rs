//! `LIGHTNING_INDEXER`: the scores by which sparse attention chooses its keys. Upstream has no cases.

use ggml_rs::{DType, Tensor};

use super::mask;
use crate::case::{Case, Choices, Leaves, smaller};
use crate::cases::views;
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One LIGHTNING_INDEXER case.
#[derive(Clone, Debug)]
pub struct Indexer {
    type_k: DType,
    /// Length of a query and of a key.
    n: usize,
    heads: usize,
    /// Queries.
    tokens: usize,
    /// Keys.
    kv: usize,
    streams: usize,
    /// Whether all streams share the mask.
    share_mask: bool,
    /// Whether keys are the first of a longer cache.
    v: bool,
    causal: bool,
}

/// The length that Metal has a kernel for.
const LENGTH: usize = 128;

impl Indexer {
    fn new(type_k: DType, [heads, tokens, kv, streams]: [usize; 4]) -> Self {
        Self {
            type_k,
            n: LENGTH,
            heads,
            tokens,
            kv,
            streams,
            share_mask: false,
            v: false,
            causal: false,
        }
    }
}

impl Case for Indexer {
    fn op(&self) -> &'static str {
        "LIGHTNING_INDEXER"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type_K", self.type_k)
            .with("n", self.n)
            .with("heads", self.heads)
            .with("tokens", self.tokens)
            .with("kv", self.kv)
            .with("streams", self.streams)
            .with("share_mask", self.share_mask)
            .with("v", self.v)
            .with("causal", self.causal)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let keys = self.kv * if self.v { 2 } else { 1 };
        let masks = if self.share_mask { 1 } else { self.streams };
        let mask = Operand::new("mask", DType::F16, [self.kv, self.tokens, 1, masks]);
        let draw = if self.causal {
            mask::causal
        } else {
            mask::in_blocks
        };
        vec![
            Operand::new(
                "q",
                DType::F32,
                [self.n, self.heads, self.tokens, self.streams],
            ),
            Operand::new("k", self.type_k, [self.n, 1, keys, self.streams]),
            Operand::new(
                "weights",
                DType::F32,
                [self.heads, self.tokens, 1, self.streams],
            ),
            mask.init(Init::Drawn(draw)),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            vec![
                &mut case.n,
                &mut case.heads,
                &mut case.tokens,
                &mut case.kv,
                &mut case.streams,
            ]
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let k = views::first(leaves[1], [self.n, 1, self.kv, self.streams])?;
        leaves[0].lightning_indexer(k, leaves[2], leaves[3])
    }

    /// Metal rounds queries and keys to half, as with FLASH_ATTN_EXT.
    fn max_nmse(&self, _choices: Choices) -> f64 {
        5e-4
    }

    fn flops(&self) -> Option<f64> {
        let products = self.heads * self.tokens * self.kv * self.streams;
        Some(2.0 * (products * self.n) as f64)
    }
}

/// Every type of keys, few and many of each, ragged numbers, several streams, a length that Metal has no kernel for.
pub(super) fn ours() -> Vec<Indexer> {
    use DType::{BF16, F16, F32, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q8_0};
    let mut cases = Vec::new();
    for dtype in [F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0] {
        for size in [[64, 1, 128, 1], [8, 5, 67, 2], [64, 33, 257, 1]] {
            cases.push(Indexer::new(dtype, size));
        }
        cases.push(Indexer {
            v: true,
            share_mask: true,
            causal: true,
            ..Indexer::new(dtype, [32, 17, 96, 3])
        });
    }
    for size in [[1, 1, 1, 1], [3, 2, 5, 1], [65, 9, 31, 1]] {
        cases.push(Indexer::new(F16, size));
    }
    cases.push(Indexer {
        n: 64,
        ..Indexer::new(F16, [8, 4, 40, 1])
    });
    cases.push(Indexer {
        n: 256,
        ..Indexer::new(Q4_K, [8, 4, 40, 1])
    });
    cases
}
