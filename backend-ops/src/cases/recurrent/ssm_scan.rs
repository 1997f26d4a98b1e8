//! `SSM_SCAN`: Mamba's scan. Upstream's `test_ssm_scan`.

use ggml_rs::{DType, SsmScan, Tensor};

use crate::case::{Case, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// Type of all but the ids.
    pub dtype: DType,
    /// Elements of a state.
    pub d_state: usize,
    /// Elements of a head; 1 for Mamba-1.
    pub head_dim: usize,
    /// Heads.
    pub n_head: usize,
    /// Groups of heads, which share what enters and leaves the state.
    pub n_group: usize,
    /// Tokens of a sequence.
    pub n_seq_tokens: usize,
    /// Sequences.
    pub n_seqs: usize,
    /// Whether x, B and C are overlapping parts of one tensor.
    pub xbc_overlap: bool,
    /// How many of the last states are kept.
    pub states: usize,
    /// States to choose from; 0: as many as sequences.
    pub slots: usize,
}

impl Scan {
    pub(crate) const fn new(
        [d_state, head_dim, n_head, n_group, n_seq_tokens, n_seqs]: [usize; 6],
    ) -> Self {
        Self {
            dtype: DType::F32,
            d_state,
            head_dim,
            n_head,
            n_group,
            n_seq_tokens,
            n_seqs,
            xbc_overlap: false,
            states: 1,
            slots: 0,
        }
    }

    fn slots(&self) -> usize {
        self.slots.max(self.n_seqs)
    }

    fn shapes(&self) -> [[usize; 4]; 2] {
        let part = |n, heads| [n, heads, self.n_seq_tokens, self.n_seqs];
        [
            part(self.head_dim, self.n_head),
            part(self.d_state, self.n_group),
        ]
    }

    /// Upstream's parts: x from the second sequence on, B from the first, C from the third.
    fn overlapping<'g>(&self, xbc: Tensor<'g>) -> ggml_rs::Result<[Tensor<'g>; 3]> {
        let [x, b] = self.shapes();
        let [_, nb1, nb2, nb3] = xbc.strides();
        Ok([
            xbc.view(x, [nb1, nb2, nb3], nb3)?,
            xbc.view(b, [nb1, nb2, nb3], 0)?,
            xbc.view(b, [nb1, nb2, nb3], 2 * nb3)?,
        ])
    }
}

impl Case for Scan {
    fn op(&self) -> &'static str {
        "SSM_SCAN"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("d_state", self.d_state)
            .with("head_dim", self.head_dim)
            .with("n_head", self.n_head)
            .with("n_group", self.n_group)
            .with("n_seq_tokens", self.n_seq_tokens)
            .with("n_seqs", self.n_seqs)
            .with("xbc_overlap", self.xbc_overlap)
            .with_unless_default("states", self.states, 1)
            .with_unless_default("slots", self.slots, 0)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [n, heads, tokens, sequences] =
            [self.d_state, self.n_head, self.n_seq_tokens, self.n_seqs];
        let decays = if self.head_dim > 1 { 1 } else { n };
        let ids = Operand::row_ids("ids", [sequences, 1, 1, 1], self.slots(), true);
        let of = |name, ne| Operand::new(name, self.dtype, ne);
        let mut operands = vec![
            of("s", [n, self.head_dim, heads, self.slots()]),
            of("dt", [heads, tokens, sequences, 1]),
            of("A", [decays, heads, 1, 1]),
            ids,
        ];
        if self.xbc_overlap {
            operands.push(of("xbc", [n, heads, tokens, 2 * sequences]));
        } else {
            let [x, b] = self.shapes();
            operands.extend([of("x", x), of("B", b), of("C", b)]);
        }
        operands
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            vec![&mut case.n_head, &mut case.n_seq_tokens, &mut case.n_seqs]
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let [x, b, c] = match self.xbc_overlap {
            true => self.overlapping(leaves[4])?,
            false => [4, 5, 6].map(|place| leaves[place]),
        };
        leaves[0].ssm_scan(SsmScan {
            x,
            dt: leaves[1],
            a: leaves[2],
            b,
            c,
            ids: leaves.rows(3),
            states: self.states,
        })
    }
}

/// All.
pub(super) fn cases() -> Vec<Scan> {
    let mut cases = vec![
        // Mamba, Mamba-2, Falcon-H1.
        Scan::new([16, 1, 1024, 1, 32, 4]),
        Scan::new([128, 64, 16, 2, 32, 4]),
        Scan::new([256, 64, 8, 2, 32, 4]),
        Scan {
            xbc_overlap: true,
            ..Scan::new([128, 128, 4, 4, 16, 2])
        },
    ];
    cases.extend(ours());
    cases
}

fn ours() -> Vec<Scan> {
    let small = Scan::new([16, 8, 4, 2, 7, 3]);
    vec![
        Scan::new([1, 1, 1, 1, 1, 1]),
        Scan::new([16, 1, 33, 1, 1, 2]),
        Scan::new([33, 5, 3, 1, 5, 2]),
        Scan::new([31, 3, 6, 3, 2, 1]),
        // Whole chunks of 64 tokens have a kernel of their own on Metal; what is left over has the other one's tail.
        Scan::new([16, 64, 2, 1, 64, 2]),
        Scan::new([24, 64, 3, 3, 133, 1]),
        Scan {
            states: 3,
            ..Scan::new([40, 64, 2, 2, 130, 2])
        },
        Scan {
            states: 3,
            ..small.clone()
        },
        Scan {
            slots: 5,
            ..small.clone()
        },
        small,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            cases()[3].name(),
            "SSM_SCAN(type=f32,d_state=128,head_dim=128,n_head=4,n_group=4,n_seq_tokens=16,n_seqs=2,xbc_overlap=1)"
        );
    }
}
