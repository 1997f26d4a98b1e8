//! ROPE whose result goes to rows of a cache, which backends run as one kernel: `ROPE_SET_ROWS`, and with RMS_NORM and MUL
//! before it `RMS_NORM_MUL_ROPE`. Upstream's `test_rope_set_rows` and `test_rms_norm_mul_rope`.

use ggml_rs::graph::Rope;
use ggml_rs::{DType, Tensor};

use super::positions::{self, Mode};
use crate::case::{Case, Leaves};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One ROPE_SET_ROWS case.
#[derive(Clone, Debug)]
pub struct RopeSetRows {
    dtype: DType,
    /// Row, heads, tokens, and how often more rows the cache has than there are tokens.
    ne_a: [usize; 4],
    mode: Mode,
}

/// What upstream turns with sections; without, it turns whole rows, which are as long.
const N_DIMS: usize = 128;

impl Case for RopeSetRows {
    fn op(&self) -> &'static str {
        "ROPE_SET_ROWS"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("type", self.dtype)
            .with("type_idx", DType::I64)
            .with("ne_a", self.ne_a)
            .with("mode", self.mode.number())
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [row, heads, tokens, _] = self.ne_a;
        vec![
            Operand::new("a", DType::F32, [row, heads, tokens, 1]),
            positions::operand(self.mode, tokens),
            cache(self.dtype, self.ne_a),
            ids(tokens),
        ]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let plain = matches!(self.mode, Mode::Normal | Mode::Neox);
        let options = Rope {
            mode: positions::rope_mode(self.mode, N_DIMS),
            ..match plain {
                true => Rope::default(),
                false => Rope {
                    dims: Some(positions::dims(self.mode, N_DIMS)),
                    freq_scale: 1.4245,
                    ext_factor: 0.7465,
                    attn_factor: 1.4245,
                    beta_fast: 1.0,
                    beta_slow: 1.0,
                    ..Rope::default()
                },
            }
        };
        let turned = leaves[0].rope(leaves[1], options)?;
        leaves[2].set_rows(tokens_of(turned)?, leaves.rows(3))
    }

    fn is_fusion(&self) -> bool {
        true
    }
}

fn cache(dtype: DType, [row, heads, tokens, more]: [usize; 4]) -> Operand {
    Operand::new("dst", dtype, [row * heads, tokens * more, 1, 1])
}

/// Upstream writes the first rows of the cache alone.
fn ids(tokens: usize) -> Operand {
    Operand {
        dtype: DType::I64,
        ..Operand::row_ids("row_idxs", [tokens, 1, 1, 1], tokens, true)
    }
}

/// A view with all of a token's heads in one row.
fn tokens_of(heads: Tensor<'_>) -> ggml_rs::Result<Tensor<'_>> {
    let [row, count, tokens, _] = heads.shape().ne();
    let [_, _, token, all] = heads.strides();
    heads.view([row * count, tokens], [token, all, all], 0)
}

/// One RMS_NORM_MUL_ROPE case.
#[derive(Clone, Debug)]
pub struct RmsNormMulRope {
    ne: [usize; 4],
    eps: f32,
    /// Whether sums come before the norm.
    multi_add: bool,
    /// Whether the result goes to rows of a cache.
    set_rows: bool,
    mode: Mode,
}

impl Case for RmsNormMulRope {
    fn op(&self) -> &'static str {
        "RMS_NORM_MUL_ROPE"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("ne", self.ne)
            .with("eps", self.eps)
            .with("multi_add", self.multi_add)
            .with("set_rows", self.set_rows)
            .with("mode", self.mode.number())
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [row, heads, tokens, _] = self.ne;
        let shape = [row, heads, tokens, 1];
        let mut operands = ["a", "b", "c"]
            .map(|name| Operand::new(name, DType::F32, shape))
            .to_vec();
        // Upstream's: each of the first positions once.
        operands.push(positions::operand(self.mode, tokens).init(Init::Permutation));
        if self.set_rows {
            operands.extend([cache(DType::F16, self.ne), ids(tokens)]);
        }
        operands
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let (mut a, b, c) = (leaves[0], leaves[1], leaves[2]);
        if self.multi_add {
            a = a.add(b)?.add(c)?;
        }
        let options = Rope {
            mode: positions::rope_mode(self.mode, self.ne[0]),
            ..Rope::default()
        };
        let turned = a.rms_norm(self.eps)?.mul(b)?.rope(leaves[3], options)?;
        match self.set_rows {
            true => leaves[4].set_rows(tokens_of(turned)?, leaves.rows(5)),
            false => Ok(turned),
        }
    }

    fn is_fusion(&self) -> bool {
        true
    }
}

/// Upstream's: heads of 128, few and many tokens.
pub(super) fn rope_set_rows() -> Vec<RopeSetRows> {
    let mut cases = Vec::new();
    for mode in [Mode::Normal, Mode::Neox, Mode::Mrope, Mode::Vision] {
        for dtype in [DType::F16, DType::F32] {
            for tokens in [1, 8, 512] {
                cases.extend([1, 3].map(|more| RopeSetRows {
                    dtype,
                    ne_a: [128, 32, tokens, more],
                    mode,
                }));
            }
        }
    }
    cases
}

/// Upstream's: long and short rows, one and many heads and tokens. It has the last shape twice.
pub(super) fn rms_norm_mul_rope() -> Vec<RmsNormMulRope> {
    const SHAPES: [[usize; 4]; 8] = [
        [768, 1, 1, 1],
        [768, 3, 1, 1],
        [768, 3, 5, 1],
        [128, 32, 2, 1],
        [128, 4, 2, 1],
        [128, 32, 50, 1],
        [128, 4, 50, 1],
        [8192, 2, 2, 1],
    ];
    let mut cases = Vec::new();
    for multi_add in [false, true] {
        for set_rows in [false, true] {
            for mode in [Mode::Normal, Mode::Neox] {
                cases.extend(SHAPES.map(|ne| RmsNormMulRope {
                    ne,
                    eps: 1e-6,
                    multi_add,
                    set_rows,
                    mode,
                }));
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        assert_eq!(
            rope_set_rows()[1].name(),
            "ROPE_SET_ROWS(type=f16,type_idx=i64,ne_a=[128,32,1,3],mode=0)"
        );
        assert_eq!(
            rms_norm_mul_rope()[8].name(),
            "RMS_NORM_MUL_ROPE(ne=[768,1,1,1],eps=0.000001,multi_add=0,set_rows=0,mode=2)"
        );
    }
}
