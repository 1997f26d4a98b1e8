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
use crate::error::{Call, Moved, Result};
use crate::graph::{Graph, Input, Output};
use crate::params::Param;
use crate::quantize::{dequantize, dequantize_checked, quantize_in};
use machine::Machine;
pub use site::Site;

/// A graph with memory in double precision.
///
/// Memory starts as NaN and stays from one run to the next, as a [`Plan`](crate::Plan)'s does: what an op writes in place
/// is there in the next run.
pub struct Interpreter<'a> {
    graph: &'a Graph,
    machine: Machine,
    /// Which inputs have values, or need none.
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
    /// [`Error::Unsupported`](crate::Error::Unsupported) for the first node whose op has no definition here; [`Error::DType`](crate::Error::DType) for a parameter whose type
    /// does not convert to f32; [`Error::Alloc`](crate::Error::Alloc) for a graph of more than 2<sup>28</sup> values, which would take 2 GiB.
    #[track_caller]
    pub fn new(graph: &'a Graph) -> Result<Self> {
        let call = Call::new("Interpreter::new");
        let mut prepared = Self {
            graph,
            // SAFETY: the graph keeps its tensors alive.
            machine: unsafe { Machine::new(graph.tensors()) }?,
            set: graph.needed_inputs().iter().map(|needed| !needed).collect(),
            params_set: vec![false; graph.params().len()],
            finished: false,
        };
        for (index, leaf) in graph.params().iter().enumerate() {
            // One without values may get them from `set_param`.
            if let Ok(bytes) = leaf.param.read_bytes() {
                let values = widened(call, leaf.param.dtype(), &bytes)?;
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
        let call = Call::new("Interpreter::set_param");
        let index = self.param(call, param)?;
        check_count(call, values.len(), param.shape().elements())?;
        self.machine
            .set(self.graph.params()[index].tensor, values)?;
        self.params_set[index] = true;
        Ok(())
    }

    /// A parameter's values in ne order, as they are here: after a run, with what the graph wrote.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for a parameter that the graph does not use.
    #[track_caller]
    pub fn read_param(&self, param: &Param) -> Result<Vec<f64>> {
        let index = self.param(Call::new("Interpreter::read_param"), param)?;
        self.machine.read(self.graph.params()[index].tensor)
    }

    /// Which of the graph's parameters it is.
    fn param(&self, call: Call, param: &Param) -> Result<usize> {
        let mut leaves = self.graph.params().iter();
        leaves
            .position(|leaf| leaf.param.key() == param.key())
            .ok_or_else(|| {
                call.param(format!(
                    "the graph does not use the parameter `{}`",
                    param.name()
                ))
            })
    }

    /// Whether a run reads an input, as [`Plan::needs`](crate::Plan::needs).
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for a token of another graph.
    #[track_caller]
    pub fn needs(&self, input: &Input) -> Result<bool> {
        let call = Call::new("Interpreter::needs");
        self.graph.input(call, input)?;
        Ok(self.graph.needed_inputs()[input.index()])
    }

    /// Sets an input from values in ne order, which are not rounded, whatever the input's type.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless there are as many values as elements; [`Error::Param`](crate::Error::Param) for
    /// a token of another graph, for an input that the graph does not need (as [`Plan::needs`](crate::Plan::needs) says it), and
    /// for ids that name what does not exist, or twice what is to be distinct, as [`Plan::set_i32`](crate::Plan::set_i32) refuses them.
    #[track_caller]
    pub fn set(&mut self, input: &Input, values: &[f64]) -> Result<()> {
        self.put(Call::new("Interpreter::set"), input, values)
    }

    fn put(&mut self, call: Call, input: &Input, values: &[f64]) -> Result<()> {
        let tensor = self.graph.needed_input(call, input)?;
        check_count(call, values.len(), input.shape().elements())?;
        if let Some(rule) = self.graph.id_rule(input) {
            let name = self.graph.input_name(input.index());
            rule.check_values(values, input.shape().ne()[0])
                .map_err(|why| call.param(format!("input `{name}`: {why}")))?;
        }
        self.machine.set(tensor, values)?;
        self.set[input.index()] = true;
        Ok(())
    }

    /// Sets an input from `f32` values rounded to the input's type, as [`Plan::set_f32`](crate::Plan::set_f32) does.
    ///
    /// # Errors
    /// As [`Interpreter::set`]; [`Error::DType`](crate::Error::DType) for a type that f32 values do not convert to.
    #[track_caller]
    pub fn set_f32(&mut self, input: &Input, values: &[f32]) -> Result<()> {
        let call = Call::new("Interpreter::set_f32");
        self.graph.needed_input(call, input)?;
        let rounded = match input.dtype() {
            DType::F32 => values.to_vec(),
            dtype => {
                let row = input.shape().ne()[0];
                dequantize_checked(dtype, &quantize_in(call, dtype, values, row, None)?)?
            }
        };
        let values: Vec<f64> = rounded.into_iter().map(f64::from).collect();
        self.put(call, input, &values)
    }

    /// Sets an input of integers.
    ///
    /// # Errors
    /// As [`Interpreter::set`].
    #[track_caller]
    pub fn set_i32(&mut self, input: &Input, values: &[i32]) -> Result<()> {
        let values: Vec<f64> = values.iter().copied().map(f64::from).collect();
        self.put(Call::new("Interpreter::set_i32"), input, &values)
    }

    /// Sets an input from bytes of its type, as [`Plan::set_bytes`](crate::Plan::set_bytes) does: quantized blocks are
    /// dequantized.
    ///
    /// # Errors
    /// As [`Interpreter::set`]; [`Error::DType`](crate::Error::DType) for a type that does not convert to f32.
    #[track_caller]
    pub fn set_bytes(&mut self, input: &Input, bytes: &[u8]) -> Result<()> {
        let call = Call::new("Interpreter::set_bytes");
        self.graph.needed_input(call, input)?;
        self.put(call, input, &widened(call, input.dtype(), bytes)?)
    }

    /// Computes every node, in the order in which they were written.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) when an input or a parameter has no values.
    #[track_caller]
    pub fn run(&mut self) -> Result<()> {
        self.start(Call::new("Interpreter::run"), None)
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
        self.start(Call::new("Interpreter::run_changed"), Some(change))
    }

    fn start(&mut self, call: Call, change: Option<site::Change<'_>>) -> Result<()> {
        let input = self.set.iter().position(|set| !set);
        let input = input.map(|index| self.graph.input_name(index));
        let param = self.params_set.iter().position(|set| !set);
        let param = param.map(|index| self.graph.params()[index].param.name().to_owned());
        if let Some(name) = input.or(param) {
            return Err(call.param(format!("`{name}` has no values: set it first")));
        }
        self.machine.run(change)?;
        self.finished = true;
        Ok(())
    }

    /// An output's values in ne order.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) before a run has finished, and for a token of another graph.
    #[track_caller]
    pub fn read(&self, output: &Output) -> Result<Vec<f64>> {
        self.take(Call::new("Interpreter::read"), output)
    }

    fn take(&self, call: Call, output: &Output) -> Result<Vec<f64>> {
        let tensor = self.graph.output(call, output)?;
        if !self.finished {
            return Err(call.param("no run has finished: call run() first"));
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
    let call = Call::new("evaluate");
    let mut interpreter = Interpreter::new(graph)?;
    for (input, values) in inputs {
        interpreter.put(call, input, values)?;
    }
    interpreter.start(call, None)?;
    interpreter.take(call, output)
}

/// Bytes of a type as values.
fn widened(call: Call, dtype: DType, bytes: &[u8]) -> Result<Vec<f64>> {
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
        _ => dequantize(dtype, bytes)
            .moved_to(call.at)?
            .into_iter()
            .map(f64::from)
            .collect(),
    })
}

fn check_count(call: Call, values: usize, elements: usize) -> Result<()> {
    if values == elements {
        return Ok(());
    }
    let detail = format!("{values} values for {elements} elements");
    Err(call.shape(detail))
}
