//! `UPSCALE`: images of another size. Upstream's `test_upscale` and `test_interpolate`.

use ggml_rs::{DType, Interpolation, Scale, Tensor};

use crate::case::{Case, Layout, Leaves, Measure, smaller};
use crate::data::{Init, Operand};
use crate::vars::{Var, Vars};

/// How large the result is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// So many times as wide and high.
    Factor(usize),
    /// Of this shape.
    Shape([usize; 4]),
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Upscale {
    /// Type of the image.
    pub dtype: DType,
    /// Shape of the image as stored.
    pub ne: [usize; 4],
    /// How large the result is.
    pub size: Size,
    /// How values between pixels are made.
    pub mode: Interpolation,
    /// Whether the image is transposed; for a factor only.
    pub transpose: bool,
    /// How the image lies in memory.
    pub layout: Layout,
    /// Whether the image holds extreme values.
    pub extremes: bool,
}

impl Var for Interpolation {
    fn write(&self, out: &mut String) {
        out.push_str(match self.scale {
            Scale::Nearest => "nearest",
            Scale::Bilinear => "bilinear",
            Scale::Bicubic => "bicubic",
        });
        if self.align_corners {
            out.push_str("|align_corners");
        }
        if self.antialias {
            out.push_str("|antialias");
        }
    }
}

impl Case for Upscale {
    fn op(&self) -> &'static str {
        "UPSCALE"
    }

    fn params(&self) -> String {
        let vars = Vars::new().with("type", self.dtype).with("ne", self.ne);
        let vars = match self.size {
            Size::Factor(factor) => vars
                .with("scale_factor", factor)
                .with("mode", self.mode)
                .with("transpose", self.transpose),
            Size::Shape(ne) => vars.with("ne_tgt", ne).with("mode", self.mode),
        };
        vars.with_unless_default("layout", self.layout, Layout::Plain)
            .with_unless_default("extremes", self.extremes, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let image = self.layout.stored(Operand::new("a", self.dtype, self.ne));
        vec![match self.extremes {
            true => image.init(Init::Extremes),
            false => image,
        }]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let mut image = self.layout.view(leaves[0])?;
        if self.transpose {
            image = image.transpose()?;
        }
        let shape = match self.size {
            Size::Shape(ne) => ne,
            Size::Factor(factor) => {
                let [w, h, c, n] = image.shape().ne();
                [w * factor, h * factor, c, n]
            }
        };
        image.interpolate(shape, self.mode)
    }

    fn measure(&self) -> Measure {
        match self.extremes {
            true => Measure::ValuesAndNan,
            false => Measure::Values,
        }
    }
}

const MODES: [Interpolation; 4] = [
    Interpolation::new(Scale::Nearest),
    Interpolation::new(Scale::Bilinear),
    Interpolation::new(Scale::Bicubic),
    Interpolation::new(Scale::Bilinear).antialias(),
];

fn to(ne: [usize; 4], ne_tgt: [usize; 4], mode: Interpolation) -> Upscale {
    Upscale {
        dtype: DType::F32,
        ne,
        size: Size::Shape(ne_tgt),
        mode,
        transpose: false,
        layout: Layout::Plain,
        extremes: false,
    }
}

/// All.
pub(super) fn cases() -> Vec<Upscale> {
    const SMALL: [usize; 4] = [2, 5, 7, 11];
    const LARGE: [usize; 4] = [5, 7, 11, 13];
    let mut cases = Vec::new();
    for mode in MODES {
        for transpose in [false, true] {
            cases.push(Upscale {
                size: Size::Factor(2),
                transpose,
                ..to([512, 512, 3, 2], [1; 4], mode)
            });
        }
        cases.push(to(SMALL, LARGE, mode));
        cases.push(to(LARGE, SMALL, mode));
    }
    for scale in [Scale::Bilinear, Scale::Bicubic] {
        let mode = Interpolation::new(scale).align_corners();
        cases.push(to(SMALL, LARGE, mode));
        cases.push(to([1, 4, 3, 2], [2, 8, 3, 2], mode));
        cases.push(to([4, 1, 3, 2], [1, 1, 3, 2], mode));
    }
    cases.extend(ours());
    cases
}

fn ours() -> Vec<Upscale> {
    let corners = Interpolation::new(Scale::Bilinear).align_corners();
    let corners = [corners, corners.antialias()];
    let mut cases = Vec::new();
    for mode in MODES.into_iter().chain(corners) {
        let ragged = to([33, 7, 3, 2], [31, 33, 3, 2], mode);
        cases.extend(Layout::OTHERS.map(|layout| Upscale {
            layout,
            ..ragged.clone()
        }));
        cases.push(ragged);
        cases.push(to([1; 4], [1; 4], mode));
        cases.push(to([64, 48, 1, 1], [5, 3, 1, 1], mode));
    }
    // Weights of 0 make NaN of infinities: only copies are compared.
    cases.push(Upscale {
        extremes: true,
        ..to([40, 5, 2, 1], [97, 7, 2, 1], MODES[0])
    });
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let cases = cases();
        assert_eq!(
            cases[13].name(),
            "UPSCALE(type=f32,ne=[512,512,3,2],scale_factor=2,mode=bilinear|antialias,transpose=1)"
        );
        assert_eq!(
            cases[16].name(),
            "UPSCALE(type=f32,ne=[2,5,7,11],ne_tgt=[5,7,11,13],mode=bilinear|align_corners)"
        );
    }
}
