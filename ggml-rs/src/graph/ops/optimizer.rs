//! Optimizer steps, which update a marked tensor in place.

use ggml_sys as sys;

use crate::dtype::DType;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// What an AdamW step is told, as the values of its input of seven.
///
/// ```
/// use ggml_rs::AdamW;
///
/// let options = AdamW { learning_rate: 1e-3, ..AdamW::default() };
/// let first = options.values(1);
/// // The corrections of the moments, which begin at zero.
/// assert_eq!(first[5], 1.0 / (1.0 - 0.9_f32));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// The length of a step.
    pub learning_rate: f32,
    /// How much of the mean gradient is kept from one step to the next.
    pub beta1: f32,
    /// The same for the mean square.
    pub beta2: f32,
    /// Added to the root of the mean square.
    pub eps: f32,
    /// What a step takes off the weights, as a part of them and times `learning_rate`.
    pub weight_decay: f32,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
        }
    }
}

impl AdamW {
    /// The values of the parameters' input for a step, the first of which is 1.
    ///
    /// The last two make up for moments that began at zero; they are computed in f64, so late steps get exactly 1.
    pub fn values(&self, step: u32) -> [f32; 7] {
        let correction = |beta: f32| {
            let rest = 1.0 - f64::from(beta).powi(step.clamp(1, i32::MAX as u32) as i32);
            (1.0 / rest) as f32
        };
        [
            self.learning_rate,
            self.beta1,
            self.beta2,
            self.eps,
            self.weight_decay,
            correction(self.beta1),
            correction(self.beta2),
        ]
    }
}

impl<'g> Tensor<'g> {
    /// One AdamW step: writes the marked tensor `a` and its moments `m` and `v` in place, and returns `a` as it is then.
    ///
    /// `m = beta1·m + (1 - beta1)·grad`, `v = beta2·v + (1 - beta2)·grad²`,
    /// `a = (1 - learning_rate·weight_decay)·a - learning_rate·(m·c1) / (sqrt(v·c2) + eps)`, where `params` holds learning_rate, beta1,
    /// beta2, eps, weight_decay, c1 and c2: [`AdamW::values`] makes them. `m` and `v` are inputs that are zero before the first step.
    ///
    /// The step runs where it is written, after the nodes before it; what is written later reads the new values. It runs whether
    /// an output depends on its result or not.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless `a` is marked with [`Tensor::set_param`], or when two of `a`, `m`, `v` and `grad`
    /// share memory; [`Error::Shape`](crate::Error::Shape) unless `grad`, `m` and `v` have the shape of `a` and `params` seven
    /// elements; [`Error::DType`](crate::Error::DType) unless all are F32; [`Error::Layout`](crate::Error::Layout) unless all are
    /// contiguous.
    #[doc(alias = "ggml_opt_step_adamw")]
    #[track_caller]
    pub fn opt_step_adamw(
        self,
        grad: Tensor<'g>,
        m: Tensor<'g>,
        v: Tensor<'g>,
        params: Tensor<'g>,
    ) -> Result<Self> {
        let at = here();
        let operands = [("a", self), ("grad", grad), ("m", m), ("v", v)];
        self.check_step("opt_step_adamw", &operands, params, 7)
            .at(at)?;
        // SAFETY: all tensors are alive, and the check mirrors ggml_opt_step_adamw's assertions and its kernels'.
        self.make("opt_step_adamw", |context| unsafe {
            sys::ggml_opt_step_adamw(
                context,
                self.as_ptr(),
                grad.as_ptr(),
                m.as_ptr(),
                v.as_ptr(),
                params.as_ptr(),
            )
        })
    }

