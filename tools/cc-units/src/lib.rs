//! Incremental compilation of C and C++ on top of the [`cc`] crate.
//!
//! `cc` compiles every file on every run of a build script. Here one header can be edited hundreds of times a day and a
//! full build takes minutes, so each translation unit (one source file) keeps a *record* beside its object: the content
//! hash of the source and of every file that the compiler read for it (from its `-MMD` dependency file), and the hash of
//! the command line and of the compiler's version. A unit whose record still holds is not compiled again.
//!
//! Content, not time stamps: a file that is written again with the same bytes recompiles nothing. Paths below a
//! [root](UnitSet::root) are recorded relative to it, so that a tree that moves keeps its objects.
//!
//! Where the environment variable `GGML_RS_OBJECT_CACHE` names a folder, builds share their objects through it, under the
//! same conditions.
//!
//! Two limits. A *new* header that shadows one found before is not noticed until the unit changes for another reason,
//! as with every build tool that relies on dependency files. And only compilers with the GCC command line are driven
//! (GCC, Clang, Apple Clang, MinGW); `cl.exe` is refused with an error.
//!
//! ```no_run
//! # fn main() -> Result<(), cc_units::Error> {
//! let mut build = cc::Build::new();
//! build.std("c11").include("include");
//! let objects = cc_units::UnitSet::new(build, "out/objects")
//!     .root("src", "src")
//!     .files(["src/a.c", "src/b.c"])
//!     .compile()?;
//! # Ok(())
//! # }
//! ```

mod cache;
mod compiler;
mod depfile;
mod error;
mod record;
mod roots;
mod unit_set;

pub use compiler::{Compiler, Family, check_compiler};
pub use error::Error;
pub use unit_set::UnitSet;
