//! Arithmetic and functions, element by element.

use super::{Verdict, dtype, even_rows, packed, packed_rows, quantizes, require};
use crate::dtype::DType::{BF16, F16, F32, I32};
use crate::graph::node::{Glu, Node, Op, Unary};
use crate::graph::ops::window::Window;
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    let dst = &node.dst;
    match (node.op, node.src.as_slice()) {
        (Op::Add, [a, b]) if a.dtype.is_quantized() => add_quantized(a, b, dst),
        (Op::Add | Op::Sub | Op::Mul | Op::Div, [a, b]) => binary(a, b, dst),
        (Op::Add1, [a, b]) => add1(a, b, dst),
        (Op::Acc | Op::Set, [a, b]) => windowed(node, a, b),
        (Op::Scale, [a]) => scale(a),
        (Op::Clamp | Op::LeakyRelu, [a]) => {
            packed(a, &[F32, F16])?;
            even_rows("a", a)
        }
        (Op::Fill, [a]) => packed(a, &[F32, F16]),
        (Op::SiluBack, [gradient, x]) => silu_back(gradient, x),
        (Op::Unary(Unary::Xielu), [a]) => {
            packed(a, &[F32, F16, BF16])?;
            even_rows("a", a)
        }
        (Op::Sqr | Op::Sqrt | Op::Log | Op::Sin | Op::Cos | Op::Unary(_), [a]) => {
            packed(a, &[F32, F16, BF16])
        }
        (Op::Glu(function), [a]) => gate(function, a),
        (Op::Glu(function), [a, b]) => {
            gate(function, a)?;
            require(a.dtype == b.dtype, "both must be of one type")?;
            even_rows("b", b)
        }
        _ => super::operands(),
    }
}

/// `a` and the result are F16 or BF16 only with an operand of the same type, or of F32.
fn binary(a: &Layout, b: &Layout, dst: &Layout) -> Verdict {
    let same = a.dtype == b.dtype && matches!(a.dtype, F32 | F16 | BF16) && dst.dtype == a.dtype;
    let mixed = matches!(a.dtype, F16 | BF16)
        && b.dtype == F32
        && (dst.dtype == a.dtype || dst.dtype == F32);
    require(
        same || mixed,
        format!(
            "{} with {} to {} is not supported",
            a.dtype, b.dtype, dst.dtype
        ),
    )?;
    packed_rows("a", a)
}

fn add_quantized(a: &Layout, b: &Layout, dst: &Layout) -> Verdict {
    dtype(a.dtype.dequantizes(), "a", a)?;
    // Without a row function to the type, the kernel copies floats over the blocks.
    dtype(
        quantizes(dst.dtype) || super::is_float(dst.dtype),
        "the result",
        dst,
    )?;
    dtype(b.dtype == F32, "b", b)?;
    require(a.ne == b.ne, "b is not repeated over a quantized a")?;
    packed_rows("a", a)?;
    packed_rows("b", b)?;
    require(
        dst.nb.is_sorted(),
        "the dimensions of a quantized tensor that is written over are exchanged",
    )
}

fn add1(a: &Layout, b: &Layout, dst: &Layout) -> Verdict {
    let taken = match a.dtype {
        F32 => b.dtype == F32,
        F16 | BF16 => b.dtype == F32 || b.dtype == a.dtype,
        // The kernel steps through ne[3] by nb[0].
        _ => quantizes(a.dtype) && b.dtype == F32 && a.ne[3] == 1 && dst.nb.is_sorted(),
    };
    require(
        taken,
        format!(
            "{} of ne[3] {} with {} is not supported",
            a.dtype, a.ne[3], b.dtype
        ),
    )?;
    packed_rows("a", a)
}

fn windowed(node: &Node, a: &Layout, b: &Layout) -> Verdict {
    let takes_i32 = node.op == Op::Set;
    dtype(a.dtype == F32 || (takes_i32 && a.dtype == I32), "a", a)?;
    dtype(b.dtype == a.dtype, "b", b)?;
    require(a.is_contiguous(), "a is not contiguous")?;
    packed_rows("b", b)?;
    Window::of(&node.params)?.check(a, b)
}

fn scale(a: &Layout) -> Verdict {
    dtype(matches!(a.dtype, F32 | BF16), "a", a)?;
    require(a.is_contiguous(), "a is not contiguous")?;
    even_rows("a", a)
}

fn silu_back(gradient: &Layout, x: &Layout) -> Verdict {
    require(gradient.ne == x.ne, "the shapes differ")?;
    require(gradient.dtype == x.dtype, "the types differ")?;
    packed(gradient, &[F32, F16])?;
    even_rows("a", gradient)?;
    packed_rows("b", x)?;
    even_rows("b", x)
}

