//! `RWKV_WKV6`, `RWKV_WKV7` and `GATED_LINEAR_ATTN`: a matrix for each head that forgets and learns from token to token.
//! Upstream's `test_rwkv_wkv6`, `test_rwkv_wkv7` and `test_gla`, which have the same sizes.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// Which recurrence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recurrence {
    /// RWKV 6.
    Wkv6,
    /// RWKV 7.
    Wkv7,
    /// Gated linear attention.
    Gla,
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Which recurrence.
    pub recurrence: Recurrence,
    /// Type of all.
    pub dtype: DType,
    /// Heads.
    pub head_count: usize,
    /// Elements of a head.
    pub head_size: usize,
    /// Tokens of a sequence.
    pub n_seq_tokens: usize,
    /// Sequences.
    pub n_seqs: usize,
}

impl Case for Linear {
    fn op(&self) -> &'static str {
        match self.recurrence {
            Recurrence::Wkv6 => "RWKV_WKV6",
            Recurrence::Wkv7 => "RWKV_WKV7",
            Recurrence::Gla => "GATED_LINEAR_ATTN",
        }
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("head_count", self.head_count)
            .with("head_size", self.head_size)
            .with("n_seq_tokens", self.n_seq_tokens)
            .with("n_seqs", self.n_seqs)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [heads, size] = [self.head_count, self.head_size];
        let names: &[&'static str] = match self.recurrence {
            Recurrence::Wkv6 => &["k", "v", "r", "td"],
            Recurrence::Wkv7 => &["r", "w", "k", "v", "a", "b"],
            Recurrence::Gla => &["k", "v", "q", "g"],
        };
        let tokens = [size, heads, self.n_seq_tokens * self.n_seqs, 1];
        let mut operands: Vec<Operand> = names
            .iter()
            .map(|name| Operand::new(name, self.dtype, tokens))
            .collect();
        let state = [size * size * heads, self.n_seqs, 1, 1];
        operands.push(Operand::new("s", self.dtype, state));
        if self.recurrence == Recurrence::Wkv6 {
            operands.push(Operand::new("tf", self.dtype, [size, heads, 1, 1]));
        }
        operands
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
        let x = leaves.tensors();
        match self.recurrence {
            Recurrence::Wkv6 => x[0].rwkv_wkv6(x[1], x[2], x[5], x[3], x[4]),
            Recurrence::Wkv7 => {
                // As in upstream: without it the states of long sequences overflow.
                let (a, b) = (x[4].l2_norm(1e-7)?, x[5].l2_norm(1e-7)?);
                x[0].rwkv_wkv7(x[1], x[2], x[3], a, b, x[6])
            }
            Recurrence::Gla => {
                let scale = (self.head_size as f64).powf(-0.5) as f32;
                x[0].gated_linear_attn(x[1], x[2], x[3], x[4], scale)
            }
        }
    }
}

/// All.
pub(super) fn cases() -> Vec<Linear> {
    let mut cases = Vec::new();
    for recurrence in [Recurrence::Wkv6, Recurrence::Wkv7, Recurrence::Gla] {
        let case = |[head_count, head_size, n_seq_tokens, n_seqs]: [usize; 4]| Linear {
            recurrence,
            dtype: DType::F32,
            head_count,
            head_size,
            n_seq_tokens,
            n_seqs,
        };
        cases.extend([[1, 1], [32, 1], [32, 4], [128, 4]].map(|[n, s]| case([32, 64, n, s])));
        // Ours: one head, odd numbers of them, and heads of other sizes, which not every kernel has.
        cases.extend(
            [
                [1, 64, 1, 1],
                [3, 64, 5, 3],
                [33, 64, 2, 2],
                [2, 128, 5, 2],
                [3, 33, 4, 2],
                [1, 1, 1, 1],
            ]
            .map(case),
        );
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let names = [0, 11, 22].map(|i| cases()[i].name());
        assert_eq!(
            names,
            [
                "RWKV_WKV6(type=f32,head_count=32,head_size=64,n_seq_tokens=1,n_seqs=1)",
                "RWKV_WKV7(type=f32,head_count=32,head_size=64,n_seq_tokens=32,n_seqs=1)",
                "GATED_LINEAR_ATTN(type=f32,head_count=32,head_size=64,n_seq_tokens=32,n_seqs=4)",
            ]
        );
    }
}
