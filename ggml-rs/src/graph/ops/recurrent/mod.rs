//! State-space models, linear attention, and the triangular systems that they solve.
//!
//! Results of several kinds come in one tensor, as ggml makes them: outputs first, states after them.

mod delta;
mod linear;
mod ssm;
mod triangular;

pub use delta::GatedDeltaNet;
pub use ssm::SsmScan;

use crate::dtype::DType::F32;
use crate::error::Checked;
use crate::layout::Refusal;

fn check_float(refusal: &Refusal) -> Checked {
    if refusal.operands.iter().any(|(_, x)| x.dtype != F32) {
        return Err(refusal.dtype("all must be F32"));
    }
    Ok(())
}

fn check_contiguous(refusal: &Refusal) -> Checked {
    if refusal.operands.iter().any(|(_, x)| !x.is_contiguous()) {
        return Err(refusal.layout("all must be contiguous: call cont() first"));
    }
    Ok(())
}

/// Snapshots of states that there are no tokens for would be left as they are.
fn check_snapshots(refusal: &Refusal, snapshots: usize, tokens: usize) -> Checked {
    if snapshots == 0 || snapshots > tokens || snapshots > i32::MAX as usize {
        return Err(refusal.param(format!(
            "{snapshots} states: there must be one, and no more than {tokens} tokens"
        )));
    }
    Ok(())
}
