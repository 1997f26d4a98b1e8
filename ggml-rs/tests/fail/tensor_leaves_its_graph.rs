// A tensor returned from the closure would outlive the builder.
use ggml_rs::{DType, Graph};

fn main() {
    let _ = Graph::build(|g| Ok(g.input("a", DType::F32, [4])?.0));
}
