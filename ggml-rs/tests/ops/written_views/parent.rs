//! The tensor that views are cut out of: what it holds before a graph ran, and after.

use std::fmt;

use ggml_rs::check::Interpreter;
use ggml_rs::quantize::{dequantize, quantize};
use ggml_rs::{Backend, DType, Graph, Placement, Plan, PlanOptions, Result, Tensor};

use super::cut::Cut;
use crate::common::forward::{Data, Given};
use crate::common::{PLACEMENTS, devices};

/// The bytes of a device's element for each value.
pub fn bytes_of(given: &Given) -> Vec<u8> {
    match &given.data {
        Data::Float(dtype, values) => quantize(*dtype, values, given.dims[0]).unwrap(),
        Data::I32(values) => values.iter().flat_map(|x| x.to_ne_bytes()).collect(),
    }
}

/// The values of these bytes.
pub fn values_of(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    if dtype == DType::I32 {
        let (words, _) = bytes.as_chunks::<4>();
        return words
            .iter()
            .map(|&word| i32::from_ne_bytes(word).into())
            .collect();
    }
    dequantize(dtype, bytes)
        .unwrap()
        .into_iter()
        .map(f64::from)
        .collect()
}

/// Small integers, which every type holds; of a quantized type, values that it rounds.
pub fn whole(dtype: DType, dims: &[usize], from: i32) -> Given {
    let len = dims.iter().product::<usize>() as i32;
    let values = (0..len).map(|i| (from + i * 7) % 61 - 20);
    match dtype {
        DType::I32 => Given::i32(dims, values.collect()),
        _ => Given::float(dtype, dims, values.map(|x| x as f32).collect()),
    }
}

/// Runs a graph that writes into a view of the first operand. Returns the operand's bytes afterwards.
///
/// # Errors
/// Where the op or the device refuses the view.
pub fn run(
    place: &mut Place,
    given: &[&Given],
    write: impl for<'g> Fn(&[Tensor<'g>]) -> Result<Tensor<'g>>,
) -> Result<Vec<u8>> {
    let (graph, (inputs, after)) = Graph::build(|g| {
        let mut pairs = Vec::new();
        for (i, given) in given.iter().enumerate() {
            pairs.push(g.input(&format!("input {i}"), given.dtype(), &*given.dims)?);
        }
        let (tensors, inputs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let written = write(&tensors)?;
        // Reading one of its elements makes the write happen, and no other op stands between it and the bytes.
        let [nb0, ..] = written.strides();
        let one = written.view([written.dtype().block_len()], [nb0; 3], 0)?;
        g.output("one", one)?;
        Ok((inputs, g.output("after", tensors[0])?))
    })?;
    let mut plan = place.plan(graph)?;
    for (given, input) in given.iter().zip(&inputs) {
        if plan.needs(input)? {
            plan.set_bytes(input, &bytes_of(given))?;
        }
    }
    place.run(&mut plan)?;
    plan.read_bytes(&after)
}

/// Runs a graph that reads views. Returns its result.
///
/// # Errors
/// Where the op or the device refuses a view.
pub fn run_result(
    place: &mut Place,
    given: &[Given],
    build: impl for<'g> Fn(&[Tensor<'g>]) -> Result<Tensor<'g>>,
) -> Result<Vec<f64>> {
    let (graph, (inputs, y)) = Graph::build(|g| {
        let mut pairs = Vec::new();
        for (i, given) in given.iter().enumerate() {
            pairs.push(g.input(&format!("input {i}"), given.dtype(), &*given.dims)?);
        }
        let (tensors, inputs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        Ok((inputs, g.output("y", build(&tensors)?)?))
    })?;
    let mut plan = place.plan(graph)?;
    for (given, input) in given.iter().zip(&inputs) {
        if plan.needs(input)? {
            plan.set_bytes(input, &bytes_of(given))?;
        }
    }
    place.run(&mut plan)?;
    Ok(values_of(y.dtype(), &plan.read_bytes(&y)?))
}

/// What an op makes of packed values, in f64.
pub fn reference(
    plain: impl for<'g> Fn(&[Tensor<'g>]) -> Result<Tensor<'g>>,
    operands: &[Given],
) -> Vec<f64> {
    let (graph, (inputs, y)) = Graph::build(|g| {
        let (mut tensors, mut inputs) = (Vec::new(), Vec::new());
        for given in operands {
            let (tensor, input) = g.input("", given.dtype(), &*given.dims)?;
            tensors.push(tensor);
            inputs.push(input);
        }
        Ok((inputs, g.output("y", plain(&tensors)?)?))
    })
    .unwrap();
    let mut interpreter = Interpreter::new(&graph).unwrap();
    for (given, input) in operands.iter().zip(&inputs) {
        // Of some operands an op takes the shape alone.
        if interpreter.needs(input).unwrap() {
            interpreter.set_bytes(input, &bytes_of(given)).unwrap();
        }
    }
    interpreter.run().unwrap();
    interpreter.read(&y).unwrap()
}

