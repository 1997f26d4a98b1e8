//! Gradients: the nodes that compute them, appended to a graph under construction.
//!
//! ```
//! use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
//!
//! // loss = sum((w · x)²): the gradient of w is 2 (w · x) xᵀ.
//! let (graph, (w, x, dw)) = Graph::build(|g| {
//!     let (w, w_in) = g.input("w", DType::F32, [2, 1])?;
//!     let (x, x_in) = g.input("x", DType::F32, [2, 1])?;
//!     let w = w.set_param()?;
//!     let y = w.mul_mat(x)?;
//!     let loss = y.mul(y)?.sum()?;
//!     let gradients = g.backward(loss)?;
//!     Ok((w_in, x_in, g.output("dw", gradients.of(w)?)?))
//! })?;
//!
//! let mut backend = Device::cpu()?.open()?;
//! let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
//! plan.set_f32(&w, &[1.0, 2.0])?;
//! plan.set_f32(&x, &[3.0, 4.0])?;
//! plan.run(&mut backend)?;
//! assert_eq!(plan.read_f32(&dw)?, [66.0, 88.0]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```
//!
//! Gradients are F32, whatever lies between: F32 is cast to F16 or BF16 and back, and products take frozen weights of every type. An op
//! without a backward is an error that names it, before anything is made.
//!
//! What a backward makes runs on every device, but for the gradients of `get_rows` from one matrix (an embedding), of `pool_2d`,
//! of `im2col` and of `diag_mask_inf` and `diag_mask_zero`, which the CPU alone computes.

mod check;
mod engine;
mod grad;
mod gradients;
mod recompute;
mod rules;
mod writes;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::{Builder, Route, Staging, Tensor};
use crate::dtype::DType;
use crate::error::{Call, Checked, Moved, Placed, Refused, Result, here};
use crate::layout::Refusal;

pub(crate) use rules::has_backward;

/// A tensor of ggml's that the builder keeps alive.
type Raw = NonNull<sys::ggml_tensor>;

/// How [`Builder::backward_with`] makes its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackwardOptions {
    /// The staging of every product that the backward makes. `None` is [`Staging::Float`]: gradients overflow half precision.
    pub staging: Option<Staging>,
    /// The route of every OUT_PROD that the backward makes: [`Route::Auto`] or [`Route::Direct`]. `None` is [`Route::Auto`].
    pub route: Option<Route>,
    /// Whether what [`Builder::checkpoint`] marks is computed again instead of kept.
    pub recompute: bool,
}

impl Default for BackwardOptions {
    fn default() -> Self {
        Self {
            staging: None,
            route: None,
            recompute: true,
        }
    }
}

impl BackwardOptions {
    /// The same with this staging.
    #[must_use]
    pub fn staging(mut self, staging: impl Into<Option<Staging>>) -> Self {
        self.staging = staging.into();
        self
    }

    /// The same with this route.
    #[must_use]
    pub fn route(mut self, route: impl Into<Option<Route>>) -> Self {
        self.route = route.into();
        self
    }

    /// The same with or without recomputing.
    #[must_use]
    pub fn recompute(mut self, recompute: bool) -> Self {
        self.recompute = recompute;
        self
    }
}

/// The gradients of one loss, by the tensor that they belong to.
pub struct Gradients<'g> {
    builder: Builder<'g>,
    by_param: HashMap<Raw, Raw>,
}

