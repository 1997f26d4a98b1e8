// A node may not take operands from two graphs.
use ggml_rs::{DType, Graph};

fn main() {
    let _ = Graph::build(|outer| {
        let (a, _) = outer.input("a", DType::F32, [4])?;
        Graph::build(|inner| {
            let (b, _) = inner.input("b", DType::F32, [4])?;
            inner.output("y", b.add(a)?)
        })
    });
}
