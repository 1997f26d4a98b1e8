//! Softmax, with what attention adds to it, and the loss that goes with it.

use ggml_sys as sys;

use super::inplace::{self, Reads};
use crate::dtype::DType::{F16, F32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// What [`Tensor::soft_max_ext`] adds to a softmax.
///
/// ```
/// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
/// use ggml_rs::graph::SoftMax;
/// let (graph, (x, mask, y)) = Graph::build(|g| {
///     let (x, x_in) = g.input("x", DType::F32, [2, 1])?;
///     let (mask, mask_in) = g.input("mask", DType::F16, [2, 1])?;
///     let options = SoftMax { mask: Some(mask), scale: 0.5, ..SoftMax::default() };
///     Ok((x_in, mask_in, g.output("y", x.soft_max_ext(options)?)?))
/// })?;
/// # let mut backend = Device::cpu()?.open()?;
/// # let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
/// plan.set_f32(&x, &[4.0, 4.0])?;
/// plan.set_f32(&mask, &[0.0, f32::NEG_INFINITY])?;
/// plan.run(&mut backend)?;
/// assert_eq!(plan.read_f32(&y)?, [1.0, 0.0]);
/// # Ok::<(), ggml_rs::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct SoftMax<'g> {
    /// Added to the scaled values, times the head's slope: F16 or F32, contiguous, `[ne[0], at least ne[1], m2, m3]`, with
    /// `ne[2]` and `ne[3]` multiples of `m2` and `m3`.
    pub mask: Option<Tensor<'g>>,
    /// A value for each head, F32 `[ne[2]]`, that takes its share of the sum and has no place in the result.
    pub sinks: Option<Tensor<'g>>,
    /// What values are multiplied by first.
    pub scale: f32,
    /// ALiBi: above 0, the mask is multiplied by a slope that falls with the head, `ne[2]`. 0 turns it off.
    pub max_bias: f32,
}

impl Default for SoftMax<'_> {
    fn default() -> Self {
        Self {
            mask: None,
            sinks: None,
            scale: 1.0,
            max_bias: 0.0,
        }
    }
}

impl<'g> Tensor<'g> {
    /// `exp(a) / sum(exp(a))` along each row.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless contiguous.
    #[doc(alias = "ggml_soft_max")]
    #[track_caller]
    pub fn soft_max(self) -> Result<Self> {
        self.soft_max_node("soft_max", SoftMax::default(), false)
    }

    /// [`Tensor::soft_max`], [in place](crate::graph::inplace).
    ///
    /// # Errors
    /// As [`Tensor::soft_max`].
    #[doc(alias = "ggml_soft_max_inplace")]
    #[track_caller]
    pub fn soft_max_inplace(self) -> Result<Self> {
        self.soft_max_node("soft_max_inplace", SoftMax::default(), true)
    }

