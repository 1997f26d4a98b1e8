//! `CPY`: converts a tensor, perhaps a permuted view of one, to another type, perhaps into a view of another order. Upstream's
//! `test_cpy`.
//!
//! OUT_PROD on Metal dequantizes and transposes with the kernels of CPY, so these cases tell a broken copy from a broken
//! product.

use ggml_rs::{DType, Tensor};

use super::order::{Axes, TRANSPOSED, UNPERMUTED, inverse, permute, reorder};
use crate::case::{
    Case, Choices, Layout, Leaves, Relaxation, boxed, laid_out, relaxed, smaller, with_extremes,
};
use crate::cases::iq4_nl;
use crate::data::{Init, Operand, OperandData, integers, stored_as};
use crate::vars::Vars;

/// The range of the values: wide enough for conversions to and from integers.
const BOUND: f32 = 150.0;

/// One CPY case.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpy {
    /// Type of the source.
    pub type_src: DType,
    /// Type of the destination.
    pub type_dst: DType,
    /// Shape of the source as stored.
    pub ne_src: [usize; 4],
    /// Shape of the destination where it is another than the source's.
    pub ne_dst: Option<[usize; 4]>,
    /// Permutation of the source; all zeros for none.
    pub permute_src: [usize; 4],
    /// Permutation of the destination, which has the permuted source's shape before it.
    pub permute_dst: [usize; 4],
    /// Whether the source is transposed.
    pub transpose_src: bool,
    /// Shape of a larger tensor of which the destination is the first corner.
    pub dst_alloc: Option<[usize; 4]>,
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
            ne_dst: None,
            permute_src,
            permute_dst: UNPERMUTED,
            transpose_src: false,
            dst_alloc: None,
        }
    }

    /// Within a type.
    fn same(dtype: DType, ne_src: [usize; 4], permute_src: Axes) -> Self {
        Self::new(dtype, dtype, ne_src, permute_src)
    }

    /// The destination's shape as stored.
    fn shape_dst(&self) -> [usize; 4] {
        let [n0, n1, n2, n3] = permute(self.ne_src, self.permute_src);
        self.ne_dst.unwrap_or(match self.transpose_src {
            true => [n1, n0, n2, n3],
            false => [n0, n1, n2, n3],
        })
    }

    /// How many values may be off by a step. Ours: with a scale of few bits, half-precision values lie halfway between two steps in
    /// one case of some hundred, which some of ggml's row functions round to even and others away from zero.
    fn off(&self) -> f64 {
        match self.type_src {
            DType::F32 => 1.0,
            _ => 1.0 + self.ne_src.iter().product::<usize>() as f64 / 100.0,
        }
    }

    fn source<'g>(&self, stored: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let permuted = match self.permute_src {
            UNPERMUTED => stored,
            axes => stored.permute(axes)?,
        };
        match self.transpose_src {
            true => permuted.transpose(),
            false => Ok(permuted),
        }
    }
}

