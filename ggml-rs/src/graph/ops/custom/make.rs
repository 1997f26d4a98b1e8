//! The constructors of ops computed by closures.

use std::ffi::{c_int, c_void};

use ggml_sys as sys;

use super::run::{CustomOp, custom, custom1, custom2, custom3};
use super::{CustomTask, Tasks};
use crate::dtype::DType;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::{Builder, Tensor};
use crate::layout::{Layout, Refusal};
use crate::shape::IntoShape;

/// ggml_custom_inplace keeps two places of a node free.
const MOST_OPERANDS: usize = sys::GGML_MAX_SRC as usize - 2;

impl<'g> Tensor<'g> {
    /// A tensor like `self` that a closure computes from it.
    ///
    /// # Errors
    /// [`Error::Alloc`](crate::Error::Alloc) only.
    #[doc(alias = "ggml_map_custom1")]
    #[track_caller]
    pub fn map_custom1(
        self,
        tasks: Tasks,
        closure: impl Fn(&mut CustomTask<'_>) + Send + Sync + 'static,
    ) -> Result<Self> {
        let call = self
            .builder()
            .keep(CustomOp::new(Box::new(closure), tasks, false));
        let (n, data) = (call.tasks, call.userdata);
        // SAFETY: the tensors are alive, ggml asserts nothing but that there are tasks, and the graph keeps the closure.
        self.make("map_custom1", |context| unsafe {
            sys::ggml_map_custom1(context, self.as_ptr(), Some(custom1), n, data)
        })
    }

    /// [`Tensor::map_custom1`] in place: the closure finds the values of `self` in its part of the result, and the other
    /// operands among its inputs. The result is a view of `self`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless `self` is contiguous.
    #[doc(alias = "ggml_map_custom1_inplace")]
    #[track_caller]
    pub fn map_custom1_inplace(
        self,
        tasks: Tasks,
        closure: impl Fn(&mut CustomTask<'_>) + Send + Sync + 'static,
    ) -> Result<Self> {
        let at = here();
        check_in_place("map_custom1_inplace", self, &[]).at(at)?;
        let call = self
            .builder()
            .keep(CustomOp::new(Box::new(closure), tasks, true));
        let (n, data) = (call.tasks, call.userdata);
        // SAFETY: the tensors are alive, ggml asserts nothing but that there are tasks, and the graph keeps the closure.
        self.make("map_custom1_inplace", |context| unsafe {
            sys::ggml_map_custom1_inplace(context, self.as_ptr(), Some(custom1), n, data)
        })
    }

    /// A tensor like `self` that a closure computes from it and `b`, of any shape.
    ///
    /// # Errors
    /// [`Error::Alloc`](crate::Error::Alloc) only.
    #[doc(alias = "ggml_map_custom2")]
    #[track_caller]
    pub fn map_custom2(
        self,
        b: Tensor<'g>,
        tasks: Tasks,
        closure: impl Fn(&mut CustomTask<'_>) + Send + Sync + 'static,
    ) -> Result<Self> {
        let call = self
            .builder()
            .keep(CustomOp::new(Box::new(closure), tasks, false));
        let (n, data) = (call.tasks, call.userdata);
        // SAFETY: the tensors are alive, ggml asserts nothing but that there are tasks, and the graph keeps the closure.
        self.make("map_custom2", |context| unsafe {
            sys::ggml_map_custom2(context, self.as_ptr(), b.as_ptr(), Some(custom2), n, data)
        })
    }

    /// [`Tensor::map_custom2`] in place: the closure finds the values of `self` in its part of the result, and the other
    /// operands among its inputs. The result is a view of `self`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless `self` is contiguous, and where another operand shares its memory.
    #[doc(alias = "ggml_map_custom2_inplace")]
    #[track_caller]
    pub fn map_custom2_inplace(
        self,
        b: Tensor<'g>,
        tasks: Tasks,
        closure: impl Fn(&mut CustomTask<'_>) + Send + Sync + 'static,
    ) -> Result<Self> {
        let at = here();
        check_in_place("map_custom2_inplace", self, &[b]).at(at)?;
        let call = self
            .builder()
            .keep(CustomOp::new(Box::new(closure), tasks, true));
        let (n, data) = (call.tasks, call.userdata);
        // SAFETY: the tensors are alive, ggml asserts nothing but that there are tasks, and the graph keeps the closure.
        self.make("map_custom2_inplace", |context| unsafe {
            sys::ggml_map_custom2_inplace(
                context,
                self.as_ptr(),
                b.as_ptr(),
                Some(custom2),
                n,
                data,
            )
        })
    }

    /// A tensor like `self` that a closure computes from it, `b` and `c`, of any shapes.
    ///
    /// # Errors
    /// [`Error::Alloc`](crate::Error::Alloc) only.
    #[doc(alias = "ggml_map_custom3")]
    #[track_caller]
    pub fn map_custom3(
        self,
        b: Tensor<'g>,
        c: Tensor<'g>,
        tasks: Tasks,
        closure: impl Fn(&mut CustomTask<'_>) + Send + Sync + 'static,
    ) -> Result<Self> {
        let call = self
            .builder()
            .keep(CustomOp::new(Box::new(closure), tasks, false));
        let (n, data) = (call.tasks, call.userdata);
        // SAFETY: the tensors are alive, ggml asserts nothing but that there are tasks, and the graph keeps the closure.
        self.make("map_custom3", |context| unsafe {
            sys::ggml_map_custom3(
                context,
                self.as_ptr(),
                b.as_ptr(),
                c.as_ptr(),
                Some(custom3),
                n,
                data,
            )
        })
    }

    /// [`Tensor::map_custom3`] in place: the closure finds the values of `self` in its part of the result, and the other
    /// operands among its inputs. The result is a view of `self`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless `self` is contiguous, and where another operand shares its memory.
    #[doc(alias = "ggml_map_custom3_inplace")]
    #[track_caller]
    pub fn map_custom3_inplace(
        self,
        b: Tensor<'g>,
        c: Tensor<'g>,
        tasks: Tasks,
        closure: impl Fn(&mut CustomTask<'_>) + Send + Sync + 'static,
    ) -> Result<Self> {
        let at = here();
        check_in_place("map_custom3_inplace", self, &[b, c]).at(at)?;
        let call = self
            .builder()
            .keep(CustomOp::new(Box::new(closure), tasks, true));
        let (n, data) = (call.tasks, call.userdata);
        // SAFETY: the tensors are alive, ggml asserts nothing but that there are tasks, and the graph keeps the closure.
        self.make("map_custom3_inplace", |context| unsafe {
            sys::ggml_map_custom3_inplace(
                context,
                self.as_ptr(),
                b.as_ptr(),
                c.as_ptr(),
                Some(custom3),
                n,
                data,
            )
        })
    }

    /// A closure that works in place on `self`, with more operands. As [`Tensor::map_custom2_inplace`].
    ///
    /// # Errors
    /// As [`Tensor::map_custom2_inplace`]; [`Error::Param`](crate::Error::Param) for more than 8 operands.
    #[doc(alias = "ggml_custom_inplace")]
    #[track_caller]
    pub fn custom_inplace(
        self,
        operands: &[Tensor<'g>],
        tasks: Tasks,
        closure: impl Fn(&mut CustomTask<'_>) + Send + Sync + 'static,
    ) -> Result<Self> {
        let at = here();
        const OP: &str = "custom_inplace";
        check_count(OP, operands).at(at)?;
        check_in_place(OP, self, operands).at(at)?;
        let call = self
            .builder()
            .keep(CustomOp::new(Box::new(closure), tasks, true));
        let mut operands = pointers(operands);
        // SAFETY: the tensors are alive, there are as many operands as the check allows, and the graph keeps the closure.
        self.make(OP, |context| unsafe {
            let (args, count) = (operands.as_mut_ptr(), operands.len() as c_int);
            let (n, data) = (call.tasks, call.userdata);
            sys::ggml_custom_inplace(context, self.as_ptr(), args, count, Some(custom), n, data)
        })
    }
}

impl<'g> Builder<'g> {
    /// A new tensor that a closure computes from up to 8 operands.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) for an invalid shape; [`Error::Param`](crate::Error::Param) for more operands.
    #[doc(alias = "ggml_custom_4d")]
    #[track_caller]
    pub fn custom_4d(
        self,
        dtype: DType,
        shape: impl IntoShape,
        operands: &[Tensor<'g>],
        tasks: Tasks,
        closure: impl Fn(&mut CustomTask<'_>) + Send + Sync + 'static,
    ) -> Result<Tensor<'g>> {
        let at = here();
        const OP: &str = "custom_4d";
        let shape = shape.into_shape()?;
        Layout::contiguous(dtype, shape)?;
        check_count(OP, operands).at(at)?;
        let call = self.keep(CustomOp::new(Box::new(closure), tasks, false));
        let mut operands = pointers(operands);
        let [n0, n1, n2, n3] = shape.ne().map(|n| n as i64);
        // SAFETY: the tensors are alive, the shape was checked, there are as many operands as the check allows, and the graph
        // keeps the closure.
        self.make(OP, |context| unsafe {
            let (args, count) = (operands.as_mut_ptr(), operands.len() as c_int);
            let (n, data, kind) = (call.tasks, call.userdata, dtype.raw());
            sys::ggml_custom_4d(
                context,
                kind,
                n0,
                n1,
                n2,
                n3,
                args,
                count,
                Some(custom),
                n,
                data,
            )
        })
    }

    /// Keeps a closure as long as the graph.
    fn keep(self, op: CustomOp) -> Call {
        let tasks = op.raw_tasks();
        let userdata = self.keep_custom(op).cast_mut().cast();
        Call { tasks, userdata }
    }
}

/// What ggml is given to call a closure.
#[derive(Clone, Copy)]
struct Call {
    tasks: c_int,
    userdata: *mut c_void,
}

fn pointers(operands: &[Tensor<'_>]) -> Vec<*mut sys::ggml_tensor> {
    operands.iter().map(|operand| operand.as_ptr()).collect()
}

/// Stricter than `ggml_custom_4d` and `ggml_custom_inplace`.
fn check_count(op: &'static str, operands: &[Tensor<'_>]) -> Checked {
    let refusal = Refusal { op, operands: &[] };
    if operands.len() > MOST_OPERANDS {
        let count = operands.len();
        return Err(refusal.param(format!(
            "{count} operands: there are places for {MOST_OPERANDS}"
        )));
    }
    Ok(())
}

/// Tasks write rows of `a`, which must lie apart, and where nobody reads.
fn check_in_place(op: &'static str, a: Tensor<'_>, operands: &[Tensor<'_>]) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a.layout())],
    };
    if !a.layout().is_contiguous() {
        return Err(refusal.layout("a must be contiguous: call cont() first"));
    }
    if operands.iter().any(|operand| operand.base() == a.base()) {
        return Err(
            refusal.layout("an operand is a view of the same tensor as a: call cont() on it first")
        );
    }
    Ok(())
}
