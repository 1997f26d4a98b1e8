//! State-space and linear-attention recurrences.

use super::Verdict;
use crate::graph::node::Node;

pub(super) fn check(_node: &Node) -> Verdict {
    super::operands()
}
