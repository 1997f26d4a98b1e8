// Two runs at once on one scheduler.
use ggml_rs::{Plan, Scheduler};

fn both(first: &mut Plan, second: &mut Plan, scheduler: &mut Scheduler) {
    std::thread::scope(|scope| {
        scope.spawn(|| first.run(scheduler));
        scope.spawn(|| second.run(scheduler));
    });
}

fn main() {}
