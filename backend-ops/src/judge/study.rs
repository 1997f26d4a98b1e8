//! What a study of stagings holds its arms to.
//!
//! A case that is a study runs once in each staging that the Metal device has for it, and once on ggml's CPU backend, which
//! calibrates: its row says how large the error of a path is that people use every day, and no bound applies to it. Errors are
//! those against the reference in f64, relative to results of rms 1.

use ggml_rs::trace::Dispatch;
use ggml_rs::{DType, Staging};
use serde::{Deserialize, Serialize};

use crate::case::Choices;
use crate::judge::wire;

/// The stagings compared, from the least float to the most.
pub const STAGINGS: [Staging; 4] = [
    Staging::Half,
    Staging::FloatWeights,
    Staging::FloatActivations,
    Staging::Float,
];

/// The largest error of a single result that any Metal arm may have.
pub const MAX_ABS: f64 = 5e-3;
/// How many times smaller the rms error must be with both operands as float than with both as half.
pub const GAIN: f64 = 2.2;

/// How a case was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Path {
    /// On the device under test, in a staging.
    Staged(Staging),
    /// On ggml's CPU backend.
    CpuBackend,
}

impl Path {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Staged(Staging::Half) => "half",
            Self::Staged(Staging::FloatWeights) => "float weights",
            Self::Staged(Staging::FloatActivations) => "float activations",
            Self::Staged(_) => "float",
            Self::CpuBackend => "CPU backend",
        }
    }

    /// What makes a case take this path.
    #[must_use]
    pub fn choices(self) -> Choices {
        let staging = match self {
            Self::Staged(staging) => Some(staging),
            Self::CpuBackend => None,
        };
        Choices {
            staging,
            ..Choices::default()
        }
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.name().to_owned()
    }
}

impl TryFrom<String> for Path {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let all = STAGINGS.map(Self::Staged).into_iter();
        all.chain([Self::CpuBackend])
            .find(|path| path.name() == name)
            .ok_or(name)
    }
}

/// One way in which a case was computed, and how far from the reference it came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// The way.
    pub path: Path,
    /// Root mean square of the errors, relative to results of rms 1.
    #[serde(with = "wire::f64")]
    pub rms: f64,
    /// The largest error, relative to results of rms 1.
    #[serde(with = "wire::f64")]
    pub max_abs: f64,
    /// The product that was dispatched, where the device records it.
    #[serde(with = "wire::option_dispatch")]
    pub kernel: Option<Dispatch>,
    /// Hash of the result's bits.
    pub hash: u64,
}

impl Arm {
    /// Whether the arm keeps its own bound; the CPU backend has none.
    #[must_use]
    pub fn is_within_bound(&self) -> bool {
        self.path == Path::CpuBackend || self.max_abs <= MAX_ABS
    }
}

/// A study of one type of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Study {
    /// Type of the weights.
    pub weights: DType,
}

impl Study {
    /// Checks the arms, which must be there for every staging.
    ///
    /// # Errors
    /// Says which bound is broken, with the numbers.
    pub fn check(self, arms: &[Arm]) -> Result<(), String> {
        if let Some(arm) = arms.iter().find(|arm| !arm.is_within_bound()) {
            return Err(format!(
                "{}: an error of {:.3e} > {MAX_ABS:.1e}",
                arm.path.name(),
                arm.max_abs
            ));
        }
        let [half, weights, activations, float] = self.by_staging(arms)?;
        gains(half, float)?;
        if self.weights == DType::F16 {
            same_bits(half, weights)?;
            same_bits(activations, float)
        } else {
            between(float, weights, half)?;
            between(float, activations, half)
        }
    }

    /// The arms in the order of [`STAGINGS`].
    fn by_staging(self, arms: &[Arm]) -> Result<[&Arm; 4], String> {
        let find = |staging| arms.iter().find(|arm| arm.path == Path::Staged(staging));
        match STAGINGS.map(find) {
            [Some(a), Some(b), Some(c), Some(d)] => Ok([a, b, c, d]),
            _ => Err("a staging is missing".to_owned()),
        }
    }
}

