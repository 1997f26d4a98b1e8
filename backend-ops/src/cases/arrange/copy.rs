//! `CPY`: converts a tensor, perhaps a permuted view of one, to another type. `CONT`: makes a view contiguous. Upstream's
//! `test_cpy` and `test_cont`.
//!
//! OUT_PROD on Metal dequantizes and transposes with the kernels of CPY, so these cases tell a broken copy from a broken
//! product.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Choices, Leaves, Relaxation, relaxed, smaller};
use crate::data::{Operand, OperandData, stored_as};
use crate::vars::Vars;

/// Dimension i of the source becomes dimension `axes[i]` of the view: `ggml_permute`.
type Axes = [usize; 4];

/// Upstream's mark for "not permuted", printed as such.
pub(crate) const UNPERMUTED: Axes = [0; 4];
pub(crate) const TRANSPOSED: Axes = [1, 0, 2, 3];

/// One CPY case. The destination is contiguous.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpy {
    /// Type of the source.
    pub type_src: DType,
    /// Type of the destination.
    pub type_dst: DType,
    /// Shape of the source as stored.
    pub ne_src: [usize; 4],
    /// Permutation of the source; all zeros for none.
    pub permute_src: [usize; 4],
}

impl Cpy {
    pub(crate) fn new(
        type_src: DType,
        type_dst: DType,
        ne_src: [usize; 4],
        permute_src: Axes,
    ) -> Self {
        Self {
            type_src,
            type_dst,
            ne_src,
            permute_src,
        }
    }

    fn is_permuted(&self) -> bool {
        self.permute_src != UNPERMUTED
    }

    fn shape_dst(&self) -> [usize; 4] {
        if self.is_permuted() {
            permute(self.ne_src, self.permute_src)
        } else {
            self.ne_src
        }
    }
}

impl Case for Cpy {
    fn op(&self) -> &'static str {
        "CPY"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type_src", self.type_src)
            .with("type_dst", self.type_dst)
            .with("ne_src", self.ne_src)
            .with("permute_src", self.permute_src)
            .with("permute_dst", UNPERMUTED)
            .with("_src_transpose", false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        // Upstream's range: wide enough for conversions to and from integers.
        vec![Operand::new("src", self.type_src, self.ne_src).within(150.0)]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne_src.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let src = if self.is_permuted() {
            leaves[0].permute(self.permute_src)?
        } else {
            leaves[0]
        };
        let dst = leaves
            .graph()
            .empty("dst", self.type_dst, self.shape_dst())?;
        src.cpy(dst)
    }

    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        let values = operands[0].values();
        let ordered = if self.is_permuted() {
            reorder(values, self.ne_src, self.permute_src)
        } else {
            values.to_vec()
        };
        let converted = stored_as(self.type_dst, &ordered)?;
        Ok(Some(converted.into_iter().map(f64::from).collect()))
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        if self.type_src == self.type_dst {
            0.0
        } else {
            1e-6
        }
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let floats = Self {
            type_src: DType::F32,
            type_dst: DType::F32,
            ..self.clone()
        };
        let in_order = Self {
            permute_src: UNPERMUTED,
            ..self.clone()
        };
        let variants = [
            ("permuted source".to_owned(), in_order),
            (format!("{} to {}", self.type_src, self.type_dst), floats),
        ];
        relaxed(self, variants)
    }
}

/// One CONT case: a transposed view made contiguous.
#[derive(Clone, Debug, PartialEq)]
pub struct Cont {
    /// Type of the source and the result.
    pub dtype: DType,
    /// Shape of the source as stored.
    pub ne: [usize; 4],
}

impl Case for Cont {
    fn op(&self) -> &'static str {
        "CONT"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("ne", self.ne)
            .with("use_view_slice", false)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::new("src", self.dtype, self.ne)]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        leaves[0].transpose()?.cont()
    }

    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        let values = reorder(operands[0].values(), self.ne, TRANSPOSED);
        Ok(Some(values.into_iter().map(f64::from).collect()))
    }
}

fn permute(ne: [usize; 4], axes: Axes) -> [usize; 4] {
    let mut permuted = [1; 4];
    for (n, axis) in ne.into_iter().zip(axes) {
        permuted[axis] = n;
    }
    permuted
}

/// The elements of a contiguous tensor in the order in which its permuted view reads them.
fn reorder(values: &[f32], ne: [usize; 4], axes: Axes) -> Vec<f32> {
    let strides = permute([1, ne[0], ne[0] * ne[1], ne[0] * ne[1] * ne[2]], axes);
    let view = permute(ne, axes);
    let at = |mut index: usize| {
        let mut at = 0;
        for (n, stride) in view.into_iter().zip(strides) {
            at += index % n * stride;
            index /= n;
        }
        values[at]
    };
    (0..values.len()).map(at).collect()
}

/// Upstream's shapes: every type to F32, the float types to each other, by rows and across rows; and the quantized types
/// to F16, for which most kernels are our addition.
#[must_use]
pub fn cpy_cases() -> Vec<Cpy> {
    const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
    const BY_ROWS: Axes = [0, 2, 1, 3];
    let pair = |src: DType, dst: DType| {
        [
            Cpy::new(src, dst, [256, 4, 4, 4], UNPERMUTED),
            Cpy::new(src, dst, [256, 2, 3, 4], BY_ROWS),
        ]
    };
    let mut cases = Vec::new();
    for src in FLOATS {
        cases.extend(FLOATS.into_iter().flat_map(|dst| pair(src, dst)));
    }
    for src in DType::ALL.into_iter().filter(|dtype| dtype.dequantizes()) {
        cases.extend(pair(src, DType::F32));
        cases.extend(pair(src, DType::F16));
    }
    for src in [DType::F16, DType::F32] {
        cases.extend(
            [DType::F16, DType::F32].map(|dst| Cpy::new(src, dst, [256, 2, 3, 4], TRANSPOSED)),
        );
    }
    cases
}

/// Upstream's shapes, transposed.
#[must_use]
pub fn cont_cases() -> Vec<Cont> {
    const SHAPES: [[usize; 4]; 6] = [
        [2, 1, 1, 1],
        [2, 1, 3, 5],
        [2, 3, 5, 7],
        [1, 4, 4, 1],
        [1, 8, 17, 1],
        [10, 10, 10, 1],
    ];
    let types = [DType::F32, DType::F16, DType::BF16];
    types
        .into_iter()
        .flat_map(|dtype| SHAPES.map(|ne| Cont { dtype, ne }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            Cpy::new(DType::Q4_K, DType::F32, [256, 2, 3, 4], [0, 2, 1, 3]).name(),
            "CPY(type_src=q4_K,type_dst=f32,ne_src=[256,2,3,4],permute_src=[0,2,1,3],permute_dst=[0,0,0,0],_src_transpose=0)"
        );
        assert_eq!(
            cont_cases()[0].name(),
            "CONT(type=f32,ne=[2,1,1,1],use_view_slice=0)"
        );
    }

    #[test]
    fn reordering_transposes_each_matrix() {
        let values = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(
            reorder(&values, [3, 2, 1, 1], TRANSPOSED),
            [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
        );
        assert_eq!(permute([3, 2, 7, 1], [0, 2, 1, 3]), [3, 7, 2, 1]);
    }
}