    /// The softmax of `scale * a + slope * mask` along each row, with sinks in the sum: see [`SoftMax`].
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) unless `a`, the mask and the sinks are contiguous; [`Error::Shape`](crate::Error::Shape) or
    /// [`Error::DType`](crate::Error::DType) for a mask or sinks that do not fit; [`Error::Param`](crate::Error::Param) unless `max_bias` is 0 or
    /// above, and 0 without a mask.
    #[doc(alias = "ggml_soft_max_ext")]
    #[doc(alias = "ggml_soft_max_add_sinks")]
    #[track_caller]
    pub fn soft_max_ext(self, options: SoftMax<'g>) -> Result<Self> {
        self.soft_max_node("soft_max_ext", options, false)
    }

    /// [`Tensor::soft_max_ext`], [in place](crate::graph::inplace) of `a`.
    ///
    /// # Errors
    /// As [`Tensor::soft_max_ext`]; [`Error::Layout`](crate::Error::Layout) where mask or sinks lie in the memory of `a`.
    #[doc(alias = "ggml_soft_max_ext_inplace")]
    #[track_caller]
    pub fn soft_max_ext_inplace(self, options: SoftMax<'g>) -> Result<Self> {
        self.soft_max_node("soft_max_ext_inplace", options, true)
    }

    #[track_caller]
    fn soft_max_node(self, op: &'static str, options: SoftMax<'g>, in_place: bool) -> Result<Self> {
        let at = here();
        let SoftMax {
            mask,
            sinks,
            scale,
            max_bias,
        } = options;
        check_soft_max(op, self.layout(), mask.map(Tensor::layout), max_bias).at(at)?;
        if let Some(sinks) = sinks {
            check_sinks(op, self.layout(), sinks.layout()).at(at)?;
        }
        if in_place {
            let role = |role, tensor: Option<Tensor<'g>>| {
                tensor.map(|tensor| (role, tensor, Reads::Anywhere))
            };
            let others = [role("mask", mask), role("sinks", sinks)];
            inplace::check(op, self, &others.into_iter().flatten().collect::<Vec<_>>()).at(at)?;
        }
        let pointer =
            |tensor: Option<Tensor<'g>>| tensor.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        let make = match in_place {
            true => sys::ggml_soft_max_ext_inplace,
            false => sys::ggml_soft_max_ext,
        };
        // SAFETY: the tensors are alive, and the checks mirror the assertions of ggml_soft_max_impl and
        // ggml_soft_max_add_sinks, which takes null for none.
        self.make(op, |context| unsafe {
            let node = make(context, self.as_ptr(), pointer(mask), scale, max_bias);
            sys::ggml_soft_max_add_sinks(node, pointer(sinks));
            node
        })
    }

    /// The gradient of [`Tensor::soft_max_ext`] whose result is `y`, times `self`, the gradient of what came after it:
    /// `scale * y * (self - sum(y * self))` along each row.
    ///
    /// There is no gradient for sinks, and none with a slope: ggml's kernels have no `max_bias`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless both shapes are equal; [`Error::DType`](crate::Error::DType) unless both types are.
    #[doc(alias = "ggml_soft_max_ext_back")]
    #[track_caller]
    pub fn soft_max_ext_back(self, y: Tensor<'g>, scale: f32) -> Result<Self> {
        let at = here();
        check_same(
            "soft_max_ext_back",
            [("a", self.layout()), ("y", y.layout())],
        )
        .at(at)?;
        // SAFETY: both tensors are alive; ggml_soft_max_ext_back asserts nothing.
        self.make("soft_max_ext_back", |context| unsafe {
            sys::ggml_soft_max_ext_back(context, self.as_ptr(), y.as_ptr(), scale, 0.0)
        })
    }

    /// [`Tensor::soft_max_ext_back`], [in place](crate::graph::inplace) of `self`.
    ///
    /// # Errors
    /// As [`Tensor::soft_max_ext_back`]; [`Error::Layout`](crate::Error::Layout) where elements share memory, or `y` lies in the memory of
    /// `self` and is not `self`.
    #[doc(alias = "ggml_soft_max_ext_back_inplace")]
    #[track_caller]
    pub fn soft_max_ext_back_inplace(self, y: Tensor<'g>, scale: f32) -> Result<Self> {
        let at = here();
        const OP: &str = "soft_max_ext_back_inplace";
        check_same(OP, [("a", self.layout()), ("y", y.layout())]).at(at)?;
        inplace::check(OP, self, &[("y", y, Reads::InStep)]).at(at)?;
        // SAFETY: both tensors are alive; ggml_soft_max_ext_back_inplace asserts nothing.
        self.make(OP, |context| unsafe {
            sys::ggml_soft_max_ext_back_inplace(context, self.as_ptr(), y.as_ptr(), scale, 0.0)
        })
    }

    /// The cross entropy of `labels` and the softmax of each row, as a mean over the rows:
    /// `-sum(labels * log(softmax(a))) / rows`, one element.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless both shapes are equal; [`Error::DType`](crate::Error::DType) unless both are F32.
    #[doc(alias = "ggml_cross_entropy_loss")]
    #[track_caller]
    pub fn cross_entropy_loss(self, labels: Tensor<'g>) -> Result<Self> {
        let at = here();
        let operands = [("a", self.layout()), ("labels", labels.layout())];
        check_same("cross_entropy_loss", operands).at(at)?;
        check_f32("cross_entropy_loss", &operands).at(at)?;
        // SAFETY: both tensors are alive, and the check mirrors ggml_cross_entropy_loss's assertion.
        self.make("cross_entropy_loss", |context| unsafe {
            sys::ggml_cross_entropy_loss(context, self.as_ptr(), labels.as_ptr())
        })
    }

    /// The gradient of [`Tensor::cross_entropy_loss`] of `logits` and `labels`, times `self`, the gradient of what came after
    /// it, one element: `self * (softmax(logits) - labels) / rows`, for labels whose rows sum to 1.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `self` has one element and the other shapes are equal;
    /// [`Error::DType`](crate::Error::DType) unless all are F32.
    #[doc(alias = "ggml_cross_entropy_loss_back")]
    #[track_caller]
    pub fn cross_entropy_loss_back(self, logits: Tensor<'g>, labels: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_loss_back(self.layout(), logits.layout(), labels.layout()).at(at)?;
        // SAFETY: all tensors are alive, and the check mirrors ggml_cross_entropy_loss_back's assertions.
        self.make("cross_entropy_loss_back", |context| unsafe {
            let (gradient, logits) = (self.as_ptr(), logits.as_ptr());
            sys::ggml_cross_entropy_loss_back(context, gradient, logits, labels.as_ptr())
        })
    }
}

