//! `IM2COL`: an image cut into the patches that a kernel meets. Upstream's `test_im2col`.

use ggml_rs::{Conv1d, Conv2d, DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, Measure, Relaxation, relaxed, smaller};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One case. The kernel gives nothing but its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Im2col {
    /// Type of the image.
    pub type_input: DType,
    /// Type of the kernel.
    pub type_kernel: DType,
    /// Type of the patches.
    pub dst_type: DType,
    /// Shape of the image.
    pub ne_input: [usize; 4],
    /// Shape of the kernel.
    pub ne_kernel: [usize; 4],
    /// Steps; those of dimension 1 are 0 where there is one dimension only.
    pub stride: [usize; 2],
    /// Zeros around the image.
    pub padding: [usize; 2],
    /// Distances of the kernel's elements.
    pub dilation: [usize; 2],
    /// Two dimensions, not one.
    pub is_2d: bool,
    /// How the image lies in memory.
    pub layout: Layout,
    /// Whether the image holds extreme values.
    pub extremes: bool,
}

impl Im2col {
    /// Upstream's default: a square kernel of 3.
    pub(crate) fn new([type_input, type_kernel, dst_type]: [DType; 3]) -> Self {
        Self {
            type_input,
            type_kernel,
            dst_type,
            ne_input: [10, 10, 3, 1],
            ne_kernel: [3, 3, 3, 1],
            stride: [1, 1],
            padding: [1, 1],
            dilation: [1, 1],
            is_2d: true,
            layout: Layout::Plain,
            extremes: false,
        }
    }

    pub(crate) fn of(self, ne_input: [usize; 4], ne_kernel: [usize; 4]) -> Self {
        Self {
            ne_input,
            ne_kernel,
            ..self
        }
    }

    fn steps(self, stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2]) -> Self {
        Self {
            stride,
            padding,
            dilation,
            ..self
        }
    }

    /// In one dimension.
    fn line(self, [s0, p0, d0]: [usize; 3]) -> Self {
        Self {
            is_2d: false,
            ..self.steps([s0, 0], [p0, 0], [d0, 0])
        }
    }
}

impl Case for Im2col {
    fn op(&self) -> &'static str {
        "IM2COL"
    }

    fn params(&self) -> String {
        let ([s0, s1], [p0, p1], [d0, d1]) = (self.stride, self.padding, self.dilation);
        Vars::new()
            .with("type_input", self.type_input)
            .with("type_kernel", self.type_kernel)
            .with("dst_type", self.dst_type)
            .with("ne_input", self.ne_input)
            .with("ne_kernel", self.ne_kernel)
            .with("s0", s0)
            .with("s1", s1)
            .with("p0", p0)
            .with("p1", p1)
            .with("d0", d0)
            .with("d1", d1)
            .with("is_2D", self.is_2d)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .with_unless_default("extremes", self.extremes, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let input = self
            .layout
            .stored(Operand::new("input", self.type_input, self.ne_input));
        vec![
            if self.extremes {
                input.init(Init::Extremes)
            } else {
                input.trained()
            },
            Operand::new("kernel", self.type_kernel, self.ne_kernel),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| {
            case.ne_input
                .iter_mut()
                .chain(&mut case.ne_kernel)
                .collect()
        })
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (input, kernel) = (self.layout.view(leaves[0])?, leaves[1]);
        let ([s0, _], [p0, _], [d0, _]) = (self.stride, self.padding, self.dilation);
        if self.is_2d {
            let options = Conv2d::default()
                .stride(self.stride)
                .padding(self.padding)
                .dilation(self.dilation);
            return kernel.im2col(input, options, self.dst_type);
        }
        let options = Conv1d::default().stride([s0]).padding([p0]).dilation([d0]);
        kernel.im2col_1d(input, options, self.dst_type)
    }

    /// Upstream allows 1e-7; patches are copies, rounded as the reference is.
    fn max_nmse(&self, _choices: Choices) -> f64 {
        0.0
    }

    fn measure(&self) -> Measure {
        match self.extremes {
            true => Measure::ValuesAndNan,
            false => Measure::Values,
        }
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let packed = Self {
            layout: Layout::Plain,
            ..self.clone()
        };
        let float = Self {
            type_input: DType::F32,
            ..self.clone()
        };
        let variants = [
            (self.layout.left_out("the image"), packed),
            (format!("the image is {}", self.type_input), float),
        ];
        relaxed(self, variants)
    }
}

