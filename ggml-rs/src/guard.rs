//! The backstop behind our checks: ggml's assertions become errors instead of ending the process.
//!
//! ggml ends every failed assertion in `ggml_abort`, which first calls a callback. Ours unwinds out of it
//! while a [`call`] is on this thread's stack, and ggml is compiled so that its frames can be unwound.
//!
//! Limits, which is why every op is checked before ggml is called:
//! - it covers calls that build graphs and allocate, on the calling thread; never compute, whose assertions
//!   happen on ggml's worker threads or inside Metal's dispatch blocks;
//! - whatever ggml had allocated between the call and the assertion is leaked;
//! - it must not be used around calls that hold ggml's critical section, which would stay locked;
//! - a program built with `panic = "abort"` has no backstop.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::error::{Error, Result};
use crate::logging;

thread_local! {
    /// How many [`call`]s are on this thread's stack.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// What travels from the callback to [`call`]: ggml's message.
struct Assertion(String);

/// Calls ggml, turning a failed assertion into [`Error::Internal`].
///
/// # Errors
/// [`Error::Internal`] with ggml's message.
#[inline]
pub(crate) fn call<T>(step: &'static str, ggml: impl FnOnce() -> T) -> Result<T> {
    let _depth = Depth::enter();
    catch_unwind(AssertUnwindSafe(ggml)).map_err(|payload| assertion(step, payload))
}

/// The error of a caught assertion; any other panic is not ours and continues.
#[cold]
fn assertion(step: &'static str, payload: Box<dyn Any + Send>) -> Error {
    match payload.downcast::<Assertion>() {
        Ok(assertion) => Error::Internal {
            step,
            message: assertion.0,
        },
        Err(other) => resume_unwind(other),
    }
}

struct Depth {
    // A logger must not run in ggml's frames.
    _lines: logging::Hold,
}

impl Depth {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self {
            _lines: logging::hold(),
        }
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// ggml's abort callback. Returning lets ggml abort, as it would without us.
pub(crate) unsafe extern "C-unwind" fn on_abort(message: *const c_char) {
    // SAFETY: ggml passes a NUL-terminated string that outlives the call.
    let message = unsafe { CStr::from_ptr(message) }
        .to_string_lossy()
        .into_owned();
    // A thread that is being torn down has no DEPTH any more, and no `call` either.
    if DEPTH.try_with(Cell::get).unwrap_or(0) > 0 {
        resume_unwind(Box::new(Assertion(message)));
    }
    // The process ends: what ggml said before is told now.
    logging::forward_at_the_end();
    // Not eprintln, which panics when it cannot write.
    let _ = writeln!(std::io::stderr(), "{message}");
}

#[cfg(test)]
mod tests {
    use ggml_sys as sys;

    use super::*;
    use crate::dtype::DType;
    use crate::graph::Context;
    use crate::runtime;

    #[test]
    fn an_assertion_becomes_an_error_and_the_next_call_works() {
        // SAFETY: the message is a C string literal.
        let abort = || unsafe { on_abort(c"ggml.c:1: GGML_ASSERT(x) failed".as_ptr()) };
        let error = call("test", abort).unwrap_err();
        assert!(
            matches!(&error, Error::Internal { step: "test", message } if message.contains("GGML_ASSERT(x)"))
        );
        assert_eq!(call("test", || 7), Ok(7));
    }

    #[test]
    fn an_assertion_of_ggml_is_caught_and_the_context_stays_usable() {
        runtime::ready().unwrap();
        // SAFETY: a constant of ggml's, without arguments.
        let context = Context::new(8 * unsafe { sys::ggml_tensor_overhead() }).unwrap();
        // SAFETY: the context is alive and has room for every tensor made here.
        let tensor =
            |n0, n1| unsafe { sys::ggml_new_tensor_2d(context.as_ptr(), DType::F32.raw(), n0, n1) };
        let (a, b) = (tensor(4, 2), tensor(3, 2));
        // SAFETY: as above. Shapes that do not fit are what ggml_mul_mat asserts on.
        let product = |b| unsafe { sys::ggml_mul_mat(context.as_ptr(), a, b) };
        let error = call("mul_mat", || product(b)).unwrap_err();
        assert!(error.to_string().contains("ggml_can_mul_mat"), "{error}");
        assert!(!call("mul_mat", || product(a)).unwrap().is_null());
    }

    #[test]
    fn other_panics_pass_through() {
        let caught = catch_unwind(|| call("test", || resume_unwind(Box::new(42_i32))));
        assert_eq!(caught.unwrap_err().downcast_ref::<i32>(), Some(&42));
        assert_eq!(DEPTH.get(), 0);
    }
}