/// Mirrors `ggml_soft_max_impl`.
#[inline]
fn check_soft_max(op: &'static str, a: Layout, mask: Option<Layout>, max_bias: f32) -> Checked {
    if mask.is_none() && max_bias == 0.0 && a.is_contiguous() {
        return Ok(());
    }
    // The second place is taken only where there is a mask.
    let operands = [("a", a), ("mask", mask.unwrap_or(a))];
    let refusal = Refusal {
        op,
        operands: &operands[..1 + usize::from(mask.is_some())],
    };
    if !a.is_contiguous() {
        return Err(refusal.layout("a must be contiguous: call cont() first"));
    }
    if max_bias.is_nan() || max_bias < 0.0 || (max_bias > 0.0 && mask.is_none()) {
        let detail = "the bias must be 0 or above, and needs a mask above 0";
        return Err(refusal.param(format!("max_bias {max_bias}: {detail}")));
    }
    let Some(mask) = mask else {
        return Ok(());
    };
    if !matches!(mask.dtype, F16 | F32) {
        return Err(refusal.dtype("the mask must be F16 or F32"));
    }
    if !mask.is_contiguous() {
        return Err(refusal.layout("the mask must be contiguous: call cont() first"));
    }
    let rows_fit = mask.ne[0] == a.ne[0] && mask.ne[1] >= a.ne[1];
    if !rows_fit || (2..4).any(|i| !a.ne[i].is_multiple_of(mask.ne[i])) {
        let detail =
            "the mask must have rows as long, as many or more, and repeat over ne[2] and ne[3]";
        return Err(refusal.shape(detail));
    }
    Ok(())
}

/// Mirrors `ggml_soft_max_add_sinks`, and the kernels, which read one value after the other.
fn check_sinks(op: &'static str, a: Layout, sinks: Layout) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("sinks", sinks)],
    };
    if sinks.dtype != F32 {
        return Err(refusal.dtype("the sinks must be F32"));
    }
    if sinks.ne[0] != a.ne[2] {
        return Err(refusal.shape("there must be as many sinks as heads, ne[2]"));
    }
    if !sinks.is_contiguous() {
        return Err(refusal.layout("the sinks must be contiguous: call cont() first"));
    }
    Ok(())
}

