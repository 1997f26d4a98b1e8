// The builder is for one thread.
use ggml_rs::{DType, Graph};

fn main() {
    let _ = Graph::build(|g| {
        std::thread::scope(|scope| {
            scope.spawn(|| g.input("a", DType::F32, [4]).is_ok());
        });
        Ok(())
    });
}
