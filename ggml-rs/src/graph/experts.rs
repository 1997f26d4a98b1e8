//! The choice of experts of a mixture: which of the weights' matrices each token is multiplied with.

use crate::dtype::DType;
use crate::error::{Error, OpError, Result};
use crate::graph::Tensor;

/// Which experts each token uses: the operand that [`Tensor::mul_mat_id`] chooses matrices by.
///
/// It comes from [`Builder::expert_ids`](super::Builder::expert_ids) and is no [`Tensor`]: kernels index the weights with
/// these values and do not check them, so nothing but [`Plan`](crate::Plan), which does, may write them.
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

/// Checks the values of an [`ExpertIds`] input: each names an expert, and no token names one twice (Metal's kernels add up
/// the places where a token names an expert, and would write somewhere else).
///
/// # Errors
/// [`Error::Param`], which names the first token that is wrong.
#[track_caller]
pub(crate) fn check_ids(
    call: &'static str,
    ids: &[i32],
    per_token: usize,
    experts: usize,
) -> Result<()> {
    let refuse = |detail: String| Err(Error::Param(OpError::new(call, detail, Vec::new())));
    for (token, chosen) in ids.chunks(per_token).enumerate() {
        for (place, &id) in chosen.iter().enumerate() {
            if usize::try_from(id).is_ok_and(|id| id < experts) {
                if chosen[..place].contains(&id) {
                    return refuse(format!("token {token} names expert {id} twice"));
                }
            } else {
                return refuse(format!("token {token} names expert {id} of {experts}"));
            }
        }
    }
    Ok(())
}

/// The type in which ggml takes ids.
pub(super) const ID_TYPE: DType = DType::I32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_existing_experts_once_a_token() {
        let check = |ids: &[i32]| check_ids("call", ids, 2, 4);
        check(&[0, 3, 3, 0]).unwrap();
        for (ids, why) in [
            ([0, 1, 2, 4], "token 1 names expert 4 of 4"),
            ([-1, 1, 2, 3], "token 0 names expert -1"),
            ([0, 1, 2, 2], "token 1 names expert 2 twice"),
        ] {
            let text = check(&ids).unwrap_err().to_string();
            assert!(text.contains(why), "{text}");
        }
    }
}
