//! Our dimensions over any case: operands that lie otherwise in memory, and operands that hold extreme values.

use std::sync::Arc;

use ggml_rs::Tensor;

use super::{Case, Choices, Gradient, Layout, Leaves, Measure, Relaxation};
use crate::data::{Init, Operand, OperandData};

/// A case with its operands laid out or filled otherwise.
pub struct Variant {
    case: Arc<dyn Case>,
    layout: Layout,
    filled: Filled,
}

/// What operands that are uniform in the case itself hold instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    Uniform,
    Extremes,
    Infinities,
}

impl Variant {
    /// The case with operands that lie in memory as `layout` says.
    pub fn laid_out(case: impl Case + 'static, layout: Layout) -> Self {
        Self {
            case: Arc::new(case),
            layout,
            filled: Filled::Uniform,
        }
    }

    /// The case with [`Init::Extremes`] in every operand that is uniform in the case itself.
    pub fn with_extremes(case: impl Case + 'static) -> Self {
        Self {
            case: Arc::new(case),
            layout: Layout::Plain,
            filled: Filled::Extremes,
        }
    }

    /// The same with [`Init::Infinities`].
    pub fn with_infinities(case: impl Case + 'static) -> Self {
        Self {
            filled: Filled::Infinities,
            ..Self::with_extremes(case)
        }
    }
}

impl Case for Variant {
    fn op(&self) -> &'static str {
        self.case.op()
    }

    fn params(&self) -> String {
        let mut params = self.case.params();
        if self.layout != Layout::Plain {
            params.push_str(",layout=");
            params.push_str(self.layout.name());
        }
        params.push_str(match self.filled {
            Filled::Uniform => "",
            Filled::Extremes => ",init=extremes",
            Filled::Infinities => ",init=infinities",
        });
        params
    }

    fn operands(&self) -> Vec<Operand> {
        let operands = self.case.operands().into_iter();
        operands
            .map(|operand| {
                let operand = self.layout.stored(operand);
                match (operand.init, self.filled) {
                    (Init::Uniform(_), Filled::Extremes) => operand.init(Init::Extremes),
                    (Init::Uniform(_), Filled::Infinities) => operand.init(Init::Infinities),
                    _ => operand,
                }
            })
            .collect()
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let views = leaves.mapped(|tensor| self.layout.view(tensor))?;
        self.case.build(&views)
    }

    /// The case's own knows operands only as they are stored.
    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        match self.layout {
            Layout::Plain => self.case.reference(operands),
            _ => Ok(None),
        }
    }

    fn max_nmse(&self, choices: Choices) -> f64 {
        self.case.max_nmse(choices)
    }

    fn measure(&self) -> Measure {
        match self.case.measure() {
            Measure::Values if self.filled != Filled::Uniform => Measure::ValuesAndNan,
            other => other,
        }
    }

    fn gradient(&self) -> Gradient {
        self.case.gradient()
    }

    fn flops(&self) -> Option<f64> {
        self.case.flops()
    }

    fn is_fusion(&self) -> bool {
        self.case.is_fusion()
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        if self.layout == Layout::Plain {
            return self.case.relaxations();
        }
        let plain = Self {
            case: Arc::clone(&self.case),
            layout: Layout::Plain,
            filled: self.filled,
        };
        let mut relaxations = vec![Relaxation {
            without: format!("operands laid out as {}", self.layout.name()),
            case: Box::new(plain),
        }];
        relaxations.extend(self.case.relaxations());
        relaxations
    }
}

/// Every case in every one of these layouts.
pub(crate) fn laid_out<C: Case + Clone + 'static>(
    cases: impl IntoIterator<Item = C>,
    layouts: impl IntoIterator<Item = Layout> + Clone,
) -> impl Iterator<Item = Box<dyn Case>> {
    cases.into_iter().flat_map(move |case| {
        let layouts = layouts.clone().into_iter();
        layouts
            .map(move |layout| Box::new(Variant::laid_out(case.clone(), layout)) as Box<dyn Case>)
    })
}

/// Every case with extreme values.
pub(crate) fn with_extremes<C: Case + 'static>(
    cases: impl IntoIterator<Item = C>,
) -> impl Iterator<Item = Box<dyn Case>> {
    (cases.into_iter()).map(|case| Box::new(Variant::with_extremes(case)) as Box<dyn Case>)
}

/// Every case with extreme values but NaN.
pub(crate) fn with_infinities<C: Case + 'static>(
    cases: impl IntoIterator<Item = C>,
) -> impl Iterator<Item = Box<dyn Case>> {
    (cases.into_iter()).map(|case| Box::new(Variant::with_infinities(case)) as Box<dyn Case>)
}

#[cfg(test)]
mod tests {
    use ggml_rs::DType;

    use super::*;
    use crate::case::CaseGraph;

    #[derive(Clone)]
    struct Copy;

    impl Case for Copy {
        fn op(&self) -> &'static str {
            "CONT"
        }

        fn params(&self) -> String {
            "ne=[3,2]".to_owned()
        }

        fn operands(&self) -> Vec<Operand> {
            vec![Operand::new("a", DType::F32, [3, 2, 1, 1])]
        }

        fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
            assert_eq!(leaves[0].shape().ne(), [3, 2, 1, 1]);
            leaves[0].cont()
        }
    }

    fn copied(variant: &Variant) -> (Vec<f32>, Vec<f64>) {
        let built = CaseGraph::new(variant, Choices::default()).expect("a copy is built");
        let data = OperandData::generate(&variant.operands()[0], 1, "case").expect("floats");
        let seen = built.evaluate(std::slice::from_ref(&data));
        (
            data.values().to_vec(),
            seen.expect("it fits").expect("defined"),
        )
    }

    #[test]
    fn an_op_sees_the_same_shape_elsewhere() {
        for (layout, name, places) in [
            (Layout::Columns, "columns", [0, 2, 4, 1, 3, 5]),
            (Layout::Rows, "rows", [0, 1, 2, 3, 4, 5]),
            // Rows of 5, begun at the second element of the second one.
            (Layout::Window, "window", [6, 7, 8, 11, 12, 13]),
        ] {
            let variant = Variant::laid_out(Copy, layout);
            assert_eq!(variant.name(), format!("CONT(ne=[3,2],layout={name})"));
            let (stored, seen) = copied(&variant);
            assert_eq!(seen, places.map(|place| f64::from(stored[place])), "{name}");
        }
    }

    #[test]
    fn extremes_fill_what_was_uniform() {
        let variant = Variant::with_extremes(Copy);
        assert_eq!(variant.name(), "CONT(ne=[3,2],init=extremes)");
        assert_eq!(variant.measure(), Measure::ValuesAndNan);
        assert!(matches!(variant.operands()[0].init, Init::Extremes));
    }
}
