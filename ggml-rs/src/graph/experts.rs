//! The choice of experts of a mixture: which of the weights' matrices each token is multiplied with.

use crate::graph::Tensor;

/// Which experts each token uses: the operand that [`Tensor::mul_mat_id`] chooses matrices by.
///
/// It comes from [`Builder::expert_ids`](super::Builder::expert_ids), or from ids that an op made
/// ([`RowIds::experts`](super::RowIds::experts)), and is no [`Tensor`]: kernels index the weights with these values and do
/// not check them, so nothing else may write them. No token names an expert twice: Metal's kernels add up the places where
/// a token names an expert, and would write somewhere else.
#[derive(Debug, Clone, Copy)]
pub struct ExpertIds<'g> {
    pub(super) tensor: Tensor<'g>,
    pub(super) experts: usize,
}

impl ExpertIds<'_> {
    /// The number of experts to choose from.
    pub fn experts(self) -> usize {
        self.experts
    }

    /// Experts per token.
    pub fn per_token(self) -> usize {
        self.tensor.layout().ne[0]
    }

    /// The number of tokens.
    pub fn tokens(self) -> usize {
        self.tensor.layout().ne[1]
    }
}
