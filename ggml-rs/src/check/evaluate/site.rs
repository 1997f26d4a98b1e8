//! Where an evaluation can be changed: what rounding does to a graph is found by putting errors in.

use crate::dtype::DType;

/// Values that a node reads or writes.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// The node's op, as ggml names it; of a unary op or a gate, the function.
    pub op: &'a str,
    /// Which operand the values are; `None` for what the node writes.
    pub operand: Option<usize>,
    /// The type of the tensor that the values are of.
    pub dtype: DType,
    /// The types of the node's operands.
    pub operands: &'a [DType],
    /// The type of the node's result.
    pub result: DType,
    /// How many values are a row.
    pub row: usize,
}

/// Changes values at a site.
pub type Change<'a> = &'a dyn Fn(&Site<'_>, &mut [f64]);
