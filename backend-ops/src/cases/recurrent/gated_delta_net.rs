//! `GATED_DELTA_NET`. Upstream's `test_gated_delta_net`.

use ggml_rs::{DType, GatedDeltaNet, Tensor};

use crate::case::{Case, Leaves, smaller};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaNet {
    /// Type of all.
    pub dtype: DType,
    /// Heads of queries and keys.
    pub head_count: usize,
    /// Elements of a head.
    pub head_size: usize,
    /// Tokens of a sequence.
    pub n_seq_tokens: usize,
    /// Sequences.
    pub n_seqs: usize,
    /// Heads of values for each of the others.
    pub v_repeat: usize,
    /// Whether queries, keys and values are stored head by head, and permuted.
    pub permuted: bool,
    /// Whether each element of a head has a gate of its own.
    pub kda: bool,
    /// How many of the last states are kept.
    pub k: usize,
}

impl DeltaNet {
    pub(crate) const fn new([head_count, head_size, n_seq_tokens, n_seqs]: [usize; 4]) -> Self {
        Self {
            dtype: DType::F32,
            head_count,
            head_size,
            n_seq_tokens,
            n_seqs,
            v_repeat: 1,
            permuted: false,
            kda: false,
            k: 1,
        }
    }

    const fn repeat(self, v_repeat: usize) -> Self {
        Self { v_repeat, ..self }
    }

    const fn permuted(self) -> Self {
        Self {
            permuted: true,
            ..self
        }
    }

    const fn kda(self) -> Self {
        Self { kda: true, ..self }
    }

    const fn keep(self, k: usize) -> Self {
        Self { k, ..self }
    }
}

impl Case for DeltaNet {
    fn op(&self) -> &'static str {
        "GATED_DELTA_NET"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("head_count", self.head_count)
            .with("head_size", self.head_size)
            .with("n_seq_tokens", self.n_seq_tokens)
            .with("n_seqs", self.n_seqs)
            .with("v_repeat", self.v_repeat)
            .with("permuted", self.permuted)
            .with("kda", self.kda)
            .with("K", self.k)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [size, tokens, sequences] = [self.head_size, self.n_seq_tokens, self.n_seqs];
        let (heads, values) = (self.head_count, self.head_count * self.v_repeat);
        let of = |name, ne| Operand::new(name, self.dtype, ne);
        let stored = |heads| match self.permuted {
            true => [size, tokens, heads, sequences],
            false => [size, heads, tokens, sequences],
        };
        let v = of("v", stored(values));
        // Upstream's init finds values by name, and a permuted tensor's own has none.
        let v = match self.permuted {
            true => v,
            false => v.init(Init::Uniform([-0.3, 5.0])),
        };
        let gates = if self.kda { size } else { 1 };
        vec![
            of("q", stored(heads)),
            of("k", stored(heads)),
            v,
            of("g", [gates, values, tokens, sequences]).init(Init::Uniform([-20.0, -1e-4])),
            of("beta", [1, values, tokens, sequences]).init(Init::Uniform([0.0, 1.0])),
            of("state", [size, size, values, sequences]),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            vec![
                &mut case.head_count,
                &mut case.n_seq_tokens,
                &mut case.n_seqs,
            ]
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let heads = |place: usize| match self.permuted {
            true => leaves[place].permute([0, 2, 1, 3]),
            false => Ok(leaves[place]),
        };
        let net = GatedDeltaNet {
            k: heads(1)?.l2_norm(1e-6)?,
            v: heads(2)?,
            g: leaves[3],
            beta: leaves[4],
            state: leaves[5],
            states: self.k,
        };
        heads(0)?.l2_norm(1e-6)?.gated_delta_net(net)
    }
}

const fn net(sizes: [usize; 4]) -> DeltaNet {
    DeltaNet::new(sizes)
}

/// Upstream's, in its order.
const UPSTREAM: [DeltaNet; 36] = [
    net([32, 128, 1, 1]),
    net([32, 16, 1, 1]),
    net([32, 16, 1, 1]).permuted().kda(),
    net([32, 16, 1, 1]).kda(),
    net([16, 64, 1, 2]),
    net([4, 64, 4, 1]),
    net([4, 64, 4, 2]),
    net([8, 32, 4, 2]).repeat(2),
    net([4, 64, 4, 2]).permuted(),
    net([4, 64, 4, 1]).permuted(),
    net([4, 64, 1, 1]).kda(),
    net([4, 64, 1, 2]).kda(),
    net([4, 16, 1, 2]).kda(),
    net([4, 32, 4, 1]).kda(),
    net([4, 64, 4, 2]).kda(),
    net([8, 32, 4, 2]).repeat(2).kda(),
    net([4, 64, 4, 2]).permuted().kda(),
    net([4, 16, 4, 2]).permuted().kda(),
    // Chunks of 64 tokens, or of 16 with a gate for each element, and parts of such.
    net([4, 64, 64, 1]),
    net([4, 64, 127, 1]),
    net([4, 64, 256, 1]),
    net([4, 64, 65, 1]),
    net([4, 64, 100, 1]),
    net([4, 64, 200, 1]),
    net([4, 64, 127, 2]),
    net([4, 64, 64, 1]).kda(),
    net([4, 64, 33, 1]).kda(),
    net([4, 64, 100, 1]).kda(),
    // Several states are kept: of all tokens, then of the last.
    net([4, 16, 2, 1]).keep(2),
    net([4, 32, 4, 1]).keep(4),
    net([4, 64, 4, 2]).keep(4),
    net([8, 128, 4, 1]).keep(4),
    net([4, 64, 4, 2]).kda().keep(4),
    net([8, 32, 4, 2]).repeat(2).kda().keep(4),
    net([4, 32, 8, 1]).keep(3),
    net([4, 64, 16, 2]).keep(4),
];

/// Odd numbers of heads, heads of sizes without a kernel, one token of many sequences.
const OURS: [DeltaNet; 7] = [
    net([1, 32, 1, 1]),
    net([3, 32, 5, 3]).repeat(3),
    net([5, 128, 3, 2]).kda().keep(2),
    net([1, 64, 2, 33]),
    net([2, 96, 3, 1]),
    net([3, 33, 2, 2]),
    net([1, 1, 1, 1]),
];

/// All.
pub(super) fn cases() -> Vec<DeltaNet> {
    UPSTREAM.into_iter().chain(OURS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            UPSTREAM[33].name(),
            "GATED_DELTA_NET(type=f32,head_count=8,head_size=32,n_seq_tokens=4,n_seqs=2,v_repeat=2,permuted=0,kda=1,K=4)"
        );
    }
}
