//! Which compiler is there, and is it new enough?

use std::{
    fmt,
    io::Write as _,
    process::{Command, Stdio},
};

use crate::Error;

/// Macros that every supported compiler defines about itself, one per line.
const PROBE: &str = "family __GNUC__ __clang_major__ __apple_build_version__\n";

/// A compiler's family, since version numbers of different families do not compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// GCC.
    Gcc,
    /// LLVM's Clang.
    Clang,
    /// Apple's Clang, which counts its versions differently.
    AppleClang,
}

impl Family {
    /// The first major version that compiles ggml, metal-sim and its `_Float16`.
    const fn minimum(self) -> u32 {
        match self {
            Self::Gcc => 12,
            Self::Clang => 15,
            Self::AppleClang => 14,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gcc => "GCC",
            Self::Clang => "Clang",
            Self::AppleClang => "Apple Clang",
        })
    }
}

/// What [`check_compiler`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compiler {
    /// GCC, Clang or Apple Clang.
    pub family: Family,
    /// Its major version.
    pub major: u32,
}

/// Checks that the compiler which `build` would use is there, is of a supported family, and is new enough
/// (GCC 12, Clang 15, Apple Clang 14).
///
/// # Errors
/// [`Error::NoCompiler`], [`Error::Unsupported`] or [`Error::TooOld`], each naming the program and the remedy.
pub fn check_compiler(build: &cc::Build) -> Result<Compiler, Error> {
    let tool = build.try_get_compiler()?;
    let program = tool.path().display().to_string();
    if tool.is_like_msvc() {
        return Err(Error::Unsupported { program });
    }
    let answer = preprocess(tool.to_command(), &program)?;
    judge(&program, &answer)
}

/// Runs the probe through the preprocessor.
fn preprocess(mut command: Command, program: &str) -> Result<String, Error> {
    let no_compiler = |source| Error::NoCompiler {
        program: program.to_owned(),
        source,
    };
    let mut child = command
        .args(["-E", "-P", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(no_compiler)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A child that does not read its input fails below, with a better reason than a broken pipe.
        let _ = stdin.write_all(PROBE.as_bytes());
    }
    let output = child.wait_with_output().map_err(no_compiler)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads the preprocessed probe.
fn judge(program: &str, answer: &str) -> Result<Compiler, Error> {
    let compiler = parse(answer).ok_or_else(|| Error::Unsupported {
        program: program.to_owned(),
    })?;
    let Compiler { family, major } = compiler;
    if major < family.minimum() {
        return Err(Error::TooOld {
            program: program.to_owned(),
            found: format!("{family} {major}"),
            needed: format!("{family} {}", family.minimum()),
        });
    }
    Ok(compiler)
}

fn parse(answer: &str) -> Option<Compiler> {
    let line = answer
        .lines()
        .find_map(|line| line.trim().strip_prefix("family "))?;
    let mut macros = line.split_whitespace().map(|word| word.parse::<u32>().ok());
    let (gnuc, clang, apple) = (macros.next()?, macros.next()?, macros.next()?);
    match (gnuc, clang, apple) {
        (_, Some(major), Some(_)) => Some(Compiler {
            family: Family::AppleClang,
            major,
        }),
        (_, Some(major), None) => Some(Compiler {
            family: Family::Clang,
            major,
        }),
        (Some(major), None, None) => Some(Compiler {
            family: Family::Gcc,
            major,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_told_apart() {
        let found = |answer| parse(answer).map(|c| (c.family, c.major));
        assert_eq!(
            found("family 12 __clang_major__ __apple_build_version__\n"),
            Some((Family::Gcc, 12))
        );
        assert_eq!(
            found("\nfamily 4 19 __apple_build_version__\n"),
            Some((Family::Clang, 19))
        );
        assert_eq!(
            found("family 4 16 16000026\n"),
            Some((Family::AppleClang, 16))
        );
        assert_eq!(
            found("family __GNUC__ __clang_major__ __apple_build_version__\n"),
            None
        );
        assert_eq!(found(""), None);
    }

    #[test]
    fn an_old_compiler_is_refused_with_the_remedy() {
        let error = judge(
            "g++-9",
            "family 9 __clang_major__ __apple_build_version__\n",
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("`g++-9` is GCC 9, but GCC 12 or newer is needed"),
            "{error}"
        );
        assert!(error.contains("CXX=g++-12"), "{error}");
    }

    #[test]
    fn a_missing_compiler_is_named_with_the_remedy() {
        let error = preprocess(Command::new("no-such-compiler"), "no-such-compiler")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`no-such-compiler` could not be started"),
            "{error}"
        );
        assert!(error.contains("Install g++ 12"), "{error}");
    }
}