    /// One step of gradient descent: writes the marked tensor `a` in place, and returns it as it is then.
    ///
    /// `a = (1 - learning_rate·weight_decay)·a - learning_rate·grad`, where `params` holds learning_rate and weight_decay. When it
    /// runs: see [`Tensor::opt_step_adamw`].
    ///
    /// # Errors
    /// As [`Tensor::opt_step_adamw`], with `params` of two elements.
    #[doc(alias = "ggml_opt_step_sgd")]
    #[track_caller]
    pub fn opt_step_sgd(self, grad: Tensor<'g>, params: Tensor<'g>) -> Result<Self> {
        let at = here();
        self.check_step("opt_step_sgd", &[("a", self), ("grad", grad)], params, 2)
            .at(at)?;
        // SAFETY: all tensors are alive, and the check mirrors ggml_opt_step_sgd's assertions and its kernels'.
        self.make("opt_step_sgd", |context| unsafe {
            sys::ggml_opt_step_sgd(context, self.as_ptr(), grad.as_ptr(), params.as_ptr())
        })
    }

    fn check_step(
        self,
        op: &'static str,
        tensors: &[(&'static str, Tensor<'g>)],
        params: Tensor<'g>,
        count: usize,
    ) -> Checked {
        let mut operands: Vec<_> = tensors
            .iter()
            .map(|(role, t)| (*role, t.layout()))
            .collect();
        operands.push(("params", params.layout()));
        check_layouts(op, &operands, count)?;
        let refusal = Refusal {
            op,
            operands: &operands,
        };
        // SAFETY: the builder's tensors are alive.
        let flags = unsafe { self.ptr().as_ref() }.flags;
        if flags & sys::GGML_TENSOR_FLAG_PARAM == 0 {
            return Err(refusal.param("a is not marked with set_param"));
        }
        let bases: Vec<_> = tensors.iter().map(|(_, t)| t.base()).collect();
        let shared = (0..bases.len()).any(|i| bases[..i].contains(&bases[i]));
        if shared || bases.contains(&params.base()) {
            return Err(refusal.param("operands share memory, which the step writes"));
        }
        Ok(())
    }
}

/// Mirrors what `ggml_opt_step_adamw` and `_sgd` assert of layouts, and their kernels, which find all elements by the places of a's.
/// The last operand holds the parameters.
fn check_layouts(op: &'static str, operands: &[(&'static str, Layout)], count: usize) -> Checked {
    let refusal = Refusal { op, operands };
    let [(_, a), .., (_, params)] = operands else {
        return Err(refusal.param("no operands"));
    };
    if operands[..operands.len() - 1]
        .iter()
        .any(|(_, layout)| layout.ne != a.ne)
    {
        return Err(refusal.shape("all but params must have the shape of a"));
    }
    if params.elements() != count {
        return Err(refusal.shape(format!("params must have {count} elements")));
    }
    if operands
        .iter()
        .any(|(_, layout)| layout.dtype != DType::F32)
    {
        return Err(refusal.dtype("all must be f32"));
    }
    if operands.iter().any(|(_, layout)| !layout.is_packed()) {
        return Err(refusal.layout("all must be contiguous: call cont() on the gradient"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn a_step_takes_equal_shapes_of_packed_floats() {
        let a = layout(DType::F32, &[4, 6]);
        let params = |n| ("params", layout(DType::F32, &[n]));
        let step =
            |grad, n| check_layouts("opt_step_sgd", &[("a", a), ("grad", grad), params(n)], 2);
        step(a, 2).unwrap();
        assert!(matches!(step(a, 7), Err(Refused::Shape(_))));
        assert!(matches!(
            step(layout(DType::F32, &[6, 4]), 2),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            step(layout(DType::F16, &[4, 6]), 2),
            Err(Refused::DType(_))
        ));
        let turned = transposed(layout(DType::F32, &[6, 4]));
        assert!(matches!(step(turned, 2), Err(Refused::Layout(_))));
    }

    #[test]
    fn late_steps_need_no_correction() {
        let values = AdamW::default().values(u32::MAX);
        assert_eq!(values[5..], [1.0, 1.0]);
        assert_eq!(AdamW::default().values(0), AdamW::default().values(1));
    }
}
