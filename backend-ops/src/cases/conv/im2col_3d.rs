//! `IM2COL_3D`: a volume cut into the patches that a kernel meets. Upstream's `test_im2col_3d`.

use ggml_rs::{Conv3d, DType, Tensor};

use crate::case::{Case, Choices, Layout, Leaves, Measure, smaller};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One case. The kernel gives nothing but its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Im2col3d {
    /// Types of the volume, of the kernel and of the patches.
    pub types: [DType; 3],
    /// Shape of the volume as stored.
    pub ne_input: [usize; 4],
    /// Shape of the kernel.
    pub ne_kernel: [usize; 4],
    /// Channels, of which both have a multiple in their last dimension.
    pub channels: usize,
    /// Steps.
    pub stride: [usize; 3],
    /// Zeros around the volume.
    pub padding: [usize; 3],
    /// Distances of the kernel's elements.
    pub dilation: [usize; 3],
    /// Whether the volume is the first part of what is stored, two less in each dimension.
    pub v: bool,
    /// How the volume lies in memory.
    pub layout: Layout,
    /// Whether the volume holds extreme values.
    pub extremes: bool,
}

impl Im2col3d {
    /// Upstream's default.
    fn new(types: [DType; 3]) -> Self {
        Self {
            types,
            ne_input: [10, 10, 10, 9],
            ne_kernel: [3, 3, 3, 1],
            channels: 3,
            stride: [1; 3],
            padding: [1; 3],
            dilation: [1; 3],
            v: false,
            layout: Layout::Plain,
            extremes: false,
        }
    }
}

impl Case for Im2col3d {
    fn op(&self) -> &'static str {
        "IM2COL_3D"
    }

    fn params(&self) -> String {
        let [input, kernel, patches] = self.types;
        let mut vars = Vars::new()
            .with("type_input", input)
            .with("type_kernel", kernel)
            .with("dst_type", patches)
            .with("ne_input", self.ne_input)
            .with("ne_kernel", self.ne_kernel)
            .with("IC", self.channels);
        let steps = [
            (["s0", "s1", "s2"], self.stride),
            (["p0", "p1", "p2"], self.padding),
            (["d0", "d1", "d2"], self.dilation),
        ];
        for (names, values) in steps {
            for (name, value) in names.into_iter().zip(values) {
                vars = vars.with(name, value);
            }
        }
        vars.with("v", self.v)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .with_unless_default("extremes", self.extremes, false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [input, kernel, _] = self.types;
        let volume = self
            .layout
            .stored(Operand::new("input", input, self.ne_input));
        vec![
            if self.extremes {
                volume.init(Init::Extremes)
            } else {
                volume.trained()
            },
            Operand::new("kernel", kernel, self.ne_kernel),
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
        let mut input = self.layout.view(leaves[0])?;
        if self.v {
            let [_, nb1, nb2, nb3] = input.strides();
            input = input.view(self.ne_input.map(|n| n - 2), [nb1, nb2, nb3], 0)?;
        }
        let options = Conv3d::default()
            .stride(self.stride)
            .padding(self.padding)
            .dilation(self.dilation);
        leaves[1].im2col_3d(input, self.channels, options, self.types[2])
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
}

const F32S: [DType; 3] = [DType::F32; 3];
const HALVES: [DType; 3] = [DType::F32, DType::F16, DType::F16];

/// All.
pub(super) fn cases() -> Vec<Im2col3d> {
    let kinds = [F32S, [DType::F32, DType::F16, DType::F32], HALVES];
    let mut cases: Vec<Im2col3d> = kinds.map(Im2col3d::new).into();
    cases.extend(grid());
    cases.extend(ours());
    cases
}

/// Both values of each of nine steps, by the bits of a number: upstream's nine loops. A view of a volume of 3 channels has 1: for 3 of them
/// the result is empty, and ggml-rs has no empty tensors.
fn grid() -> Vec<Im2col3d> {
    let mut cases = Vec::new();
    for steps in 0..1 << 9 {
        let choose = |from: usize, of: [usize; 2]| {
            [0, 1, 2].map(|dim: usize| of[steps >> (8 - from - dim) & 1])
        };
        for channels in [1, 3] {
            for v in [false, true] {
                cases.push(Im2col3d {
                    ne_input: [20, 20, 10, 3],
                    ne_kernel: [3, 3, 3, 3],
                    channels,
                    stride: choose(0, [1, 3]),
                    padding: choose(3, [0, 3]),
                    dilation: choose(6, [1, 3]),
                    v,
                    ..Im2col3d::new(F32S)
                });
            }
        }
    }
    cases
}

fn ours() -> Vec<Im2col3d> {
    let ragged = |types| Im2col3d {
        ne_input: [33, 5, 4, 6],
        ne_kernel: [3, 2, 1, 2],
        channels: 2,
        stride: [2, 1, 1],
        padding: [1, 0, 2],
        ..Im2col3d::new(types)
    };
    let mut cases: Vec<Im2col3d> = (Layout::OTHERS.into_iter())
        .map(|layout| Im2col3d {
            layout,
            ..ragged(F32S)
        })
        .collect();
    for types in [F32S, HALVES] {
        cases.push(ragged(types));
        cases.push(Im2col3d {
            extremes: true,
            ..ragged(types)
        });
        cases.push(Im2col3d {
            ne_input: [1; 4],
            ne_kernel: [1; 4],
            channels: 1,
            padding: [0; 3],
            ..Im2col3d::new(types)
        });
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let grid = grid();
        assert_eq!(grid.len(), 2048);
        assert_eq!(
            grid[2047 - 4].name(),
            "IM2COL_3D(type_input=f32,type_kernel=f32,dst_type=f32,ne_input=[20,20,10,3],ne_kernel=[3,3,3,3],IC=3,\
             s0=3,s1=3,s2=3,p0=3,p1=3,p2=3,d0=3,d1=3,d2=1,v=1)"
        );
    }
}
