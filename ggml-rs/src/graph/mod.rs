//! Graphs: built in a closure, owned afterwards, run through a [`Plan`](crate::Plan).
//!
//! ```
//! use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
//!
//! // y = a · bᵀ, summed over the second dimension of both.
//! let (graph, (a, b, y)) = Graph::build(|g| {
//!     let (a, a_in) = g.input("a", DType::F32, [2, 3])?;
//!     let (b, b_in) = g.input("b", DType::F32, [4, 3])?;
//!     let y = g.output("y", a.out_prod(b)?)?;
//!     Ok((a_in, b_in, y))
//! })?;
//!
//! let mut backend = Device::cpu()?.open()?;
//! let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
//! plan.set_f32(&a, &[1.0; 6])?;
//! plan.set_f32(&b, &[2.0; 12])?;
//! plan.run(&mut backend)?;
//! assert_eq!(plan.read_f32(&y)?, [6.0; 8]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```

mod arena;
pub mod backward;
mod builder;
mod experts;
mod ids;
pub(crate) mod node;
mod op;
pub(crate) mod ops;
mod tensor;

use std::collections::HashMap;
use std::fmt;
use std::mem::forget;
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::Arc;

use ggml_sys as sys;

pub(crate) use arena::{Arena, Context};
pub(crate) use backward::has_backward;
pub use backward::{BackwardOptions, Gradients};
pub use builder::Builder;
pub(crate) use builder::{Leaf, checked_name, expand};
pub use experts::ExpertIds;
pub(crate) use ids::IdRule;
pub use ids::{RowIds, RowIdsOptions};
pub use ops::inplace;
pub use ops::{
    AdamW, Conv1d, Conv2d, Conv3d, ConvOptions, CustomInput, CustomTask, Element, FlashAttn,
    GatedDeltaNet, GluOp, Interpolation, Pool, Pool1d, Pool2d, PoolOptions, Precision, Rope,
    RopeMode, Route, Scale, SoftMax, SortOrder, SsmScan, Staging, Tasks, TriPart,
};
pub use tensor::Tensor;

use crate::dtype::DType;
use crate::error::{Call, Result};
use crate::graph::builder::Core;
use crate::graph::ops::CustomOp;
use crate::inside::Run;
use crate::runtime;
use crate::shape::Shape;

/// A finished graph: its tensors' descriptions, without memory for their values.
///
/// A graph owns everything it refers to, so it can be stored and sent to another thread.
pub struct Graph {
    id: u64,
    // Keeps every tensor and the cgraph alive.
    _contexts: Vec<Context>,
    cgraph: NonNull<sys::ggml_cgraph>,
    tensors: Vec<NonNull<sys::ggml_tensor>>,
    inputs: Vec<NonNull<sys::ggml_tensor>>,
    /// Which inputs are among the tensors, and so have memory.
    needed_inputs: Vec<bool>,
    outputs: Vec<NonNull<sys::ggml_tensor>>,
    /// What the values of an input of ids keep to, by its index.
    ids: HashMap<usize, IdRule>,
    /// The parameters that its tensors refer to.
    params: Vec<Leaf>,
    /// The closures that nodes call.
    custom: Vec<Arc<CustomOp>>,
}

// SAFETY: a graph owns the memory behind all of its pointers, and ggml ties none of it to a thread.
unsafe impl Send for Graph {}