impl<'g> Gradients<'g> {
    /// The gradient of a marked tensor: F32, of its shape.
    ///
    /// It may be a permuted view: call [`Tensor::cont`] before [`Builder::output`] where it is.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for a tensor that is not marked with [`Tensor::set_param`], was marked after the backward, or
    /// that the loss does not depend on.
    #[doc(alias = "ggml_graph_get_grad")]
    #[track_caller]
    pub fn of(&self, tensor: Tensor<'g>) -> Result<Tensor<'g>> {
        let at = here();
        let gradient = self.find(tensor).at(at)?;
        Tensor::new(gradient, self.builder)
    }

    fn find(&self, tensor: Tensor<'g>) -> Checked<Raw> {
        let gradient = self.by_param.get(&tensor.ptr());
        gradient.copied().ok_or_else(|| {
            Refusal {
                op: "gradient",
                operands: &[("of", tensor.layout())],
            }
            .param("the tensor was not marked with set_param before, or the loss does not depend on it")
        })
    }

    /// Adds the gradient of `tensor` to `into`, in place: sums over runs, where `into` is an input that keeps its values.
    ///
    /// Returns the sum. Where `into` is an input, a parameter or a view of one, the addition runs whether an output depends on it or
    /// not.
    ///
    /// # Errors
    /// As [`Gradients::of`] and [`Tensor::add_inplace`]; [`Error::Shape`](crate::Error::Shape) or [`Error::DType`](crate::Error::DType) unless `into` is F32 and has the shape
    /// of `tensor`.
    #[doc(alias = "ggml_add_inplace")]
    #[track_caller]
    pub fn accumulate(&self, tensor: Tensor<'g>, into: Tensor<'g>) -> Result<Tensor<'g>> {
        let at = here();
        let gradient = self.of(tensor)?;
        let operands = [("into", into.layout()), ("gradient", gradient.layout())];
        let refusal = Refusal {
            op: "accumulate",
            operands: &operands,
        };
        if into.shape() != gradient.shape() {
            return Err(refusal.shape("both must have the same shape").at(at));
        }
        if into.dtype() != DType::F32 {
            return Err(refusal.dtype("gradients are summed in f32").at(at));
        }
        let gradient = match gradient.is_contiguous() {
            true => gradient,
            false => gradient.cont()?,
        };
        into.add_inplace(gradient)
    }

    /// How many marked tensors have a gradient.
    pub fn len(&self) -> usize {
        self.by_param.len()
    }

    /// Whether there is none, which a successful backward never returns.
    pub fn is_empty(&self) -> bool {
        self.by_param.is_empty()
    }
}

impl fmt::Debug for Gradients<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gradients")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Tensor<'_> {
    /// Marks an input as trainable: a [`Builder::backward`] after this gives it a gradient.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless it is F32; [`Error::Param`](crate::Error::Param) for the result of an op.
    #[doc(alias = "ggml_set_param")]
    #[track_caller]
    pub fn set_param(self) -> Result<Self> {
        let at = here();
        let operands = [("tensor", self.layout())];
        let refusal = Refusal {
            op: "set_param",
            operands: &operands,
        };
        if self.dtype() != DType::F32 {
            return Err(refusal.dtype("only an f32 tensor is trained").at(at));
        }
        // SAFETY: the builder's tensors are alive.
        let op = unsafe { self.ptr().as_ref() }.op;
        if op != sys::GGML_OP_NONE {
            return Err(refusal
                .param("only an input can be marked, not the result of an op")
                .at(at));
        }
        // SAFETY: the tensor is alive, and its op is the one that ggml_set_param asserts.
        unsafe { sys::ggml_set_param(self.as_ptr()) };
        Ok(self)
    }
}

