// Two runs at once on one backend.
use ggml_rs::{Backend, Plan, Result};

fn both(first: &mut Plan, second: &mut Plan, backend: &mut Backend) -> Result<()> {
    std::thread::scope(|scope| {
        scope.spawn(|| first.run(backend));
        scope.spawn(|| second.run(backend));
    });
    Ok(())
}

fn main() {}
