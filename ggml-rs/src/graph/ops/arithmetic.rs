//! Arithmetic, element by element, with `b` repeated to the shape of `a`.

use ggml_sys as sys;

use super::inplace::{self, Reads};
use crate::dtype::DType::{self, BF16, F16};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::graph::node::{self, Op};
use crate::layout::{Layout, Refusal};

/// One of ggml's functions of two operands.
type Make = unsafe extern "C-unwind" fn(
    *mut sys::ggml_context,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
) -> *mut sys::ggml_tensor;

#[allow(
    clippy::should_implement_trait,
    reason = "ggml's names; operators cannot return errors"
)]
impl<'g> Tensor<'g> {
    /// `a + b`, in the type of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies of `b` fill `a`.
    #[doc(alias = "ggml_add")]
    #[track_caller]
    pub fn add(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_repeats("add", self.layout(), b.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_add's assertion.
        self.make("add", |context| unsafe {
            sys::ggml_add(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// `a - b`, in the type of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies of `b` fill `a`.
    #[doc(alias = "ggml_sub")]
    #[track_caller]
    pub fn sub(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_repeats("sub", self.layout(), b.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_sub's assertion.
        self.make("sub", |context| unsafe {
            sys::ggml_sub(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// `a * b` element by element, in the type of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies of `b` fill `a`.
    #[doc(alias = "ggml_mul")]
    #[track_caller]
    pub fn mul(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_repeats("mul", self.layout(), b.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_mul's assertion.
        self.make("mul", |context| unsafe {
            sys::ggml_mul(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// `a / b` element by element, in the type of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies of `b` fill `a`.
    #[doc(alias = "ggml_div")]
    #[track_caller]
    pub fn div(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_repeats("div", self.layout(), b.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_div's assertion.
        self.make("div", |context| unsafe {
            sys::ggml_div(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// [`Tensor::add`], [in place](crate::graph::inplace) of `a`.
    ///
    /// # Errors
    /// As [`Tensor::add`]; [`Error::Layout`](crate::Error::Layout) where elements of `a` share memory, or `b` lies in the memory
    /// of `a` and is not `a`.
    #[doc(alias = "ggml_add_inplace")]
    #[track_caller]
    pub fn add_inplace(self, b: Tensor<'g>) -> Result<Self> {
        self.binary_inplace("add_inplace", b, sys::ggml_add_inplace)
    }

    /// [`Tensor::sub`], [in place](crate::graph::inplace) of `a`.
    ///
    /// # Errors
    /// As [`Tensor::sub`]; [`Error::Layout`](crate::Error::Layout) where elements of `a` share memory, or `b` lies in the memory
    /// of `a` and is not `a`.
    #[doc(alias = "ggml_sub_inplace")]
    #[track_caller]
    pub fn sub_inplace(self, b: Tensor<'g>) -> Result<Self> {
        self.binary_inplace("sub_inplace", b, sys::ggml_sub_inplace)
    }

    /// [`Tensor::mul`], [in place](crate::graph::inplace) of `a`.
    ///
    /// # Errors
    /// As [`Tensor::mul`]; [`Error::Layout`](crate::Error::Layout) where elements of `a` share memory, or `b` lies in the memory
    /// of `a` and is not `a`.
    #[doc(alias = "ggml_mul_inplace")]
    #[track_caller]
    pub fn mul_inplace(self, b: Tensor<'g>) -> Result<Self> {
        self.binary_inplace("mul_inplace", b, sys::ggml_mul_inplace)
    }

    /// [`Tensor::div`], [in place](crate::graph::inplace) of `a`.
    ///
    /// # Errors
    /// As [`Tensor::div`]; [`Error::Layout`](crate::Error::Layout) where elements of `a` share memory, or `b` lies in the memory
    /// of `a` and is not `a`.
    #[doc(alias = "ggml_div_inplace")]
    #[track_caller]
    pub fn div_inplace(self, b: Tensor<'g>) -> Result<Self> {
        self.binary_inplace("div_inplace", b, sys::ggml_div_inplace)
    }

    #[track_caller]
    fn binary_inplace(self, op: &'static str, b: Tensor<'g>, make: Make) -> Result<Self> {
        let at = here();
        check_repeats(op, self.layout(), b.layout()).at(at)?;
        inplace::check(op, self, &[("b", b, Reads::InStep)]).at(at)?;
        if let Some(source) = b.fused_source()? {
            inplace::check(op, self, &[("b's operand", source, Reads::InStep)]).at(at)?;
        }
        // SAFETY: both tensors are alive, and the check mirrors ggml_can_repeat, which the four functions assert.
        self.make(op, |context| unsafe {
            make(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// What is still read while a product with this tensor is written: the CPU backend computes RMS_NORM and the MUL
    /// after it in one pass.
    fn fused_source(self) -> Result<Option<Tensor<'g>>> {
        // SAFETY: the builder's tensors are alive.
        let (op, source) = unsafe { (node::op(self.ptr()), self.ptr().as_ref().src[0]) };
        match (op, std::ptr::NonNull::new(source)) {
            (Some(Op::RmsNorm), Some(source)) => self.sibling(source).map(Some),
            _ => Ok(None),
        }
    }

    /// `a + b` in another type than that of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless whole copies of `b` fill `a` and rows are equally long, or when rows are not
    /// whole blocks of `dtype`; [`Error::DType`](crate::Error::DType) unless `a` is quantized, F16 or BF16.
    #[doc(alias = "ggml_add_cast")]
    #[track_caller]
    pub fn add_cast(self, b: Tensor<'g>, dtype: DType) -> Result<Self> {
        let at = here();
        check_add_cast(self.layout(), b.layout(), dtype).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_add_cast_impl's assertions.
        self.make("add_cast", |context| unsafe {
            sys::ggml_add_cast(context, self.as_ptr(), b.as_ptr(), dtype.raw())
        })
    }

    /// `a + b` with the single element of `b`, in the type of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `b` has one element; [`Error::Layout`](crate::Error::Layout) unless rows of `a` are
    /// packed and `ne[2]`, `ne[3]` follow each other without gaps.
    #[doc(alias = "ggml_add1")]
    #[track_caller]
    pub fn add1(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_add1("add1", self.layout(), b.layout()).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_add1_impl's assertions.
        self.make("add1", |context| unsafe {
            sys::ggml_add1(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// [`Tensor::add1`], [in place](crate::graph::inplace) of `a`.
    ///
    /// # Errors
    /// As [`Tensor::add1`]; [`Error::Layout`](crate::Error::Layout) where elements of `a` share memory, or `b` is one of them.
    #[doc(alias = "ggml_add1_inplace")]
    #[track_caller]
    pub fn add1_inplace(self, b: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_add1("add1_inplace", self.layout(), b.layout()).at(at)?;
        inplace::check("add1_inplace", self, &[("b", b, Reads::Anywhere)]).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_add1_impl's assertions.
        self.make("add1_inplace", |context| unsafe {
            sys::ggml_add1_inplace(context, self.as_ptr(), b.as_ptr())
        })
    }

    /// `a * factor`.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless rows are packed and `ne[2]`, `ne[3]` follow each other without gaps.
    #[doc(alias = "ggml_scale")]
    #[track_caller]
    pub fn scale(self, factor: f32) -> Result<Self> {
        let at = here();
        check_padded("scale", self.layout()).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_scale_impl's assertion.
        self.make("scale", |context| unsafe {
            sys::ggml_scale(context, self.as_ptr(), factor)
        })
    }

    /// [`Tensor::scale`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::scale`]; also where elements share memory.
    #[doc(alias = "ggml_scale_inplace")]
    #[track_caller]
    pub fn scale_inplace(self, factor: f32) -> Result<Self> {
        let at = here();
        check_padded("scale_inplace", self.layout()).at(at)?;
        inplace::check("scale_inplace", self, &[]).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_scale_impl's assertion.
        self.make("scale_inplace", |context| unsafe {
            sys::ggml_scale_inplace(context, self.as_ptr(), factor)
        })
    }

    /// `a * factor + bias`.
    ///
    /// # Errors
    /// As [`Tensor::scale`].
    #[doc(alias = "ggml_scale_bias")]
    #[track_caller]
    pub fn scale_bias(self, factor: f32, bias: f32) -> Result<Self> {
        let at = here();
        check_padded("scale_bias", self.layout()).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_scale_impl's assertion.
        self.make("scale_bias", |context| unsafe {
            sys::ggml_scale_bias(context, self.as_ptr(), factor, bias)
        })
    }

    /// [`Tensor::scale_bias`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::scale`]; also where elements share memory.
    #[doc(alias = "ggml_scale_bias_inplace")]
    #[track_caller]
    pub fn scale_bias_inplace(self, factor: f32, bias: f32) -> Result<Self> {
        let at = here();
        const OP: &str = "scale_bias_inplace";
        check_padded(OP, self.layout()).at(at)?;
        inplace::check(OP, self, &[]).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_scale_impl's assertion.
        self.make(OP, |context| unsafe {
            sys::ggml_scale_bias_inplace(context, self.as_ptr(), factor, bias)
        })
    }
}

/// Mirrors `ggml_can_repeat(b, a)`, which all four binary ops assert.
#[inline]
fn check_repeats(op: &'static str, a: Layout, b: Layout) -> Checked {
    if b.can_repeat_to(a.ne) {
        return Ok(());
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("b", b)],
    };
    Err(refusal.shape("every dimension of a must be a multiple of b's"))
}

/// Mirrors `ggml_add_cast_impl`.
fn check_add_cast(a: Layout, b: Layout, dtype: DType) -> Checked {
    let refusal = Refusal {
        op: "add_cast",
        operands: &[("a", a), ("b", b)],
    };
    if a.ne[0] != b.ne[0] || !b.can_repeat_to(a.ne) {
        return Err(refusal.shape("ne[0] must agree, and ne[1..] of a be multiples of b's"));
    }
    if !a.dtype.is_quantized() && !matches!(a.dtype, F16 | BF16) {
        return Err(refusal.dtype("a must be quantized, F16 or BF16"));
    }
    refusal.check_result(dtype, a.ne)
}

/// Mirrors `ggml_add1_impl`.
fn check_add1(op: &'static str, a: Layout, b: Layout) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("b", b)],
    };
    if b.elements() != 1 {
        return Err(refusal.shape("b must have one element"));
    }
    check_padded(op, a)
}

/// `ggml_is_padded_1d`, which `ggml_scale_impl` and `ggml_add1_impl` assert.
#[inline]
fn check_padded(op: &'static str, a: Layout) -> Checked {
    if a.is_padded_1d() {
        return Ok(());
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    Err(refusal.layout("rows must be packed and matrices follow each other: call cont() first"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::error::{Error, Refused};
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn b_repeats_into_a_and_not_the_reverse() {
        let (matrix, row) = (layout(DType::F32, &[4, 6]), layout(DType::F32, &[4]));
        check_repeats("add", matrix, row).unwrap();
        let text = check_repeats("div", row, matrix).unwrap_err().to_string();
        assert!(
            text.contains("div(a: f32 [4, 1, 1, 1], b: f32 [4, 6, 1, 1])"),
            "{text}"
        );
    }

    #[test]
    fn scaling_needs_packed_rows() {
        check_padded("scale", layout(DType::F32, &[4, 6])).unwrap();
        assert!(matches!(
            check_padded("scale", transposed(layout(DType::F32, &[4, 6]))),
            Err(Refused::Layout(_))
        ));
    }

    #[test]
    fn other_types_are_cast_to_and_from() {
        let (a, row) = (layout(DType::Q8_0, &[64, 2]), layout(DType::F32, &[64]));
        check_add_cast(a, row, DType::F32).unwrap();
        check_add_cast(a, a, DType::Q4_0).unwrap();
        for (a, b, dtype) in [
            (a, layout(DType::F32, &[32]), DType::F32),
            (layout(F16, &[8]), layout(DType::F32, &[8]), DType::Q8_0),
        ] {
            assert!(matches!(
                check_add_cast(a, b, dtype),
                Err(Refused::Shape(_))
            ));
        }
        let refused = check_add_cast(row, row, DType::F16);
        assert!(matches!(refused, Err(Refused::DType(_))));
    }

    #[test]
    fn one_element_is_added() {
        let a = layout(DType::F32, &[4, 6]);
        check_add1("add1", a, layout(DType::F32, &[1])).unwrap();
        let refused = check_add1("add1", a, layout(DType::F32, &[1, 2]));
        assert!(matches!(refused, Err(Refused::Shape(_))));
        let refused = check_add1("add1", transposed(a), layout(DType::F32, &[1]));
        assert!(matches!(refused, Err(Refused::Layout(_))));
    }

    #[test]
    fn operands_in_the_memory_that_is_written_are_refused() {
        crate::Graph::build(|g| {
            let (a, _) = g.input("a", DType::F32, [4, 4, 4])?;
            let turned = a.permute([0, 2, 1, 3])?;
            a.add_inplace(a)?;
            for refused in [
                a.add_inplace(turned),
                a.add_inplace(a.view([4], [16, 16, 16], 0)?),
                a.add1_inplace(a.view([1], [4, 4, 4], 0)?),
                // The CPU reads the norm's operand while it writes the product.
                turned.mul_inplace(a.rms_norm(1e-6)?),
            ] {
                assert!(matches!(refused, Err(Error::Layout(_))), "{refused:?}");
            }
            g.output("y", a.mul_inplace(a.rms_norm(1e-6)?)?)
        })
        .unwrap();
    }
}
