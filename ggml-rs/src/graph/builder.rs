//! The builder: what [`Graph::build`](super::Graph::build)'s closure works with.

mod needed;
mod params;

#[cfg(test)]
use std::cell::Cell;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::c_char;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ggml_sys as sys;

pub(crate) use params::Leaf;

use self::needed::Marks;
pub(in crate::graph) use self::needed::{NodeNames, is_leaf};
use super::arena::{Arena, Context};
use super::ids::{ID_TYPE, IdKind, IdRule};
use super::ops::CustomOp;
use super::{ExpertIds, Graph, Input, Output, Tensor, Token};
use crate::dtype::DType;
use crate::error::{Call, Checked, Error, Placed, Refused, Result, here};
use crate::guard;
use crate::layout::Refusal;
use crate::shape::{IntoShape, Shape};

/// A graph under construction. Its methods are on [`Builder`].
pub(crate) struct Core {
    id: u64,
    parts: RefCell<Parts>,
    /// After so many more tensors there is no memory for one.
    #[cfg(test)]
    pub fails_after: Cell<Option<usize>>,
}

#[derive(Default)]
struct Parts {
    arena: Arena,
    /// In the order of creation, so each tensor comes after those it depends on.
    tensors: Vec<NonNull<sys::ggml_tensor>>,
    inputs: Vec<NonNull<sys::ggml_tensor>>,
    outputs: Vec<NonNull<sys::ggml_tensor>>,
    /// What a backward computes again, as ranges of `tensors`, none of which overlap.
    segments: Vec<Range<usize>>,
    /// What the values of an input of ids keep to, by its index.
    ids: HashMap<usize, IdRule>,
    params: Vec<Leaf>,
    /// Where a parameter is in `params`, so that it gives one tensor only.
    by_param: HashMap<(u64, usize), usize>,
    /// The closures that nodes call.
    custom: Vec<Arc<CustomOp>>,
}

impl Core {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            parts: RefCell::default(),
            #[cfg(test)]
            fails_after: Cell::new(None),
        }
    }

    /// Creates one tensor through `make`, which calls one ggml function on the context it is given.
    ///
    /// # Errors
    /// [`Error::Alloc`]; [`Error::Internal`] when ggml refuses after all.
    #[inline]
    pub fn create(
        &self,
        op: &'static str,
        make: impl FnOnce(*mut sys::ggml_context) -> *mut sys::ggml_tensor,
    ) -> Result<NonNull<sys::ggml_tensor>> {
        #[cfg(test)]
        self.count_down()?;
        let mut parts = self.parts.borrow_mut();
        let context = parts.arena.reserve_tensor()?;
        let tensor = guard::call(op, || make(context))?;
        let tensor = NonNull::new(tensor).ok_or_else(|| none_made(op))?;
        parts.tensors.push(tensor);
        Ok(tensor)
    }

    #[cfg(test)]
    fn count_down(&self) -> Result<()> {
        match self.fails_after.get() {
            None => Ok(()),
            Some(0) => Err(Error::Alloc {
                what: "tensor descriptions".to_owned(),
                bytes: 0,
                detail: "a test says so".to_owned(),
            }),
            Some(left) => {
                self.fails_after.set(Some(left - 1));
                Ok(())
            }
        }
    }

    /// Every tensor so far, in the order of creation.
    pub fn tensors(&self) -> Vec<NonNull<sys::ggml_tensor>> {
        self.parts.borrow().tensors.clone()
    }

    /// Gives up every tensor from this one on; nothing may refer to them.
    pub fn truncate(&self, first: usize) {
        self.parts.borrow_mut().tensors.truncate(first);
    }

    /// Puts the tensors from this one on in another order, in which each still comes after those it depends on.
    pub fn reorder(&self, first: usize, ordered: Vec<NonNull<sys::ggml_tensor>>) {
        let mut parts = self.parts.borrow_mut();
        debug_assert_eq!(parts.tensors.len() - first, ordered.len());
        parts.tensors.truncate(first);
        parts.tensors.extend(ordered);
    }

    /// Makes a segment of everything from this tensor on; segments in it are part of it.
    pub fn add_segment(&self, begin: usize) {
        let mut parts = self.parts.borrow_mut();
        let segment = begin..parts.tensors.len();
        parts.segments.retain(|inner| inner.start < begin);
        parts.segments.push(segment);
    }

    /// The segments that a backward computes again.
    pub fn segments(&self) -> Vec<Range<usize>> {
        self.parts.borrow().segments.clone()
    }

    /// The graph of everything the outputs depend on.
    ///
    /// # Errors
    /// [`Error::Param`] without an output; [`Error::Alloc`].
    pub fn finish(self, call: Call) -> Result<Graph> {
        let Parts {
            arena,
            tensors,
            inputs,
            outputs,
            ids,
            mut params,
            by_param: _,
            segments: _,
            custom,
        } = self.parts.into_inner();
        let stored = params.iter().map(|leaf| &leaf.tensor);
        let marks = Marks::of_needed(&tensors, outputs.iter(), inputs.iter().chain(stored));
        let needed_inputs: Vec<bool> = inputs.iter().map(|&t| marks.is_needed(t)).collect();
        // A parameter that nothing needs is neither locked nor asked for values.
        params.retain(|leaf| marks.is_needed(leaf.tensor));
        let (tensors, ends) = marks.needed_and_ends();
        if tensors.is_empty() {
            return Err(call.param(
                "the graph has no output: declare one with Builder::output, or nothing is computed",
            ));
        }
        check_size(tensors.len()).of(call)?;
        let (context, cgraph) = expand_to(tensors.len(), &ends)?;
        let mut contexts = arena.into_contexts();
        contexts.push(context);
        Ok(Graph {
            id: self.id,
            _contexts: contexts,
            cgraph,
            tensors,
            inputs,
            needed_inputs,
            outputs,
            ids,
            params,
            custom,
        })
    }
}

