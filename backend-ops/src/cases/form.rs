//! How an operand lies in memory: a dimension of ours, for ops whose operands upstream only has packed.

use ggml_rs::Tensor;

use crate::vars::Var;

/// What an operand is a view of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Of nothing: its elements lie in ne order.
    #[default]
    Packed,
    /// Of its transpose: rows have gaps between elements.
    Transposed,
    /// Of a tensor with dimensions 1 and 2 exchanged: rows are packed, but not in ne order.
    Permuted,
    /// Of the inside of a larger tensor: rows are packed and have gaps between them.
    Window,
}

impl Form {
    /// All but the first.
    pub const VIEWS: [Self; 3] = [Self::Transposed, Self::Permuted, Self::Window];

    /// The shape of what is stored for an operand of shape `ne`.
    pub fn stored(self, ne: [usize; 4]) -> [usize; 4] {
        let [n0, n1, n2, n3] = ne;
        match self {
            Self::Packed => ne,
            Self::Transposed => [n1, n0, n2, n3],
            Self::Permuted => [n0, n2, n1, n3],
            Self::Window => [n0 + 3, n1 + 2, n2 + 1, n3],
        }
    }

    /// The operand, from what is stored.
    pub fn of<'g>(self, stored: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self {
            Self::Packed => Ok(stored),
            Self::Transposed => stored.transpose(),
            Self::Permuted => stored.permute([0, 2, 1, 3]),
            Self::Window => {
                let [n0, n1, n2, n3] = stored.shape().ne();
                let [nb0, nb1, nb2, nb3] = stored.strides();
                stored.view(
                    [n0 - 3, n1 - 2, n2 - 1, n3],
                    [nb1, nb2, nb3],
                    nb0 + nb1 + nb2,
                )
            }
        }
    }

    /// The operand's values in ne order, from those of what is stored.
    pub fn read(self, stored: &[f32], ne: [usize; 4]) -> Vec<f32> {
        let [s0, s1, s2, _] = self.stored(ne);
        let place = |[i0, i1, i2, i3]: [usize; 4]| {
            let [j0, j1, j2] = match self {
                Self::Packed => [i0, i1, i2],
                Self::Transposed => [i1, i0, i2],
                Self::Permuted => [i0, i2, i1],
                Self::Window => [i0 + 1, i1 + 1, i2 + 1],
            };
            stored[((i3 * s2 + j2) * s1 + j1) * s0 + j0]
        };
        let [n0, n1, n2, n3] = ne;
        (0..n0 * n1 * n2 * n3)
            .map(|i| place([i % n0, i / n0 % n1, i / (n0 * n1) % n2, i / (n0 * n1 * n2)]))
            .collect()
    }
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Transposed => "transposed",
            Self::Permuted => "permuted",
            Self::Window => "window",
        }
    }

    /// What a case of a packed operand leaves out.
    pub fn left_out(self, operand: &str) -> String {
        match self {
            Self::Packed => String::new(),
            Self::Window => format!("{operand} is a window of a larger tensor"),
            Self::Transposed | Self::Permuted => format!("{operand} is {}", self.name()),
        }
    }
}

impl Var for Form {
    fn write(&self, out: &mut String) {
        out.push_str(self.name());
    }
}

#[cfg(test)]
mod tests {
    use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};

    use super::*;

    #[test]
    fn every_form_has_the_operands_shape_and_all_but_one_gaps_or_another_order() {
        let ne = [5, 4, 3, 2];
        for form in [Form::Packed].into_iter().chain(Form::VIEWS) {
            let built = Graph::build(|g| {
                let (stored, _) = g.input("a", DType::F32, form.stored(ne))?;
                let operand = form.of(stored)?;
                g.output("out", operand.cont()?)?;
                Ok((operand.shape().ne(), operand.is_contiguous()))
            });
            let (_, (shape, contiguous)) = built.expect("builds");
            assert_eq!(shape, ne, "{form:?}");
            assert_eq!(contiguous, form == Form::Packed, "{form:?}");
        }
    }

    #[test]
    fn what_is_read_is_what_ggml_reads() {
        let ne = [5, 4, 3, 2];
        for form in [Form::Packed].into_iter().chain(Form::VIEWS) {
            let (graph, (input, output)) = Graph::build(|g| {
                let (stored, input) = g.input("a", DType::F32, form.stored(ne))?;
                Ok((input, g.output("out", form.of(stored)?.cont()?)?))
            })
            .expect("builds");
            let elements: usize = form.stored(ne).iter().product();
            let stored: Vec<f32> = (0..elements).map(|i| i as f32).collect();
            let mut backend = Device::cpu().expect("a CPU").open().expect("opens");
            let mut plan = Plan::new(graph, &backend, PlanOptions::default()).expect("plans");
            plan.set_f32(&input, &stored).expect("sets");
            plan.run(&mut backend).expect("runs");
            let got = plan.read_f32(&output).expect("reads");
            assert_eq!(form.read(&stored, ne), got, "{form:?}");
        }
    }
}
