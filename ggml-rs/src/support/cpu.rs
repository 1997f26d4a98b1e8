//! The CPU backend of ggml 0.26.0: what its kernels assert, or take for granted.

use super::{Verdict, require};
use crate::dtype::DType::{self, BF16, F16, F32, I16, I32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

/// Kernels count elements and rows in `int`.
const INT_MAX: usize = i32::MAX as usize;

pub fn check(node: &Node) -> Verdict {
    let (dst, src) = (&node.dst, node.src.as_slice());
    if node.op == Op::View {
        return Ok(());
    }
    let in_range =
        dst.elements() <= INT_MAX && src.iter().all(|src| src.ne.iter().all(|&n| n <= INT_MAX));
    require(
        in_range,
        "a dimension or the number of results exceeds 2^31 - 1, which kernels count in int",
    )?;
    match (node.op, src) {
        (Op::OutProd, [a, b]) => out_prod(a, b),
        (Op::MulMat, [a, b]) => mul_mat(a, b).and_then(|()| keeps(a, node.float_operands)),
        (Op::MulMatId, [a, b, _ids]) => mul_mat(a, b).and_then(|()| keeps(a, node.float_operands)),
        (Op::Cont | Op::Cpy, [a, ..]) => copy(a, dst),
        (Op::Add, [a, b]) if a.dtype.is_quantized() => add_quantized(a, b),
        (Op::Add | Op::Sub | Op::Mul | Op::Div, [a, b]) => binary(a, b),
        (Op::Scale, [a]) => scale(a),
        (Op::Relu, [a]) => packed(a, &[F32, F16, BF16]),
        (Op::Sum, [a]) => packed(a, &[F32, F16, BF16]),
        (Op::SumRows | Op::Mean, [a]) => packed(a, &[F32]),
        (Op::Pool1d, [a]) => pool_1d(a),
        (Op::Repeat, [a]) => packed(a, &[F32, F16, BF16, I32, I16]),
        _ => Err("the op has an unexpected number of operands".to_owned()),
    }
}

/// Whether the CPU backend has a row function from f32 to this quantized type: those that search a grid
/// have none.
fn quantizes(dtype: DType) -> bool {
    use DType::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
    dtype.dequantizes()
        && !matches!(
            dtype,
            IQ1_M | IQ1_S | IQ2_S | IQ2_XS | IQ2_XXS | IQ3_S | IQ3_XXS
        )
}

fn dtype(holds: bool, role: &str, layout: &Layout) -> Verdict {
    require(
        holds,
        format!("{role} of type {} is not supported", layout.dtype),
    )
}

fn packed_rows(role: &str, layout: &Layout) -> Verdict {
    require(
        layout.has_packed_rows(),
        format!("the rows of {role} are not packed"),
    )
}

/// One operand of one of these types, with packed rows.
fn packed(a: &Layout, dtypes: &[DType]) -> Verdict {
    dtype(dtypes.contains(&a.dtype), "a", a)?;
    packed_rows("a", a)
}

fn out_prod(a: &Layout, b: &Layout) -> Verdict {
    let float = |dtype| matches!(dtype, F32 | F16 | BF16);
    dtype(float(a.dtype) || a.dtype.dequantizes(), "a", a)?;
    dtype(float(b.dtype), "b", b)?;
    require(
        float(a.dtype) || a.has_packed_rows(),
        "the rows of a are not packed",
    )
}

fn mul_mat(a: &Layout, b: &Layout) -> Verdict {
    dtype(
        matches!(a.dtype, F32 | F16 | BF16) || a.dtype.dequantizes(),
        "a",
        a,
    )?;
    let same = b.dtype == a.dtype && matches!(a.dtype, F16 | BF16);
    dtype(b.dtype == F32 || same, "b", b)?;
    packed_rows("a", a)?;
    packed_rows("b", b)
}

/// Kernels multiply F32 with F32 in F32, and every other type with `b` rounded to a type that goes with it; F16 with F16 is
/// added up in F16 on some ARM machines.
fn keeps(a: &Layout, float: bool) -> Verdict {
    require(
        !float || a.dtype == F32,
        format!(
            "float operands are asked for, and the kernels compute in less where a is {}",
            a.dtype
        ),
    )
}

fn binary(a: &Layout, b: &Layout) -> Verdict {
    let same = a.dtype == b.dtype && matches!(a.dtype, F32 | F16 | BF16);
    let mixed = matches!(a.dtype, F16 | BF16) && b.dtype == F32;
    require(
        same || mixed,
        format!("{} with {} is not supported", a.dtype, b.dtype),
    )?;
    packed_rows("a", a)
}

fn add_quantized(a: &Layout, b: &Layout) -> Verdict {
    // Without a row function back to the type, the kernel copies floats over the blocks.
    dtype(quantizes(a.dtype), "a", a)?;
    dtype(b.dtype == F32, "b", b)?;
    require(a.ne == b.ne, "b is not repeated over a quantized a")?;
    packed_rows("a", a)?;
    packed_rows("b", b)
}

fn scale(a: &Layout) -> Verdict {
    dtype(matches!(a.dtype, F32 | BF16), "a", a)?;
    require(a.is_contiguous(), "a is not contiguous")
}

/// The kernel steps from row to row by `nb[1]`, whatever the higher dimensions' strides are.
fn pool_1d(a: &Layout) -> Verdict {
    dtype(matches!(a.dtype, F32 | F16), "a", a)?;
    require(
        a.is_packed(),
        "the strides of a are not those of a new tensor",
    )
}

fn copy(a: &Layout, dst: &Layout) -> Verdict {
    let float = |dtype| matches!(dtype, F32 | F16 | BF16);
    let (from, to) = (a.dtype, dst.dtype);
    match () {
        () if from == to && from.is_quantized() => copy_blocks(a, dst),
        () if from == to => Ok(()),
        () if float(from) && float(to) => Ok(()),
        () if (from, to) == (F32, I32) || (from, to) == (I32, F32) => Ok(()),
        () if float(from) && quantizes(to) => copy_to_quantized(a, dst),
        () if from.dequantizes() && to == F32 => copy_from_quantized(dst),
        () => Err(format!("a copy from {from} to {to} is not supported")),
    }
}

/// The kernel's other paths take a block for an element.
fn copy_blocks(a: &Layout, dst: &Layout) -> Verdict {
    let packed = a.ne == dst.ne && a.has_packed_rows() && dst.has_packed_rows();
    let contiguous = a.is_contiguous() && dst.is_contiguous();
    require(
        packed || contiguous,
        "blocks are only copied between packed rows of one shape or contiguous tensors",
    )
}

/// The kernel counts its scratch in rows of dst and uses it in rows of a.
fn copy_to_quantized(a: &Layout, dst: &Layout) -> Verdict {
    packed_rows("a", a)?;
    require(
        dst.is_contiguous(),
        "a quantized destination is not contiguous",
    )?;
    require(
        a.ne == dst.ne,
        "quantizing while reshaping is not supported",
    )
}

fn copy_from_quantized(dst: &Layout) -> Verdict {
    packed_rows("the destination", dst)?;
    require(
        dst.is_contiguous(),
        "the destination of a dequantizing copy is not contiguous",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    fn layout(dtype: DType, dims: &[usize]) -> Layout {
        Layout::contiguous(dtype, Shape::new(dims).unwrap()).unwrap()
    }

    fn transposed(mut layout: Layout) -> Layout {
        layout.ne.swap(0, 1);
        layout.nb.swap(0, 1);
        layout
    }

    fn node(op: Op, dst: Layout, src: &[Layout]) -> Node {
        Node {
            op,
            dst,
            src: src.to_vec(),
            float_operands: false,
        }
    }

    fn out_prod_node(a: Layout, b: Layout) -> Node {
        node(
            Op::OutProd,
            layout(F32, &[a.ne[0], b.ne[0], b.ne[2], b.ne[3]]),
            &[a, b],
        )
    }

    #[test]
    fn out_prod_takes_every_type_that_becomes_float() {
        for a in DType::ALL {
            for b in [F32, F16, BF16] {
                let verdict = check(&out_prod_node(
                    layout(a, &[256, 4]),
                    layout(b, &[8, 4, 2, 3]),
                ));
                let takes = matches!(a, F32 | F16 | BF16) || a.dequantizes();
                assert_eq!(verdict.is_ok(), takes, "{a} and {b}: {verdict:?}");
            }
        }
        check(&out_prod_node(
            layout(F32, &[8, 4]),
            transposed(layout(F32, &[4, 8])),
        ))
        .unwrap();
        check(&out_prod_node(
            transposed(layout(BF16, &[4, 8])),
            layout(F32, &[8, 4]),
        ))
        .unwrap();
    }

    #[test]
    fn out_prod_refuses_with_a_reason() {
        let b = layout(F32, &[8, 4]);
        for (a, b, why) in [
            (
                layout(F32, &[8, 4]),
                layout(DType::Q8_0, &[32, 4]),
                "b of type q8_0",
            ),
            (layout(I32, &[8, 4]), b, "a of type i32"),
            (layout(DType::Q8_1, &[32, 4]), b, "a of type q8_1"),
            (
                layout(F32, &[1 << 16, 4]),
                layout(F32, &[1 << 16, 4]),
                "2^31",
            ),
        ] {
            let reason = check(&out_prod_node(a, b)).unwrap_err();
            assert!(reason.contains(why), "{reason}");
        }
    }

    #[test]
    fn mul_mat_wants_packed_rows_of_both() {
        let product = |a: Layout, b: Layout| {
            check(&node(Op::MulMat, layout(F32, &[a.ne[1], b.ne[1]]), &[a, b]))
        };
        product(layout(DType::Q4_K, &[256, 8]), layout(F32, &[256, 3])).unwrap();
        product(layout(BF16, &[8, 8]), layout(BF16, &[8, 3])).unwrap();
        assert!(product(layout(F32, &[8, 8]), transposed(layout(F32, &[3, 8]))).is_err());
        assert!(product(layout(F32, &[8, 8]), layout(F16, &[8, 3])).is_err());
    }

    #[test]
    fn float_operands_are_refused_where_kernels_compute_in_less() {
        let product = |a: DType, b: DType, float_operands: bool| {
            let (a, b) = (layout(a, &[256, 8]), layout(b, &[256, 3]));
            check(&Node {
                float_operands,
                ..node(Op::MulMat, layout(F32, &[8, 3]), &[a, b])
            })
        };
        product(F32, F32, true).unwrap();
        for (a, b) in [(F16, F32), (BF16, F32), (DType::Q4_K, F32), (F16, F16)] {
            product(a, b, false).unwrap();
            assert!(product(a, b, true).unwrap_err().contains("in less"));
        }
    }

    #[test]
    fn reductions_take_what_their_kernels_do_not_abort_on() {
        let one = |op, a: Layout| check(&node(op, layout(F32, &[1]), &[a]));
        let spread = transposed(layout(F32, &[4, 6]));
        for op in [Op::SumRows, Op::Mean] {
            one(op, layout(F32, &[5, 3])).unwrap();
            for refused in [layout(F16, &[5]), layout(BF16, &[5]), spread] {
                assert!(one(op, refused).is_err(), "{op:?} of {refused:?}");
            }
        }
        one(Op::Pool1d, layout(F32, &[5, 3])).unwrap();
        for refused in [layout(BF16, &[5]), layout(I32, &[5]), spread] {
            assert!(one(Op::Pool1d, refused).is_err(), "{refused:?}");
        }
        assert!(one(Op::Sum, spread).is_err());
    }

    #[test]
    fn copies_of_blocks_keep_their_rows() {
        let to = |a: Layout, dst: Layout| check(&node(Op::Cpy, dst, &[a, dst]));
        to(transposed(layout(F32, &[8, 4])), layout(F16, &[8, 4])).unwrap();
        to(layout(F32, &[64, 2]), layout(DType::Q8_0, &[64, 2])).unwrap();
        to(layout(DType::Q4_K, &[256, 2]), layout(F32, &[512])).unwrap();
        // The scratch of this one would be written past its end.
        assert!(to(layout(F32, &[64, 2]), layout(DType::Q8_0, &[32, 4])).is_err());
        assert!(to(layout(F32, &[256]), layout(DType::IQ2_XXS, &[256])).is_err());
        assert!(to(layout(DType::Q4_K, &[256]), layout(F16, &[256])).is_err());
        assert!(to(layout(I32, &[8]), layout(F16, &[8])).is_err());
    }

    #[test]
    fn quantized_sums_need_a_way_back() {
        let add = |a: Layout, b: Layout| check(&node(Op::Add, a, &[a, b]));
        add(layout(DType::Q8_0, &[64, 2]), layout(F32, &[64, 2])).unwrap();
        assert!(add(layout(DType::Q8_0, &[64, 2]), layout(F32, &[64])).is_err());
        assert!(add(layout(DType::IQ3_S, &[256]), layout(F32, &[256])).is_err());
        let q8 = layout(DType::Q8_0, &[32]);
        assert!(check(&node(Op::Mul, q8, &[q8, layout(F32, &[32])])).is_err());
    }
}