/// Compares the view's values, and every byte of the parent that is not the view's.
///
/// # Errors
/// The first difference.
pub fn compare(
    parent: &Given,
    cut: &Cut,
    after: &[u8],
    expected: &[f64],
    tolerance: f64,
) -> std::result::Result<(), String> {
    let (dtype, places) = (parent.dtype(), cut.places());
    assert_eq!(places.len(), expected.len());
    let found = values_of(dtype, after);
    for (i, (&place, &expected)) in places.iter().zip(expected).enumerate() {
        let found = found[place];
        let same = found == expected || found.is_nan() && expected.is_nan();
        // NaN is near nothing.
        let near = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
        if !same && !near {
            return Err(format!("element {i} is {found}, not {expected}"));
        }
    }
    let before = bytes_of(parent);
    let (block, bytes) = (dtype.block_len(), dtype.block_bytes());
    let mut written = vec![false; before.len() / bytes];
    for place in places {
        written[place / block] = true;
    }
    for (i, block) in written.into_iter().enumerate() {
        let range = i * bytes..(i + 1) * bytes;
        if !block && before[range.clone()] != after[range] {
            return Err(format!(
                "block {i} of the parent lies outside the view and changed"
            ));
        }
    }
    Ok(())
}

/// Fails where a device, in order CPU and Metal, took fewer layouts than it did when the test was written: what is refused is not
/// compared.
#[track_caller]
pub fn at_least(taken: [usize; 2], before: [usize; 2]) {
    let devices = devices().len();
    let fewer = (0..devices).any(|device| taken[device] < before[device]);
    assert!(!fewer, "{taken:?} layouts were taken, {before:?} before");
}

/// A device with a placement.
pub struct Place {
    backend: Backend,
    placement: Placement,
    pub is_metal: bool,
}

impl Place {
    pub fn is_apart(&self) -> bool {
        self.placement != PLACEMENTS[0]
    }

    pub fn plan(&self, graph: Graph) -> Result<Plan> {
        let placement = self.placement;
        Plan::new(graph, &self.backend, PlanOptions { placement })
    }

    /// Runs a plan and looks at the bytes behind its tensors.
    pub fn run(&mut self, plan: &mut Plan) -> Result<()> {
        plan.run(&mut self.backend)?;
        match self.is_apart() {
            true => plan.check_sentinels(),
            false => Ok(()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = if self.is_metal { "MTL0" } else { "CPU" };
        write!(f, "{device} {:?}", self.placement)
    }
}

/// Every device with every placement.
pub fn everywhere() -> impl Iterator<Item = Place> {
    devices().into_iter().flat_map(|device| {
        PLACEMENTS.map(|placement| Place {
            backend: device.open().unwrap(),
            placement,
            is_metal: device.is_metal(),
        })
    })
}
