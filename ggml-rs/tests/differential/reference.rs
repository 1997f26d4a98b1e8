//! What a graph gives in double precision, and how far from it a device may be.

use std::cell::{Cell, RefCell};

use ggml_rs::check::Interpreter;
use ggml_rs::quantize::dequantize;
use ggml_rs::{DType, Device, Result};

use crate::program::{Built, Program};
use crate::rounding::{self, Noise, On, SAFETY, Size};

/// Bytes of outputs, and of parameters after the run.
pub type Bytes = Vec<Vec<u8>>;

/// Exact values, and what they spread by on each kind of device.
pub struct Reference<'a> {
    program: &'a Program,
    built: Built,
    dtypes: Vec<DType>,
    exact: Vec<Vec<f64>>,
    spreads: [Option<Vec<Vec<f64>>>; 3],
}

/// An element that is too far away.
#[derive(Debug)]
pub struct Wrong {
    pub output: usize,
    pub element: usize,
    pub of: usize,
    pub wrong: usize,
    pub got: f64,
    pub expected: f64,
    pub bound: f64,
}

/// Runs with errors that a first comparison takes, and one that failed; as many of the largest errors if that failed too.
const FEW: u64 = 4;
const MANY: u64 = 80;

impl<'a> Reference<'a> {
    /// Evaluates a program; `None` where values leave the range in which devices can be compared.
    ///
    /// # Errors
    /// As the interpreter's.
    pub fn new(program: &'a Program) -> Result<Option<Self>> {
        let built = program.build(Device::cpu()?)?;
        let outputs = built.outputs.iter().map(|(output, _)| output.dtype());
        let params = built.params.iter().map(|(param, _)| param.dtype());
        let dtypes = outputs.chain(params).collect();
        let mut reference = Self {
            program,
            built,
            dtypes,
            exact: Vec::new(),
            spreads: [None, None, None],
        };
        let (exact, in_range) = reference.evaluate(None)?;
        reference.exact = exact;
        Ok(in_range.then_some(reference))
    }

    fn evaluate(&self, noise: Option<(u64, On, Size)>) -> Result<(Vec<Vec<f64>>, bool)> {
        for (param, at) in &self.built.params {
            param.set_bytes(&self.program.bytes(*at))?;
        }
        let mut interpreter = Interpreter::new(&self.built.graph)?;
        for (input, at) in &self.built.inputs {
            interpreter.set_bytes(input, &self.program.bytes(*at))?;
        }
        let (seed, size) = noise.map_or((0, Size::Op), |(seed, _, size)| (seed, size));
        let source = RefCell::new(Noise::new(seed, size));
        let in_range = Cell::new(true);
        interpreter.run_changed(&|site, values| {
            let mut source = source.borrow_mut();
            let noise = noise.map(|(_, on, _)| (&mut *source, on));
            rounding::change(site, values, noise);
            if site.operand.is_none() && !values.iter().all(|&x| rounding::in_range(site.dtype, x))
            {
                in_range.set(false);
            }
        })?;
        let outputs = self.built.outputs.iter();
        let outputs = outputs.map(|(output, _)| interpreter.read(output));
        let params = self.built.params.iter();
        let params = params.map(|(param, _)| interpreter.read_param(param));
        let values = outputs.chain(params).collect::<Result<_>>()?;
        Ok((values, in_range.get()))
    }

    /// Adds runs with errors of this size to what values spread by.
    fn spread(&mut self, on: On, size: Size, runs: std::ops::Range<u64>) -> Result<()> {
        let zeros = || self.exact.iter().map(|x| vec![0.0; x.len()]).collect();
        let mut spread: Vec<Vec<f64>> = self.spreads[on as usize].take().unwrap_or_else(zeros);
        for run in runs {
            let seed = self.program.seed ^ (run + 1) << 20;
            let (values, _) = self.evaluate(Some((seed, on, size)))?;
            let all = spread.iter_mut().zip(&values).zip(&self.exact);
            for ((spread, values), exact) in all {
                for ((spread, value), exact) in spread.iter_mut().zip(values).zip(exact) {
                    let difference = match value == exact {
                        true => 0.0,
                        false => (value - exact).abs() / size.times(),
                    };
                    // What may be NaN may be anything.
                    *spread = if difference.is_nan() {
                        f64::INFINITY
                    } else {
                        spread.max(difference)
                    };
                }
            }
        }
        self.spreads[on as usize] = Some(spread);
        Ok(())
    }