impl Case for Cpy {
    fn op(&self) -> &'static str {
        "CPY"
    }

    fn params(&self) -> String {
        let mut vars = Vars::new()
            .with("type_src", self.type_src)
            .with("type_dst", self.type_dst)
            .with("ne_src", self.ne_src);
        if let Some(ne_dst) = self.ne_dst {
            vars = vars.with("ne_dst", ne_dst);
        }
        vars = vars
            .with("permute_src", self.permute_src)
            .with("permute_dst", self.permute_dst)
            .with("_src_transpose", self.transpose_src);
        if let Some(dst_alloc) = self.dst_alloc {
            vars = vars.with("dst_alloc", dst_alloc);
        }
        vars.to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let src = Operand::new("src", self.type_src, self.ne_src);
        vec![match self.type_src {
            DType::I8 | DType::I16 | DType::I64 => src.init(Init::Drawn(integers)),
            _ => src.within(BOUND).trained(),
        }]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne_src.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (src, ne) = (self.source(leaves[0])?, self.shape_dst());
        let empty = |ne| leaves.graph().empty("dst", self.type_dst, ne);
        if let Some(larger) = self.dst_alloc {
            let larger = empty(larger)?;
            let [_, nb @ ..] = larger.strides();
            // What is read afterwards must be contiguous.
            return src.cpy(larger.view(ne, nb, 0)?)?.cont();
        }
        match self.permute_dst {
            UNPERMUTED => src.cpy(empty(ne)?),
            axes => src.cpy(empty(ne)?.permute(axes)?)?.permute(inverse(axes)),
        }
    }

    /// Of a quantized result: what ggml's quantizer makes of the source. No other is quantized while it changes its shape.
    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        if !self.type_dst.is_quantized() || self.type_src == self.type_dst {
            return Ok(None);
        }
        let ordered = reorder(operands[0].values(), self.ne_src, self.permute_src);
        let converted = match self.type_dst {
            DType::IQ4_NL => iq4_nl::stored(&ordered)?,
            other => stored_as(other, &ordered)?,
        };
        Ok(Some(converted.into_iter().map(f64::from).collect()))
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        match one_step(self.type_dst) {
            _ if self.type_src == self.type_dst => 0.0,
            // One value of all is off by one step of the type.
            Some(step) => {
                let elements: usize = self.ne_src.iter().product();
                let mean_square = 0.25 * f64::from(BOUND * BOUND);
                self.off() * (step * f64::from(BOUND)).powi(2) / (mean_square * elements as f64)
            }
            None => 1e-6,
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
        let one_shape = Self {
            ne_dst: None,
            permute_dst: UNPERMUTED,
            ..self.clone()
        };
        let variants = [
            ("permuted source".to_owned(), in_order),
            (
                "another shape or order of the destination".to_owned(),
                one_shape,
            ),
            (format!("{} to {}", self.type_src, self.type_dst), floats),
        ];
        relaxed(self, variants)
    }
}

/// A step of a quantized type, as a part of the range: upstream's estimates.
fn one_step(dtype: DType) -> Option<f64> {
    match dtype {
        DType::Q4_0 | DType::Q4_1 => Some(1.0 / 8.0),
        // Its values do not lie at one distance.
        DType::IQ4_NL => Some(2.0 / 8.0),
        DType::Q5_0 | DType::Q5_1 => Some(1.0 / 16.0),
        DType::Q8_0 => Some(1.0 / 64.0),
        _ => None,
    }
}

/// Upstream's types, in its order.
const TYPES: [DType; 25] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q1_0,
    DType::MXFP4,
    DType::NVFP4,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ2_XXS,
    DType::IQ2_XS,
    DType::IQ2_S,
    DType::IQ3_XXS,
    DType::IQ1_S,
    DType::IQ1_M,
    DType::IQ4_NL,
    DType::IQ3_S,
    DType::IQ4_XS,
];

const BY_ROWS: Axes = [0, 2, 1, 3];

/// By rows and across rows.
fn pair(src: DType, dst: DType) -> [Cpy; 2] {
    [
        Cpy::new(src, dst, [256, 4, 4, 4], UNPERMUTED),
        Cpy::new(src, dst, [256, 2, 3, 4], BY_ROWS),
    ]
}

/// Upstream's cases.
pub(super) fn cases() -> Vec<Cpy> {
    let mut cases = within_types();
    for src in [DType::F16, DType::BF16, DType::F32] {
        cases.extend(TYPES.into_iter().flat_map(|dst| pair(src, dst)));
    }
    cases.extend(TYPES.into_iter().flat_map(|src| pair(src, DType::F32)));
    let halves_and_floats = [DType::F16, DType::F32];
    for src in halves_and_floats {
        cases.extend(halves_and_floats.map(|dst| Cpy::new(src, dst, [256, 2, 3, 4], TRANSPOSED)));
    }
    for (src, dst) in [(DType::F32, DType::I32), (DType::I32, DType::F32)] {
        cases.extend([UNPERMUTED, TRANSPOSED].map(|axes| Cpy::new(src, dst, [256, 2, 3, 4], axes)));
    }
    cases.extend(transposed());
    cases.extend(reshaped());
    cases
}

/// Of one to three blocks, by rows, across rows, and with both sides permuted.
fn within_types() -> Vec<Cpy> {
    let mut cases = Vec::new();
    for dtype in TYPES {
        for blocks in 1..4 {
            let case = |axes| Cpy::same(dtype, [blocks * dtype.block_len(), 2, 3, 4], axes);
            let both = Cpy {
                permute_dst: BY_ROWS,
                ..case([0, 3, 1, 2])
            };
            cases.extend([case(UNPERMUTED), case(BY_ROWS), both]);
        }
    }
    cases
}

