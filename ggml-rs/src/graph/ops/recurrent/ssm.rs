//! Mamba's convolution and scan.

use ggml_sys as sys;

use super::{check_float, check_snapshots};
use crate::dtype::DType::{F32, I32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::{RowIds, Tensor};
use crate::layout::{Layout, Refusal};

/// The operands of [`Tensor::ssm_scan`], but for the states.
#[derive(Debug, Clone, Copy)]
pub struct SsmScan<'g> {
    /// Inputs [dim, heads, tokens, sequences].
    pub x: Tensor<'g>,
    /// Time steps before softplus [heads, tokens, sequences].
    pub dt: Tensor<'g>,
    /// Decay [1, heads] (Mamba-2) or [state, heads] (Mamba-1).
    pub a: Tensor<'g>,
    /// What of an input enters the state [state, groups, tokens, sequences].
    pub b: Tensor<'g>,
    /// What of the state is an output [state, groups, tokens, sequences].
    pub c: Tensor<'g>,
    /// Where each sequence's state is `[sequences]`.
    pub ids: RowIds<'g>,
    /// How many of the last states are kept: 1, or more for Mamba-2.
    pub states: usize,
}

impl<'g> Tensor<'g> {
    /// A convolution along tokens: `self` [k - 1 + tokens, n, sequences] and kernel [k, n], both F32, give
    /// [n, tokens, sequences] with `out[i, t, s] = sum over j of self[t + j, i, s] * kernel[j, i]`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above; [`Error::DType`](crate::Error::DType) unless F32.
    #[doc(alias = "ggml_ssm_conv")]
    #[track_caller]
    pub fn ssm_conv(self, kernel: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_conv(self.layout(), kernel.layout()).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_ssm_conv's assertions.
        self.make("ssm_conv", |context| unsafe {
            sys::ggml_ssm_conv(context, self.as_ptr(), kernel.as_ptr())
        })
    }

    /// Mamba's scan: states `self` [state, dim, heads, slots] and the operands, all F32, give one row: the outputs
    /// [dim, heads, tokens, sequences], and after them the states [state, dim, heads, sequences], the last one first.
    /// From token to token, with `d = softplus(dt)` and the group `g` of each head,
    /// `state = state * exp(d * a) + b[:, g] * x * d`, and the output is `sum of state * c[:, g]`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as in [`SsmScan`], groups divide heads, and ids stay below the
    /// slots; [`Error::DType`](crate::Error::DType) unless F32, with I32 ids; [`Error::Layout`](crate::Error::Layout) unless
    /// states, `dt` and `a` are contiguous, and the first two dimensions of the others packed;
    /// [`Error::Param`](crate::Error::Param) for no state to keep, more than tokens, or more than one of Mamba-1.
    #[doc(alias = "ggml_ssm_scan")]
    #[track_caller]
    pub fn ssm_scan(self, scan: SsmScan<'g>) -> Result<Self> {
        let at = here();
        let SsmScan {
            x,
            dt,
            a,
            b,
            c,
            ids,
            states,
        } = scan;
        let operands = [self, x, dt, a, b, c].map(Tensor::layout);
        check_scan(operands, ids.tensor.layout(), ids.rows, states).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_ssm_scan's assertions; the ids are below the slots.
        self.make("ssm_scan", |context| unsafe {
            let [s, x, dt, a, b, c, ids] = [self, x, dt, a, b, c, ids.tensor].map(Tensor::as_ptr);
            sys::ggml_ssm_scan(context, s, x, dt, a, b, c, ids, states as i64)
        })
    }
}

/// Mirrors `ggml_ssm_conv`.
fn check_conv(a: Layout, kernel: Layout) -> Checked {
    let refusal = Refusal {
        op: "ssm_conv",
        operands: &[("a", a), ("kernel", kernel)],
    };
    check_float(&refusal)?;
    let [k, n, ..] = kernel.ne;
    if kernel.ne[2..] != [1, 1] || a.ne[3] != 1 || a.ne[1] != n {
        return Err(
            refusal.shape("a must be [k - 1 + tokens, n, sequences] for a kernel of [k, n]")
        );
    }
    match (a.ne[0] + 1).checked_sub(k) {
        Some(tokens) if tokens > 0 => refusal.check_result(F32, [n, tokens, a.ne[2], 1]),
        _ => Err(refusal.shape("a has fewer elements in a row than the kernel")),
    }
}

