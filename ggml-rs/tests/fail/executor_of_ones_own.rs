// What a plan runs on is not for others to define: it vouches for devices.
use ggml_rs::Executor;

struct Mine;

impl Executor for Mine {}

fn main() {}
