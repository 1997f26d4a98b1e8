//! What stands behind the flags.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

use clap::ValueEnum;
use ggml_rs::{Route, Staging};

/// What the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Compare results with the reference
    Test,
    /// Compare gradients with central differences, by default on the CPU
    Grad,
    /// Compare the CPU's results with one thread and with more, bit by bit
    Threads,
    /// Measure how long cases take; on a simulated device, count what they do
    Perf,
    /// List which cases a device runs, without running them
    Support,
    /// Take out every barrier of the simulated device's kernels, one at a time, and see whether the verifier misses it (needs
    /// a build with --features verifier)
    Barriers,
}

impl Mode {
    /// Its name on the command line, and in rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Grad => "grad",
            Self::Threads => "threads",
            Self::Perf => "perf",
            Self::Support => "support",
            Self::Barriers => "barriers",
        }
    }
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines for people
    Console,
    /// Statements for sqlite3, upstream's table
    Sql,
    /// Comma-separated values, upstream's seven columns
    Csv,
    /// One JSON object per line
    Json,
    /// Mode support: a table of operations by device; mode grad: of the operands that have a gradient, computing none
    Markdown,
}

/// `on` or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl Switch {
    /// Whether it is on.
    #[must_use]
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// [`Staging`] as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StagingArg {
    /// Both operands as float
    Float,
    /// The weights as float, the activations as half: MUL_MAT_ID only
    FloatWeights,
    /// The activations as float, the weights as half: MUL_MAT_ID only
    FloatActivations,
    /// Both operands as half: values beyond 65504 overflow
    Half,
}

impl From<StagingArg> for Staging {
    fn from(arg: StagingArg) -> Self {
        match arg {
            StagingArg::Float => Self::Float,
            StagingArg::FloatWeights => Self::FloatWeights,
            StagingArg::FloatActivations => Self::FloatActivations,
            StagingArg::Half => Self::Half,
        }
    }
}

/// [`Route`] as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RouteArg {
    /// MUL_MAT as the device decides, OUT_PROD with temporaries
    Auto,
    /// MUL_MAT: one product of a matrix and a vector per row
    MatVec,
    /// OUT_PROD: one kernel that reads both operands where they lie, stages them in float and makes no temporaries
    Direct,
}

impl From<RouteArg> for Route {
    fn from(arg: RouteArg) -> Self {
        match arg {
            RouteArg::Auto => Self::Auto,
            RouteArg::MatVec => Self::MatVec,
            RouteArg::Direct => Self::Direct,
        }
    }
}

/// A seed; "random" draws one, which the report then prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "random" {
            // std seeds its hashers from the system's entropy: enough to pick a seed, without another dependency.
            return Ok(Self(RandomState::new().hash_one(0)));
        }
        text.parse()
            .map(Self)
            .map_err(|_| format!("expected a number from 0 to {} or \"random\"", u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_seed_is_drawn_anew() {
        let draw = || "random".parse::<Seed>().expect("draws");
        assert_ne!(draw(), draw());
        assert!("-1".parse::<Seed>().is_err());
    }
}
