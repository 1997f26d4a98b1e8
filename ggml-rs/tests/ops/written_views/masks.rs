//! Softmax with a mask, or sinks, that lie where its operand lies: kernels must not take the place for the absence of an operand.

use ggml_rs::DType::F32;
use ggml_rs::{Result, SoftMax, Tensor};

use crate::common::forward::{Case, Given};

fn soft_max(row: &[f64], mask: Option<&[f64]>, sink: Option<f64>) -> Vec<f64> {
    let values: Vec<f64> = match mask {
        Some(mask) => row.iter().zip(mask).map(|(x, m)| x + m).collect(),
        None => row.to_vec(),
    };
    let most = values.iter().copied().chain(sink).fold(f64::MIN, f64::max);
    let exps: Vec<f64> = values.iter().map(|x| (x - most).exp()).collect();
    let sum = exps.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - most).exp());
    exps.iter().map(|x| x / sum).collect()
}

fn case(name: &str, given: Given, expected: Vec<f64>) -> Case {
    Case {
        name: name.into(),
        given: vec![given],
        expected,
        tolerance: 1e-5,
        metal: true,
    }
}

fn with_mask<'g>(a: Tensor<'g>, mask: Tensor<'g>) -> Result<Tensor<'g>> {
    a.soft_max_ext(SoftMax {
        mask: Some(mask),
        ..SoftMax::default()
    })
}

#[test]
fn a_tensor_is_its_own_mask() {
    for n in [2, 3, 4, 36] {
        let given = || Given::random(F32, &[n, 3], 1, 2.0);
        let values = given().values();
        let rows = || {
            values
                .chunks(n)
                .flat_map(|row| soft_max(row, Some(row), None))
        };
        case("mask", given(), rows().collect()).check(|x| with_mask(x[0], x[0]));
        // Another tensor at the same place.
        let nb = [4 * n, 12 * n, 12 * n];
        case("view", given(), rows().collect())
            .check(|x| with_mask(x[0], x[0].view([n, 3], nb, 0)?));
    }
}

#[test]
fn sinks_are_the_first_elements_of_the_operand() {
    for n in [3, 4] {
        let given = Given::random(F32, &[n, 2, 3], 2, 2.0);
        let values = given.values();
        let rows = values
            .chunks(n)
            .enumerate()
            .flat_map(|(row, x)| soft_max(x, None, Some(values[row / 2])));
        let expected = rows.collect();
        case("sinks", given, expected).check(|x| {
            let sinks = x[0].view([3], [12; 3], 0)?;
            x[0].soft_max_ext(SoftMax {
                sinks: Some(sinks),
                ..SoftMax::default()
            })
        });
    }
}
