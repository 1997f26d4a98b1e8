//! Which types cross threads, and which must not. A type that `lib.rs` exports and that is not here fails the last test.

use ggml_rs::check::{
    Comparison, Deviation, Difference, GradientOptions, GradientReport, Mismatch,
};
use ggml_rs::error::{OpError, Operand, Unsupported};
use ggml_rs::sim::Counters;
use ggml_rs::trace::Dispatch;
use ggml_rs::{
    AdamW, Assigned, Backend, BackwardOptions, Builder, Cancel, ConvOptions, CustomInput,
    CustomTask, DType, Device, DeviceKind, Error, ExpertIds, Fallback, FlashAttn, GatedDeltaNet,
    GluOp, Gradients, Graph, Input, Interpolation, Memory, MemoryUse, Output, Param, Params,
    ParamsBuilder, Placement, Plan, PlanOptions, Pool, PoolOptions, Precision, Priority,
    RegistryOptions, Rope, RopeMode, Route, RowIds, RowIdsOptions, RunOptions, RunReport, Scale,
    Scheduler, Shape, SoftMax, SortOrder, SsmScan, Staging, Tasks, Tensor, ThreadPool,
    ThreadPoolOptions, TriPart,
};

fn send<T: Send>() {}
fn shared<T: Send + Sync + 'static>() {}

/// One owner at a time, on any thread.
#[test]
fn owners_move() {
    fn owned<T: Send + 'static>() {}
    owned::<Backend>();
    owned::<Scheduler>();
    owned::<Graph>();
    owned::<Plan>();
    owned::<ParamsBuilder>();
    send::<CustomTask<'_>>();
    send::<CustomInput<'_>>();
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
    shared::<Dispatch>();
    shared::<RunReport>();
    shared::<Counters>();
    shared::<Comparison>();
    shared::<Difference>();
    shared::<Mismatch>();
    shared::<Deviation>();
    shared::<GradientReport>();
}

#[test]
fn options_are_shared() {
    shared::<AdamW>();
    shared::<BackwardOptions>();
    shared::<ConvOptions<2>>();
    shared::<Fallback>();
    shared::<GluOp>();
    shared::<GradientOptions>();
    shared::<Interpolation>();
    shared::<Placement>();
    shared::<PlanOptions>();
    shared::<Pool>();
    shared::<PoolOptions<2>>();
    shared::<Precision>();
    shared::<Priority>();
    shared::<RegistryOptions>();
    shared::<RopeMode>();
    shared::<Route>();
    shared::<RowIdsOptions>();
    shared::<RunOptions<'static>>();
    shared::<Scale>();
    shared::<SortOrder>();
    shared::<Staging>();
    shared::<Tasks>();
    shared::<ThreadPoolOptions>();
    shared::<TriPart>();
}

/// Does not compile where a type is Send, or Sync: the call would be ambiguous.
macro_rules! stays {
    ($($stays:ty),* $(,)?) => {
        $(const _: fn() = || {
            trait Ambiguous<A> {
                fn some() {}
            }
            struct IfSend;
            struct IfSync;
            impl<T: ?Sized> Ambiguous<()> for T {}
            impl<T: ?Sized + Send> Ambiguous<IfSend> for T {}
            impl<T: ?Sized + Sync> Ambiguous<IfSync> for T {}
            <$stays as Ambiguous<_>>::some();
        };)*
    };
}

// What is under construction is for one thread.
stays!(
    Builder<'static>,
    Tensor<'static>,
    Gradients<'static>,
    ExpertIds<'static>,
    RowIds<'static>,
    FlashAttn<'static>,
    GatedDeltaNet<'static>,
    Rope<'static>,
    SoftMax<'static>,
    SsmScan<'static>,
);

#[test]
fn every_exported_type_is_here() {
    // No types of their own: aliases, and traits.
    const OTHERS: &[&str] = &[
        "Result",
        "Executor",
        "Element",
        "IntoShape",
        "Conv1d",
        "Conv2d",
        "Conv3d",
        "Pool1d",
        "Pool2d",
    ];
    let (library, here) = (
        include_str!("../../src/lib.rs"),
        include_str!("send_sync.rs"),
    );
    let exports = library.split("pub use ").skip(1);
    let exports = exports.filter_map(|export| export.split_once(';').map(|(names, _)| names));
    let names = exports.flat_map(|names| names.split(|c: char| !c.is_alphanumeric()));
    let types: Vec<_> = names
        .filter(|name| name.starts_with(char::is_uppercase))
        .filter(|name| !OTHERS.contains(name))
        .collect();
    assert!(types.len() > 50, "{types:?}");
    for name in types {
        let asserted = ["<", "    "].iter().any(|before| {
            [">", "<"]
                .iter()
                .any(|after| here.contains(&format!("{before}{name}{after}")))
        });
        assert!(
            asserted,
            "{name} is asserted neither to cross threads nor to stay"
        );
    }
}
