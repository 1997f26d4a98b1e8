//! Positions: ranges, embeddings of time steps, relative positions.

use ggml_sys as sys;

use crate::dtype::DType::{F16, F32};
use crate::error::{Checked, Placed, Refused, Result, here};
use crate::graph::{Builder, Tensor};
use crate::layout::{Layout, Refusal};

impl<'g> Builder<'g> {
    /// `start + i * step` for all `i` from 0 on with which that is less than `stop`, as F32. There are
    /// `ceil((stop - start) / step)` of them, computed in F32.
    ///
    /// ```
    /// use ggml_rs::{Device, Graph, Plan, PlanOptions};
    /// let (graph, y) = Graph::build(|g| g.output("y", g.arange(1.0, 2.5, 0.5)?))?;
    /// let mut backend = Device::cpu()?.open()?;
    /// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [1.0, 1.5, 2.0]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) unless all are finite, `start` is less than `stop`, `step` positive, and there are at most 2^31 - 1.
    #[doc(alias = "ggml_arange")]
    #[track_caller]
    pub fn arange(self, start: f32, stop: f32, step: f32) -> Result<Tensor<'g>> {
        let at = here();
        check_arange(start, stop, step).at(at)?;
        // SAFETY: the check mirrors ggml_arange's assertion, and bounds the number of steps that it computes.
        self.make("arange", |context| unsafe {
            sys::ggml_arange(context, start, stop, step)
        })
    }
}

impl<'g> Tensor<'g> {
    /// Embeddings of time steps: `self` `[n]` of F32 gives [dim, n] with `cos(t * f[j])` for the first half of a column and
    /// `sin(t * f[j])` for the second, where `f[j] = max_period^(-j / (dim / 2))`. The last row of an odd `dim` is 0.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `self` is a row; [`Error::DType`](crate::Error::DType) unless F32; [`Error::Param`](crate::Error::Param) for a dimension or period of 0
    /// or beyond 2^31 - 1.
    #[doc(alias = "ggml_timestep_embedding")]
    #[track_caller]
    pub fn timestep_embedding(self, dim: usize, max_period: usize) -> Result<Self> {
        let at = here();
        check_timestep(self.layout(), dim, max_period).at(at)?;
        // SAFETY: the tensor is alive; ggml_timestep_embedding asserts nothing, and the result was checked.
        self.make("timestep_embedding", |context| unsafe {
            sys::ggml_timestep_embedding(context, self.as_ptr(), dim as i32, max_period as i32)
        })
    }

    /// Relative positions of all pairs: `self` [c, 2 * n - 1] of F16 gives [c, n, n] with
    /// `out[:, i, j] = self[:, n - 1 - i + j]`.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless `self` is a matrix with an odd `ne[1]`; [`Error::DType`](crate::Error::DType) unless F16.
    #[doc(alias = "ggml_get_rel_pos")]
    #[track_caller]
    pub fn get_rel_pos(self) -> Result<Self> {
        let at = here();
        let n = check_get_rel_pos(self.layout()).at(at)?;
        // SAFETY: the tensor is alive, and the check mirrors ggml_get_rel_pos' assertions.
        self.make("get_rel_pos", |context| unsafe {
            sys::ggml_get_rel_pos(context, self.as_ptr(), n, n)
        })
    }

    /// Adds relative positions to attention scores: `self` [n * n, q, b] with
    /// `out[i + n * j, p, b] = self[i + n * j, p, b] + w[i, p, b] + h[j, p, b]`, where `w` and `h` are [n, q1, q2, b] with
    /// `q = q1 * q2`. All are F32 and contiguous.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above; [`Error::DType`](crate::Error::DType) unless all are F32; [`Error::Layout`](crate::Error::Layout) unless all are
    /// contiguous.
    #[doc(alias = "ggml_add_rel_pos")]
    #[track_caller]
    pub fn add_rel_pos(self, w: Tensor<'g>, h: Tensor<'g>) -> Result<Self> {
        let at = here();
        check_add_rel_pos("add_rel_pos", self.layout(), w.layout(), h.layout()).at(at)?;
        // SAFETY: the tensors are alive, and the check mirrors ggml_add_rel_pos' assertions.
        self.make("add_rel_pos", |context| unsafe {
            sys::ggml_add_rel_pos(context, self.as_ptr(), w.as_ptr(), h.as_ptr())
        })
    }

    /// [`Tensor::add_rel_pos`] in place. The result is a view of `self`.
    ///
    /// # Errors
    /// As [`Tensor::add_rel_pos`]; [`Error::Layout`](crate::Error::Layout) where `w` or `h` shares memory with `self`.
    #[doc(alias = "ggml_add_rel_pos_inplace")]
    #[track_caller]
    pub fn add_rel_pos_inplace(self, w: Tensor<'g>, h: Tensor<'g>) -> Result<Self> {
        let at = here();
        const OP: &str = "add_rel_pos_inplace";
        check_add_rel_pos(OP, self.layout(), w.layout(), h.layout()).at(at)?;
        if self.base() == w.base() || self.base() == h.base() {
            let refusal = Refusal {
                op: OP,
                operands: &[("a", self.layout()), ("w", w.layout()), ("h", h.layout())],
            };
            return Err(refusal
                .layout("a and w, or h, are views of one tensor: call cont() first")
                .at(at));
        }
        // SAFETY: the tensors are alive, the check mirrors ggml_add_rel_pos_inplace's assertions, and nothing that is read
        // is written.
        self.make(OP, |context| unsafe {
            sys::ggml_add_rel_pos_inplace(context, self.as_ptr(), w.as_ptr(), h.as_ptr())
        })
    }
}

