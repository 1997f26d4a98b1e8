//! `DSV4_HC_COMB`, `DSV4_HC_PRE` and `DSV4_HC_POST`: DeepSeek V4's hyper-connections. Upstream has no cases.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Layout, Leaves, Relaxation, relaxed};
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// The matrices that mix the streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Comb {
    /// Tokens.
    pub tokens: usize,
    /// How often rows and columns are divided by their sums.
    pub iterations: usize,
    /// How the mixes lie in memory.
    pub layout: Layout,
}

impl Case for Comb {
    fn op(&self) -> &'static str {
        "DSV4_HC_COMB"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("tokens", self.tokens)
            .with("iterations", self.iterations)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let mixes = Operand::new("mixes", DType::F32, [24, self.tokens, 1, 1]);
        vec![
            self.layout.stored(mixes).within(3.0),
            Operand::new("scale", DType::F32, [3, 1, 1, 1]).init(Init::Uniform([0.5, 1.5])),
            Operand::new("base", DType::F32, [24, 1, 1, 1]),
        ]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let mixes = self.layout.view(leaves[0])?;
        mixes.dsv4_hc_comb(leaves[1], leaves[2], 1e-6, self.iterations)
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let packed = Self {
            layout: Layout::Plain,
            ..self.clone()
        };
        relaxed(self, [(self.layout.left_out("mixes"), packed)])
    }
}

/// The sum of the streams before a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Pre {
    /// Elements of a stream, streams and tokens.
    pub ne: [usize; 3],
    /// Whether there is a gate for each element in place of a weight for each stream.
    pub gated: bool,
    /// How the streams lie in memory.
    pub layout: Layout,
}

impl Case for Pre {
    fn op(&self) -> &'static str {
        "DSV4_HC_PRE"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("ne", self.ne)
            .with("gated", self.gated)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [n, streams, tokens] = self.ne;
        let x = [n, streams, tokens, 1];
        let weights = if self.gated {
            x
        } else {
            [streams, tokens, 1, 1]
        };
        vec![
            self.layout.stored(Operand::new("x", DType::F32, x)),
            Operand::new("weights", DType::F32, weights),
        ]
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let x = self.layout.view(leaves[0])?;
        match self.gated {
            true => x.dsv4_hc_pre_gated(leaves[1], 0.7),
            false => x.dsv4_hc_pre(leaves[1]),
        }
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let packed = Self {
            layout: Layout::Plain,
            ..self.clone()
        };
        relaxed(self, [(self.layout.left_out("x"), packed)])
    }
}

/// The streams after a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Post {
    /// Elements of a stream, streams and tokens.
    pub ne: [usize; 3],
    /// Whether the streams are mixed.
    pub comb: bool,
    /// How the residuals lie in memory.
    pub layout: Layout,
}

impl Case for Post {
    fn op(&self) -> &'static str {
        "DSV4_HC_POST"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("ne", self.ne)
            .with("comb", self.comb)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [n, streams, tokens] = self.ne;
        let of = |name, ne| Operand::new(name, DType::F32, ne);
        let mut operands = vec![
            of("x", [n, tokens, 1, 1]),
            (self.layout).stored(of("residual", [n, streams, tokens, 1])),
            of("post", [streams, tokens, 1, 1]),
        ];
        if self.comb {
            operands.push(of("comb", [streams, streams, tokens, 1]));
        }
        operands
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let residual = self.layout.view(leaves[1])?;
        let comb = self.comb.then(|| leaves[3]);
        leaves[0].dsv4_hc_post(residual, leaves[2], comb)
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let packed = Self {
            layout: Layout::Plain,
            ..self.clone()
        };
        let [n, streams, tokens] = self.ne;
        let four = Self {
            ne: [n, 4, tokens],
            ..self.clone()
        };
        let variants = [
            (self.layout.left_out("the residual"), packed),
            (format!("{streams} streams"), four),
        ];
        relaxed(self, variants)
    }
}

/// Sizes around those of a simdgroup and of a vector; the first are a model's.
const SIZES: [[usize; 3]; 5] = [[1024, 4, 3], [1, 4, 1], [33, 4, 5], [31, 4, 33], [7, 3, 2]];

/// Matrices.
pub(super) fn comb_cases() -> Vec<Comb> {
    let case = |tokens, iterations, layout| Comb {
        tokens,
        iterations,
        layout,
    };
    let mut cases = Vec::new();
    for tokens in [1, 5, 33] {
        cases.extend([1, 2, 20].map(|iterations| case(tokens, iterations, Layout::Plain)));
    }
    cases.extend(Layout::OTHERS.map(|layout| case(7, 20, layout)));
    cases
}

/// Before a layer.
pub(super) fn pre_cases() -> Vec<Pre> {
    let mut cases = Vec::new();
    for gated in [false, true] {
        let case = |ne, layout| Pre { ne, gated, layout };
        cases.extend(SIZES.map(|ne| case(ne, Layout::Plain)));
        cases.extend(Layout::OTHERS.map(|layout| case([33, 4, 5], layout)));
    }
    cases
}

/// After a layer.
pub(super) fn post_cases() -> Vec<Post> {
    let mut cases = Vec::new();
    for comb in [false, true] {
        let case = |ne, layout| Post { ne, comb, layout };
        cases.extend(SIZES.map(|ne| case(ne, Layout::Plain)));
        cases.extend(Layout::OTHERS.map(|layout| case([33, 4, 5], layout)));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_name_the_sizes() {
        assert_eq!(
            comb_cases()[1].name(),
            "DSV4_HC_COMB(tokens=1,iterations=2)"
        );
        assert_eq!(pre_cases()[0].name(), "DSV4_HC_PRE(ne=[1024,4,3],gated=0)");
        assert_eq!(post_cases()[0].name(), "DSV4_HC_POST(ne=[1024,4,3],comb=0)");
    }
}
