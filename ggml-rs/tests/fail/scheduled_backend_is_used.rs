// A backend that a scheduler has cannot be used beside it.
use ggml_rs::{Backend, Plan, Result, Scheduler};

fn use_both(plan: &mut Plan, backend: Backend) -> Result<()> {
    let mut backend = backend;
    let mut scheduler = Scheduler::new([backend])?;
    plan.run(&mut scheduler)?;
    plan.run(&mut backend)
}

fn main() {}
