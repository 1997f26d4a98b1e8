//! An interpreter of finished graphs in double precision.
//!
//! It computes what ggml defines, not what a device makes of it: nothing is rounded to a node's type, and sums are in f64.
//! The definitions are written from ggml's CPU kernels and compared with them by tests, op by op.
//!
//! ```
//! use ggml_rs::check::Interpreter;
//! use ggml_rs::{DType, Graph};
//!
//! let (graph, (a, b, y)) = Graph::build(|g| {
//!     let (a, a_in) = g.input("a", DType::F32, [2])?;
//!     let (b, b_in) = g.input("b", DType::F32, [2])?;
//!     Ok((a_in, b_in, g.output("y", a.mul(b)?.sum()?)?))
//! })?;
//! let mut reference = Interpreter::new(&graph)?;
//! reference.set(&a, &[1.0, 1e-9])?;
//! reference.set(&b, &[1.0, 1.0])?;
//! reference.run()?;
//! assert_eq!(reference.read(&y)?, [1.0 + 1e-9]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```

mod attention;
mod call;
mod conv;
mod convolve;
mod elementwise;
mod glu;
mod image;
mod machine;
mod matmul;
mod memory;
mod norm;
mod ops;
mod optimizer;
mod recurrent;
mod reduce;
mod rope;
mod rows;
mod shape;
mod site;
mod softmax;
mod streams;
#[cfg(test)]
mod tests;
mod triangle;
mod window;

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, OpError, Result};
use crate::graph::{Graph, Input, Output};
use crate::params::Param;
use crate::quantize::{dequantize, quantize};
use machine::Machine;
pub use site::Site;

/// A graph with memory in double precision.
///
/// Memory starts as NaN and stays from one run to the next, as a [`Plan`](crate::Plan)'s does: what an op writes in place
/// is there in the next run.
pub struct Interpreter<'a> {
    graph: &'a Graph,
    machine: Machine,
    /// Which inputs have values.
    set: Vec<bool>,
    /// Which of the graph's parameters have values.
    params_set: Vec<bool>,
    finished: bool,
}

impl<'a> Interpreter<'a> {
    /// Prepares a graph. Nothing is computed yet.
    ///
    /// Parameters have the values that they have now. What the graph writes to them stays in here.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the first node whose op has no definition here; [`Error::DType`] for a parameter whose type
    /// does not convert to f32; [`Error::Alloc`] for a graph of more than 2<sup>28</sup> values, which would take 2 GiB.
    pub fn new(graph: &'a Graph) -> Result<Self> {
        let mut prepared = Self {
            graph,
            // SAFETY: the graph keeps its tensors alive.
            machine: unsafe { Machine::new(graph.tensors()) }?,
            set: vec![false; graph.input_count()],
            params_set: vec![false; graph.params().len()],
            finished: false,
        };
        for (index, leaf) in graph.params().iter().enumerate() {
            // One without values may get them from `set_param`.
            if let Ok(bytes) = leaf.param.read_bytes() {
                let values = widened(leaf.param.dtype(), &bytes)?;
                prepared.machine.set(leaf.tensor, &values)?;
                prepared.params_set[index] = true;
            }
        }
        Ok(prepared)
    }

    /// Sets a parameter from values in ne order, here and not in the parameter itself.
    ///
    /// # Errors
    /// As [`Interpreter::set`], for a parameter that the graph does not use.
    #[track_caller]
    pub fn set_param(&mut self, param: &Param, values: &[f64]) -> Result<()> {
        const CALL: &str = "Interpreter::set_param";
        let index = self.param(CALL, param)?;
        check_count(CALL, values.len(), param.shape().elements())?;
        self.machine
            .set(self.graph.params()[index].tensor, values)?;
        self.params_set[index] = true;
        Ok(())
    }

    /// A parameter's values in ne order, as they are here: after a run, with what the graph wrote.
    ///
    /// # Errors
    /// [`Error::Param`] for a parameter that the graph does not use.
    #[track_caller]
    pub fn read_param(&self, param: &Param) -> Result<Vec<f64>> {
        let index = self.param("Interpreter::read_param", param)?;
        self.machine.read(self.graph.params()[index].tensor)
    }

    /// Which of the graph's parameters it is.
    #[track_caller]
    fn param(&self, call: &'static str, param: &Param) -> Result<usize> {
        let mut leaves = self.graph.params().iter();
        leaves
            .position(|leaf| leaf.param.key() == param.key())
            .ok_or_else(|| {
                let detail = format!("the graph does not use the parameter `{}`", param.name());
                Error::Param(OpError::new(call, detail, Vec::new()))
            })
    }

    /// Sets an input from values in ne order, which are not rounded, whatever the input's type.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many values as elements; [`Error::Param`] for a token of another graph.
    #[track_caller]
    pub fn set(&mut self, input: &Input, values: &[f64]) -> Result<()> {
        const CALL: &str = "Interpreter::set";
        let tensor = self.graph.input(CALL, input)?;
        check_count(CALL, values.len(), input.shape().elements())?;
        self.machine.set(tensor, values)?;
        self.set[input.index()] = true;
        Ok(())
    }

