// As would one stored in a variable outside.
use ggml_rs::{DType, Graph};

fn main() {
    let mut outside = None;
    let _ = Graph::build(|g| {
        outside = Some(g.input("a", DType::F32, [4])?.0);
        Ok(())
    });
}