/// Mirrors `ggml_arange`, with its arithmetic.
fn check_arange(start: f32, stop: f32, step: f32) -> Checked {
    let refuse = |detail: String| Err(Refused::param("arange", detail));
    let finite = [start, stop, step].iter().all(|x| x.is_finite());
    if !finite || start >= stop || step <= 0.0 {
        return refuse(format!(
            "from {start} to {stop} by {step}: all must be finite, the end beyond the start, and the step positive"
        ));
    }
    let steps = ((stop - start) / step).ceil();
    // Less than 2^31: the next float below it is 2^31 - 128.
    if !(1.0..i32::MAX as f32).contains(&steps) {
        return refuse(format!(
            "from {start} to {stop} by {step} are {steps} steps"
        ));
    }
    Ok(())
}

fn check_timestep(a: Layout, dim: usize, max_period: usize) -> Checked {
    let refusal = Refusal {
        op: "timestep_embedding",
        operands: &[("a", a)],
    };
    if a.dtype != F32 {
        return Err(refusal.dtype("a must be F32"));
    }
    if a.ne[1..] != [1, 1, 1] {
        return Err(refusal.shape("a must be one row"));
    }
    let fits = |n: usize| n > 0 && n <= i32::MAX as usize;
    if !fits(dim) || !fits(max_period) {
        return Err(refusal.param(format!(
            "a dimension of {dim} and a period of {max_period}: they must be 1 to 2^31 - 1"
        )));
    }
    refusal.check_result(F32, [dim, a.ne[0], 1, 1])
}

/// Mirrors `ggml_get_rel_pos`; how many positions there are.
fn check_get_rel_pos(a: Layout) -> Checked<i32> {
    let refusal = Refusal {
        op: "get_rel_pos",
        operands: &[("a", a)],
    };
    if a.dtype != F16 {
        return Err(refusal.dtype("a must be F16"));
    }
    let n = a.ne[1].div_ceil(2);
    if a.ne[2..] != [1, 1] || a.ne[1] != 2 * n - 1 || n > (i32::MAX / 2) as usize {
        return Err(refusal.shape("a must be a matrix with an odd number of rows"));
    }
    refusal.check_result(F16, [a.ne[0], n, n, 1])?;
    Ok(n as i32)
}

/// Mirrors `ggml_add_rel_pos_impl`.
fn check_add_rel_pos(op: &'static str, a: Layout, w: Layout, h: Layout) -> Checked {
    let operands = [("a", a), ("w", w), ("h", h)];
    let refusal = Refusal {
        op,
        operands: &operands,
    };
    let [n, q1, q2, b] = w.ne;
    let scores = n.checked_mul(n).zip(q1.checked_mul(q2));
    let fits = scores.is_some_and(|(pairs, queries)| a.ne == [pairs, queries, b, 1]);
    if w.ne != h.ne || !fits {
        return Err(refusal.shape("w and h must be [n, q1, q2, b], and a [n * n, q1 * q2, b]"));
    }
    if operands.iter().any(|(_, x)| x.dtype != F32) {
        return Err(refusal.dtype("all must be F32"));
    }
    if operands.iter().any(|(_, x)| !x.is_contiguous()) {
        return Err(refusal.layout("all must be contiguous: call cont() first"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn ranges_are_finite_and_not_empty() {
        check_arange(0.0, 10.0, 0.3).unwrap();
        check_arange(-1.0, -0.5, 8.0).unwrap();
        for (start, stop, step) in [
            (1.0, 1.0, 1.0),
            (2.0, 1.0, -1.0),
            (0.0, 1.0, 0.0),
            (0.0, 1.0, f32::NAN),
            (0.0, f32::INFINITY, 1.0),
            (0.0, 1.0, 1e-10),
            (-f32::MAX, f32::MAX, f32::MAX),
        ] {
            let error = check_arange(start, stop, step);
            assert!(
                matches!(error, Err(Refused::Param(_))),
                "{start} {stop} {step}"
            );
        }
    }

    #[test]
    fn embeddings_are_of_rows() {
        let a = layout(F32, &[5]);
        check_timestep(a, 7, 10000).unwrap();
        for (dim, period) in [(0, 1), (1, 0), (1 << 31, 1), (1, 1 << 31)] {
            assert!(matches!(
                check_timestep(a, dim, period),
                Err(Refused::Param(_))
            ));
        }
        assert!(matches!(
            check_timestep(layout(F32, &[5, 2]), 7, 1),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check_timestep(layout(F16, &[5]), 7, 1),
            Err(Refused::DType(_))
        ));
    }

    #[test]
    fn relative_positions_are_odd_in_number() {
        assert_eq!(check_get_rel_pos(layout(F16, &[3, 7])), Ok(4));
        assert!(matches!(
            check_get_rel_pos(layout(F16, &[3, 6])),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check_get_rel_pos(layout(F16, &[3, 7, 2])),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check_get_rel_pos(layout(F32, &[3, 7])),
            Err(Refused::DType(_))
        ));
    }

    #[test]
    fn scores_are_of_all_pairs() {
        let (a, w) = (layout(F32, &[9, 8, 5]), layout(F32, &[3, 4, 2, 5]));
        let check = |a, w, h| check_add_rel_pos("add_rel_pos", a, w, h);
        check(a, w, w).unwrap();
        assert!(matches!(
            check(layout(F32, &[9, 7, 5]), w, w),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check(a, w, layout(F32, &[3, 2, 4, 5])),
            Err(Refused::Shape(_))
        ));
        assert!(matches!(
            check(layout(F16, &[9, 8, 5]), w, w),
            Err(Refused::DType(_))
        ));
        let turned = transposed(layout(F32, &[8, 9, 5]));
        assert!(matches!(check(turned, w, w), Err(Refused::Layout(_))));
    }
}