fn transposed() -> Vec<Cpy> {
    let by_transpose = [
        (DType::F16, [256, 4, 3, 1]),
        (DType::F32, [256, 4, 3, 1]),
        (DType::F32, [256, 4, 3, 3]),
        (DType::BF16, [256, 4, 3, 1]),
        (DType::F16, [256, 4, 1, 1]),
        (DType::F32, [256, 4, 1, 1]),
        (DType::BF16, [256, 4, 1, 1]),
        (DType::I32, [256, 4, 1, 1]),
    ];
    let by_axes = [
        (DType::I32, [256, 1, 4, 1], [1, 2, 0, 3]),
        (DType::F32, [256, 1, 4, 1], [1, 2, 0, 3]),
        (DType::F32, [2, 2_097_121, 1, 1], TRANSPOSED),
        (DType::F32, [2, 2, 524_281, 1], TRANSPOSED),
    ];
    let into_larger = [DType::F32, DType::F16].map(|dtype| Cpy {
        ne_dst: Some([128, 2, 3, 1]),
        dst_alloc: Some([128, 4, 3, 1]),
        ..Cpy::same(dtype, [128, 2, 3, 1], UNPERMUTED)
    });
    let by_transpose = by_transpose.into_iter().map(|(dtype, ne)| Cpy {
        transpose_src: true,
        ..Cpy::same(dtype, ne, UNPERMUTED)
    });
    let by_axes = by_axes.map(|(dtype, ne, axes)| Cpy::same(dtype, ne, axes));
    by_transpose.chain(by_axes).chain(into_larger).collect()
}

/// Every order of four dimensions into the ascending and the descending one, and so with blocks where rows stay whole.
fn reshaped() -> Vec<Cpy> {
    const ASCENDING: [usize; 4] = [3, 5, 7, 32];
    const DESCENDING: [usize; 4] = [32, 7, 5, 3];
    let into = |dtype, ne_src, ne_dst| Cpy {
        ne_dst: Some(ne_dst),
        ..Cpy::same(dtype, ne_src, UNPERMUTED)
    };
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for ne_src in orders(ASCENDING) {
            let others = [ASCENDING, DESCENDING].into_iter();
            cases.extend(
                others
                    .filter(|&ne_dst| ne_dst != ne_src)
                    .map(|ne_dst| into(dtype, ne_src, ne_dst)),
            );
            if dtype == DType::F32 && ne_src[0] == 32 {
                cases.push(into(DType::Q4_0, ne_src, DESCENDING));
            }
        }
    }
    cases
}

/// All orders of four different numbers that ascend, in lexicographic order.
fn orders(sorted: [usize; 4]) -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for places in 0..256_usize {
        let places = [6, 4, 2, 0].map(|shift| places >> shift & 3);
        let used = places.iter().fold(0, |used, place| used | 1 << place);
        if used == 0b1111 {
            orders.push(places.map(|place| sorted[place]));
        }
    }
    orders
}

