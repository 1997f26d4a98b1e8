//! Where an error says that the caller's mistake is: the line of the user's that called a public function.
//!
//! `#[track_caller]` does not reach through closures and function pointers. So a check only says what is wrong ([`Refused`]),
//! which is no [`Error`] yet, and the public function finds out once where it was called ([`here`], or a [`Call`]) and adds
//! that. Without a place there is no error, so a forgotten one does not compile; `tests/graphs/places` reads the sources and
//! refuses a place that is taken where it would be a line of this crate's.

use std::fmt;
use std::panic::Location;

use super::{Error, OpError, Operand, Result, write_refused};

/// Where a public function was called. Only [`here`] and [`Call::new`] make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At(&'static Location<'static>);

impl At {
    pub fn location(self) -> &'static Location<'static> {
        self.0
    }
}

/// The place of the call of the function that calls this, which must itself be `#[track_caller]`.
#[track_caller]
#[inline]
pub(crate) fn here() -> At {
    At(Location::caller())
}

/// A public function by the name that its errors give it, and where it was called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    name: &'static str,
    pub at: At,
}

impl Call {
    /// The call of the function that calls this, which must itself be `#[track_caller]`.
    #[track_caller]
    #[inline]
    pub fn new(name: &'static str) -> Self {
        Self { name, at: here() }
    }

    #[cold]
    pub fn shape(self, detail: impl Into<String>) -> Error {
        Error::Shape(self.error(detail))
    }

    #[cold]
    pub fn dtype(self, detail: impl Into<String>) -> Error {
        Error::DType(self.error(detail))
    }

    #[cold]
    pub fn param(self, detail: impl Into<String>) -> Error {
        Error::Param(self.error(detail))
    }

    fn error(self, detail: impl Into<String>) -> Box<OpError> {
        Why::of(self.name, detail).at(self.at)
    }
}

/// What is wrong with a call, without the place of the call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Why {
    pub op: &'static str,
    pub detail: String,
    pub operands: Vec<Operand>,
}

impl Why {
    fn of(op: &'static str, detail: impl Into<String>) -> Self {
        Self {
            op,
            detail: detail.into(),
            operands: Vec::new(),
        }
    }

    fn at(self, at: At) -> Box<OpError> {
        let Self {
            op,
            detail,
            operands,
        } = self;
        Box::new(OpError {
            op,
            detail,
            operands,
            at: at.location(),
        })
    }
}

/// What a check answers. [`Placed::at`] makes a [`Result`] of it.
pub(crate) type Checked<T = ()> = std::result::Result<T, Refused>;

/// Why a check refuses a call: by the variants of [`Error`], and no error before it has a place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Refused {
    Shape(Box<Why>),
    DType(Box<Why>),
    Layout(Box<Why>),
    Param(Box<Why>),
}

impl Refused {
    /// Of a function without tensors.
    #[cold]
    pub fn shape(op: &'static str, detail: impl Into<String>) -> Self {
        Self::Shape(Box::new(Why::of(op, detail)))
    }

    /// Of a function without tensors.
    #[cold]
    pub fn dtype(op: &'static str, detail: impl Into<String>) -> Self {
        Self::DType(Box::new(Why::of(op, detail)))
    }

    /// Of a function without tensors.
    #[cold]
    pub fn param(op: &'static str, detail: impl Into<String>) -> Self {
        Self::Param(Box::new(Why::of(op, detail)))
    }

    /// The error of a public function that was called at this place.
    #[cold]
    pub fn at(self, at: At) -> Error {
        match self {
            Self::Shape(why) => Error::Shape(why.at(at)),
            Self::DType(why) => Error::DType(why.at(at)),
            Self::Layout(why) => Error::Layout(why.at(at)),
            Self::Param(why) => Error::Param(why.at(at)),
        }
    }

    /// As an error of another function, whose caller does not know this one.
    #[cold]
    pub fn of(mut self, call: Call) -> Error {
        self.why_mut().op = call.name;
        self.at(call.at)
    }

    /// What is wrong, in words.
    pub fn detail(&self) -> &str {
        &self.why().detail
    }

    fn why(&self) -> &Why {
        match self {
            Self::Shape(why) | Self::DType(why) | Self::Layout(why) | Self::Param(why) => why,
        }
    }

    fn why_mut(&mut self) -> &mut Why {
        match self {
            Self::Shape(why) | Self::DType(why) | Self::Layout(why) | Self::Param(why) => why,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = self.why();
        write_refused(f, why.op, &why.operands, &why.detail)
    }
}

/// The errors of calls that a public function makes for its caller, who did not write them.
pub(crate) trait Moved {
    /// The same with this place, where the error has one.
    fn moved_to(self, at: At) -> Self;
}

impl<T> Moved for Result<T> {
    #[inline]
    fn moved_to(self, at: At) -> Self {
        self.map_err(|error| moved(error, at))
    }
}

#[cold]
fn moved(mut error: Error, At(to): At) -> Error {
    match &mut error {
        Error::Shape(why) | Error::DType(why) | Error::Layout(why) | Error::Param(why) => {
            why.at = to;
        }
        Error::NotDifferentiable(why) => why.at = to,
        _ => {}
    }
    error
}

/// Gives what a check answered the place of the call.
pub(crate) trait Placed<T> {
    /// # Errors
    /// What the check refused, with this place.
    fn at(self, at: At) -> Result<T>;

    /// # Errors
    /// What the check refused, as an error of this call.
    fn of(self, call: Call) -> Result<T>;
}

impl<T> Placed<T> for Checked<T> {
    #[inline]
    fn at(self, at: At) -> Result<T> {
        self.map_err(|refused| refused.at(at))
    }

    #[inline]
    fn of(self, call: Call) -> Result<T> {
        self.map_err(|refused| refused.of(call))
    }
}
