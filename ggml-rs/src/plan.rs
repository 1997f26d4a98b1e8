//! Plans: a graph with memory on a device.
use crate::{
    backend::Backend,
    error::Result,
    graph::{Graph, Input, Output},
    trace::Dispatch,
};
/// Where a plan puts its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// In pooled buffers that ggml's allocator reuses.
    #[default]
    Pooled,
    /// Every tensor in a buffer of its own, followed by watched bytes.
    Separate {
        /// How many bytes are watched behind each tensor.
        sentinel_bytes: usize,
    },
}
/// How a plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanOptions {
    /// Where its tensors lie.
    pub placement: Placement,
}
/// A graph allocated on a device, ready to run.
#[derive(Debug)]
pub struct Plan(());
impl Plan {
    /// Checks that the backend's device runs every node, and allocates.
    pub fn new(graph: Graph, backend: &Backend, options: PlanOptions) -> Result<Self> {
        let _ = (graph, backend, options);
        unimplemented!()
    }
    /// Sets an input from f32 values, converted to the input's type (f16, bf16 and quantized types are rounded).
    pub fn set_f32(&mut self, input: &Input, values: &[f32]) -> Result<()> {
        let _ = (input, values);
        unimplemented!()
    }
    /// Sets an input from the bytes of its type.
    pub fn set_bytes(&mut self, input: &Input, bytes: &[u8]) -> Result<()> {
        let _ = (input, bytes);
        unimplemented!()
    }
    /// Runs the graph.
    pub fn run(&mut self, backend: &mut Backend) -> Result<()> {
        let _ = backend;
        unimplemented!()
    }
    /// Runs the graph and returns what was dispatched (empty on devices without a trace).
    pub fn run_traced(&mut self, backend: &mut Backend) -> Result<Vec<Dispatch>> {
        let _ = backend;
        unimplemented!()
    }
    /// Reads an output as f32 (converted from f16, bf16 and quantized types).
    pub fn read_f32(&self, output: &Output) -> Result<Vec<f32>> {
        let _ = output;
        unimplemented!()
    }
    /// Reads an output's bytes.
    pub fn read_bytes(&self, output: &Output) -> Result<Vec<u8>> {
        let _ = output;
        unimplemented!()
    }
    /// Checks the watched bytes behind every tensor; the error names the tensor that was overrun.
    pub fn check_sentinels(&self) -> Result<()> {
        unimplemented!()
    }
}