/// Mirrors `ggml_ssm_scan`, for states, x, dt, a, b and c.
fn check_scan(
    [s, x, dt, a, b, c]: [Layout; 6],
    ids: Layout,
    slots: usize,
    states: usize,
) -> Checked {
    let float = [("s", s), ("x", x), ("dt", dt), ("a", a), ("b", b), ("c", c)];
    let refusal = Refusal {
        op: "ssm_scan",
        operands: &float,
    };
    check_float(&refusal)?;
    if ids.dtype != I32 {
        return Err(refusal.dtype("the ids must be I32"));
    }
    check_scan_shapes(&refusal, [s, x, dt, a, b, c], ids)?;
    if slots > s.ne[3] {
        let slots = format!(
            "the ids choose from {slots} states, and there are {}",
            s.ne[3]
        );
        return Err(refusal.shape(slots));
    }
    if ![s, dt, a].iter().all(Layout::is_contiguous) || !ids.has_packed_rows() {
        return Err(refusal.layout("states, dt, a and ids must be contiguous: call cont() first"));
    }
    let planes = |x: &Layout| x.has_packed_rows() && x.nb[1] == x.ne[0] * x.nb[0];
    if ![x, b, c].iter().all(planes) {
        return Err(refusal.layout("the first two dimensions of x, b and c must be packed"));
    }
    check_snapshots(&refusal, states, x.ne[2])?;
    if a.ne[0] != 1 && states != 1 {
        return Err(refusal.param("Mamba-1 keeps one state"));
    }
    let kept = [s.ne[0], s.ne[1], s.ne[2], x.ne[3], states]
        .iter()
        .try_fold(1_usize, |product, &n| product.checked_mul(n));
    match kept.and_then(|kept| kept.checked_add(x.elements())) {
        Some(elements) => refusal.check_result(F32, [elements, 1, 1, 1]),
        None => Err(refusal.shape("the result overflows")),
    }
}

fn check_scan_shapes(refusal: &Refusal, [s, x, dt, a, b, c]: [Layout; 6], ids: Layout) -> Checked {
    let ([state, ..], [dim, heads, tokens, sequences]) = (s.ne, x.ne);
    let groups = b.ne[1];
    if s.ne[1..3] != [dim, heads] {
        return Err(refusal.shape("states must be [state, dim, heads, slots]"));
    }
    if dt.ne != [heads, tokens, sequences, 1] {
        return Err(refusal.shape("dt must be [heads, tokens, sequences]"));
    }
    if a.ne[1..] != [heads, 1, 1] || (a.ne[0] != 1 && a.ne[0] != state) {
        return Err(refusal.shape("a must be [1, heads] or [state, heads]"));
    }
    if b.ne != [state, groups, tokens, sequences] || c.ne != b.ne || !heads.is_multiple_of(groups) {
        return Err(refusal
            .shape("b and c must be [state, groups, tokens, sequences], and groups divide heads"));
    }
    if ids.ne != [sequences, 1, 1, 1] {
        return Err(refusal.shape("there must be an id for each sequence"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F16;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    #[test]
    fn a_convolution_has_tokens() {
        let kernel = layout(F32, &[4, 6]);
        check_conv(layout(F32, &[7, 6, 2]), kernel).unwrap();
        for a in [&[3, 6, 2][..], &[7, 5, 2], &[7, 6, 2, 2]] {
            assert!(matches!(
                check_conv(layout(F32, a), kernel),
                Err(Refused::Shape(_))
            ));
        }
        let halves = check_conv(layout(F16, &[7, 6]), kernel);
        assert!(matches!(halves, Err(Refused::DType(_))));
    }

    fn operands() -> [Layout; 6] {
        [
            layout(F32, &[16, 8, 4, 5]),
            layout(F32, &[8, 4, 7, 3]),
            layout(F32, &[4, 7, 3]),
            layout(F32, &[1, 4]),
            layout(F32, &[16, 2, 7, 3]),
            layout(F32, &[16, 2, 7, 3]),
        ]
    }

    #[test]
    fn a_scan_fits_its_states() {
        let ids = layout(I32, &[3]);
        check_scan(operands(), ids, 5, 2).unwrap();
        let changed = |place: usize, dims: &[usize]| {
            let mut operands = operands();
            operands[place] = layout(F32, dims);
            check_scan(operands, ids, 5, 1)
        };
        changed(3, &[16, 4]).unwrap();
        for (place, dims) in [
            (0, &[16, 8, 3, 5][..]),
            (2, &[4, 6, 3]),
            (3, &[2, 4]),
            (4, &[16, 3, 7, 3]),
            (5, &[16, 2, 7, 2]),
        ] {
            assert!(
                matches!(changed(place, dims), Err(Refused::Shape(_))),
                "{place}"
            );
        }
        assert!(matches!(
            check_scan(operands(), ids, 6, 1),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check_scan(operands(), layout(I32, &[2]), 5, 1),
            Err(Refused::Shape(_))
        ));
        for states in [0, 8] {
            assert!(matches!(
                check_scan(operands(), ids, 5, states),
                Err(Refused::Param(_))
            ));
        }
        let mut gaps = operands();
        gaps[1].nb[1] *= 2;
        assert!(matches!(
            check_scan(gaps, ids, 5, 1),
            Err(Refused::Layout(_))
        ));
    }
}