    /// Sets an input from `f32` values rounded to the input's type, as [`Plan::set_f32`](crate::Plan::set_f32) does.
    ///
    /// # Errors
    /// As [`Interpreter::set`]; [`Error::DType`] for a type that f32 values do not convert to.
    #[track_caller]
    pub fn set_f32(&mut self, input: &Input, values: &[f32]) -> Result<()> {
        let rounded = match input.dtype() {
            DType::F32 => values.to_vec(),
            dtype => dequantize(dtype, &quantize(dtype, values, input.shape().ne()[0])?)?,
        };
        self.set(
            input,
            &rounded.into_iter().map(f64::from).collect::<Vec<_>>(),
        )
    }

    /// Sets an input of integers.
    ///
    /// # Errors
    /// As [`Interpreter::set`].
    #[track_caller]
    pub fn set_i32(&mut self, input: &Input, values: &[i32]) -> Result<()> {
        self.set(
            input,
            &values.iter().copied().map(f64::from).collect::<Vec<_>>(),
        )
    }

    /// Sets an input from bytes of its type, as [`Plan::set_bytes`](crate::Plan::set_bytes) does: quantized blocks are
    /// dequantized.
    ///
    /// # Errors
    /// As [`Interpreter::set`]; [`Error::DType`] for a type that does not convert to f32.
    #[track_caller]
    pub fn set_bytes(&mut self, input: &Input, bytes: &[u8]) -> Result<()> {
        self.set(input, &widened(input.dtype(), bytes)?)
    }

    /// Computes every node, in the order in which they were written.
    ///
    /// # Errors
    /// [`Error::Param`] when an input or a parameter has no values.
    #[track_caller]
    pub fn run(&mut self) -> Result<()> {
        self.start(None)
    }

    /// Computes every node as [`Interpreter::run`] does, while `change` changes what each reads and what it writes.
    ///
    /// With errors of the size of a device's rounding, results spread as far as the device's may lie from the exact ones.
    ///
    /// # Errors
    /// As [`Interpreter::run`].
    #[doc(hidden)]
    #[track_caller]
    pub fn run_changed(&mut self, change: &dyn Fn(&Site<'_>, &mut [f64])) -> Result<()> {
        self.start(Some(change))
    }

    #[track_caller]
    fn start(&mut self, change: Option<site::Change<'_>>) -> Result<()> {
        let input = self.set.iter().position(|set| !set);
        let input = input.map(|index| self.graph.input_name(index));
        let param = self.params_set.iter().position(|set| !set);
        let param = param.map(|index| self.graph.params()[index].param.name().to_owned());
        if let Some(name) = input.or(param) {
            let detail = format!("`{name}` has no values: set it first");
            return Err(Error::Param(OpError::new(
                "Interpreter::run",
                detail,
                Vec::new(),
            )));
        }
        self.machine.run(change)?;
        self.finished = true;
        Ok(())
    }

    /// An output's values in ne order.
    ///
    /// # Errors
    /// [`Error::Param`] before a run has finished, and for a token of another graph.
    #[track_caller]
    pub fn read(&self, output: &Output) -> Result<Vec<f64>> {
        const CALL: &str = "Interpreter::read";
        let tensor = self.graph.output(CALL, output)?;
        if !self.finished {
            let detail = "no run has finished: call run() first";
            return Err(Error::Param(OpError::new(CALL, detail, Vec::new())));
        }
        self.machine.read(tensor)
    }
}

impl fmt::Debug for Interpreter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreter")
            .field("graph", &self.graph)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

/// Sets a graph's inputs, computes it, and returns one output in ne order.
///
/// # Errors
/// As [`Interpreter`]'s methods.
#[track_caller]
pub fn evaluate(graph: &Graph, inputs: &[(&Input, &[f64])], output: &Output) -> Result<Vec<f64>> {
    let mut interpreter = Interpreter::new(graph)?;
    for (input, values) in inputs {
        interpreter.set(input, values)?;
    }
    interpreter.run()?;
    interpreter.read(output)
}

/// Bytes of a type as values.
#[track_caller]
fn widened(dtype: DType, bytes: &[u8]) -> Result<Vec<f64>> {
    Ok(match dtype {
        // The bytes may lie anywhere.
        DType::I8 => bytemuck::pod_collect_to_vec::<u8, i8>(bytes)
            .into_iter()
            .map(f64::from)
            .collect(),
        DType::I16 => bytemuck::pod_collect_to_vec::<u8, i16>(bytes)
            .into_iter()
            .map(f64::from)
            .collect(),
        DType::I32 => bytemuck::pod_collect_to_vec::<u8, i32>(bytes)
            .into_iter()
            .map(f64::from)
            .collect(),
        DType::I64 => bytemuck::pod_collect_to_vec::<u8, i64>(bytes)
            .into_iter()
            .map(|value| value as f64)
            .collect(),
        _ => dequantize(dtype, bytes)?
            .into_iter()
            .map(f64::from)
            .collect(),
    })
}

#[track_caller]
fn check_count(call: &'static str, values: usize, elements: usize) -> Result<()> {
    if values == elements {
        return Ok(());
    }
    let detail = format!("{values} values for {elements} elements");
    Err(Error::Shape(OpError::new(call, detail, Vec::new())))
}
