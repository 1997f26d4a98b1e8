//! Inlining of `#include`: a unit becomes one token list.
//!
//! The Metal compiler's own headers are replaced by the shim, and the structures that host and kernels share must
//! stay outside the unit's anonymous namespace: both are included at the top of the generated file instead.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::lex::{Token, lex};
use crate::tokens::{directive_end, opens_directive, text};

/// Headers of the Metal compiler that the shim stands in for.
const METAL_HEADERS: &[&str] = &[
    "metal_stdlib",
    "metal_tensor",
    "MetalPerformancePrimitives/MetalPerformancePrimitives.h",
];

/// The structures shared with the host code, which the generated file includes itself.
const SHARED_HEADER: &str = "ggml-metal-impl.h";

/// Where sources are looked for, and how they are named in diagnostics.
pub(crate) struct Sources {
    /// ggml's root: the directory that holds `include/` and `src/`.
    root: PathBuf,
}

impl Sources {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Sources { root: root.into() }
    }

    pub(crate) fn kernels(&self) -> PathBuf {
        self.root.join("src/ggml-metal/kernels")
    }

    pub(crate) fn objective_c_device(&self) -> PathBuf {
        self.root.join("src/ggml-metal/ggml-metal-device.m")
    }

    /// The name of `path` in diagnostics: the same wherever the tree lies.
    pub(crate) fn display_name(&self, path: &Path) -> String {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        format!("ggml/{}", relative.display())
    }

    pub(crate) fn read(&self, path: &Path) -> Result<String, Error> {
        std::fs::read_to_string(path).map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })
    }

    /// The tokens of `path` with its includes inlined, each file once.
    pub(crate) fn load(&self, path: &Path) -> Result<Vec<Token>, Error> {
        let mut loader = Loader {
            sources: self,
            seen: HashSet::new(),
            directives: 0,
        };
        loader.file(path)
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        [
            self.kernels(),
            self.root.join("src/ggml-metal"),
            self.root.join("src"),
        ]
        .into_iter()
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
    }
}

struct Loader<'a> {
    sources: &'a Sources,
    seen: HashSet<PathBuf>,
    /// Directives numbered so far; files are lexed one by one, each from 1.
    directives: u32,
}

impl Loader<'_> {
    fn file(&mut self, path: &Path) -> Result<Vec<Token>, Error> {
        if !self.seen.insert(path.to_owned()) {
            return Ok(Vec::new());
        }
        let name = self.sources.display_name(path);
        let mut tokens = lex(&name, &self.sources.read(path)?)?;
        self.renumber(&mut tokens);
        self.inline(tokens)
    }

    fn renumber(&mut self, tokens: &mut [Token]) {
        let first = self.directives;
        for token in tokens.iter_mut().filter(|t| t.directive != 0) {
            token.directive += first;
            self.directives = self.directives.max(token.directive);
        }
    }

    fn inline(&mut self, tokens: Vec<Token>) -> Result<Vec<Token>, Error> {
        let mut out = Vec::with_capacity(tokens.len());
        let mut i = 0;
        while i < tokens.len() {
            if opens_directive(&tokens, i) && tokens.get(i + 1).is_some_and(|t| t.is("include")) {
                let end = directive_end(&tokens, i);
                out.extend(self.include(&tokens[i..end])?);
                i = end;
            } else {
                out.push(tokens[i].clone());
                i += 1;
            }
        }
        Ok(out)
    }

    /// What takes the place of one `#include` line. A foreign header in angle brackets stays: it stands in a branch for
    /// another compiler, or the C++ compiler will say that it does not exist.
    fn include(&mut self, line: &[Token]) -> Result<Vec<Token>, Error> {
        let target = text(&line[2..]);
        if let Some(name) = target.strip_prefix('<').and_then(|t| t.strip_suffix('>')) {
            let provided = METAL_HEADERS.contains(&name);
            return Ok(if provided { Vec::new() } else { line.to_vec() });
        }
        let name = target.trim_matches('"');
        if name == SHARED_HEADER {
            return Ok(Vec::new());
        }
        match self.sources.find(name) {
            Some(path) => self.file(&path),
            None => Err(line[0].unsupported(
                format!("#include \"{name}\""),
                "no such file in src/ggml-metal/kernels, src/ggml-metal or src",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with the given files under src/ggml-metal/kernels.
    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Sources) {
        let dir = tempfile::tempdir().unwrap();
        let sources = Sources::new(dir.path());
        std::fs::create_dir_all(sources.kernels()).unwrap();
        for (name, content) in files {
            std::fs::write(sources.kernels().join(name), content).unwrap();
        }
        (dir, sources)
    }

    fn load(sources: &Sources, name: &str) -> Result<String, Error> {
        Ok(text(&sources.load(&sources.kernels().join(name))?))
    }

    #[test]
    fn a_header_is_inlined_once_and_metal_headers_are_dropped() {
        let (_dir, sources) = tree(&[
            ("a.metal", "#include \"c.h\"\n#include \"b.h\"\nint a;"),
            ("b.h", "#include \"c.h\"\nint b;"),
            (
                "c.h",
                "#include <metal_stdlib>\n#include \"ggml-metal-impl.h\"\nint c;",
            ),
        ]);
        assert_eq!(load(&sources, "a.metal").unwrap(), "int c; int b; int a;");
    }

    #[test]
    fn a_header_that_is_not_in_the_tree_is_an_error_with_its_place() {
        let (_dir, sources) = tree(&[("a.metal", "\n#include \"no.h\"\n")]);
        let error = load(&sources, "a.metal").unwrap_err().to_string();
        assert!(
            error.starts_with("ggml/src/ggml-metal/kernels/a.metal:2: "),
            "{error}"
        );
        assert!(error.contains("no.h"), "{error}");
    }

    #[test]
    fn foreign_headers_are_left_to_the_compiler() {
        let (_dir, sources) = tree(&[("a.metal", "#include <cuda_fp16.h>\nint a;")]);
        assert_eq!(
            load(&sources, "a.metal").unwrap(),
            "#include <cuda_fp16.h> int a;"
        );
    }

    #[test]
    fn directives_of_different_files_keep_different_numbers() {
        let (_dir, sources) = tree(&[
            ("a.metal", "#include \"b.h\"\n#define A\n"),
            ("b.h", "#define B\n#define C"),
        ]);
        let tokens = sources.load(&sources.kernels().join("a.metal")).unwrap();
        let openings = (0..tokens.len())
            .filter(|&i| opens_directive(&tokens, i))
            .count();
        assert_eq!(openings, 3);
    }
}
