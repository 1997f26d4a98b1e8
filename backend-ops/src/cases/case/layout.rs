//! How operands lie in memory: a dimension of ours, for ops whose operands upstream only has packed.
//!
//! Which of three ways says so:
//!
//! - `laid_out(cases, layouts)` is for an op that takes all of its operands in any layout. The case itself knows nothing of it.
//! - A field `layout: Layout` of the case is for an op that takes one of its operands so and others packed, or whose own reference
//!   reads the operand: `Layout::stored` declares it, `Layout::view` is what the op gets, `Layout::read` is for the reference.
//! - `cases::views` is for upstream's own views (`v=1` and the like), which lie otherwise for each op and keep upstream's case strings.

use ggml_rs::Tensor;

use crate::data::{Init, Operand};
use crate::vars::Var;

/// How an operand lies in memory. What the op sees has the same shape each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// As the case has it.
    #[default]
    Plain,
    /// Dimensions 0 and 1 exchanged: rows are not packed.
    Columns,
    /// Dimensions 1 and 2 exchanged: packed rows in another order.
    Rows,
    /// A window of a larger tensor, which begins one block and one row behind its start: packed rows with gaps between them.
    Window,
}

impl Layout {
    /// Those that are not plain.
    pub(crate) const OTHERS: [Self; 3] = [Self::Columns, Self::Rows, Self::Window];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Columns => "columns",
            Self::Rows => "rows",
            Self::Window => "window",
        }
    }

    /// The operand to store so that the op sees this one. Ids are left alone.
    pub(crate) fn stored(self, operand: Operand) -> Operand {
        if matches!(operand.init, Init::Experts(_) | Init::Rows { .. }) {
            return operand;
        }
        let ne = self.stored_ne(operand.ne, operand.dtype.block_len());
        Operand { ne, ..operand }
    }

    fn stored_ne(self, [n0, n1, n2, n3]: [usize; 4], block: usize) -> [usize; 4] {
        match self {
            Self::Plain => [n0, n1, n2, n3],
            Self::Columns => [n1, n0, n2, n3],
            Self::Rows => [n0, n2, n1, n3],
            Self::Window => [n0 + 2 * block, n1 + 1, n2 + 1, n3],
        }
    }

    /// What the op sees of the stored operand.
    pub(crate) fn view<'g>(self, stored: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self {
            Self::Plain => Ok(stored),
            Self::Columns => stored.transpose(),
            Self::Rows => stored.permute([0, 2, 1, 3]),
            Self::Window => {
                let ([n0, n1, n2, n3], block) = (stored.shape().ne(), stored.dtype().block_len());
                let [nb0, nb @ ..] = stored.strides();
                stored.view([n0 - 2 * block, n1 - 1, n2 - 1, n3], nb, nb0 + nb[0])
            }
        }
    }

    /// What the op sees of the values of a stored operand, which is not of blocks, in ne order.
    pub(crate) fn read(self, stored: &[f32], ne: [usize; 4]) -> Vec<f32> {
        let [s0, s1, s2, _] = self.stored_ne(ne, 1);
        let place = |[i0, i1, i2, i3]: [usize; 4]| {
            let [j0, j1, j2] = match self {
                Self::Plain => [i0, i1, i2],
                Self::Columns => [i1, i0, i2],
                Self::Rows => [i0, i2, i1],
                Self::Window => [i0 + 1, i1 + 1, i2],
            };
            stored[((i3 * s2 + j2) * s1 + j1) * s0 + j0]
        };
        let [n0, n1, n2, n3] = ne;
        (0..n0 * n1 * n2 * n3)
            .map(|i| place([i % n0, i / n0 % n1, i / (n0 * n1) % n2, i / (n0 * n1 * n2)]))
            .collect()
    }

    /// What a case of a plain operand leaves out.
    pub(crate) fn left_out(self, operand: &str) -> String {
        match self {
            Self::Plain => String::new(),
            Self::Columns => format!("{operand} is transposed"),
            Self::Rows => format!("{operand} is permuted"),
            Self::Window => format!("{operand} is a window of a larger tensor"),
        }
    }
}

impl Var for Layout {
    fn write(&self, out: &mut String) {
        out.push_str(self.name());
    }
}

#[cfg(test)]
mod tests {
    use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};

    use super::*;

    /// A tensor in a layout, copied: what ggml reads, and whether it was packed.
    fn copied(layout: Layout, operand: Operand) -> (Vec<f32>, Vec<f32>, bool) {
        let (ne, stored) = (operand.ne, layout.stored(operand));
        let (graph, (input, output, packed)) = Graph::build(|g| {
            let (tensor, input) = g.input(stored.name, stored.dtype, stored.ne)?;
            let seen = layout.view(tensor)?;
            assert_eq!(seen.shape().ne(), ne, "{layout:?}");
            let output = g.output("out", seen.cast(DType::F32)?)?;
            Ok((input, output, seen.is_contiguous()))
        })
        .expect("builds");
        let elements: usize = stored.ne.iter().product();
        let values: Vec<f32> = (0..elements).map(|i| i as f32).collect();
        let bytes = ggml_rs::quantize::quantize(stored.dtype, &values, stored.ne[0]);
        let mut backend = Device::cpu().expect("a CPU").open().expect("opens");
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).expect("plans");
        plan.set_bytes(&input, &bytes.expect("quantizes"))
            .expect("sets");
        plan.run(&mut backend).expect("runs");
        let got = plan.read_f32(&output).expect("reads");
        (layout.read(&values, ne), got, packed)
    }

    #[test]
    fn what_is_read_is_what_ggml_reads() {
        for layout in [Layout::Plain].into_iter().chain(Layout::OTHERS) {
            let operand = Operand::new("a", DType::F32, [5, 4, 3, 2]);
            let (read, got, packed) = copied(layout, operand);
            assert_eq!(read, got, "{layout:?}");
            assert_eq!(packed, layout == Layout::Plain, "{layout:?}");
        }
    }

    #[test]
    fn a_window_of_blocks_begins_with_a_whole_block() {
        let operand = Operand::new("a", DType::Q8_0, [64, 2, 1, 1]);
        let (_, got, packed) = copied(Layout::Window, operand);
        // Rows of 128; the second, from its second block on.
        assert!((got[0] - 160.0).abs() < 1.0 && !packed, "{}", got[0]);
    }
}