const F32S: [DType; 3] = [DType::F32; 3];
const HALF_KERNEL: [DType; 3] = [DType::F32, DType::F16, DType::F32];
const HALVES: [DType; 3] = [DType::F32, DType::F16, DType::F16];

/// All.
pub(super) fn cases() -> Vec<Im2col> {
    let mut cases = lines();
    cases.extend(planes());
    cases.extend(ours());
    cases
}

fn lines() -> Vec<Im2col> {
    let speech = |types, channels: usize, outputs: usize| {
        Im2col::new(types)
            .of([3000, channels, 1, 1], [3, channels, outputs, 1])
            .line([1, 1, 1])
    };
    let mut cases = vec![
        speech(F32S, 128, 1280),
        speech(HALF_KERNEL, 128, 1280),
        speech(HALVES, 128, 1280),
        speech(HALVES, 384, 384),
    ];
    for s0 in [1, 3] {
        for p0 in [0, 3] {
            for d0 in [1, 3] {
                let small = Im2col::new(F32S).of([20, 2, 2, 1], [3, 2, 2, 1]);
                cases.push(small.line([s0, p0, d0]));
            }
        }
    }
    cases
}

fn planes() -> Vec<Im2col> {
    let mut cases: Vec<Im2col> = [F32S, HALF_KERNEL, HALVES].map(Im2col::new).into();
    let pairs = |of: [usize; 2]| of.into_iter().flat_map(move |a| of.map(|b| [a, b]));
    for stride in pairs([1, 3]) {
        for padding in pairs([0, 3]) {
            for dilation in pairs([1, 3]) {
                let square = Im2col::new(F32S).of([20, 20, 2, 2], [3, 3, 2, 2]);
                cases.push(square.steps(stride, padding, dilation));
            }
        }
    }
    // Many images: a dispatch has a limit in each dimension.
    for images in [32, 1024, 2048, 2560] {
        for channels in [1, 2] {
            let (input, kernel) = ([12, 12, channels, images], [3, 3, channels, images]);
            cases.push(Im2col::new(HALVES).of(input, kernel));
        }
    }
    let touching = |types| Im2col::new(types).steps([1, 1], [0, 0], [1, 1]);
    cases.push(touching(HALVES).of([5, 5, 1, 32], [3, 4, 1, 32]));
    cases.push(touching(F32S).of([2, 2, 1536, 729], [2, 2, 1536, 4096]));
    // Kernels of more elements than a threadgroup has threads.
    cases.push(Im2col::new(HALVES).of([128, 128, 1, 2], [32, 33, 1, 2]));
    cases.push(Im2col::new(HALVES).of([128, 128, 2, 1], [33, 34, 2, 1]));
    cases
}

fn ours() -> Vec<Im2col> {
    let mut cases = Vec::new();
    let ragged = |types| {
        Im2col::new(types)
            .of([33, 7, 3, 2], [3, 2, 3, 5])
            .steps([2, 1], [1, 0], [1, 2])
    };
    for layout in Layout::OTHERS {
        cases.push(Im2col {
            layout,
            ..ragged(F32S)
        });
    }
    for types in [F32S, HALVES, [DType::F16; 3]] {
        cases.push(Im2col {
            extremes: true,
            ..ragged(types)
        });
        cases.push(Im2col::new(types).of([1; 4], [1; 4]));
        cases.push(
            Im2col::new(types)
                .of([31, 5, 1, 1], [3, 5, 2, 1])
                .line([1, 1, 1]),
        );
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            lines()[0].name(),
            "IM2COL(type_input=f32,type_kernel=f32,dst_type=f32,ne_input=[3000,128,1,1],ne_kernel=[3,128,1280,1],\
             s0=1,s1=0,p0=1,p1=0,d0=1,d1=0,is_2D=0)"
        );
        assert_eq!(cases().len() - ours().len(), 12 + 3 + 64 + 12);
    }
}