/// Destinations whose rows are not packed, or lie apart and are of another length than the source's; blocks made of floats that are
/// not packed, and read into such.
fn spread() -> Vec<Cpy> {
    const PAIRS: [(DType, DType); 10] = [
        (DType::F32, DType::F32),
        (DType::F32, DType::F16),
        (DType::F32, DType::BF16),
        (DType::F32, DType::I32),
        (DType::F16, DType::F32),
        (DType::F16, DType::F16),
        (DType::BF16, DType::F32),
        (DType::BF16, DType::BF16),
        (DType::I32, DType::F32),
        (DType::I32, DType::I32),
    ];
    let mut cases = Vec::new();
    for (src, dst) in PAIRS {
        let ragged = Cpy::new(src, dst, [33, 3, 2, 2], UNPERMUTED);
        cases.extend(
            [TRANSPOSED, [2, 0, 1, 3], [3, 2, 1, 0]].map(|permute_dst| Cpy {
                permute_dst,
                ..ragged.clone()
            }),
        );
        cases.push(Cpy {
            permute_src: TRANSPOSED,
            ne_dst: Some([11, 4, 3, 3]),
            dst_alloc: Some([13, 5, 4, 3]),
            ..ragged.clone()
        });
        cases.push(Cpy {
            ne_dst: Some([4, 33, 3, 1]),
            permute_dst: TRANSPOSED,
            ..ragged
        });
    }
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.dequantizes()) {
        let block = dtype.block_len();
        cases.push(Cpy::new(DType::F32, dtype, [3, block, 2, 1], TRANSPOSED));
        cases.extend([DType::F32, DType::F16].into_iter().flat_map(|dst| {
            let rows = Cpy::new(dtype, dst, [block, 3, 2, 1], UNPERMUTED);
            let transposed = Cpy {
                permute_dst: TRANSPOSED,
                ..rows.clone()
            };
            let reshaped = Cpy {
                ne_dst: Some([6, block, 1, 1]),
                dst_alloc: Some([7, block, 1, 1]),
                ..rows
            };
            [transposed, reshaped]
        }));
    }
    cases
}

/// Ours: the quantized types to F16, for which most kernels are our addition, and those that upstream leaves out; ragged rows,
/// single values, integers, other layouts of both sides, extreme values.
pub(super) fn ours() -> Vec<Box<dyn Case>> {
    const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
    let mut plain = Vec::new();
    for src in DType::ALL.into_iter().filter(|dtype| dtype.dequantizes()) {
        plain.extend(pair(src, DType::F16));
        if !TYPES.contains(&src) {
            plain.extend(pair(src, DType::F32));
            plain.extend(pair(DType::F32, src));
        }
    }
    for ne in [[1, 1, 1, 1], [31, 3, 1, 2], [33, 2, 3, 1], [1025, 1, 2, 1]] {
        plain.extend([UNPERMUTED, TRANSPOSED].into_iter().flat_map(|axes| {
            let pairs = FLOATS
                .into_iter()
                .flat_map(|src| FLOATS.map(|dst| (src, dst)));
            pairs.map(move |(src, dst)| Cpy::new(src, dst, ne, axes))
        }));
    }
    plain.extend(spread());
    for dtype in [DType::I8, DType::I16, DType::I64] {
        plain.extend([UNPERMUTED, TRANSPOSED].map(|axes| Cpy::same(dtype, [33, 2, 3, 1], axes)));
    }
    let from_to = FLOATS
        .into_iter()
        .flat_map(|src| FLOATS.map(|dst| Cpy::new(src, dst, [33, 3, 2, 1], UNPERMUTED)));
    // No transposed variant: that is a parameter above.
    let layouts = [Layout::Rows, Layout::Window];
    boxed(plain)
        .chain(laid_out(from_to.clone(), layouts))
        .chain(with_extremes(from_to))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            pair(DType::Q4_K, DType::F32)[1].name(),
            "CPY(type_src=q4_K,type_dst=f32,ne_src=[256,2,3,4],permute_src=[0,2,1,3],permute_dst=[0,0,0,0],_src_transpose=0)"
        );
        assert_eq!(
            reshaped()[0].name(),
            "CPY(type_src=f32,type_dst=f32,ne_src=[3,5,7,32],ne_dst=[32,7,5,3],permute_src=[0,0,0,0],permute_dst=[0,0,0,0],_src_transpose=0)"
        );
        let transposed = transposed();
        assert_eq!(
            transposed.last().expect("not empty").name(),
            "CPY(type_src=f16,type_dst=f16,ne_src=[128,2,3,1],ne_dst=[128,2,3,1],permute_src=[0,0,0,0],permute_dst=[0,0,0,0],_src_transpose=0,dst_alloc=[128,4,3,1])"
        );
    }

    #[test]
    fn there_are_as_many_as_upstreams() {
        // 24 orders into two others, but for the two that are one of them, twice; and six with blocks.
        assert_eq!(orders([3, 5, 7, 32]).len(), 24);
        assert_eq!(reshaped().len(), 2 * (2 * 24 - 2) + 6);
        assert_eq!(cases().len(), 225 + 150 + 50 + 4 + 4 + 14 + 98);
    }
}
