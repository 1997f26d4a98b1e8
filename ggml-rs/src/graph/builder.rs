//! The builder: what [`Graph::build`](super::Graph::build)'s closure works with.

mod params;

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

use super::arena::{Arena, Context};
use super::ids::{ID_TYPE, IdKind, IdRule};
use super::ops::CustomOp;
use super::{ExpertIds, Graph, Input, Output, Tensor, Token};
use crate::dtype::DType;
use crate::error::{Error, OpError, Result};
use crate::guard;
use crate::layout::Refusal;
use crate::shape::{IntoShape, Shape};

/// A graph under construction. Its methods are on [`Builder`].
pub(crate) struct Core {
    id: u64,
    parts: RefCell<Parts>,
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
        let mut parts = self.parts.borrow_mut();
        let context = parts.arena.reserve_tensor()?;
        let tensor = guard::call(op, || make(context))?;
        let tensor = NonNull::new(tensor).ok_or_else(|| none_made(op))?;
        parts.tensors.push(tensor);
        Ok(tensor)
    }

    /// Every tensor so far, in the order of creation.
    pub fn tensors(&self) -> Vec<NonNull<sys::ggml_tensor>> {
        self.parts.borrow().tensors.clone()
    }

    /// Appends tensors that were made in contexts of their own.
    pub fn adopt(&self, contexts: Vec<Context>, tensors: Vec<NonNull<sys::ggml_tensor>>) {
        let mut parts = self.parts.borrow_mut();
        for context in contexts {
            parts.arena.adopt(context);
        }
        parts.tensors.extend(tensors);
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
    pub fn finish(self) -> Result<Graph> {
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
        if outputs.is_empty() {
            return Err(Error::Param(OpError::new(
                "Graph::build",
                "the graph has no output",
                Vec::new(),
            )));
        }
        let marks = Marks::of_needed(&tensors, inputs.iter().chain(&outputs));
        // A parameter that nothing needs is neither locked nor asked for values.
        params.retain(|leaf| marks.is_needed(leaf.tensor));
        let (tensors, ends) = marks.needed_and_ends();
        let (context, cgraph) = expand_to(tensors.len(), &ends)?;
        let mut contexts = arena.into_contexts();
        contexts.push(context);
        Ok(Graph {
            id: self.id,
            _contexts: contexts,
            cgraph,
            tensors,
            inputs,
            outputs,
            ids,
            params,
            custom,
        })
    }
}

#[cold]
fn none_made(step: &'static str) -> Error {
    Error::Internal {
        step,
        message: "no tensor was made".into(),
    }
}

/// Marks in tensors' flags of what is needed, while they stand. A set of addresses would take longer than ggml takes to make
/// the tensors.
struct Marks<'t> {
    /// In the order of creation.
    tensors: &'t [NonNull<sys::ggml_tensor>],
}

impl<'t> Marks<'t> {
    // Bits that ggml does not use.
    /// Something needed has the tensor as an operand.
    const READ: i32 = 1 << 30;
    /// The tensor is asked for, or lends its memory to something needed.
    const ASKED: i32 = 1 << 29;
    /// The needed node that was made next has the tensor as an operand, and is not too many such steps from the end of them.
    const FOLLOWED: i32 = 1 << 28;
    const ALL: i32 = Self::READ | Self::ASKED | Self::FOLLOWED;

    /// How many nodes ggml may walk along in one call, which takes a frame of the stack for each.
    const LONGEST: usize = 64;

    /// Marks everything that `roots` depend on, themselves included.
    fn of_needed<'a>(
        tensors: &'t [NonNull<sys::ggml_tensor>],
        roots: impl Iterator<Item = &'a NonNull<sys::ggml_tensor>>,
    ) -> Self {
        let mark = |tensor: *mut sys::ggml_tensor, bit: i32| {
            // SAFETY: all tensors of the builder are alive, and no other thread has them yet.
            unsafe { (*tensor).flags |= bit };
        };
        let marks = Self { tensors };
        roots.for_each(|root| mark(root.as_ptr(), Self::ASKED));
        // The needed node that was made after the one looked at, and its steps from the end.
        let mut next: Option<(NonNull<sys::ggml_tensor>, usize)> = None;
        // Backwards, so that all that need a tensor come before it.
        for &tensor in tensors.iter().rev() {
            if !marks.is_needed(tensor) {
                continue;
            }
            // SAFETY: as above; no tensor is its own source.
            let node = unsafe { tensor.as_ref() };
            for &source in node.src.iter().filter(|source| !source.is_null()) {
                mark(source, Self::READ);
            }
            if !node.view_src.is_null() {
                mark(node.view_src, Self::ASKED);
            }
            if is_leaf(node) {
                continue;
            }
            let steps = match next {
                Some((next, steps)) if steps < Self::LONGEST && reads(next, tensor) => {
                    mark(tensor.as_ptr(), Self::FOLLOWED);
                    steps + 1
                }
                _ => 0,
            };
            next = Some((tensor, steps));
        }
        marks
    }

    fn flags(tensor: NonNull<sys::ggml_tensor>) -> i32 {
        // SAFETY: all tensors of the builder are alive.
        unsafe { tensor.as_ref() }.flags
    }

    fn is_needed(&self, tensor: NonNull<sys::ggml_tensor>) -> bool {
        Self::flags(tensor) & (Self::READ | Self::ASKED) != 0
    }

    /// Takes the marks off. Gives what is needed, in the order of creation, and those of it that ggml has to be given to find
    /// the rest, in that order.
    ///
    /// ggml walks from a node to its operands, and appends each node behind them. What it is given after a node whose
    /// operands it has all met appends that node alone. So a node may be left to the one that was made next, if that has it
    /// as an operand: everything made before both was met already, and the two are appended in their order. A leaf, which
    /// ggml keeps apart from the nodes, may be left to whatever has it as an operand.
    fn needed_and_ends(
        self,
    ) -> (
        Vec<NonNull<sys::ggml_tensor>>,
        Vec<NonNull<sys::ggml_tensor>>,
    ) {
        let mut needed = Vec::with_capacity(self.tensors.len());
        let mut ends = Vec::with_capacity(self.tensors.len());
        let mut names = NodeNames::new();
        for &tensor in self.tensors {
            // SAFETY: all tensors of the builder are alive, and no other thread has them yet.
            let node = unsafe { &mut *tensor.as_ptr() };
            let marks = node.flags & Self::ALL;
            if marks == 0 {
                continue;
            }
            node.flags &= !Self::ALL;
            needed.push(tensor);
            let is_met = match is_leaf(node) {
                true => Self::READ,
                false => {
                    names.give(node);
                    Self::FOLLOWED
                }
            };
            if marks & is_met == 0 {
                ends.push(tensor);
            }
        }
        (needed, ends)
    }
}

