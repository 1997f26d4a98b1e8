//! What a gradient is written in: a node with its gradient, and what its sources get.

use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::graph::node::Node;
use crate::graph::ops::window::Window;
use crate::shape::Shape;

/// No gradient flows beyond the first three sources of a node.
pub(super) const SOURCES: usize = 3;

/// The gradient of an op: from that of a node's result to those of its sources.
///
/// The gradient that it is given is F32 and contiguous, but for PERMUTE and TRANSPOSE, which take any layout. It makes nothing for
/// a source that needs none.
pub(super) type Gradient = for<'g> fn(&Grad<'g>, Tensor<'g>) -> Result<Grads<'g>>;

/// A node of the forward, as the gradient of its op sees it.
pub(super) struct Grad<'g> {
    /// Layouts and parameters.
    pub node: Node,
    /// The node's result.
    pub y: Tensor<'g>,
    pub sources: [Option<Tensor<'g>>; SOURCES],
    pub needs: [bool; SOURCES],
}

impl<'g> Grad<'g> {
    /// A source of the node.
    ///
    /// # Errors
    /// [`Error::Internal`] where it has none in this place.
    pub(super) fn source(&self, place: usize) -> Result<Tensor<'g>> {
        self.sources[place].ok_or_else(|| Error::Internal {
            step: "a gradient",
            message: format!("{:?} has no operand {place}", self.node.op),
        })
    }

    /// Whether a source needs a gradient.
    pub(super) fn needs(&self, place: usize) -> bool {
        self.needs[place]
    }

    /// A parameter that is a count, an axis or an offset.
    pub(super) fn count(&self, index: usize) -> usize {
        self.node.params[index] as usize
    }
}

/// What the gradient of one source gets.
pub(super) enum Part<'g> {
    /// All of it.
    Whole(Tensor<'g>),
    /// This, where it lies in the source; the rest gets nothing.
    Window(Tensor<'g>, Window),
}

/// What the sources' gradients get.
#[derive(Default)]
pub(super) struct Grads<'g>(pub [Option<Part<'g>>; SOURCES]);

impl<'g> Grads<'g> {
    /// That of the first source.
    pub(super) fn first(gradient: Tensor<'g>) -> Self {
        Self::default().with(0, gradient)
    }

    /// The same with that of another source.
    pub(super) fn with(mut self, place: usize, gradient: Tensor<'g>) -> Self {
        self.0[place] = Some(Part::Whole(gradient));
        self
    }

    /// That of each source that needs one.
    pub(super) fn each(
        grad: &Grad<'g>,
        mut gradient: impl FnMut(usize) -> Result<Tensor<'g>>,
    ) -> Result<Self> {
        let mut grads = Self::default();
        for place in (0..SOURCES).filter(|&place| grad.needs(place)) {
            grads = grads.with(place, gradient(place)?);
        }
        Ok(grads)
    }
}

// What gradients are composed of. Reductions go through SUM_ROWS, products through OUT_PROD, which is float-staged on Metal;
// REPEAT_BACK, SOFT_MAX_BACK and RMS_NORM_BACK, which the CPU alone has, are not used.
impl<'g> Tensor<'g> {
    /// The same elements with the strides of a new tensor: a copy, if they lie otherwise.
    pub(super) fn packed(self) -> Result<Self> {
        let layout = self.layout();
        match layout.is_contiguous() {
            false => self.cont(),
            // A dimension of 1 may have any stride, by which kernels step all the same.
            true if layout.is_packed() => Ok(self),
            true => self.reshape(self.shape()),
        }
    }

    /// One element; no value of `self`, which is packed, is read.
    pub(super) fn constant(self, value: f32) -> Result<Self> {
        self.view([1], [size_of::<f32>(); 3], 0)?.fill(value)
    }

    /// Zeros; no value of `self`, which is packed, is read.
    pub(super) fn zeros(self, shape: Shape) -> Result<Self> {
        self.constant(0.0)?.repeat(shape)
    }

    pub(super) fn one_minus(self) -> Result<Self> {
        self.scale_bias(-1.0, 1.0)
    }

    /// 1 where `lo < self < hi`, else 0.
    pub(super) fn between(self, lo: f32, hi: f32) -> Result<Self> {
        let above = self.scale_bias(1.0, -lo)?.step()?;
        above.mul(self.scale_bias(-1.0, hi)?.step()?)
    }

    /// 1 where a clamp leaves `self` as it is, the bounds included; else 0.
    pub(super) fn unclamped(self, lo: f32, hi: f32) -> Result<Self> {
        self.sub(self.clamp(lo, hi)?)?.sgn()?.sqr()?.one_minus()
    }

    /// The products of rows, `[1, ..]`.
    pub(super) fn dot_rows(self, b: Self) -> Result<Self> {
        self.mul(b)?.sum_rows()
    }

    /// Sums `self`, which is contiguous, seen as `[inner, n, outer]`, over n: `[1, inner, outer]`.
    pub(super) fn sum_middle(self, [inner, n, outer]: [usize; 3]) -> Result<Self> {
        let seen = self.reshape([inner, n, outer])?;
        let rows = match inner {
            1 => seen.reshape([n, 1, outer])?,
            _ => seen.permute([1, 0, 2, 3])?.cont()?,
        };
        rows.sum_rows()
    }

    /// What repeating a tensor of this shape to that of `self` adds up to: sums over all of its copies.
    pub(super) fn sum_copies(self, shape: Shape) -> Result<Self> {
        let like = shape.ne();
        let mut ne = self.shape().ne();
        if ne == like {
            return Ok(self);
        }
        let mut sum = self.packed()?;
        // From the last dimension on, the copies of a dimension are the middle one of three, and what was summed follows as one.
        for d in (0..4).rev() {
            if ne[d] == like[d] {
                continue;
            }
            let mut n = ne[d] / like[d];
            let mut first = d;
            // Neighbours of which one element is left are one dimension: a bias of [D] is summed over T and B of [D, T, B] at once.
            while first > 0 && like[first] == 1 && like[first - 1] == 1 {
                first -= 1;
                n *= ne[first];
                ne[first] = 1;
            }
            let inner = like[first] * ne[..first].iter().product::<usize>();
            let outer = ne[d + 1..].iter().product();
            sum = sum.sum_middle([inner, n, outer])?;
            ne[d] = like[d];
        }
        sum.reshape(shape)
    }

    /// As [`Tensor::sum_copies`] of matrices, where each is read r times in a row (products broadcast like this) instead of all of
    /// them r times.
    pub(super) fn sum_runs(self, shape: Shape) -> Result<Self> {
        let [n0, n1, n2, n3] = self.shape().ne();
        let [_, _, like2, like3] = shape.ne();
        let mut sum = self.packed()?;
        if n2 > like2 {
            sum = sum.sum_middle([n0 * n1, n2 / like2, like2 * n3])?;
        }
        if n3 > like3 {
            sum = sum.sum_middle([n0 * n1 * like2, n3 / like3, like3])?;
        }
        sum.reshape([n0, n1, like2, like3])
    }

    /// A part of `self`, which is contiguous, as a tensor of its own.
    pub(super) fn part(self, shape: Shape, offset: usize) -> Result<Self> {
        let [_, nb1, nb2, nb3] = self.strides();
        self.view(shape, [nb1, nb2, nb3], offset)?.cont()
    }
}
