//! Every definition against ggml's CPU kernel.
//!
//! The tolerance is that of f32 arithmetic ([`harness::F32`]) but where a kernel computes in less, which each test says.

mod attend;
mod harness;
mod images;
mod moves;
mod numbers;
mod products;

use std::collections::BTreeSet;

use ggml_sys as sys;

use super::ops::{Definition, definition};

/// Runs all comparisons, and looks which definitions they compared.
#[test]
fn every_definition_is_compared() {
    let tests: [fn(); 30] = [
        numbers::arithmetic_with_and_without_broadcast,
        numbers::in_place_results_are_written_to_their_base,
        numbers::unary_functions,
        numbers::gated_linear_units,
        numbers::sums_and_repeats,
        numbers::normalisations,
        numbers::softmax_and_its_loss,
        numbers::rope_in_every_mode,
        products::products_broadcast_their_first_operand,
        products::quantized_operands_are_read_from_their_bytes,
        products::rows_by_ids,
        products::optimizers_write_weights_and_momenta,
        moves::views_are_read_through_their_strides,
        moves::copies_write_through_views,
        moves::parts_of_tensors,
        moves::patches,
        moves::pooling,
        products::columns_by_value,
        attend::attention,
        attend::the_indexer,
        attend::state_space_models,
        attend::linear_attention,
        attend::delta_rule,
        attend::residual_streams,
        attend::triangles,
        images::convolutions,
        images::transposed_convolutions,
        images::scaling,
        images::windows_and_positions,
        images::rows_continued_and_turned,
    ];
    tests.iter().for_each(|test| test());
    let functions = |op| match op {
        sys::GGML_OP_UNARY => sys::GGML_UNARY_OP_COUNT,
        sys::GGML_OP_GLU => sys::GGML_GLU_OP_COUNT,
        _ => 1,
    };
    let all = (0..sys::GGML_OP_COUNT).flat_map(|op| (0..functions(op)).map(move |f| (op, f)));
    let is_computed = |&(op, function): &(sys::ggml_op, i32)| {
        let mut params = [0; 16];
        params[0] = function;
        !matches!(definition(op, &params), None | Some(Definition::View))
    };
    let defined: BTreeSet<_> = all.filter(is_computed).collect();
    let compared = harness::compared();
    let missing: Vec<_> = defined.difference(&compared).collect();
    assert!(
        missing.is_empty(),
        "not compared with ggml (op, function): {missing:?}"
    );
    println!(
        "{} definitions compared with ggml's CPU kernels",
        defined.len()
    );
}