/// F16 weights are exact in either staging, so staging them as float must change nothing.
fn same_bits(a: &Arm, b: &Arm) -> Result<(), String> {
    if a.hash == b.hash {
        return Ok(());
    }
    Err(format!(
        "f16 weights are exact in half, yet {} (rms {:.3e}) and {} (rms {:.3e}) differ in bits",
        a.path.name(),
        a.rms,
        b.path.name(),
        b.rms
    ))
}

fn gains(half: &Arm, float: &Arm) -> Result<(), String> {
    if half.rms >= GAIN * float.rms && half.rms > 0.0 {
        return Ok(());
    }
    Err(format!(
        "rms {:.3e} with half and {:.3e} with float: {:.2} times, less than {GAIN}",
        half.rms,
        float.rms,
        half.rms / float.rms
    ))
}

/// Strictly: an arm that stages nothing else than its neighbour would have its error exactly.
fn between(float: &Arm, mixed: &Arm, half: &Arm) -> Result<(), String> {
    if float.rms < mixed.rms && mixed.rms < half.rms {
        return Ok(());
    }
    Err(format!(
        "{}: rms {:.3e} is not between {:.3e} (float) and {:.3e} (half)",
        mixed.path.name(),
        mixed.rms,
        float.rms,
        half.rms
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arms with the rms errors that were published for an M5 Max, in the order of [`STAGINGS`].
    fn arms(rms: [f64; 4], hashes: [u64; 4]) -> Vec<Arm> {
        let mut arms: Vec<_> = STAGINGS
            .into_iter()
            .zip(rms)
            .zip(hashes)
            .map(|((staging, rms), hash)| Arm {
                path: Path::Staged(staging),
                rms,
                max_abs: 4.0 * rms,
                kernel: None,
                hash,
            })
            .collect();
        arms.push(Arm {
            path: Path::CpuBackend,
            rms: 1.4e-2,
            max_abs: 6e-2,
            kernel: None,
            hash: 9,
        });
        arms
    }

    const PUBLISHED: [f64; 4] = [4.13e-4, 2.94e-4, 3.37e-4, 1.68e-4];

    #[track_caller]
    fn refused(weights: DType, arms: &[Arm], why: &str) {
        let reason = Study { weights }.check(arms).expect_err(why);
        assert!(reason.contains(why), "{reason}");
    }

    #[test]
    fn arms_survive_the_way_between_processes() {
        let sent = arms(PUBLISHED, [1, 2, 3, u64::MAX]);
        let text = serde_json::to_string(&sent).expect("everything has a form");
        let received: Vec<Arm> = serde_json::from_str(&text).expect("the same type");
        assert_eq!(received, sent);
    }

    #[test]
    fn published_errors_keep_the_bounds() {
        let study = Study {
            weights: DType::Q4_K,
        };
        study
            .check(&arms(PUBLISHED, [1, 2, 3, 4]))
            .expect("within the bounds");
    }

    #[test]
    fn each_bound_is_held() {
        let with = |at: usize, rms: f64| {
            let mut all = PUBLISHED;
            all[at] = rms;
            arms(all, [1, 2, 3, 4])
        };
        refused(DType::Q4_K, &with(0, 1.3e-3), "half: an error of 5.200e-3");
        refused(DType::Q4_K, &with(0, f64::NAN), "half: an error of NaN");
        refused(DType::Q4_K, &with(3, 1.9e-4), "2.17 times");
        refused(DType::Q4_K, &with(1, 4.13e-4), "float weights: rms");
        refused(DType::Q4_K, &with(2, 1.68e-4), "float activations: rms");
        refused(DType::Q4_K, &arms([0.0; 4], [1; 4]), "0.000e0 with half");
        refused(DType::Q4_K, &with(0, 4e-4)[1..], "a staging is missing");
    }

    #[test]
    fn f16_weights_change_nothing() {
        let rms = [3e-4, 3e-4, 1e-7, 1e-7];
        let study = Study {
            weights: DType::F16,
        };
        study.check(&arms(rms, [1, 1, 2, 2])).expect("equal bits");
        refused(DType::F16, &arms(rms, [1, 3, 2, 2]), "differ in bits");
        refused(DType::F16, &arms(rms, [1, 1, 2, 3]), "differ in bits");
    }
}
