//! `RESHAPE`, `VIEW`, `PERMUTE`, `TRANSPOSE`: they compute nothing, but decide what the ops around them read. Upstream has no cases
//! of them. Each of ours is a chain that ends in a look at the result of one op and the operand of another.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Leaves, boxed};
use crate::data::Operand;
use crate::vars::Vars;

const NE: [usize; 4] = [12, 5, 4, 3];

/// One chain.
#[derive(Clone, Debug)]
pub struct Looks {
    op: &'static str,
    dtype: DType,
    /// Which of the chains of the op.
    chain: usize,
}

impl Looks {
    fn look<'g>(&self, a: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let [nb0, nb1, nb2, nb3] = a.strides();
        match (self.op, self.chain) {
            ("RESHAPE", 0) => a.reshape([60, 12]),
            ("RESHAPE", 1) => a.reshape([4, 15, 2, 6])?.reshape([720]),
            // What another op has made contiguous.
            ("RESHAPE", _) => a.transpose()?.cont()?.reshape([3, 20, 12, 1]),
            ("VIEW", 0) => a.view([7, 3, 2, 2], [nb1, nb2, nb3], 2 * nb0 + nb1 + nb3),
            // A view of a view counts from its own start.
            ("VIEW", 1) => {
                let outer = a.view([10, 4, 4, 3], [nb1, nb2, nb3], nb0 + nb1)?;
                outer.view([5, 2, 2, 1], [2 * nb1, nb2, nb3], 3 * nb0 + nb2)
            }
            // Rows that overlap: a window moved by one element.
            ("VIEW", _) => a.view([8, 5, 1, 1], [nb0, nb2, nb3], 0),
            ("PERMUTE", 0) => a.permute([0, 2, 1, 3]),
            ("PERMUTE", 1) => a.permute([3, 0, 2, 1])?.permute([2, 1, 3, 0]),
            ("PERMUTE", _) => a
                .view([6, 5, 2, 3], [nb1, nb2, nb3], nb2)?
                .permute([2, 3, 0, 1]),
            (_, 0) => a.transpose(),
            (_, 1) => a.permute([2, 1, 0, 3])?.transpose(),
            (_, _) => a.view([6, 5, 2, 3], [nb1, nb2, nb3], nb0)?.transpose(),
        }
    }
}

impl Case for Looks {
    fn op(&self) -> &'static str {
        self.op
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", NE)
            .with("chain", self.chain)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("a", self.dtype, NE).trained()]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        // CONT takes any strides.
        self.look(leaves[0].add(leaves[0])?)?.cont()
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        // Doubling is exact.
        0.0
    }
}

/// Ours.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    let ops = ["RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"].into_iter();
    let chains = ops.flat_map(|op| (0..3).map(move |chain| (op, chain)));
    let cases = chains
        .flat_map(|(op, chain)| [DType::F32, DType::F16].map(|dtype| Looks { op, dtype, chain }));
    boxed(cases.collect()).collect()
}