/// Whether ggml counts so many tensors: in an `int`, and twice as many for its hash table.
fn check_size(count: usize) -> Checked {
    if count <= (i32::MAX / 4) as usize {
        return Ok(());
    }
    let detail = format!("{count} tensors are more than ggml counts");
    Err(Refused::param("graph", detail))
}

#[cold]
fn none_made(step: &'static str) -> Error {
    Error::Internal {
        step,
        message: "no tensor was made".into(),
    }
}

/// Everything that `roots` depend on, themselves included. Iterative: a graph may be deeper than the stack.
pub(super) fn reachable<'a>(
    roots: impl Iterator<Item = &'a NonNull<sys::ggml_tensor>>,
) -> HashSet<NonNull<sys::ggml_tensor>> {
    let mut open: Vec<_> = roots.copied().collect();
    let mut seen = HashSet::new();
    while let Some(tensor) = open.pop() {
        if seen.insert(tensor) {
            // SAFETY: all tensors of the builder are alive, and the graph is only read here.
            let tensor = unsafe { tensor.as_ref() };
            open.extend(tensor.src.iter().filter_map(|&source| NonNull::new(source)));
            open.extend(NonNull::new(tensor.view_src));
        }
    }
    seen
}

/// A cgraph of exactly these tensors, in a context of its own.
///
/// ggml walks a graph recursively. Adding tensors one by one, each after its sources, keeps that walk flat.
pub(crate) fn expand(
    tensors: &[NonNull<sys::ggml_tensor>],
) -> Result<(Context, NonNull<sys::ggml_cgraph>)> {
    expand_to(tensors.len(), tensors)
}

/// A cgraph of everything that these tensors depend on, `count` tensors in all, in a context of its own.
///
/// ggml takes a frame of the stack for each step from one of them to what was not reached from those before.
fn expand_to(
    count: usize,
    ends: &[NonNull<sys::ggml_tensor>],
) -> Result<(Context, NonNull<sys::ggml_cgraph>)> {
    check_size(count).map_err(|refused| Error::Internal {
        step: "ggml_new_graph_custom",
        message: refused.detail().to_owned(),
    })?;
    // SAFETY: a function of its arguments alone.
    let bytes = guard::call("ggml_graph_overhead_custom", || unsafe {
        sys::ggml_graph_overhead_custom(count, false)
    })?;
    let context = Context::new(bytes)?;
    // SAFETY: the context was sized for this graph.
    let cgraph = guard::call("ggml_new_graph_custom", || unsafe {
        sys::ggml_new_graph_custom(context.as_ptr(), count, false)
    })?;
    let cgraph = NonNull::new(cgraph).ok_or_else(|| Error::Internal {
        step: "ggml_new_graph_custom",
        message: "no graph was made".into(),
    })?;
    guard::call("ggml_build_forward_expand", || {
        for tensor in ends {
            // SAFETY: graph and tensor are alive, and the graph has room for all that it depends on.
            unsafe { sys::ggml_build_forward_expand(cgraph.as_ptr(), tensor.as_ptr()) };
        }
    })?;
    Ok((context, cgraph))
}

/// Builds a graph inside [`Graph::build`](super::Graph::build).
///
/// The lifetime is a brand: it is invariant and each `build` makes its own, so the compiler keeps tensors
/// inside their closure and graphs apart.
#[derive(Clone, Copy)]
pub struct Builder<'g> {
    core: &'g Core,
    brand: PhantomData<fn(&'g ()) -> &'g ()>,
}

