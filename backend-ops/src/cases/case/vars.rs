//! The parameter list of a case, printed as upstream's `VARS_TO_STR` macros print it.
//!
//! People grep for these strings, paste them into `-o` and compare them between projects, so they must match byte for
//! byte: `name=value` pairs joined by commas, arrays in brackets without spaces, booleans as 0 and 1, floats with six
//! decimals (C++'s `std::to_string`), types by ggml's names.
//!
//! ```
//! use backend_ops::vars::Vars;
//!
//! let vars = Vars::new().with("m", 256).with("bs", [1, 3]).with("trans_b", true);
//! assert_eq!(vars.to_string(), "m=256,bs=[1,3],trans_b=1");
//! ```

use std::fmt;

use ggml_rs::DType;

/// A value that upstream knows how to print.
pub trait Var {
    /// Appends the value to `out`.
    fn write(&self, out: &mut String);
}

/// Numbers that C++ prints as Rust does.
macro_rules! integers {
    ($($integer:ty),*) => {
        $(impl Var for $integer {
            fn write(&self, out: &mut String) {
                out.push_str(&self.to_string());
            }
        })*
    };
}

integers!(usize, i32, i64);

impl Var for bool {
    fn write(&self, out: &mut String) {
        out.push(if *self { '1' } else { '0' });
    }
}

impl Var for f32 {
    fn write(&self, out: &mut String) {
        out.push_str(&format!("{self:.6}"));
    }
}

/// Names of modes, of precisions, of other ops.
impl Var for &str {
    fn write(&self, out: &mut String) {
        out.push_str(self);
    }
}

impl Var for DType {
    fn write(&self, out: &mut String) {
        out.push_str(self.name());
    }
}

impl<T: Var, const N: usize> Var for [T; N] {
    fn write(&self, out: &mut String) {
        out.push('[');
        for (i, value) in self.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            value.write(out);
        }
        out.push(']');
    }
}

/// Builds a parameter list.
#[derive(Clone, Debug, Default)]
pub struct Vars(String);

impl Vars {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `name=value`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Var) -> Self {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push('=');
        value.write(&mut self.0);
        self
    }

    /// Appends `name=value` unless the value is the default: this is how our own fields stay out of upstream's strings.
    #[must_use]
    pub fn with_unless_default<T: Var + PartialEq>(self, name: &str, value: T, default: T) -> Self {
        if value == default {
            self
        } else {
            self.with(name, value)
        }
    }
}

impl fmt::Display for Vars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_upstream_prints_them() {
        let vars = Vars::new()
            .with("type", DType::F32)
            .with("ne", [10, 5, 4, 3])
            .with("v", false)
            .with("b_range", 1.5e5_f32);
        assert_eq!(
            vars.to_string(),
            "type=f32,ne=[10,5,4,3],v=0,b_range=150000.000000"
        );
    }

    #[test]
    fn fields_of_ours_are_silent_at_their_default() {
        let vars = |b_v: usize| {
            Vars::new()
                .with("m", 1)
                .with_unless_default("b_v", b_v, 0_usize)
                .to_string()
        };
        assert_eq!(vars(0), "m=1");
        assert_eq!(vars(64), "m=1,b_v=64");
    }
}
