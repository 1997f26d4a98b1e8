//! Reductions in half precision, which the guard must not let pass: as graphs for the CPU, as mutants of the Metal
//! kernels for the simulated device.

use ggml_rs::DType::{BF16, F16, F32};
use ggml_rs::{DType, Result, Tensor};
use ggml_rs_tests::mutant::Change;

use crate::variant::{self, Axis, Op};

/// The fault of each op, for the type of `x`. Extrema are exact in a type that holds all of the values, so theirs is to
/// go through the other half type.
pub fn reduce(x: Tensor<'_>, op: Op, axis: Axis) -> Result<Tensor<'_>> {
    let x = match axis {
        Axis::Rows => x,
        Axis::Whole => x.reshape([x.shape().elements()])?,
    };
    match op {
        Op::Sum => sum_rows(x),
        Op::Mean => {
            let n = x.shape().ne()[0] as f32;
            sum_rows(x)?.cast(F32)?.scale(1.0 / n)?.cast(x.dtype())
        }
        Op::Max | Op::Min => {
            let through = x.cast(other_half(x.dtype()))?.cast(x.dtype())?;
            variant::reduce(through, op, Axis::Rows)
        }
    }
}

fn other_half(dtype: DType) -> DType {
    if dtype == F16 { BF16 } else { F16 }
}

/// Adds the halves of every row, in the type of `x`, until one column is left.
fn sum_rows(x: Tensor<'_>) -> Result<Tensor<'_>> {
    let mut x = x;
    let mut odd: Option<Tensor<'_>> = None;
    while x.shape().ne()[0] > 1 {
        let width = x.shape().ne()[0];
        if width % 2 == 1 {
            let last = columns(x, width - 1, 1)?;
            odd = Some(odd.map_or_else(|| last.cont(), |odd| odd.add(last))?);
        }
        x = columns(x, 0, width / 2)?.add(columns(x, width / 2, width / 2)?)?;
    }
    odd.map_or(Ok(x), |odd| x.add(odd))
}

/// `count` columns from `first` on.
fn columns(x: Tensor<'_>, first: usize, count: usize) -> Result<Tensor<'_>> {
    let ([_, rows, ..], nb) = (x.shape().ne(), x.strides());
    x.view([count, rows], [nb[1], nb[2], nb[3]], first * nb[0])
}

/// Kernels that run every sum on one thread and in this type, and lead maxima through it.
macro_rules! accumulate_in {
    ($scalar:literal) => {
        [
            Change {
                file: "kernels/reduce.metal",
                from: "kernel void kernel_op_sum_f32(",
                to: concat!(
                    "static inline float in_half(float x) { return float(", $scalar, "(x)); }\n",
                    "static inline float4 in_half(float4 x) { return float4(", $scalar, "4(x)); }\n",
                    "kernel void kernel_op_sum_f32("
                ),
            },
            Change {
                file: "kernels/reduce.metal",
                from: "i0 = tpitg.x; i0 < args.np; i0 += ntg.x) {\n        sumf += src0[i0];",
                to: "i0 = 0; tpitg.x == 0 && i0 < args.np; ++i0) {\n        sumf = in_half(sumf + src0[i0]);",
            },
            Change {
                file: "kernels/reduce.metal",
                from: "i0 = tpitg.x; i0 < args.ne00; i0 += ntg.x) {\n        sumf += src_row[i0];",
                to: "i0 = 0; tpitg.x == 0 && i0 < args.ne00; ++i0) {\n        sumf = in_half(sumf + src_row[i0]);",
            },
            Change {
                file: "kernels/pool.metal",
                from: "pool_max_order(as_type<int>(src[src_off + j]))",
                to: concat!("pool_max_order(as_type<int>(float(", $scalar, "(src[src_off + j]))))"),
            },
        ]
    };
}

const IN_HALF: [Change; 4] = accumulate_in!("half");
const IN_BFLOAT: [Change; 4] = accumulate_in!("bfloat");

/// The mutant of the simulated device whose results of this variant are faulty: its name and what it changes.
pub fn mutant(op: Op, dtype: DType) -> (&'static str, [Change; 4]) {
    let accumulator = match op {
        Op::Sum | Op::Mean => dtype,
        Op::Max | Op::Min => other_half(dtype),
    };
    if accumulator == F16 {
        ("reductions_in_half", IN_HALF)
    } else {
        ("reductions_in_bfloat", IN_BFLOAT)
    }
}
