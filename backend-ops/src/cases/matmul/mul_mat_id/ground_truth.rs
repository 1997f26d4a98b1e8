//! The study of stagings: a routed layer of a mixture in every staging of MUL_MAT_ID, against sums in f64 over the
//! dequantized weights.

use ggml_rs::DType;

use super::{MulMatId, experts};

/// Rows of 4096 and a batch that gives every expert more and fewer tokens than a tile holds. A device that does not run one
/// of these fails; what the stagings are held to is in [`crate::judge::study`].
#[must_use]
pub fn ground_truth() -> Vec<MulMatId> {
    const TYPES: [DType; 6] = [
        DType::Q2_K,
        DType::Q4_K,
        DType::Q8_0,
        DType::IQ2_XXS,
        DType::F16,
        DType::F32,
    ];
    TYPES
        .map(|type_a| MulMatId {
            unit_rms: true,
            ..MulMatId::new(type_a, experts(8, 2, true), [128, 128, 4096])
        })
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Case;
    use crate::data::OperandData;

    fn rms(values: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = values.len() as f64;
        (values.map(|value| value * value).sum::<f64>() / count).sqrt()
    }

    /// What the study's bounds are relative to. Low-bit quantization keeps a part of the weights' power.
    #[test]
    fn activations_and_results_have_an_rms_of_one() {
        for type_a in [DType::F32, DType::Q4_K, DType::IQ2_XXS] {
            let case = MulMatId {
                unit_rms: true,
                ..MulMatId::new(type_a, experts(4, 2, true), [64, 16, 1024])
            };
            let data: Vec<_> = case
                .operands()
                .iter()
                .map(|operand| OperandData::generate(operand, 1, &case.name()))
                .collect::<ggml_rs::Result<_>>()
                .expect("types that quantize");
            let activations = rms(data[1].values().iter().map(|&value| value.into()));
            assert!((0.98..1.02).contains(&activations), "{activations}");
            let results = case.reference(&data).expect("shapes fit").expect("has one");
            let results = rms(results.into_iter());
            assert!((0.7..1.1).contains(&results), "{type_a}: {results}");
        }
    }
}