impl<'g> Builder<'g> {
    /// Appends the nodes that compute the gradients of `loss` for every marked tensor that it depends on.
    ///
    /// # Errors
    /// As [`Builder::backward_with`].
    #[doc(alias = "ggml_build_backward_expand")]
    #[track_caller]
    pub fn backward(self, loss: Tensor<'g>) -> Result<Gradients<'g>> {
        self.backward_with(loss, BackwardOptions::default())
    }

    /// As [`Builder::backward`], with options.
    ///
    /// `loss` is one F32 element, whose own gradient is 1. A graph may have several backwards. Nodes between the marked tensors
    /// and the loss are checked before any node is made, so a refused backward leaves the graph as it was.
    ///
    /// The backward reads values of the forward again. It is refused where a write in place (`cpy`, `set_rows`, an in-place op or
    /// an optimizer's step written before this call) may have changed such a value, or where a value comes from memory that was
    /// written through another tensor, whose gradient would be lost.
    ///
    /// Memory beyond results and gradients: `mul_mat_id` takes `m * rows * experts` floats for the gradient of its experts (`m` results
    /// for each of `rows` chosen experts), and for that of its activations a float copy of all experts, transposed, or two where they
    /// are not F32. `add_id`, and `get_rows` from several matrices, take ids times rows floats several times, `rows` of what the
    /// ids choose from.
    ///
    /// The gradients of `add_id`, and of `get_rows` from several matrices, are products with zeros and ones: an infinity in one row of
    /// the result's gradient is NaN in the rows that other ids chose, or none. For `mul_mat_id` the same goes for an infinity in the
    /// activations, in all experts. At the bounds of `clamp`, and of units that clamp, the slope is 1.
    ///
    /// # Errors
    /// [`Error::NotDifferentiable`](crate::Error::NotDifferentiable) for a node without a backward, with the node and a way out where there is one;
    /// [`Error::Shape`](crate::Error::Shape) and [`Error::DType`](crate::Error::DType) for a loss that is not one F32 element; [`Error::Param`](crate::Error::Param) when it depends on no marked
    /// tensor, for a staging of one operand alone, and for a route that OUT_PROD does not have; [`Error::Alloc`](crate::Error::Alloc).
    #[track_caller]
    pub fn backward_with(
        self,
        loss: Tensor<'g>,
        options: BackwardOptions,
    ) -> Result<Gradients<'g>> {
        let call = Call::new("backward");
        let at = call.at;
        check_loss(loss).at(at)?;
        check_staging(options.staging).at(at)?;
        check_route(options.route).at(at)?;
        let all = self.core().tensors();
        let forward = forward(loss);
        let needed = check::differentiable(call, &forward, loss.ptr())?;
        let segments = match options.recompute {
            true => self.core().segments(),
            false => Vec::new(),
        };
        // What the loss does not depend on is not computed again.
        let wanted: HashSet<Raw> = forward.iter().copied().collect();
        let again = segments
            .iter()
            .flat_map(|segment| &all[segment.clone()])
            .filter(|tensor| wanted.contains(tensor));
        recompute::check(at, again.clone())?;
        let differentiated = forward.iter().filter(|tensor| needed.contains(tensor));
        writes::check(at, &all, differentiated.chain(again).copied())?;
        let made = self.append(&all, &segments, options, || {
            engine::run(self, &forward, loss, &needed)
        });
        if made.is_err() {
            self.core().truncate(all.len());
        }
        let made = made.moved_to(at)?;
        engine::name(&forward, &made);
        Ok(Gradients {
            builder: self,
            by_param: made.gradients,
        })
    }

    /// Makes a backward's nodes behind `all`, the builder's tensors so far, and sets what the options ask for on them, and not on
    /// what is computed again.
    fn append<T>(
        self,
        all: &[Raw],
        segments: &[Range<usize>],
        options: BackwardOptions,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let gradients = make()?;
        let made = self.core().tensors().split_off(all.len());
        if let Some(staging) = options.staging {
            self.stage(&made, staging)?;
        }
        if let Some(route) = options.route {
            self.route(&made, route)?;
        }
        recompute::rewire(self.core(), all, segments, &made)?;
        Ok(gradients)
    }

    /// Marks what `segment` makes: a backward computes it again instead of keeping it in memory.
    ///
    /// What is read outside of the segment is kept, and so are the tensors that the segment begins with. Gradients are the same
    /// bit for bit on the CPU: the same ops run on the same operands. Segments may nest; the outermost counts.
    ///
    /// ```
    /// use ggml_rs::{DType, Graph};
    ///
    /// Graph::build(|g| {
    ///     let (w, _) = g.input("w", DType::F32, [8, 8])?;
    ///     let (x, _) = g.input("x", DType::F32, [8, 3])?;
    ///     let w = w.set_param()?;
    ///     let y = g.checkpoint(|| w.mul_mat(x)?.relu()?.scale(2.0))?;
    ///     let gradients = g.backward(y.mul(y)?.sum()?)?;
    ///     g.output("dw", gradients.of(w)?)
    /// })?;
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// Whatever `segment` returns. A segment that writes in place or has a custom op is refused by the backward, with
    /// [`Error::NotDifferentiable`](crate::Error::NotDifferentiable).
    pub fn checkpoint<R>(self, segment: impl FnOnce() -> Result<R>) -> Result<R> {
        let begin = self.core().tensors().len();
        let result = segment()?;
        self.core().add_segment(begin);
        Ok(result)
    }

    /// Sets the staging of the products among `made`.
    #[track_caller]
    fn stage(self, made: &[Raw], staging: Staging) -> Result<()> {
        for &tensor in made {
            // SAFETY: the builder keeps its tensors alive.
            let op = unsafe { tensor.as_ref() }.op;
            if matches!(
                op,
                sys::GGML_OP_OUT_PROD | sys::GGML_OP_MUL_MAT | sys::GGML_OP_MUL_MAT_ID
            ) {
                Tensor::new(tensor, self)?.set_staging(staging)?;
            }
        }
        Ok(())
    }

