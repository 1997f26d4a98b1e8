//! Images of another size.

use ggml_sys as sys;

use crate::dtype::DType::F32;
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};
use crate::shape::{IntoShape, Shape};

/// How values between pixels are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "ggml_scale_mode")]
pub enum Scale {
    /// The pixel before.
    Nearest,
    /// From two pixels in each direction.
    Bilinear,
    /// From four pixels in each direction, with -3/4 for the cubic's parameter.
    Bicubic,
}

/// How [`Tensor::interpolate`] places and makes values.
///
/// ```
/// use ggml_rs::{Interpolation, Scale};
/// let options = Interpolation::new(Scale::Bilinear).align_corners();
/// assert!(options.align_corners && !options.antialias);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Interpolation {
    /// How values between pixels are made.
    pub scale: Scale,
    /// The corners of both images are at the centres of their pixels, not at their edges.
    pub align_corners: bool,
    /// A smaller image's pixels are made of all that they cover: [`Scale::Bilinear`] only.
    pub antialias: bool,
}

impl Interpolation {
    /// Corners at edges, and no antialiasing.
    pub const fn new(scale: Scale) -> Self {
        Self {
            scale,
            align_corners: false,
            antialias: false,
        }
    }

    /// With [`Interpolation::align_corners`].
    pub const fn align_corners(self) -> Self {
        Self {
            align_corners: true,
            ..self
        }
    }

    /// With [`Interpolation::antialias`].
    pub const fn antialias(self) -> Self {
        Self {
            antialias: true,
            ..self
        }
    }

    fn raw(self) -> sys::ggml_scale_mode {
        let mode = match self.scale {
            Scale::Nearest => sys::GGML_SCALE_MODE_NEAREST,
            Scale::Bilinear => sys::GGML_SCALE_MODE_BILINEAR,
            Scale::Bicubic => sys::GGML_SCALE_MODE_BICUBIC,
        };
        let flag = |set: bool, flag: sys::ggml_scale_mode| if set { flag } else { 0 };
        mode | flag(self.align_corners, sys::GGML_SCALE_FLAG_ALIGN_CORNERS)
            | flag(self.antialias, sys::GGML_SCALE_FLAG_ANTIALIAS)
    }
}

impl Tensor<'_> {
    /// An image of F32, `factor` times as wide and high: [w, h, c, n] gives [w * factor, h * factor, c, n].
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless the factor is 2 or more; otherwise as [`Tensor::interpolate`].
    #[doc(alias = "ggml_upscale")]
    #[track_caller]
    pub fn upscale(self, factor: usize, scale: Scale) -> Result<Self> {
        let at = here();
        let options = Interpolation::new(scale);
        let shape = check_factor(self.layout(), factor).at(at)?;
        check("upscale", self.layout(), shape, options).at(at)?;
        // SAFETY: the tensor is alive, and the checks mirror ggml_upscale's assertions.
        self.make("upscale", |context| unsafe {
            sys::ggml_upscale(context, self.as_ptr(), factor as i32, options.raw())
        })
    }

    /// An image of F32 in another size. Dimensions 2 and 3 are repeated or left out, by the pixel before.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless F32; [`Error::Shape`](crate::Error::Shape) for an invalid shape, or a
    /// dimension beyond 2^20, which positions in F32 do not tell apart.
    #[doc(alias = "ggml_upscale_ext")]
    #[track_caller]
    pub fn upscale_ext(self, shape: impl IntoShape, scale: Scale) -> Result<Self> {
        let at = here();
        let shape = shape.into_shape()?;
        let options = Interpolation::new(scale);
        check("upscale_ext", self.layout(), shape, options).at(at)?;
        let [n0, n1, n2, n3] = shape.ne().map(|n| n as i32);
        // SAFETY: the tensor is alive, and the check mirrors ggml_upscale_ext's assertions.
        self.make("upscale_ext", |context| unsafe {
            sys::ggml_upscale_ext(context, self.as_ptr(), n0, n1, n2, n3, options.raw())
        })
    }

    /// As [`Tensor::upscale_ext`], with more options.
    ///
    /// ```
    /// use ggml_rs::{DType, Device, Graph, Interpolation, Plan, PlanOptions, Scale};
    /// let (graph, (x, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::F32, [2])?;
    ///     let options = Interpolation::new(Scale::Bilinear).align_corners();
    ///     Ok((x_in, g.output("y", x.interpolate([3], options)?)?))
    /// })?;
    /// let mut backend = Device::cpu()?.open()?;
    /// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[1.0, 2.0])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [1.0, 1.5, 2.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::upscale_ext`]; [`Error::Param`](crate::Error::Param) for antialiasing of another scale than
    /// [`Scale::Bilinear`].
    #[doc(alias = "ggml_interpolate")]
    #[track_caller]
    pub fn interpolate(self, shape: impl IntoShape, options: Interpolation) -> Result<Self> {
        let at = here();
        let shape = shape.into_shape()?;
        check("interpolate", self.layout(), shape, options).at(at)?;
        let [n0, n1, n2, n3] = shape.ne().map(|n| n as i64);
        // SAFETY: the tensor is alive, and the check mirrors ggml_interpolate's assertions.
        self.make("interpolate", |context| unsafe {
            sys::ggml_interpolate(context, self.as_ptr(), n0, n1, n2, n3, options.raw() as u32)
        })
    }
}

