//! What gradients are compared with: differences where they were taken, formulas elsewhere.

use std::collections::BTreeSet;

use super::backward::Values;
use super::data::Random;
use super::difference::Slope;
use super::forward::Forward;
use super::report::{Deviation, Limits, larger, worst};
use super::{GradientOptions, no_input};
use crate::error::{Call, Error, Result};

/// How many elements of an input that a device computed otherwise than the formulas get differences of their own: at a kink
/// both may be right.
const CLOSER_LOOKS: usize = 16;

/// The expected gradients.
pub struct Expected {
    inputs: Vec<Gradient>,
}

/// The expected gradient of an input.
struct Gradient {
    name: String,
    values: Vec<f64>,
    /// The elements that differences were taken of.
    sampled: BTreeSet<usize>,
    /// Those of them that are at kinks.
    kinks: BTreeSet<usize>,
}

impl Expected {
    /// Takes differences of as many elements as the options say.
    pub fn new(
        call: Call,
        forward: &Forward,
        formulas: &Values,
        options: &GradientOptions,
    ) -> Result<Self> {
        let mut inputs = Vec::new();
        for (number, (name, formula)) in forward.names().zip(formulas).enumerate() {
            let mut gradient = Gradient {
                name: name.to_owned(),
                values: formula.clone(),
                sampled: BTreeSet::new(),
                kinks: BTreeSet::new(),
            };
            let mut random = Random::new(options.seed ^ number as u64);
            let elements = sample(formula, options.elements, &mut random);
            gradient.take(call, forward, number, &elements, options)?;
            inputs.push(gradient);
        }
        Ok(Self { inputs })
    }

    /// Takes differences where a device computed something else than what is expected.
    pub fn look_closer(
        &mut self,
        call: Call,
        forward: &Forward,
        got: &Values,
        options: &GradientOptions,
    ) -> Result<()> {
        for (number, (gradient, got)) in self.inputs.iter_mut().zip(got).enumerate() {
            let elements = gradient.suspicious(got, options);
            if !elements.is_empty() {
                gradient.take(call, forward, number, &elements, options)?;
            }
        }
        Ok(())
    }

    /// The worst element over all inputs.
    pub fn compare(
        &self,
        call: Call,
        got: &Values,
        tolerance: f64,
        floor: f64,
    ) -> Result<Deviation> {
        let inputs = self.inputs.iter().zip(got);
        let found = inputs.map(|(gradient, got)| gradient.worst(got, tolerance, floor));
        found.reduce(larger).ok_or_else(|| no_input(call))
    }

    /// How many elements were compared with differences.
    pub fn elements(&self) -> usize {
        let inputs = self.inputs.iter();
        inputs
            .map(|input| input.sampled.len() - input.kinks.len())
            .sum()
    }

    /// How many elements the trained inputs have.
    pub fn of(&self) -> usize {
        self.inputs.iter().map(|input| input.values.len()).sum()
    }

    /// How many elements are left out.
    pub fn kinks(&self) -> usize {
        self.inputs.iter().map(|input| input.kinks.len()).sum()
    }
}

impl Gradient {
    fn take(
        &mut self,
        call: Call,
        forward: &Forward,
        number: usize,
        elements: &[usize],
        options: &GradientOptions,
    ) -> Result<()> {
        let slopes = forward.slopes(call, number, elements)?;
        for (&element, slope) in elements.iter().zip(slopes) {
            self.sampled.insert(element);
            match slope {
                Ok(slope) => self.values[element] = slope.value,
                Err(_) if options.skip_kinks => {
                    self.kinks.insert(element);
                }
                Err(slope) => {
                    let at = forward.values(number)[element];
                    return Err(kink(call, &self.name, element, at, slope));
                }
            }
        }
        Ok(())
    }

    fn worst(&self, got: &[f64], tolerance: f64, floor: f64) -> Deviation {
        let skipped = |element: usize| self.kinks.contains(&element);
        let limits = Limits { tolerance, floor };
        worst(&self.name, &self.values, got, limits, skipped)
    }

    /// Elements without differences that deviate.
    fn suspicious(&self, got: &[f64], options: &GradientOptions) -> Vec<usize> {
        let limits = Limits {
            tolerance: options.tolerance,
            floor: options.floor,
        };
        let mut found = Vec::new();
        let mut seen = self.sampled.clone();
        while found.len() < CLOSER_LOOKS {
            let skipped = |element: usize| seen.contains(&element);
            let deviation = worst(&self.name, &self.values, got, limits, skipped);
            if deviation.passes() {
                break;
            }
            seen.insert(deviation.index);
            found.push(deviation.index);
        }
        found
    }
}

/// Some elements, drawn at random: half from all, and half from those whose gradient is not zero, which may be few.
fn sample(formula: &[f64], most: Option<usize>, random: &mut Random) -> Vec<usize> {
    let Some(most) = most.filter(|&most| most < formula.len()) else {
        return (0..formula.len()).collect();
    };
    let elements = 0..formula.len();
    let reached: Vec<usize> = elements.filter(|&i| formula[i] != 0.0).collect();
    let mut found: BTreeSet<usize> = (0..most.div_ceil(2))
        .map(|_| random.below(formula.len()))
        .collect();
    if !reached.is_empty() {
        found.extend((0..most / 2).map(|_| reached[random.below(reached.len())]));
    }
    found.into_iter().collect()
}

fn kink(call: Call, name: &str, element: usize, at: f64, slope: Slope) -> Error {
    let [left, right] = slope.sides;
    let detail = format!(
        "the loss has a kink near `{name}`[{element}] = {at}: differences {left:e} and {right:e}"
    );
    call.param(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_elements_that_a_gradient_reaches() {
        let mut formula = vec![0.0; 1000];
        formula[777] = 1.0;
        let found = sample(&formula, Some(10), &mut Random::new(1));
        assert!(
            found.contains(&777) && (4..=10).contains(&found.len()),
            "{found:?}"
        );
        assert_eq!(sample(&formula[..5], Some(5), &mut Random::new(1)).len(), 5);
        assert_eq!(sample(&formula, None, &mut Random::new(1)).len(), 1000);
    }
}
