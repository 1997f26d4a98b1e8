//! `NORM`, `RMS_NORM` and `L2_NORM`: each row divided by its deviation, root mean square or length. Upstream's `test_norm`,
//! `test_rms_norm` and `test_l2_norm`.

use ggml_rs::{DType, Tensor};

use crate::case::{Case, Gradient, Leaves, Measure, smaller};
use crate::cases::views;
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Norm,
    RmsNorm,
    L2Norm,
}

/// How an operand lies, and what is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Source {
    /// A view of the first half of each dimension.
    v: bool,
    /// Rows whose elements are not neighbours.
    noncontig_rows: bool,
    /// Ours: values that arithmetic treats specially.
    extremes: bool,
    /// Ours, 0 for the op's own: bound of the values.
    range: f32,
}

/// One case of a norm of rows.
#[derive(Clone, Debug)]
pub struct Norm {
    kind: Kind,
    ne: [usize; 4],
    eps: f32,
    inplace: bool,
    source: Source,
}

impl Norm {
    fn new(kind: Kind, ne: [usize; 4], eps: f32) -> Self {
        Self {
            kind,
            ne,
            eps,
            inplace: false,
            source: Source::default(),
        }
    }

    fn lying(kind: Kind, ne: [usize; 4], eps: f32, source: Source) -> Self {
        Self {
            source,
            ..Self::new(kind, ne, eps)
        }
    }

    /// RMS_NORM's values are upstream's [-10, 10).
    fn range(&self) -> f32 {
        match (self.source.range, self.kind) {
            (0.0, Kind::RmsNorm) => 10.0,
            (0.0, _) => 1.0,
            (range, _) => range,
        }
    }
}

impl Case for Norm {
    fn op(&self) -> &'static str {
        match self.kind {
            Kind::Norm => "NORM",
            Kind::RmsNorm => "RMS_NORM",
            Kind::L2Norm => "L2_NORM",
        }
    }

    fn params(&self) -> String {
        let source = self.source;
        let vars = Vars::new().with("type", DType::F32).with("ne", self.ne);
        let vars = match self.kind {
            Kind::Norm => vars
                .with("v", source.v)
                .with("eps", self.eps)
                .with("noncontig_rows", source.noncontig_rows)
                .with_unless_default("inplace", self.inplace, false),
            Kind::RmsNorm => vars
                .with("v", source.v)
                .with("eps", self.eps)
                .with("inplace", self.inplace)
                .with_unless_default("noncontig_rows", source.noncontig_rows, false),
            Kind::L2Norm => vars
                .with("eps", self.eps)
                .with("v", source.v)
                .with("noncontig_rows", source.noncontig_rows)
                .with_unless_default("inplace", self.inplace, false),
        };
        vars.with_unless_default("extremes", source.extremes, false)
            .with_unless_default("range", source.range, 0.0)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [n0, n1, n2, n3] = self.ne;
        let stored = match self.source.noncontig_rows {
            true => [n1, n0, n2, n3],
            false => self.ne,
        };
        let a = Operand::new("a", DType::F32, stored);
        let a = match self.source.extremes {
            true => a.init(Init::Extremes),
            false => a.within(self.range()),
        };
        // Only RMS_NORM has a gradient.
        let trained = self.kind == Kind::RmsNorm && !self.source.extremes;
        vec![if trained { a.trained() } else { a }]
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| case.ne.iter_mut().collect())
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let mut a = leaves[0];
        if self.source.noncontig_rows {
            a = a.transpose()?;
        }
        if self.source.v {
            a = views::half(a)?;
        }
        match (self.kind, self.inplace) {
            (Kind::Norm, false) => a.norm(self.eps),
            (Kind::Norm, true) => a.norm_inplace(self.eps),
            (Kind::RmsNorm, false) => a.rms_norm(self.eps),
            (Kind::RmsNorm, true) => a.rms_norm_inplace(self.eps),
            (Kind::L2Norm, false) => a.l2_norm(self.eps),
            (Kind::L2Norm, true) => a.l2_norm_inplace(self.eps),
        }
    }

    /// Rows of few elements hardly change, those of one by no more than eps: what is left are parts in a million of two terms that
    /// cancel, each of which is about 0.1 (a row's values are up to 10).
    fn gradient(&self) -> Gradient {
        Gradient::default().floor(0.1)
    }

    fn measure(&self) -> Measure {
        match self.source.extremes {
            true => Measure::ValuesAndNan,
            false => Measure::Values,
        }
    }
}