impl<'g> Builder<'g> {
    pub(super) fn new(core: &'g Core) -> Self {
        Self {
            core,
            brand: PhantomData,
        }
    }

    pub(super) fn core(self) -> &'g Core {
        self.core
    }

    /// A tensor whose values are set before a run. They stay until they are set again.
    ///
    /// # Errors
    /// [`Error::Shape`] for an invalid shape or rows that are not whole blocks; [`Error::Param`] for a name
    /// that ggml cannot hold (more than 63 bytes, or a NUL).
    #[doc(alias = "ggml_set_input")]
    #[track_caller]
    pub fn input(
        self,
        name: &str,
        dtype: DType,
        shape: impl IntoShape,
    ) -> Result<(Tensor<'g>, Input)> {
        let shape = shape.into_shape()?;
        let tensor = self.leaf(name, dtype, shape)?;
        let index = push(&mut self.core.parts.borrow_mut().inputs, tensor);
        Ok((
            tensor,
            Input(Token {
                graph: self.core.id,
                index,
                dtype,
                shape,
            }),
        ))
    }

    /// An input that chooses, for each of `tokens` tokens, `per_token` of `experts` experts:
    /// [`Tensor::mul_mat_id`] takes it.
    ///
    /// Its values are i32, [per_token, tokens] in ne order. [`Plan::set_i32`](crate::Plan::set_i32) checks that each is below
    /// `experts` and that no token names an expert twice.
    ///
    /// # Errors
    /// As [`Builder::input`]; [`Error::Param`] where a token would have to name an expert twice.
    #[track_caller]
    pub fn expert_ids(
        self,
        name: &str,
        per_token: usize,
        tokens: usize,
        experts: usize,
    ) -> Result<(ExpertIds<'g>, Input)> {
        let call = Call::new("expert_ids");
        if per_token > experts {
            let detail = format!("{per_token} different experts of {experts} for a token");
            return Err(call.param(detail));
        }
        let (tensor, input) = self.input(name, ID_TYPE, [per_token, tokens])?;
        let rule = IdRule {
            kind: IdKind::Expert,
            rows: experts,
            distinct: true,
        };
        self.bound_ids(&input, rule);
        Ok((ExpertIds { tensor, experts }, input))
    }

    /// One op's result without a tensor to call it on. As [`Tensor::make`].
    pub(super) fn make(
        self,
        op: &'static str,
        make: impl FnOnce(*mut sys::ggml_context) -> *mut sys::ggml_tensor,
    ) -> Result<Tensor<'g>> {
        Tensor::new(self.core.create(op, make)?, self)
    }

    /// Keeps a closure as long as the graph. The pointer is valid as long.
    pub(super) fn keep_custom(self, op: CustomOp) -> *const CustomOp {
        let op = Arc::new(op);
        let pointer = Arc::as_ptr(&op);
        self.core.parts.borrow_mut().custom.push(op);
        pointer
    }

    /// From here on the values of an input are checked to be ids.
    pub(super) fn bound_ids(self, input: &Input, rule: IdRule) {
        let ids = &mut self.core.parts.borrow_mut().ids;
        ids.insert(input.index(), rule);
    }

    /// A tensor without values of its own, for [`Tensor::cpy`] to write to.
    ///
    /// # Errors
    /// As [`Builder::input`].
    #[doc(alias = "ggml_new_tensor")]
    #[track_caller]
    pub fn empty(self, name: &str, dtype: DType, shape: impl IntoShape) -> Result<Tensor<'g>> {
        let shape = shape.into_shape()?;
        self.leaf(name, dtype, shape)
    }

    /// Declares a contiguous tensor as a result, to be read after a run.
    ///
    /// # Errors
    /// [`Error::Layout`] unless `tensor` is contiguous ([`Tensor::cont`] makes it so); [`Error::Param`] for a
    /// name that ggml cannot hold.
    #[doc(alias = "ggml_set_output")]
    #[track_caller]
    pub fn output(self, name: &str, tensor: Tensor<'g>) -> Result<Output> {
        let at = here();
        let layout = tensor.layout();
        if !layout.is_contiguous() {
            let refusal = Refusal {
                op: "output",
                operands: &[("tensor", layout)],
            };
            return Err(refusal
                .layout("an output is read as contiguous values: call cont() on it first")
                .at(at));
        }
        let shape = tensor.shape();
        set_name(tensor.ptr(), name)?;
        keep_values(tensor.ptr());
        let index = push(&mut self.core.parts.borrow_mut().outputs, tensor);
        Ok(Output(Token {
            graph: self.core.id,
            index,
            dtype: layout.dtype,
            shape,
        }))
    }

    #[track_caller]
    fn leaf(self, name: &str, dtype: DType, shape: Shape) -> Result<Tensor<'g>> {
        let at = here();
        // Bounds everything that ggml computes of the shape.
        shape.checked_bytes(dtype).at(at)?;
        check_name(name).at(at)?;
        let ne = shape.ne().map(|n| n as i64);
        let tensor = self.core.create("new_tensor", |context| {
            // SAFETY: the context is alive and has room; `ne` has four entries whose product was checked.
            unsafe { sys::ggml_new_tensor(context, dtype.raw(), 4, ne.as_ptr()) }
        })?;
        // As ggml_set_name, ggml_set_input and `keep_values` do it, in one go. The input flag keeps ggml's allocator from
        // placing a computed tensor over it before the graph starts.
        // SAFETY: the tensor is alive, and no other thread has it yet.
        let leaf = unsafe { &mut *tensor.as_ptr() };
        store_name(&mut leaf.name, name);
        leaf.flags |= sys::GGML_TENSOR_FLAG_INPUT | sys::GGML_TENSOR_FLAG_OUTPUT;
        Tensor::new(tensor, self)
    }
}