/// Kernels compute positions in `float`: beyond this one could lie behind the last pixel.
const MAX_SIZE: usize = 1 << 20;

fn check_factor(a: Layout, factor: usize) -> Checked<Shape> {
    let refusal = Refusal {
        op: "upscale",
        operands: &[("a", a)],
    };
    if !(2..=MAX_SIZE).contains(&factor) {
        return Err(refusal.param(format!("a factor of {factor}: it must be 2 to {MAX_SIZE}")));
    }
    let [w, h, c, n] = a.ne;
    let scaled = |n: usize| n.checked_mul(factor);
    match (scaled(w), scaled(h)) {
        (Some(w), Some(h)) => Shape::checked(&[w, h, c, n]),
        _ => Err(refusal.shape("the result overflows")),
    }
}

/// Mirrors `ggml_interpolate_impl`, and keeps positions exact.
fn check(op: &'static str, a: Layout, shape: Shape, options: Interpolation) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a)],
    };
    if a.dtype != F32 {
        return Err(refusal.dtype("a must be F32"));
    }
    if options.antialias && options.scale != Scale::Bilinear {
        return Err(refusal.param("only bilinear interpolation has antialiasing"));
    }
    if a.ne.iter().chain(&shape.ne()).any(|&n| n > MAX_SIZE) {
        return Err(refusal.shape(format!("{shape}, or a, has a dimension beyond {MAX_SIZE}")));
    }
    refusal.check_result(F32, shape.ne())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F16;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn sizes_and_modes_are_bounded() {
        let a = layout(F32, &[4, 3, 2]);
        let shape = Shape::new(&[7, 5, 2]).unwrap();
        let options = Interpolation::new(Scale::Bicubic);
        check("interpolate", a, shape, options).unwrap();
        let error = check("interpolate", a, shape, options.antialias());
        assert!(matches!(error, Err(Refused::Param(_))));
        let halves = check("interpolate", layout(F16, &[4, 3]), shape, options);
        assert!(matches!(halves, Err(Refused::DType(_))));
        let wide = Shape::new(&[MAX_SIZE + 1]).unwrap();
        assert!(matches!(
            check("interpolate", a, wide, options),
            Err(Refused::Shape(_))
        ));
        assert_eq!(check_factor(a, 3).unwrap().ne(), [12, 9, 2, 1]);
        for factor in [0, 1, usize::MAX] {
            assert!(matches!(check_factor(a, factor), Err(Refused::Param(_))));
        }
    }
}
