//! What a case costs.

use super::Case;
use super::data::Operand;

/// Values that cost as much as so many multiply-adds: drawing, converting and comparing them.
const VALUE: f64 = 50.0;
/// The same for a value that ggml's quantizers search a scale for.
const QUANTIZED: f64 = 1000.0;
/// A graph, its buffers and its messages.
const CASE: f64 = 100_000.0;

/// What a case costs, roughly, in operations: enough to tell long cases from short ones.
pub(crate) fn cost(case: &dyn Case) -> f64 {
    let operands: f64 = case.operands().iter().map(operand).sum();
    CASE + operands + case.flops().unwrap_or(0.0)
}

fn operand(operand: &Operand) -> f64 {
    let values: f64 = operand.ne.iter().map(|&n| n as f64).product();
    values
        * if operand.dtype.is_quantized() {
            QUANTIZED
        } else {
            VALUE
        }
}