    /// Sets the route of each OUT_PROD among `made`.
    #[track_caller]
    fn route(self, made: &[Raw], route: Route) -> Result<()> {
        for &tensor in made {
            // SAFETY: the builder keeps its tensors alive.
            if unsafe { tensor.as_ref() }.op == sys::GGML_OP_OUT_PROD {
                Tensor::new(tensor, self)?.set_route(route)?;
            }
        }
        Ok(())
    }
}

/// Everything that a loss depends on, in the order of creation.
fn forward(loss: Tensor<'_>) -> Vec<Raw> {
    let wanted = super::builder::reachable([loss.ptr()].iter());
    let all = loss.builder().core().tensors();
    all.into_iter()
        .filter(|tensor| wanted.contains(tensor))
        .collect()
}

fn check_loss(loss: Tensor<'_>) -> Checked {
    let operands = [("loss", loss.layout())];
    let refusal = Refusal {
        op: "backward",
        operands: &operands,
    };
    if loss.shape().elements() != 1 {
        return Err(refusal.shape("a loss is one element: call sum() or mean() first"));
    }
    if loss.dtype() != DType::F32 {
        return Err(refusal.dtype("a loss is f32"));
    }
    Ok(())
}

fn check_route(route: Option<Route>) -> Checked {
    match route {
        None | Some(Route::Auto | Route::Direct) => Ok(()),
        Some(other) => Err(Refused::param(
            "backward",
            format!("{other:?}: a route of mul_mat, and not of the out_prods of a backward"),
        )),
    }
}

fn check_staging(staging: Option<Staging>) -> Checked {
    match staging {
        None | Some(Staging::Float | Staging::Half) => Ok(()),
        Some(other) => Err(Refused::param(
            "backward",
            format!("{other:?}: the products of a backward stage both operands alike"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::graph::{Graph, node};

    /// Ops of several rules, gradients that are added, a window of one, and a segment that is computed again.
    fn loss<'g>(g: Builder<'g>) -> Result<Tensor<'g>> {
        let (w, _) = g.input("w", DType::F32, [4, 4])?;
        let (x, _) = g.input("x", DType::F32, [4, 3])?;
        let w = w.set_param()?;
        let y = g.checkpoint(|| w.mul_mat(x)?.gelu()?.soft_max())?;
        let part = w.view([2, 3], [16, 48, 48], 8)?.sqr()?.sum()?;
        y.mul(y)?.sum()?.add(part)
    }

    fn named(g: Builder<'_>) -> Vec<(Raw, String)> {
        let tensors = g.core().tensors().into_iter();
        // SAFETY: the builder keeps its tensors alive.
        tensors
            .map(|tensor| (tensor, unsafe { node::name(tensor) }))
            .collect()
    }

    #[test]
    fn a_failure_at_any_node_leaves_the_builder_as_it_was() {
        let options = BackwardOptions::default()
            .staging(Staging::Float)
            .route(Route::Direct);
        let mut failures = 0;
        Graph::build(|g| {
            let loss = loss(g)?;
            let (before, segments) = (named(g), g.core().segments());
            for k in 0.. {
                g.core().fails_after.set(Some(k));
                let made = g.backward_with(loss, options);
                g.core().fails_after.set(None);
                let Err(error) = made else { break };
                assert!(matches!(error, Error::Alloc { .. }), "{error}");
                assert_eq!(named(g), before, "after {k} tensors");
                assert_eq!(g.core().segments(), segments);
                failures += 1;
            }
            g.output("loss", loss)
        })
        .unwrap();
        assert!(failures > 30, "{failures}");
    }

    #[test]
    fn gradients_are_named_after_what_they_belong_to() {
        Graph::build(|g| {
            let loss = loss(g)?;
            let before = g.core().tensors().len();
            let gradients = g.backward(loss)?;
            let (w, of_w) = {
                let w = Tensor::new(g.core().tensors()[0], g)?;
                (w, gradients.of(w)?)
            };
            // SAFETY: the builder keeps its tensors alive.
            let name = |tensor: Tensor<'_>| unsafe { node::name(tensor.ptr()) };
            assert_eq!(name(of_w), "grad for w");
            let made = named(g).split_off(before);
            let of_nodes = made
                .iter()
                .filter(|(_, name)| name.starts_with("grad for node_"));
            assert!(of_nodes.count() > 5);
            assert_eq!(name(w), "w");
            g.output("dw", of_w)
        })
        .unwrap();
    }
}