    /// Whether two runs of a device gave the same, but for the sign of zeros where `fused`.
    pub fn agree(&self, a: &Bytes, b: &Bytes, fused: bool) -> bool {
        a.iter().zip(b).zip(&self.dtypes).all(|((a, b), &dtype)| {
            a == b
                || fused && dtype == DType::F32 && {
                    let words = a.chunks(4).zip(b.chunks(4));
                    words
                        .into_iter()
                        .all(|(a, b)| a == b || is_zero(a) && is_zero(b))
                }
        })
    }

    /// Compares what a device gave: the largest part of what it may differ by that it does, or what is wrong.
    ///
    /// # Errors
    /// As the interpreter's.
    pub fn compare(&mut self, on: On, got: &Bytes) -> Result<std::result::Result<f64, Wrong>> {
        if self.spreads[on as usize].is_none() {
            self.spread(on, Size::Op, 0..FEW)?;
        }
        let got: Vec<Vec<f64>> = got
            .iter()
            .zip(&self.dtypes)
            .map(|(bytes, &dtype)| widened(dtype, bytes))
            .collect::<Result<_>>()?;
        let mut found = self.compare_values(on, &got);
        for (size, runs) in [
            (Size::Op, FEW..MANY / 4),
            (Size::Op, MANY / 4..MANY),
            (Size::Bound, MANY..2 * MANY),
        ] {
            if found.is_ok() {
                break;
            }
            self.spread(on, size, runs)?;
            found = self.compare_values(on, &got);
        }
        Ok(found)
    }

    fn compare_values(&self, on: On, got: &[Vec<f64>]) -> std::result::Result<f64, Wrong> {
        let spread = self.spreads[on as usize].as_ref().unwrap();
        let mut most: f64 = 0.0;
        let mut worst: Option<Wrong> = None;
        for (output, ((got, exact), spread)) in got.iter().zip(&self.exact).zip(spread).enumerate()
        {
            for (element, ((&got, &expected), &spread)) in
                got.iter().zip(exact).zip(spread).enumerate()
            {
                let bound = SAFETY * spread + f64::from(f32::EPSILON) * expected.abs() + 1e-37;
                let difference = (got - expected).abs();
                let same = got == expected || got.is_nan() && expected.is_nan();
                if same || difference <= bound {
                    most = most.max(if same { 0.0 } else { difference / bound });
                } else if let Some(worst) = &mut worst {
                    worst.wrong += 1;
                } else {
                    worst = Some(Wrong {
                        output,
                        element,
                        of: exact.len(),
                        wrong: 1,
                        got,
                        expected,
                        bound,
                    });
                }
            }
        }
        match worst {
            Some(worst) => Err(worst),
            None => Ok(most),
        }
    }
}

/// Whether a word is zero in F32, of either sign.
fn is_zero(word: &[u8]) -> bool {
    <[u8; 4]>::try_from(word).is_ok_and(|word| f32::from_ne_bytes(word) == 0.0)
}

fn widened(dtype: DType, bytes: &[u8]) -> Result<Vec<f64>> {
    Ok(match dtype {
        DType::I32 => integers(bytes),
        _ => dequantize(dtype, bytes)?
            .into_iter()
            .map(f64::from)
            .collect(),
    })
}

fn integers(bytes: &[u8]) -> Vec<f64> {
    let (chunks, _) = bytes.as_chunks::<4>();
    chunks
        .iter()
        .map(|&x| i32::from_ne_bytes(x).into())
        .collect()
}
