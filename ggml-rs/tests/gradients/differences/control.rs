//! Whether a check notices what is wrong.

use std::cell::Cell;

use ggml_rs::check::{Data, GradientOptions, Inputs, gradients};
use ggml_rs::{Error, Result, Tensor};

/// A square whose factor is `factor` in the graphs with a backward and 1 in the one that differences are taken of: the
/// first that is built.
fn off_by<'g>(factor: f32, builds: &Cell<usize>, inputs: &mut Inputs<'g>) -> Result<Tensor<'g>> {
    builds.set(builds.get() + 1);
    let x = inputs.trained([5, 3], Data::unit())?;
    let factor = if builds.get() == 1 { 1.0 } else { factor };
    x.mul(x)?.scale(factor)
}

#[test]
fn a_gradient_scaled_by_1_001_is_caught() {
    for (factor, passes) in [(1.0, true), (1.001, false)] {
        let builds = Cell::new(0);
        let report = gradients(&GradientOptions::default(), |inputs| {
            off_by(factor, &builds, inputs)
        })
        .unwrap();
        assert_eq!(report.passes(), passes, "{report}");
        assert_eq!(report.formula.passes(), passes, "{report}");
        assert_eq!(report.device.passes(), passes, "{report}");
        assert_eq!(report.elements, 15);
    }
}

#[test]
fn one_wrong_element_is_caught() {
    let builds = Cell::new(0);
    let report = gradients(&GradientOptions::default(), |inputs| {
        builds.set(builds.get() + 1);
        let x = inputs.trained([6], Data::unit())?;
        let mut factors = vec![1.0; 6];
        if builds.get() > 1 {
            factors[4] = 1.001;
        }
        let factors = inputs.fixed(ggml_rs::DType::F32, [6], Data::Given(factors))?;
        x.mul(factors)
    })
    .unwrap();
    assert!(!report.passes());
    assert_eq!(
        (report.formula.index, report.device.index),
        (4, 4),
        "{report}"
    );
}

#[test]
fn a_kink_is_an_error_and_not_a_gradient() {
    let error = gradients(&GradientOptions::default(), |inputs| {
        inputs.trained([2], Data::Given(vec![0.5, 1e-6]))?.relu()
    })
    .unwrap_err();
    assert!(matches!(&error, Error::Param(_)), "{error}");
    assert!(
        error.to_string().contains("kink near `trained 0`[1]"),
        "{error}"
    );
}

#[test]
fn a_check_of_nothing_is_an_error() {
    let error = gradients(&GradientOptions::default(), |inputs| {
        inputs.fixed(ggml_rs::DType::F32, [2], Data::unit())
    });
    assert!(error.is_err());
}
