//! State-space and linear-attention recurrences.

use super::{INT_MAX, Verdict, dtype, packed_rows, require};
use crate::dtype::DType::{F32, I32};
use crate::graph::node::{Node, Op};
use crate::layout::Layout;

pub(super) fn check(node: &Node) -> Verdict {
    match (node.op, node.src.as_slice()) {
        (Op::SsmConv, [a, kernel]) => {
            float(&node.src)?;
            whole(&[*a, *kernel])
        }
        (Op::SsmScan, [s, x, dt, a, b, c, ids]) => {
            float(&node.src[..6])?;
            ssm_scan([s, x, dt, a, b, c], ids)
        }
        (Op::RwkvWkv6 | Op::GatedLinearAttn, src) => {
            float(src)?;
            whole(src)
        }
        (Op::RwkvWkv7, src) => {
            float(src)?;
            whole(src)?;
            wkv7(src)
        }
        (Op::GatedDeltaNet, src) => {
            float(src)?;
            src[..3]
                .iter()
                .try_for_each(|x| packed_rows("q, k or v", x))
        }
        (Op::SolveTri, src) => {
            float(src)?;
            whole(src)
        }
        _ => super::operands(),
    }
}

fn float(src: &[Layout]) -> Verdict {
    src.iter()
        .try_for_each(|x| dtype(x.dtype == F32, "an operand", x))
}

/// Kernels look at no stride, or assert that it is a new tensor's, be the dimension of 1 or not.
fn whole(src: &[Layout]) -> Verdict {
    require(
        src.iter().all(Layout::is_packed),
        "the strides of an operand are not those of a new tensor",
    )
}

/// A state is taken for an array whose places are counted in int, and written at the strides of the states that are read.
fn ssm_scan([s, x, dt, a, b, c]: [&Layout; 6], ids: &Layout) -> Verdict {
    dtype(ids.dtype == I32, "ids", ids)?;
    for (role, layout) in [
        ("x", x),
        ("dt", dt),
        ("a", a),
        ("b", b),
        ("c", c),
        ("ids", ids),
    ] {
        packed_rows(role, layout)?;
    }
    require(
        s.is_packed(),
        "the strides of the states are not those of a new tensor",
    )?;
    let state = s.ne[0] * s.ne[1] * s.ne[2];
    require(
        state <= INT_MAX,
        "a state has more than 2^31 - 1 elements, which are counted in int",
    )?;
    // The kernel for SVE reads and writes whole vectors of at most 16 floats.
    let vectors = !cfg!(target_arch = "aarch64") || a.ne[0] == 1 || s.ne[0].is_multiple_of(16);
    require(
        vectors,
        "states of Mamba-1 are not a multiple of 16, of which the kernel writes vectors",
    )
}

/// The kernel reads and writes whole vectors, 64 elements at the most, up to and beyond the end of a head.
fn wkv7(src: &[Layout]) -> Verdict {
    let head = src.first().map_or(0, |r| r.ne[0]);
    require(
        head.is_multiple_of(64),
        format!("heads of {head} are not a multiple of 64, of which the kernel writes vectors"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::testing::{layout, node, transposed};
    use super::*;
    use crate::dtype::DType::F16;

    #[test]
    fn heads_are_whole_vectors() {
        let of = |n: usize| {
            let (token, state) = (layout(F32, &[n, 2, 3]), layout(F32, &[n * n * 2, 1]));
            let src = [token, token, token, token, token, token, state];
            check(&node(Op::RwkvWkv7, layout(F32, &[2 * n, 3 + n]), &src))
        };
        of(64).unwrap();
        of(128).unwrap();
        assert!(of(32).unwrap_err().contains("64"));
    }

    #[test]
    fn kernels_that_look_at_no_stride_get_none() {
        let a = layout(F32, &[6, 6]);
        for op in [Op::SsmConv, Op::SolveTri] {
            check(&node(op, a, &[a, a])).unwrap();
            assert!(check(&node(op, a, &[transposed(a), a])).is_err());
            assert!(check(&node(op, a, &[layout(F16, &[6, 6]), a])).is_err());
        }
        // One row at a distance that is not its length: contiguous, and asserted on.
        let row = Layout {
            nb: [4, 96, 24, 24],
            ..layout(F32, &[6, 1])
        };
        assert!(row.is_contiguous());
        assert!(check(&node(Op::SsmConv, a, &[row, a])).is_err());
    }

    #[test]
    fn states_are_read_as_arrays() {
        let s = layout(F32, &[16, 8, 4, 5]);
        let rest = [
            layout(F32, &[8, 4, 7, 3]),
            layout(F32, &[4, 7, 3]),
            layout(F32, &[1, 4]),
            layout(F32, &[16, 2, 7, 3]),
            layout(F32, &[16, 2, 7, 3]),
        ];
        let of = |s: Layout, ids: Layout| {
            let mut src = vec![s];
            src.extend(rest);
            src.push(ids);
            check(&node(Op::SsmScan, layout(F32, &[1]), &src))
        };
        of(s, layout(I32, &[3])).unwrap();
        assert!(of(s, layout(F32, &[3])).is_err());
        let gaps = Layout {
            nb: [4, 64, 512, 4096],
            ..s
        };
        assert!(of(gaps, layout(I32, &[3])).is_err());
    }
}
