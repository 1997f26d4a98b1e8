//! What a refused layout is told: the operand, what its rows are, and the way out.

use ggml_rs::DType::{F32, Q8_0};
use ggml_rs::{Result, Tensor};

use super::parent::{everywhere, run};
use crate::common::forward::Given;

fn refusal(
    given: &[&Given],
    metal: bool,
    write: impl for<'g> Fn(&[Tensor<'g>]) -> Result<Tensor<'g>>,
) -> Vec<String> {
    everywhere()
        .filter(|place| place.is_metal == metal)
        .map(|mut place| run(&mut place, given, &write).unwrap_err().to_string())
        .collect()
}

#[test]
fn rows_that_are_no_whole_blocks_are_named() {
    let blocks = Given::float(Q8_0, &[64], vec![0.0; 64]);
    let floats = Given::float(F32, &[16, 4], vec![1.0; 64]);
    for text in refusal(&[&blocks, &floats], true, |x| x[1].cpy(x[0])) {
        assert!(
            text.contains("a: its rows of 16 are no whole blocks of q8_0"),
            "{text}"
        );
        assert!(text.contains("reshape it"), "{text}");
    }
}

#[test]
fn rows_that_are_not_packed_are_named() {
    let x = Given::float(F32, &[8, 7], vec![1.0; 56]);
    for text in refusal(&[&x], true, |x| x[0].transpose()?.rms_norm(1e-3)) {
        assert!(
            text.contains("a: its rows are not packed (nb[0] = 32, element 4): call cont()"),
            "{text}"
        );
    }
}
