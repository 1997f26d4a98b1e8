//! Tensors under construction. Their ops are in the `ops` modules.

use std::fmt;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::Builder;
use super::builder::set_name;
use crate::dtype::DType;
use crate::error::Result;
use crate::layout::{Layout, known_type};
use crate::shape::Shape;

/// A tensor of a graph under construction: a description, without values.
///
/// Ops are methods and return new tensors: `w.mul_mat(x)?.add(b)?.relu()?`. Every op checks its operands
/// before ggml sees them; what a device makes of a node is checked when a plan is made.
#[derive(Clone, Copy)]
pub struct Tensor<'g> {
    // No more than two words, which are passed in registers: what else an op asks for is read from the tensor.
    ptr: NonNull<sys::ggml_tensor>,
    builder: Builder<'g>,
}

impl<'g> Tensor<'g> {
    /// The handle of a tensor that `builder` made.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) for a data type that this crate does not know.
    #[inline]
    pub(super) fn new(ptr: NonNull<sys::ggml_tensor>, builder: Builder<'g>) -> Result<Self> {
        // SAFETY: the builder's tensors live as long as `'g`.
        known_type(unsafe { ptr.as_ref() })?;
        Ok(Self { ptr, builder })
    }

    /// One op's result, made by a call of one ggml function whose operands were checked.
    ///
    /// # Errors
    /// [`Error::Alloc`](crate::Error::Alloc); [`Error::Internal`](crate::Error::Internal) when ggml refuses
    /// after all.
    #[inline]
    pub(super) fn make(
        self,
        op: &'static str,
        make: impl FnOnce(*mut sys::ggml_context) -> *mut sys::ggml_tensor,
    ) -> Result<Self> {
        Self::new(self.builder.core().create(op, make)?, self.builder)
    }

    /// The handle of another tensor of the same builder.
    ///
    /// # Errors
    /// As [`Tensor::new`].
    pub(super) fn sibling(self, ptr: NonNull<sys::ggml_tensor>) -> Result<Self> {
        Self::new(ptr, self.builder)
    }

    pub(super) fn builder(self) -> Builder<'g> {
        self.builder
    }

    pub(super) fn ptr(self) -> NonNull<sys::ggml_tensor> {
        self.ptr
    }

    pub(super) fn as_ptr(self) -> *mut sys::ggml_tensor {
        self.ptr.as_ptr()
    }

    #[inline]
    pub(super) fn layout(self) -> Layout {
        // SAFETY: the builder's tensors live as long as `'g`, and nothing changes type or shape of one that is made.
        Layout::with_type(self.dtype(), unsafe { self.ptr.as_ref() })
    }

    /// The tensor that owns the memory: itself, unless it is a view.
    pub(super) fn base(self) -> NonNull<sys::ggml_tensor> {
        // SAFETY: the builder's tensors live as long as `'g`. ggml makes `view_src` point to the base, never
        // to another view.
        NonNull::new(unsafe { self.ptr.as_ref() }.view_src).unwrap_or(self.ptr)
    }

    /// ggml's number of the op that makes it.
    pub(super) fn raw_op(self) -> sys::ggml_op {
        // SAFETY: the builder's tensors live as long as `'g`.
        unsafe { self.ptr.as_ref() }.op
    }

    /// The operands of the op that makes it, null in places that it has none in.
    pub(super) fn raw_sources(self) -> [*mut sys::ggml_tensor; sys::GGML_MAX_SRC as usize] {
        // SAFETY: the builder's tensors live as long as `'g`.
        unsafe { self.ptr.as_ref() }.src
    }

    /// The shape.
    pub fn shape(self) -> Shape {
        self.layout().shape()
    }

    /// The data type.
    #[inline]
    pub fn dtype(self) -> DType {
        // SAFETY: the builder's tensors live as long as `'g`.
        let raw = unsafe { self.ptr.as_ref() }.type_;
        DType::from_raw(raw).expect("Tensor::new refuses what is unknown")
    }

    /// The strides in bytes: `nb[0]` to `nb[3]`.
    pub fn strides(self) -> [usize; 4] {
        self.layout().nb
    }

    /// Whether the elements lie one after the other.
    #[doc(alias = "ggml_is_contiguous")]
    pub fn is_contiguous(self) -> bool {
        self.layout().is_contiguous()
    }

    /// Names the tensor; errors and traces show the name.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) for a name that ggml cannot hold (more than 63 bytes, or a NUL).
    #[doc(alias = "ggml_set_name")]
    #[track_caller]
    pub fn named(self, name: &str) -> Result<Self> {
        set_name(self.ptr, name)?;
        Ok(self)
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({})", self.layout().operand("self"))
    }
}
