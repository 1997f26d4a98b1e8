//! Gated units: y = act(x)*gate.

use super::elements::{gelu_erf_slope, gelu_slope, swish_slope};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::graph::backward::grad::{Grad, Grads};
use crate::graph::node::{Glu, Op};
use crate::shape::Shape;

pub(super) fn glu<'g>(grad: &Grad<'g>, g: Tensor<'g>) -> Result<Grads<'g>> {
    let unit = Unit::of(grad)?;
    let a = grad.source(0)?;
    if let Some(gate) = grad.sources[1] {
        let inner = unit.inner(a.packed()?, gate.packed()?)?;
        return Grads::each(grad, |place| match place {
            0 => unit.of_x(g, &inner),
            _ => unit.of_gate(g, &inner),
        });
    }
    let swapped = grad.node.params[1] != 0;
    let inner = unit.inner(half(a, swapped)?, half(a, !swapped)?)?;
    let (x, gate) = (unit.of_x(g, &inner)?, unit.of_gate(g, &inner)?);
    let (first, second) = if swapped { (gate, x) } else { (x, gate) };
    first.concat(second, 0).map(Grads::first)
}

/// A half of the rows of a.
fn half(a: Tensor<'_>, second: bool) -> Result<Tensor<'_>> {
    let [n0, n1, n2, n3] = a.shape().ne();
    let [nb0, nb1, nb2, nb3] = a.strides();
    let offset = if second { n0 / 2 * nb0 } else { 0 };
    let shape = Shape::new(&[n0 / 2, n1, n2, n3])?;
    a.view(shape, [nb1, nb2, nb3], offset)?.cont()
}

/// A unit with its numbers.
struct Unit {
    function: Glu,
    /// SWIGLU_OAI's.
    alpha: f32,
    /// Where x, from above, and the gate, from both sides, are clamped.
    limit: Option<f32>,
}

impl Unit {
    fn of(grad: &Grad<'_>) -> Result<Self> {
        let Op::Glu(function) = grad.node.op else {
            return Err(Error::Internal {
                step: "a gradient",
                message: format!("{:?} is no gated unit", grad.node.op),
            });
        };
        let clamps = matches!(function, Glu::SwigluOai | Glu::SwigluClamp);
        Ok(Self {
            function,
            alpha: grad.node.f32_param(2),
            limit: clamps.then(|| grad.node.f32_param(3)),
        })
    }

    fn is_oai(&self) -> bool {
        self.function == Glu::SwigluOai
    }

    /// Clamps as the forward does: x from above only.
    fn inner<'g>(&self, x: Tensor<'g>, gate: Tensor<'g>) -> Result<Inner<'g>> {
        let before = [x, gate];
        let Some(limit) = self.limit else {
            return Ok(Inner { x, gate, before });
        };
        let (x, gate) = (
            x.clamp(f32::NEG_INFINITY, limit)?,
            gate.clamp(-limit, limit)?,
        );
        let gate = if self.is_oai() {
            gate.scale_bias(1.0, 1.0)?
        } else {
            gate
        };
        Ok(Inner { x, gate, before })
    }

    fn of_x<'g>(&self, g: Tensor<'g>, inner: &Inner<'g>) -> Result<Tensor<'g>> {
        let dx = self.of_value(g.mul(inner.gate)?, inner.x)?;
        match self.limit {
            Some(limit) => dx.mul(inner.before[0].unclamped(f32::NEG_INFINITY, limit)?),
            None => Ok(dx),
        }
    }

    fn of_gate<'g>(&self, g: Tensor<'g>, inner: &Inner<'g>) -> Result<Tensor<'g>> {
        let dgate = g.mul(self.value(inner.x)?)?;
        match self.limit {
            Some(limit) => dgate.mul(inner.before[1].unclamped(-limit, limit)?),
            None => Ok(dgate),
        }
    }

    /// act(x).
    fn value<'g>(&self, x: Tensor<'g>) -> Result<Tensor<'g>> {
        match self.function {
            Glu::Reglu => x.relu(),
            Glu::Geglu => x.gelu(),
            Glu::GegluErf => x.gelu_erf(),
            Glu::GegluQuick => x.gelu_quick(),
            Glu::SwigluOai => x.mul(x.scale(self.alpha)?.sigmoid()?),
            Glu::Swiglu | Glu::SwigluClamp => x.silu(),
        }
    }

    /// The gradient of x, from that of act(x).
    fn of_value<'g>(&self, g: Tensor<'g>, x: Tensor<'g>) -> Result<Tensor<'g>> {
        let slope = match self.function {
            Glu::Swiglu | Glu::SwigluClamp => return g.silu_back(x),
            Glu::Reglu => x.step()?,
            Glu::Geglu => gelu_slope(x)?,
            Glu::GegluErf => gelu_erf_slope(x)?,
            Glu::GegluQuick => swish_slope(x, 1.702)?,
            Glu::SwigluOai => swish_slope(x, self.alpha)?,
        };
        g.mul(slope)
    }
}

/// What the function and the product see.
struct Inner<'g> {
    x: Tensor<'g>,
    gate: Tensor<'g>,
    /// Both before they were clamped.
    before: [Tensor<'g>; 2],
}
