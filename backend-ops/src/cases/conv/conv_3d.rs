//! `CONV_3D`: a convolution of volumes as one op. Upstream's `test_conv_3d`.

use ggml_rs::{Conv3d, DType, Tensor};

use crate::case::{Case, Choices, Leaves, smaller};
use crate::data::Operand;
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv3dDirect {
    /// Volumes.
    pub n: usize,
    /// Input channels.
    pub ic: usize,
    /// Output channels.
    pub oc: usize,
    /// Width, height and depth of the volumes.
    pub image: [usize; 3],
    /// Width, height and depth of the kernel.
    pub kernel: [usize; 3],
    /// Steps.
    pub stride: [usize; 3],
    /// Zeros around the volume.
    pub padding: [usize; 3],
    /// Distances of the kernel's elements.
    pub dilation: [usize; 3],
    /// Type of the kernel.
    pub type_kernel: DType,
}

impl Case for Conv3dDirect {
    fn op(&self) -> &'static str {
        "CONV_3D"
    }

    fn params(&self) -> String {
        let ([iw, ih, id], [kw, kh, kd]) = (self.image, self.kernel);
        let mut vars = Vars::new()
            .with("N", self.n)
            .with("IC", self.ic)
            .with("ID", id)
            .with("IH", ih)
            .with("IW", iw)
            .with("OC", self.oc)
            .with("KD", kd)
            .with("KH", kh)
            .with("KW", kw);
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
        vars.with("type_kernel", self.type_kernel).to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let ([iw, ih, id], [kw, kh, kd]) = (self.image, self.kernel);
        vec![
            Operand::new("input", DType::F32, [iw, ih, id, self.ic * self.n]),
            Operand::new("kernel", self.type_kernel, [kw, kh, kd, self.ic * self.oc]),
        ]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| vec![&mut case.n, &mut case.ic, &mut case.oc])
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let options = Conv3d::default()
            .stride(self.stride)
            .padding(self.padding)
            .dilation(self.dilation);
        leaves[1].conv_3d_direct(leaves[0], self.ic, options)
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        5e-4
    }

    fn flops(&self) -> Option<f64> {
        let positions: usize = (0..3)
            .map(|dim| {
                let steps = [self.stride, self.padding, self.dilation].map(|x| x[dim]);
                super::outputs(self.image[dim], self.kernel[dim], steps)
            })
            .product();
        let patch: usize = self.ic * self.kernel.iter().product::<usize>();
        Some((self.n * self.oc * positions * (2 * patch - 1)) as f64)
    }
}

/// All.
pub(super) fn cases() -> Vec<Conv3dDirect> {
    [DType::F32, DType::F16]
        .into_iter()
        .flat_map(|type_kernel| {
            let mut cases = grid(type_kernel);
            cases.push(Conv3dDirect {
                n: 1,
                ic: 4,
                oc: 8,
                image: [8; 3],
                kernel: [1; 3],
                stride: [1; 3],
                padding: [0; 3],
                dilation: [1; 3],
                type_kernel,
            });
            cases.extend(ours(type_kernel));
            cases
        })
        .collect()
}

/// Each of upstream's cubes is followed by the same lopsided kernel, whatever the cube's steps are. Here that one comes once
/// for each choice of channels: the same case again is the same run.
fn grid(type_kernel: DType) -> Vec<Conv3dDirect> {
    let mut cases = Vec::new();
    for n in [1, 2] {
        for [ic, oc] in [[1, 1], [1, 4], [3, 1], [3, 4]] {
            let cube = |stride: usize, padding: usize, dilation: usize| Conv3dDirect {
                n,
                ic,
                oc,
                image: [20, 22, 18],
                kernel: [3; 3],
                stride: [stride; 3],
                padding: [padding; 3],
                dilation: [dilation; 3],
                type_kernel,
            };
            for stride in [1, 2] {
                for padding in [0, 1] {
                    cases.extend([1, 2].map(|dilation| cube(stride, padding, dilation)));
                }
            }
            cases.push(Conv3dDirect {
                kernel: [5, 1, 3],
                stride: [2, 1, 1],
                padding: [2, 0, 1],
                dilation: [1, 1, 2],
                ..cube(1, 0, 1)
            });
        }
    }
    cases
}

fn ours(type_kernel: DType) -> [Conv3dDirect; 2] {
    // As many values as a product of the CPU packs, in the work buffer that holds the patches.
    let ragged = Conv3dDirect {
        n: 3,
        ic: 7,
        oc: 33,
        image: [7, 3, 2],
        kernel: [2, 3, 1],
        stride: [1, 2, 1],
        padding: [0, 1, 2],
        dilation: [3, 1, 1],
        type_kernel,
    };
    let single = Conv3dDirect {
        n: 1,
        ic: 1,
        oc: 1,
        image: [1; 3],
        kernel: [1; 3],
        padding: [0; 3],
        ..ragged.clone()
    };
    [ragged, single]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            cases()[8].name(),
            "CONV_3D(N=1,IC=1,ID=18,IH=22,IW=20,OC=1,KD=3,KH=1,KW=5,s0=2,s1=1,s2=1,p0=2,p1=0,p2=1,d0=1,d1=1,d2=2,\
             type_kernel=f32)"
        );
    }
}
