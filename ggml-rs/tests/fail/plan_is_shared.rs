// Two threads with one plan.
use ggml_rs::{Backend, Plan};

fn both(plan: &mut Plan, first: &mut Backend, second: &mut Backend) {
    std::thread::scope(|scope| {
        scope.spawn(|| plan.run(first));
        scope.spawn(|| plan.run(second));
    });
}

fn main() {}
