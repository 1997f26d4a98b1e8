//! Ops computed by closures. They run on the CPU alone, and have no gradient.
//!
//! A closure is called on ggml's threads, once for each part of the result: a [`CustomTask`] owns some rows of the result,
//! and looks at the whole of every operand. Parts are apart, so closures need no locks to write.
//!
//! A panic in a closure does not cross ggml: the run goes on with what the result holds, and the panic continues in
//! [`Plan::run`](crate::Plan::run) after ggml has returned. The backend stays usable, and the plan can run again.
//!
//! ```
//! use ggml_rs::{CustomTask, DType, Device, Graph, Plan, PlanOptions, Tasks};
//!
//! let (graph, (x, y)) = Graph::build(|g| {
//!     let (x, x_in) = g.input("x", DType::F32, [3, 2])?;
//!     // Each row backwards.
//!     let y = x.map_custom1(Tasks::Threads, |task: &mut CustomTask<'_>| {
//!         for row in task.rows() {
//!             let from = task.input(0).row::<f32>(row).expect("a row of f32").to_vec();
//!             let to = task.row_mut::<f32>(row).expect("a row of f32");
//!             to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from);
//!         }
//!     })?;
//!     Ok((x_in, g.output("y", y)?))
//! })?;
//! let mut backend = Device::cpu()?.open()?;
//! let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
//! plan.set_f32(&x, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! plan.run(&mut backend)?;
//! assert_eq!(plan.read_f32(&y)?, [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```

mod make;
mod run;
mod task;

pub(crate) use run::CustomOp;
pub use task::{CustomInput, CustomTask, Element};

/// How many calls of a closure make a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tasks {
    /// One, which owns all rows of the result.
    One,
    /// One on each of the backend's threads, each of which owns some rows. A thread without rows is not called.
    #[default]
    Threads,
}
