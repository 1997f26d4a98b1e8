//! Which types cross threads. What does not is in tests/fail.

use ggml_rs::check::{Comparison, Difference, Mismatch};
use ggml_rs::error::{OpError, Operand, Unsupported};
use ggml_rs::sim::Counters;
use ggml_rs::trace::Dispatch;
use ggml_rs::{
    Assigned, Backend, Cancel, DType, Device, DeviceKind, Error, Fallback, Graph, Input, Memory,
    MemoryUse, Output, Param, Params, ParamsBuilder, Placement, Plan, PlanOptions, Precision,
    Priority, RegistryOptions, Route, Scheduler, Shape, Staging, ThreadPool, ThreadPoolOptions,
};

fn send<T: Send + 'static>() {}
fn shared<T: Send + Sync + 'static>() {}

/// One owner at a time, on any thread.
#[test]
fn owners_move() {
    send::<Backend>();
    send::<Scheduler>();
    send::<Graph>();
    send::<Plan>();
    send::<ParamsBuilder>();
}

#[test]
fn handles_and_values_are_shared() {
    shared::<Device>();
    shared::<Params>();
    shared::<Param>();
    shared::<ThreadPool>();
    shared::<Cancel>();
    shared::<Input>();
    shared::<Output>();
    shared::<Error>();
    shared::<OpError>();
    shared::<Operand>();
    shared::<Unsupported>();
    shared::<DType>();
    shared::<Shape>();
    shared::<DeviceKind>();
    shared::<Memory>();
    shared::<MemoryUse>();
    shared::<Assigned>();
    shared::<Fallback>();
    shared::<Placement>();
    shared::<PlanOptions>();
    shared::<Priority>();
    shared::<ThreadPoolOptions>();
    shared::<RegistryOptions>();
    shared::<Precision>();
    shared::<Route>();
    shared::<Staging>();
    shared::<Dispatch>();
    shared::<Counters>();
    shared::<Comparison>();
    shared::<Difference>();
    shared::<Mismatch>();
}