/// The names that ggml gives nodes without one, for their places among the nodes: its printf takes as long as making the node.
struct NodeNames {
    /// The name of the place that comes next.
    next: [c_char; Self::LEN],
    /// Where its digits end.
    end: usize,
}

impl NodeNames {
    const PREFIX: &[u8] = b"node_";
    /// Room for the digits of any place, and a NUL.
    const LEN: usize = 32;

    fn new() -> Self {
        let mut next = [0; Self::LEN];
        let first = Self::PREFIX.iter().chain(b"0");
        for (stored, &byte) in next.iter_mut().zip(first) {
            *stored = byte as c_char;
        }
        let end = Self::PREFIX.len() + 1;
        Self { next, end }
    }

    /// Names the node of the next place, unless it has a name.
    fn give(&mut self, node: &mut sys::ggml_tensor) {
        if node.name[0] == 0 {
            node.name[..Self::LEN].copy_from_slice(&self.next);
        }
        self.count();
    }

    /// Adds one to the number in the name.
    fn count(&mut self) {
        const NINE: c_char = b'9' as c_char;
        for digit in self.next[Self::PREFIX.len()..self.end].iter_mut().rev() {
            if *digit != NINE {
                *digit += 1;
                return;
            }
            *digit = b'0' as c_char;
        }
        // All were nines, and are zeros.
        self.next[Self::PREFIX.len()] = b'1' as c_char;
        self.next[self.end] = b'0' as c_char;
        self.end += 1;
    }
}

/// Whether ggml keeps a tensor apart from the nodes, whose order is that of the run.
fn is_leaf(tensor: &sys::ggml_tensor) -> bool {
    tensor.op == sys::GGML_OP_NONE && tensor.flags & sys::GGML_TENSOR_FLAG_PARAM as i32 == 0
}

/// Whether a node has a tensor as an operand.
fn reads(node: NonNull<sys::ggml_tensor>, tensor: NonNull<sys::ggml_tensor>) -> bool {
    // SAFETY: all tensors of the builder are alive.
    unsafe { node.as_ref() }.src.contains(&tensor.as_ptr())
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
    // ggml counts nodes in an `int` and doubles the count for its hash table.
    if count > (i32::MAX / 4) as usize {
        let detail = format!("{count} tensors are more than ggml counts");
        return Err(Error::Param(OpError::new(
            "Graph::build",
            detail,
            Vec::new(),
        )));
    }
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
        if per_token > experts {
            let detail = format!("{per_token} different experts of {experts} for a token");
            return Err(Error::Param(OpError::new("expert_ids", detail, Vec::new())));
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
        let layout = tensor.layout();
        if !layout.is_contiguous() {
            let refusal = Refusal {
                op: "output",
                operands: &[("tensor", layout)],
            };
            return Err(
                refusal.layout("an output is read as contiguous values: call cont() on it first")
            );
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
        // Bounds everything that ggml computes of the shape.
        shape.bytes(dtype)?;
        check_name(name)?;
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
        leaf.flags |= (sys::GGML_TENSOR_FLAG_INPUT | sys::GGML_TENSOR_FLAG_OUTPUT) as i32;
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
    let name = checked_name(name)?;
    // SAFETY: the tensor is alive, the name is NUL-terminated and fits.
    unsafe { sys::ggml_set_name(tensor.as_ptr(), name.as_ptr()) };
    Ok(())
}

#[cold]
#[track_caller]
fn refused_name(name: &str, longest: usize) -> Error {
    let detail = match name.len() > longest {
        true => format!("{name:?} is longer than {longest} bytes"),
        false => format!("{name:?} contains a NUL"),
    };
    Error::Param(OpError::new("name", detail, Vec::new()))
}

/// A name as ggml stores it, NULs behind it included.
pub(crate) type Name = [c_char; sys::GGML_MAX_NAME as usize];

/// Checks a name.
///
/// # Errors
/// [`Error::Param`] for more than 63 bytes, which ggml would cut, or a NUL.
#[track_caller]
pub(crate) fn checked_name(name: &str) -> Result<Name> {
    check_name(name)?;
    let mut stored: Name = [0; sys::GGML_MAX_NAME as usize];
    store_name(&mut stored, name);
    Ok(stored)
}

/// As [`checked_name`].
#[inline]
#[track_caller]
fn check_name(name: &str) -> Result<()> {
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