impl Graph {
    /// Runs `build` on an empty graph and finishes the graph from what it declared as outputs.
    ///
    /// Nodes run in the order in which they were written. Kept is what an output depends on, and every node that writes to
    /// memory which outlives a run, with what it depends on: an optimizer's step, and any other write to a parameter
    /// or to an input. An input that nothing of this reads has no values ([`Plan::needs`](crate::Plan::needs)).
    ///
    /// Tensors cannot leave the closure or enter another graph: both are compile errors. Return the [`Input`] and [`Output`]
    /// tokens instead.
    ///
    /// # Errors
    /// Whatever `build` returns; [`Error::Param`](crate::Error::Param) when there is no output, and nothing else to keep; [`Error::Alloc`](crate::Error::Alloc).
    #[track_caller]
    pub fn build<R>(build: impl for<'g> FnOnce(Builder<'g>) -> Result<R>) -> Result<(Self, R)> {
        let call = Call::new("Graph::build");
        runtime::ready()?;
        let core = Core::new();
        let tokens = build(Builder::new(&core))?;
        Ok((core.finish(call)?, tokens))
    }

    /// The number of nodes that compute or view; inputs do not count.
    #[doc(alias = "ggml_graph_n_nodes")]
    pub fn nodes(&self) -> usize {
        // Not ggml's count, which has trainable inputs among the nodes.
        let is_node = |tensor: &&NonNull<sys::ggml_tensor>| {
            // SAFETY: the graph keeps its tensors alive.
            unsafe { tensor.as_ref() }.op != sys::GGML_OP_NONE
        };
        self.tensors.iter().filter(is_node).count()
    }

    /// The parameters that its tensors refer to.
    pub(crate) fn params(&self) -> &[Leaf] {
        &self.params
    }

    /// The parameter in whose memory a tensor of this graph lies.
    pub(crate) fn param_of(&self, tensor: NonNull<sys::ggml_tensor>) -> Option<&Leaf> {
        // SAFETY: the graph keeps its tensors alive.
        let base = unsafe { node::base(tensor) };
        self.params.iter().find(|leaf| leaf.tensor == base)
    }

    /// Every tensor of the graph, each after those it depends on.
    pub(crate) fn tensors(&self) -> &[NonNull<sys::ggml_tensor>] {
        &self.tensors
    }

    pub(crate) fn cgraph(&self) -> NonNull<sys::ggml_cgraph> {
        self.cgraph
    }

    /// Which inputs a run reads, by their index.
    pub(crate) fn needed_inputs(&self) -> &[bool] {
        &self.needed_inputs
    }

    /// What an input's values keep to, where they are ids.
    pub(crate) fn id_rule(&self, input: &Input) -> Option<IdRule> {
        self.ids.get(&input.index()).copied()
    }

    /// Continues the first panic of a closure since the last call.
    pub(crate) fn resume_panic(&self) {
        // All are asked, so that none is left for a later run.
        let mut panics = self.custom.iter().filter_map(|op| op.take_panic());
        let first = panics.next();
        // Dropping one could panic again, while the first one passes.
        panics.for_each(forget);
        if let Some(first) = first {
            resume_unwind(first);
        }
    }

    /// Tells the closures which run calls them, until the result is dropped. `run` is asked where there are closures.
    pub(crate) fn running(&self, run: impl FnOnce() -> Run) -> Running<'_> {
        if !self.custom.is_empty() {
            let run = Arc::new(run());
            for op in &self.custom {
                op.set_run(Some(Arc::clone(&run)));
            }
        }
        Running(&self.custom)
    }

    /// An input's name.
    pub(crate) fn input_name(&self, index: usize) -> String {
        // SAFETY: the graph keeps its tensors alive.
        self.inputs
            .get(index)
            .map(|&tensor| unsafe { node::name(tensor) })
            .unwrap_or_default()
    }

    /// The tensor of an input token.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for a token of another graph.
    pub(crate) fn input(&self, call: Call, token: &Input) -> Result<NonNull<sys::ggml_tensor>> {
        self.resolve(call, &token.0, &self.inputs)
    }

    /// The tensor of an input token, of one that has memory.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for a token of another graph, and for an input that nothing reads.
    pub(crate) fn needed_input(
        &self,
        call: Call,
        token: &Input,
    ) -> Result<NonNull<sys::ggml_tensor>> {
        let tensor = self.input(call, token)?;
        if self.needed_inputs[token.index()] {
            return Ok(tensor);
        }
        Err(call.param(format!(
            "no output depends on input `{}`, so that its values have no effect: declare what needs it with Builder::output, or leave it out (an op that takes its shape alone needs no values; Plan::needs tells)",
            self.input_name(token.index())
        )))
    }

    /// What is wrong with an output, with its name.
    pub(crate) fn about_output(&self, output: NonNull<sys::ggml_tensor>, why: &str) -> String {
        // SAFETY: the graph keeps its tensors alive.
        format!("output `{}`: {why}", unsafe { node::name(output) })
    }

    /// The tensor of an output token.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for a token of another graph.
    pub(crate) fn output(&self, call: Call, token: &Output) -> Result<NonNull<sys::ggml_tensor>> {
        self.resolve(call, &token.0, &self.outputs)
    }

    fn resolve(
        &self,
        call: Call,
        token: &Token,
        of: &[NonNull<sys::ggml_tensor>],
    ) -> Result<NonNull<sys::ggml_tensor>> {
        let tensor = of.get(token.index).filter(|_| token.graph == self.id);
        tensor
            .copied()
            .ok_or_else(|| call.param("the token belongs to another graph"))
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("nodes", &self.nodes())
            .field("inputs", &self.inputs.len())
            .field("outputs", &self.outputs.len())
            .finish_non_exhaustive()
    }
}

/// See [`Graph::running`].
pub(crate) struct Running<'g>(&'g [Arc<CustomOp>]);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        for op in self.0 {
            op.set_run(None);
        }
    }
}

/// What both kinds of tokens hold: which tensor of which graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Token {
    graph: u64,
    index: usize,
    dtype: DType,
    shape: Shape,
}

/// Names an input of a graph after it was built: [`Plan::set_f32`](crate::Plan::set_f32) takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Input(Token);

impl Input {
    /// Its data type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.0.shape
    }

    /// Its place among the graph's inputs.
    pub(crate) fn index(&self) -> usize {
        self.0.index
    }
}

/// Names an output of a graph after it was built: [`Plan::read_f32`](crate::Plan::read_f32) takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Output(Token);

impl Output {
    /// Its data type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        self.0.shape
    }
}
