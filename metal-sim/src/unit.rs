//! The units of a ggml tree: which kernel files are compiled, and in which variants.

use crate::error::Error;
use crate::include::Sources;
use crate::lex::{Kind, Token, lex};
use crate::tokens::{directive_end, opens_directive};

/// The macro of ggml-metal-device.m that lists upstream's kernel libraries, `X(SUFFIX, name)` each.
const LIBRARY_LIST: &str = "GGML_METAL_LIBS";

/// What a kernel file tests that has a variant for devices with the tensor API.
const TENSOR_MACRO: &str = "GGML_METAL_HAS_TENSOR";

/// One kernel file in one variant: one generated C++ file, one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The unit's own name, e.g. `mul_mm_tensor`.
    pub(crate) name: String,
    /// The kernel file without its extension, e.g. `mul_mm`.
    pub(crate) kind: String,
    /// Whether it is translated with `GGML_METAL_HAS_TENSOR`.
    pub(crate) tensor: bool,
}

impl Unit {
    fn plain(kind: &str) -> Self {
        Unit {
            name: kind.to_owned(),
            kind: kind.to_owned(),
            tensor: false,
        }
    }

    fn tensor(kind: &str) -> Self {
        Unit {
            name: format!("{kind}_tensor"),
            tensor: true,
            ..Unit::plain(kind)
        }
    }
}

/// The units that upstream's own list of libraries asks for, so that a new kernel file is never forgotten.
pub(crate) fn list(sources: &Sources) -> Result<Vec<Unit>, Error> {
    let path = sources.objective_c_device();
    let name = sources.display_name(&path);
    let kinds = library_kinds(&lex(&name, &sources.read(&path)?)?);
    if kinds.is_empty() {
        return Err(Error::Missing {
            file: name,
            name: LIBRARY_LIST.to_owned(),
            module: "unit.rs",
        });
    }
    let mut units: Vec<Unit> = kinds.iter().map(|kind| Unit::plain(kind)).collect();
    for kind in &kinds {
        if has_tensor_variant(sources, kind)? {
            units.push(Unit::tensor(kind));
        }
    }
    Ok(units)
}

/// Whether the kernel file itself tests the macro: the headers that all files include do so only to include Apple's.
fn has_tensor_variant(sources: &Sources, kind: &str) -> Result<bool, Error> {
    let path = sources.kernels().join(format!("{kind}.metal"));
    let tokens = lex(&sources.display_name(&path), &sources.read(&path)?)?;
    let tests_macro = |token: &Token| token.directive != 0 && token.is(TENSOR_MACRO);
    Ok(tokens.iter().any(tests_macro))
}

/// The second argument of every `X(...)` in the definition of the library list.
fn library_kinds(tokens: &[Token]) -> Vec<String> {
    let definition = (0..tokens.len()).find(|&i| {
        opens_directive(tokens, i)
            && tokens[i..].get(1).is_some_and(|t| t.is("define"))
            && tokens[i..].get(2).is_some_and(|t| t.is(LIBRARY_LIST))
    });
    let Some(start) = definition else {
        return Vec::new();
    };
    tokens[start..directive_end(tokens, start)]
        .windows(6)
        .filter(|w| {
            w[0].is("X") && w[1].is("(") && w[3].is(",") && w[4].kind == Kind::Word && w[5].is(")")
        })
        .map(|w| w[4].text.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn kinds_come_from_the_library_list_alone() {
        let source = "#define X(a, b)\n#define GGML_METAL_LIBS \\\n  X(UNARY, unary) \\\n  X(MUL_MM,mul_mm)\nX(NO, no)";
        assert_eq!(
            library_kinds(&lex("d.m", source).unwrap()),
            ["unary", "mul_mm"]
        );
        assert!(library_kinds(&lex("d.m", "int x;").unwrap()).is_empty());
    }

    #[test]
    fn a_file_that_tests_the_macro_is_a_unit_twice() {
        let dir = tempfile::tempdir().unwrap();
        let sources = Sources::new(dir.path());
        std::fs::create_dir_all(sources.kernels()).unwrap();
        let write = |path: PathBuf, text: &str| std::fs::write(path, text).unwrap();
        write(
            sources.objective_c_device(),
            "#define GGML_METAL_LIBS X(A, mul_mm) X(B, misc) X(C, fa)\n",
        );
        let kernel = |name: &str, text: &str| write(sources.kernels().join(name), text);
        kernel("common.h", "#ifdef GGML_METAL_HAS_TENSOR\n#endif");
        kernel(
            "mul_mm.metal",
            "int a;\n#ifdef GGML_METAL_HAS_TENSOR\n#endif",
        );
        kernel(
            "misc.metal",
            "#include \"common.h\"\n// GGML_METAL_HAS_TENSOR\n",
        );
        kernel("fa.metal", "#if !defined(GGML_METAL_HAS_TENSOR)\n#endif");
        let units = list(&sources).unwrap();
        let names: Vec<&str> = units.iter().map(|u| u.name.as_str()).collect();
        assert_eq!(
            names,
            ["mul_mm", "misc", "fa", "mul_mm_tensor", "fa_tensor"]
        );
        assert_eq!((units[4].kind.as_str(), units[4].tensor), ("fa", true));
    }

    #[test]
    fn a_renamed_list_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let sources = Sources::new(dir.path());
        std::fs::create_dir_all(sources.kernels()).unwrap();
        std::fs::write(sources.objective_c_device(), "int x;").unwrap();
        assert!(
            list(&sources)
                .unwrap_err()
                .to_string()
                .contains("GGML_METAL_LIBS not found")
        );
    }
}