fn gate(function: Glu, a: &Layout) -> Verdict {
    let taken = match function {
        Glu::SwigluOai => a.dtype == F32,
        Glu::SwigluClamp => matches!(a.dtype, F32 | F16),
        Glu::Reglu | Glu::Geglu | Glu::Swiglu | Glu::GegluErf | Glu::GegluQuick => {
            matches!(a.dtype, F32 | F16 | BF16)
        }
    };
    dtype(taken, "a", a)?;
    even_rows("a", a)
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn quantized_sums_need_a_way_back() {
        let add = |a: Layout, b: Layout, dst: Layout| check(&node(Op::Add, dst, &[a, b]));
        let (q8, b) = (layout(DType::Q8_0, &[64, 2, 3]), layout(F32, &[64, 2, 3]));
        add(q8, b, q8).unwrap();
        add(q8, b, b).unwrap();
        add(q8, b, layout(DType::Q4_0, &[64, 2, 3])).unwrap();
        assert!(add(q8, layout(F32, &[64]), q8).is_err());
        assert!(add(q8, b, layout(DType::IQ3_S, &[256])).is_err());
        let mut exchanged = q8;
        exchanged.nb.swap(1, 2);
        assert!(add(exchanged, b, exchanged).is_err());
        let q8 = layout(DType::Q8_0, &[32]);
        assert!(check(&node(Op::Mul, q8, &[q8, layout(F32, &[32])])).is_err());
    }

    #[test]
    fn mixed_types_are_those_that_kernels_have() {
        let add = |a, b, dst| {
            let [a, b, dst] = [a, b, dst].map(|dtype| layout(dtype, &[8]));
            check(&node(Op::Add, dst, &[a, b]))
        };
        for (a, b, dst) in [
            (F16, F32, F16),
            (F16, F32, F32),
            (BF16, F32, F32),
            (F16, F16, F16),
        ] {
            add(a, b, dst).unwrap();
        }
        for (a, b, dst) in [
            (F16, F16, F32),
            (F32, F16, F32),
            (BF16, F16, BF16),
            (F16, F32, BF16),
        ] {
            assert!(add(a, b, dst).is_err(), "{a} {b} {dst}");
        }
    }

    #[test]
    fn one_element_is_read_as_what_it_is() {
        let add1 = |a: Layout, b| check(&node(Op::Add1, a, &[a, layout(b, &[1])]));
        add1(layout(F32, &[8]), F32).unwrap();
        add1(layout(BF16, &[8]), BF16).unwrap();
        add1(layout(DType::Q8_0, &[32, 2, 2]), F32).unwrap();
        for (a, b) in [
            (layout(F32, &[8]), F16),
            (layout(F16, &[8]), BF16),
            (layout(I32, &[8]), F32),
            (layout(DType::Q8_0, &[32, 2, 2, 2]), F32),
            (layout(DType::IQ2_XS, &[256]), F32),
        ] {
            assert!(add1(a, b).is_err(), "{a:?} {b}");
        }
    }

    #[test]
    fn rows_that_are_stepped_through_lie_at_one_distance() {
        // Contiguous, and nb[1] is not the distance of its rows.
        let around_one = Layout {
            nb: [4, 96, 16, 32],
            ..layout(F32, &[4, 1, 2])
        };
        for op in [
            Op::Clamp,
            Op::LeakyRelu,
            Op::Scale,
            Op::Unary(Unary::Xielu),
            Op::Glu(Glu::Swiglu),
        ] {
            check(&node(op, layout(F32, &[4, 3]), &[layout(F32, &[4, 3])])).unwrap();
            assert!(
                check(&node(op, around_one, &[around_one])).is_err(),
                "{op:?}"
            );
        }
        let plain = layout(F32, &[4, 1, 2]);
        let back = |x| check(&node(Op::SiluBack, plain, &[plain, x]));
        back(plain).unwrap();
        assert!(back(around_one).is_err());
    }

    #[test]
    fn functions_take_the_types_of_their_kernels() {
        let one = |op, a: Layout| check(&node(op, a, &[a]));
        for dtype in [F32, F16, BF16] {
            let a = layout(dtype, &[8, 2]);
            for op in [Op::Sqr, Op::Unary(Unary::Gelu), Op::Unary(Unary::Xielu)] {
                one(op, a).unwrap();
                assert!(one(op, transposed(a)).is_err(), "{op:?}");
            }
            for op in [
                Op::Clamp,
                Op::Fill,
                Op::LeakyRelu,
                Op::Glu(Glu::SwigluClamp),
            ] {
                assert_eq!(one(op, a).is_ok(), dtype != BF16, "{op:?} of {dtype}");
            }
            assert_eq!(one(Op::Glu(Glu::SwigluOai), a).is_ok(), dtype == F32);
            assert_eq!(one(Op::Scale, a).is_ok(), dtype != F16);
        }
        for op in [Op::Log, Op::Unary(Unary::Relu), Op::Glu(Glu::Reglu)] {
            assert!(one(op, layout(I32, &[8])).is_err(), "{op:?}");
        }
    }

    #[test]
    fn windows_are_bounded_again() {
        let (a, b) = (layout(F32, &[8, 6]), layout(F32, &[2, 3]));
        let at = |op, params: [i32; 4], b| {
            let mut node = node(op, a, &[a, b]);
            node.params[..4].copy_from_slice(&params);
            check(&node)
        };
        at(Op::Acc, [32, 192, 192, 0], b).unwrap();
        at(Op::Set, [32, 192, 192, 96], b).unwrap();
        for params in [[32, 192, 192, 128], [32, 192, 192, -4], [0, 192, 192, 0]] {
            assert!(at(Op::Acc, params, b).is_err(), "{params:?}");
        }
        assert!(at(Op::Acc, [32, 192, 192, 0], transposed(layout(F32, &[3, 2]))).is_err());
        let i32s = layout(I32, &[8, 6]);
        let mut set = node(Op::Set, i32s, &[i32s, i32s]);
        set.params[..4].copy_from_slice(&[32, 192, 192, 0]);
        check(&set).unwrap();
        set.op = Op::Acc;
        assert!(check(&set).is_err());
    }
}