/// Upstream's: rows of a power of two and longer than a threadgroup, whole, viewed and transposed.
pub(super) fn cases() -> Vec<Norm> {
    const PLAIN: Source = Source {
        v: false,
        noncontig_rows: false,
        extremes: false,
        range: 0.0,
    };
    const VIEWED: Source = Source { v: true, ..PLAIN };
    const TURNED: Source = Source {
        noncontig_rows: true,
        ..PLAIN
    };
    let mut cases = Vec::new();
    for eps in [0.0, 1e-6, 1e-4, 1e-1, 10.0] {
        for n in [64, 1025] {
            let case = |kind, source| Norm::lying(kind, [n, 5, 4, 3], eps, source);
            cases.extend([PLAIN, VIEWED, TURNED].map(|source| case(Kind::Norm, source)));
            cases.extend([PLAIN, VIEWED].map(|source| case(Kind::RmsNorm, source)));
            cases.extend([PLAIN, VIEWED, TURNED].map(|source| case(Kind::L2Norm, source)));
        }
    }
    cases.push(Norm {
        inplace: true,
        ..Norm::new(Kind::RmsNorm, [64, 5, 4, 3], 1e-6)
    });
    cases
}

/// Rows around the widths of vectors, simdgroups and threadgroups, in place, with values whose squares are denormal or nearly
/// overflow, and special values.
pub(super) fn ours() -> Vec<Norm> {
    let mut cases = Vec::new();
    for kind in [Kind::Norm, Kind::RmsNorm, Kind::L2Norm] {
        for n in [1, 2, 3, 4, 5, 31, 32, 33, 127, 128, 129, 1023, 1024, 4097] {
            cases.push(Norm::new(kind, [n, 3, 2, 1], 1e-5));
        }
        cases.push(Norm {
            inplace: true,
            ..Norm::new(kind, [67, 5, 2, 3], 1e-5)
        });
        for range in [1e-18, 1e15] {
            let source = Source {
                range,
                ..Source::default()
            };
            cases.push(Norm::lying(kind, [65, 3, 1, 1], 0.0, source));
        }
        cases.push(Norm::lying(
            kind,
            [37, 9, 2, 3],
            1e-5,
            Source {
                v: true,
                noncontig_rows: true,
                ..Source::default()
            },
        ));
        cases.push(Norm::lying(
            kind,
            [33, 40, 1, 1],
            1e-5,
            Source {
                extremes: true,
                ..Source::default()
            },
        ));
    }
    // Upstream's NORM and L2_NORM have it.
    cases.push(Norm::lying(
        Kind::RmsNorm,
        [64, 5, 4, 3],
        1e-6,
        Source {
            noncontig_rows: true,
            ..Source::default()
        },
    ));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let names: Vec<_> = cases().iter().map(Case::name).collect();
        assert_eq!(
            names[1],
            "NORM(type=f32,ne=[64,5,4,3],v=1,eps=0.000000,noncontig_rows=0)"
        );
        assert_eq!(
            names[names.len() - 1],
            "RMS_NORM(type=f32,ne=[64,5,4,3],v=0,eps=0.000001,inplace=1)"
        );
        assert_eq!(
            names[names.len() - 2],
            "L2_NORM(type=f32,ne=[1025,5,4,3],eps=10.000000,v=0,noncontig_rows=1)"
        );
    }
}