impl fmt::Debug for Builder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("tensors", &self.core.parts.borrow().tensors.len())
            .finish_non_exhaustive()
    }
}

/// Appends a tensor and returns its index.
#[inline]
fn push(list: &mut Vec<NonNull<sys::ggml_tensor>>, tensor: Tensor<'_>) -> usize {
    list.push(tensor.ptr());
    list.len() - 1
}

/// Keeps ggml's allocator from giving a tensor's memory to another one during a run.
///
/// The allocator looks at the flag of the tensor that owns the memory, so a view's base is marked too. It
/// also reuses the memory of inputs after their last use, so inputs are marked as outputs.
fn keep_values(tensor: NonNull<sys::ggml_tensor>) {
    // SAFETY: the tensor and its base are alive.
    unsafe {
        sys::ggml_set_output(tensor.as_ptr());
        let base = tensor.as_ref().view_src;
        if !base.is_null() {
            sys::ggml_set_output(base);
        }
    }
}

/// Names a tensor.
///
/// # Errors
/// As [`checked_name`].
#[track_caller]
pub(super) fn set_name(tensor: NonNull<sys::ggml_tensor>, name: &str) -> Result<()> {
    let at = here();
    let name = checked_name(name).at(at)?;
    // SAFETY: the tensor is alive, the name is NUL-terminated and fits.
    unsafe { sys::ggml_set_name(tensor.as_ptr(), name.as_ptr()) };
    Ok(())
}

/// Names a tensor, with as much of the name as ggml holds.
pub(in crate::graph) fn name_cut(mut tensor: NonNull<sys::ggml_tensor>, name: &str) {
    // SAFETY: the tensor is alive, and the builder's alone.
    let stored = unsafe { &mut tensor.as_mut().name };
    *stored = [0; sys::GGML_MAX_NAME as usize];
    let held = name.len().min(stored.len() - 1);
    let held = (0..=held).rev().find(|&end| name.is_char_boundary(end));
    store_name(stored, &name[..held.unwrap_or(0)]);
}

#[cold]
fn refused_name(name: &str, longest: usize) -> Refused {
    let detail = match name.len() > longest {
        true => format!("{name:?} is longer than {longest} bytes"),
        false => format!("{name:?} contains a NUL"),
    };
    Refused::param("name", detail)
}

/// A name as ggml stores it, NULs behind it included.
pub(crate) type Name = [c_char; sys::GGML_MAX_NAME as usize];

/// Checks a name.
///
/// # Errors
/// [`Error::Param`] for more than 63 bytes, which ggml would cut, or a NUL.
pub(crate) fn checked_name(name: &str) -> Checked<Name> {
    check_name(name)?;
    let mut stored: Name = [0; sys::GGML_MAX_NAME as usize];
    store_name(&mut stored, name);
    Ok(stored)
}

/// As [`checked_name`].
#[inline]
fn check_name(name: &str) -> Checked {
    const LONGEST: usize = sys::GGML_MAX_NAME as usize - 1;
    if name.len() > LONGEST || name.as_bytes().contains(&0) {
        return Err(refused_name(name, LONGEST));
    }
    Ok(())
}

/// Writes a name that was checked over NULs.
#[inline]
fn store_name(stored: &mut Name, name: &str) {
    stored[..name.len()].copy_from_slice(bytemuck::cast_slice(name.as_bytes()));
}
