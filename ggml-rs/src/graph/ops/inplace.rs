//! Ops that write over their operand.
//!
//! `x.relu_inplace()` is a view of `x`: same shape, same memory. The write happens where the node was written, among the
//! graph's other nodes, and every other view of that memory sees it: nodes written before read the old values, nodes
//! written after the new ones. A graph input that was written over starts the next run with the new values, unless it is set
//! again. So a write over an input or a parameter always happens, and a write over anything else only if an output
//! depends on the result.
//!
//! ```
//! use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
//!
//! let (graph, (x, before, after)) = Graph::build(|g| {
//!     let (x, x_in) = g.input("x", DType::F32, [3])?;
//!     let before = g.output("before", x.scale(1.0)?)?;
//!     let written = x.sqr_inplace()?;
//!     // `x` and `written` are two names of the same memory now.
//!     Ok((x_in, before, g.output("after", written.add(x)?)?))
//! })?;
//! let mut backend = Device::cpu()?.open()?;
//! let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
//! plan.set_f32(&x, &[1.0, 2.0, 3.0])?;
//! plan.run(&mut backend)?;
//! assert_eq!(plan.read_f32(&before)?, [1.0, 2.0, 3.0]);
//! assert_eq!(plan.read_f32(&after)?, [2.0, 8.0, 18.0]);
//! // Nothing set the input again: it holds 1, 4 and 9.
//! plan.run(&mut backend)?;
//! assert_eq!(plan.read_f32(&after)?, [2.0, 32.0, 162.0]);
//! # Ok::<(), ggml_rs::Error>(())
//! ```
//!
//! Threads share out the rows of a tensor, so an op must not read what another of its threads writes. In-place ops
//! therefore refuse a tensor whose elements share memory with each other, and operands that lie in the memory that is
//! written: only an operand at exactly the same place is taken, where an op reads and writes element by element, as in
//! `x.add_inplace(x)`.

use crate::error::Checked;
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// How an op reads an operand while it writes over another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    /// For each element, or each row, only the one at its place: the operand may lie where the result does.
    InStep,
    /// In any order.
    Anywhere,
}

/// Where a tensor's elements are.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The tensor that owns the memory.
    base: usize,
    /// The first byte, counted from the owner's first.
    start: usize,
    layout: Layout,
}

impl Place {
    fn of(tensor: Tensor<'_>) -> Self {
        // SAFETY: the builder's tensors are alive.
        let start = unsafe { tensor.ptr().as_ref() }.view_offs;
        Self {
            base: tensor.base().as_ptr() as usize,
            start,
            layout: tensor.layout(),
        }
    }

    fn end(&self) -> usize {
        let extent = self.layout.extent().unwrap_or(usize::MAX);
        self.start.saturating_add(extent)
    }

    /// No byte in common: by owner or by range. Views that interleave count as meeting.
    fn is_apart_from(&self, other: &Self) -> bool {
        self.base != other.base || self.end() <= other.start || other.end() <= self.start
    }

    /// Element for element the same memory.
    fn equals(&self, other: &Self) -> bool {
        let (a, b) = (self.layout, other.layout);
        let same_step = |i: usize| a.nb[i] == b.nb[i] || a.ne[i] == 1;
        (self.base, self.start, a.dtype, a.ne) == (other.base, other.start, b.dtype, b.ne)
            && (0..4).all(same_step)
    }
}

/// Refuses to write over `a` where threads would read or write what others write.
///
/// # Errors
/// [`Error::Layout`](crate::Error::Layout).
pub(super) fn check<'g>(
    op: &'static str,
    a: Tensor<'g>,
    others: &[(&'static str, Tensor<'g>, Reads)],
) -> Checked {
    let others: Vec<_> = others
        .iter()
        .map(|&(role, tensor, reads)| (role, Place::of(tensor), reads))
        .collect();
    check_places(op, Place::of(a), &others)
}

fn check_places(op: &'static str, a: Place, others: &[(&'static str, Place, Reads)]) -> Checked {
    let alone = Refusal {
        op,
        operands: &[("a", a.layout)],
    };
    if a.layout.may_overlap_itself() {
        return Err(alone.layout("elements of a share memory, and a is written over"));
    }
    for (role, place, reads) in others {
        let in_step = *reads == Reads::InStep && place.equals(&a);
        if !in_step && !place.is_apart_from(&a) {
            let refusal = Refusal {
                op,
                operands: &[("a", a.layout), (role, place.layout)],
            };
            let detail =
                format!("{role} lies in the memory of a, which is written over: use its cont()");
            return Err(refusal.layout(detail));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F32;
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    fn place(base: usize, start: usize, layout: Layout) -> Place {
        Place {
            base,
            start,
            layout,
        }
    }

    #[test]
    fn operands_lie_apart_or_at_the_same_place() {
        let square = layout(F32, &[4, 4]);
        let a = place(1, 64, square);
        let check = |b: Place, reads| check_places("add_inplace", a, &[("b", b, reads)]);
        for apart in [
            place(2, 64, square),
            place(1, 0, square),
            place(1, 128, square),
        ] {
            check(apart, Reads::Anywhere).unwrap();
            check(apart, Reads::InStep).unwrap();
        }
        check(a, Reads::InStep).unwrap();
        let moved = [
            place(1, 68, square),
            place(1, 64, transposed(square)),
            place(1, 64, layout(F32, &[4])),
        ];
        for meets in moved {
            for reads in [Reads::InStep, Reads::Anywhere] {
                assert!(
                    matches!(check(meets, reads), Err(Refused::Layout(_))),
                    "{meets:?}"
                );
            }
        }
        assert!(matches!(check(a, Reads::Anywhere), Err(Refused::Layout(_))));
    }

    #[test]
    fn elements_that_share_memory_are_not_written_over() {
        let folded = Layout {
            nb: [4, 0, 16, 16],
            ..layout(F32, &[4, 4])
        };
        let refused = check_places("relu_inplace", place(1, 0, folded), &[]);
        assert!(matches!(refused, Err(Refused::Layout(_))));
    }
}