/// `ggml_are_same_shape`, and one type, which kernels take for granted.
fn check_same(op: &'static str, operands: [(&'static str, Layout); 2]) -> Checked {
    let [(_, a), (_, b)] = operands;
    let refusal = Refusal {
        op,
        operands: &operands,
    };
    if a.ne != b.ne {
        return Err(refusal.shape("both must have the same shape"));
    }
    if a.dtype != b.dtype {
        return Err(refusal.dtype("both must be of the same type"));
    }
    Ok(())
}

fn check_f32(op: &'static str, operands: &[(&'static str, Layout)]) -> Checked {
    if operands.iter().all(|(_, layout)| layout.dtype == F32) {
        return Ok(());
    }
    Err(Refusal { op, operands }.dtype("all operands must be F32"))
}

/// Mirrors `ggml_cross_entropy_loss_back`, whose kernel takes all for F32.
fn check_loss_back(gradient: Layout, logits: Layout, labels: Layout) -> Checked {
    const OP: &str = "cross_entropy_loss_back";
    let operands = [("a", gradient), ("logits", logits), ("labels", labels)];
    check_f32(OP, &operands)?;
    let refusal = Refusal {
        op: OP,
        operands: &operands,
    };
    if gradient.elements() != 1 {
        return Err(refusal.shape("the gradient of the loss must have one element"));
    }
    if logits.ne != labels.ne {
        return Err(refusal.shape("logits and labels must have the same shape"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{BF16, I32};
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn masks_fit_rows_and_repeat_over_heads() {
        let a = layout(F32, &[8, 4, 6, 2]);
        let check = |mask: Layout| check_soft_max("soft_max_ext", a, Some(mask), 0.0);
        for dims in [&[8, 4][..], &[8, 64], &[8, 4, 3, 1], &[8, 4, 6, 2]] {
            check(layout(F16, dims)).unwrap();
        }
        for dims in [&[7, 4][..], &[8, 3], &[8, 4, 4], &[8, 4, 1, 4]] {
            let refused = check(layout(F32, dims));
            assert!(matches!(refused, Err(Refused::Shape(_))), "{dims:?}");
        }
        assert!(matches!(
            check(layout(BF16, &[8, 4])),
            Err(Refused::DType(_))
        ));
        let spread = transposed(layout(F32, &[4, 8]));
        assert!(matches!(check(spread), Err(Refused::Layout(_))));
        let refused = check_soft_max("soft_max", spread, None, 0.0);
        assert!(matches!(refused, Err(Refused::Layout(_))));
    }

    #[test]
    fn a_slope_needs_a_mask() {
        let a = layout(F32, &[8, 4]);
        check_soft_max("soft_max_ext", a, Some(a), 8.0).unwrap();
        for (mask, bias) in [(None, 8.0), (Some(a), -1.0), (Some(a), f32::NAN)] {
            let refused = check_soft_max("soft_max_ext", a, mask, bias);
            assert!(matches!(refused, Err(Refused::Param(_))), "{bias}");
        }
    }

    #[test]
    fn each_head_has_a_sink() {
        let a = layout(F32, &[8, 4, 6]);
        check_sinks("soft_max_ext", a, layout(F32, &[6])).unwrap();
        let refused = check_sinks("soft_max_ext", a, layout(F32, &[4]));
        assert!(matches!(refused, Err(Refused::Shape(_))));
        let refused = check_sinks("soft_max_ext", a, layout(F16, &[6]));
        assert!(matches!(refused, Err(Refused::DType(_))));
    }

    #[test]
    fn losses_compare_equals() {
        let (a, one) = (layout(F32, &[8, 4]), layout(F32, &[1]));
        check_loss_back(one, a, a).unwrap();
        for (gradient, logits, labels) in [(a, a, a), (one, a, layout(F32, &[8, 3]))] {
            let refused = check_loss_back(gradient, logits, labels);
            assert!(matches!(refused, Err(Refused::Shape(_))));
        }
        let refused = check_loss_back(layout(I32, &[1]), a, a);
        assert!(matches!(refused, Err(Refused::DType(_))));
        let refused = check_same("cross_entropy_loss", [("a", a), ("labels", one)]);
        assert!(matches!(refused, Err(Refused::Shape(_))));
    }
}
