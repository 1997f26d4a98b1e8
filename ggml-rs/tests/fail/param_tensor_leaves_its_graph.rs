// A parameter outlives its graphs, the tensor that a graph has of it does not.
use ggml_rs::{Graph, Param};

fn take(param: &Param) {
    let _ = Graph::build(|g| Ok(g.param(param)?));
}

fn main() {}
