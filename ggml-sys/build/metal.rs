//! Apple's Metal: embedding the kernels' sources, and the files that only a Mac compiles.
//!
//! The project's own checks run on Linux: the embedding is plain text work and tested there on the real sources, but
//! whether a Mac compiles and links the result is not.

use std::path::{Path, PathBuf};

use super::{
    error::Error,
    hash::BuildHash,
    prefix::PREFIX,
    tree::{Tree, write_if_changed},
};

/// The file that lists the kernel libraries and loads them.
pub const DEVICE: &str = "src/ggml-metal/ggml-metal-device.m";

/// Frameworks that the Metal backend links.
pub const FRAMEWORKS: [&str; 3] = ["Foundation", "Metal", "MetalKit"];

/// Headers of the kernels, which are put in front of a kernel file that includes them, each behind those that it includes itself.
/// Every file gets the first.
const KERNEL_HEADERS: [&str; 8] = [
    "common.h",
    "dequantize.h",
    "dequantize_more.h",
    "quantize.h",
    "fa_common.metal",
    "fa_vec_common.metal",
    "out_prod_args.h",
    "out_prod.h",
];

/// The kinds of kernel libraries, from the `X(SUFFIX, name)` lines of `GGML_METAL_LIBS`.
fn kinds(tree: &Tree) -> Vec<&str> {
    let device = tree.get(DEVICE).unwrap_or_default();
    device
        .lines()
        .skip_while(|line| !line.starts_with("#define GGML_METAL_LIBS"))
        .skip(1)
        .map_while(|line| {
            let entry = line.trim().trim_end_matches('\\').trim();
            entry
                .strip_prefix("X(")?
                .strip_suffix(')')?
                .split(',')
                .nth(1)
                .map(str::trim)
        })
        .collect()
}

/// Symbols that `ggml-metal-device.m` makes by pasting tokens, so that no scan finds them spelt out.
pub fn embedded_symbols(tree: &Tree) -> Vec<String> {
    kinds(tree)
        .iter()
        .flat_map(|kind| ["start", "end"].map(|end| format!("ggml_metallib_{kind}_{end}")))
        .collect()
}

/// C++ host files, ours among them.
pub fn host_sources(tree: &Tree) -> Vec<String> {
    tree.sources_in("src/ggml-metal", "cpp")
        .map(str::to_owned)
        .collect()
}

/// Objective-C files.
pub fn objective_c_sources(tree: &Tree) -> Vec<String> {
    tree.sources_in("src/ggml-metal", "m")
        .map(str::to_owned)
        .collect()
}

/// Writes one source text per kind and an assembly file that embeds them all; returns the assembly file.
pub fn embed(tree: &Tree, dir: &Path) -> Result<PathBuf, Error> {
    let kinds = kinds(tree);
    if kinds.is_empty() {
        return Err(Error::Embed {
            file: DEVICE.to_owned(),
            reason: "no X(..) lines in GGML_METAL_LIBS".to_owned(),
        });
    }
    let mut assembly = String::from(".section __DATA,__ggml_metallib\n");
    for kind in kinds {
        let text = library_source(tree, kind)?;
        let file = dir.join(format!("ggml-metal-embed-{kind}.metal"));
        write_if_changed(&file, &text)?;
        assembly.push_str(&embedding(kind, &file, &text));
    }
    let file = dir.join("ggml-metal-embed.s");
    write_if_changed(&file, &assembly)?;
    Ok(file)
}

/// The self-contained source text of a kernel library, as upstream's build puts it together.
fn library_source(tree: &Tree, kind: &str) -> Result<String, Error> {
    let body = file(tree, &format!("src/ggml-metal/kernels/{kind}.metal"))?;
    // From the last one on: a header may be included by another alone.
    let mut joined = body.to_owned();
    for header in KERNEL_HEADERS.into_iter().rev() {
        if header == KERNEL_HEADERS[0] || joined.contains(&include_of(header)) {
            let text = file(tree, &format!("src/ggml-metal/kernels/{header}"))?;
            joined.insert_str(0, text);
        }
    }

    let common = file(tree, "src/ggml-common.h")?;
    let arguments = file(tree, "src/ggml-metal/ggml-metal-impl.h")?;
    let mut text = String::new();
    for line in joined
        .split_inclusive('\n')
        .filter(|line| !is_dropped(line))
    {
        if line.contains("__embed_ggml-common.h__") {
            text.push_str(common);
        } else if line.contains(&include_of("ggml-metal-impl.h")) {
            text.push_str(arguments);
        } else {
            text.push_str(line);
        }
    }
    match text.lines().find(|line| is_unresolved(line)) {
        None => Ok(text),
        Some(line) => Err(Error::Embed {
            file: format!("{kind}.metal"),
            reason: format!("unresolved `{}`", line.trim()),
        }),
    }
}

fn file<'t>(tree: &'t Tree, path: &str) -> Result<&'t str, Error> {
    tree.get(path).ok_or_else(|| Error::Embed {
        file: path.to_owned(),
        reason: "no such file".to_owned(),
    })
}

fn include_of(header: &str) -> String {
    format!("#include \"{header}\"")
}

/// Includes of what is in the text already.
fn is_dropped(line: &str) -> bool {
    line.contains("#pragma once")
        || KERNEL_HEADERS
            .iter()
            .any(|header| line.contains(&include_of(header)))
}

/// An include that Metal's compiler could not follow at run time. `ggml-common.h` stands in the branch for builds
/// that do not embed.
fn is_unresolved(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("#include \"") && line != include_of("ggml-common.h")
}

/// Assembly that puts `file` between two symbols. The text's hash stands in a comment: the assembler reads the file, but
/// no dependency file says so.
fn embedding(kind: &str, file: &Path, text: &str) -> String {
    let mut hash = BuildHash::default();
    hash.add(kind, text.as_bytes());
    // Apple's C symbols start with an underscore.
    let symbol = |end| format!("_{PREFIX}ggml_metallib_{kind}_{end}");
    format!(
        "# {hash}\n.globl {start}\n{start}:\n.incbin \"{path}\"\n.globl {end}\n{end}:\n",
        hash = hash.finish(),
        start = symbol("start"),
        end = symbol("end"),
        path = file.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{layout::Layout, patch::Stack, source::Source, tree::read_text};

    fn tree() -> Tree {
        let mut tree = Tree::default();
        for (path, text) in [
            (
                DEVICE,
                "int x;\n#define GGML_METAL_LIBS \\\n    X(A, a)   \\\n    X(B_C, b_c)\\\n    X(D, d)\n\nX(NO, no)\n",
            ),
            (
                "src/ggml-metal/kernels/common.h",
                "#pragma once\n__embed_ggml-common.h__\n#include \"ggml-metal-impl.h\"\n",
            ),
            (
                "src/ggml-metal/kernels/dequantize.h",
                "#pragma once\n#include \"common.h\"\nDEQUANTIZE\n",
            ),
            (
                "src/ggml-metal/kernels/out_prod.h",
                "#include \"out_prod_args.h\"\nOUT PROD\n",
            ),
            ("src/ggml-metal/kernels/out_prod_args.h", "OUT PROD ARGS\n"),
            (
                "src/ggml-metal/kernels/e.metal",
                "#include \"common.h\"\n#include \"out_prod.h\"\nE\n",
            ),
            (
                "src/ggml-metal/kernels/a.metal",
                "#include \"common.h\"\nA\n",
            ),
            (
                "src/ggml-metal/kernels/b_c.metal",
                "#include \"common.h\"\n#include \"dequantize.h\"\nB\n",
            ),
            (
                "src/ggml-metal/kernels/d.metal",
                "#include \"surprise.h\"\n",
            ),
            ("src/ggml-common.h", "COMMON\n"),
            ("src/ggml-metal/ggml-metal-impl.h", "ARGUMENTS\n"),
            ("src/ggml-metal/ggml-metal-context.m", ""),
        ] {
            tree.insert(path, text);
        }
        tree
    }

    #[test]
    fn kinds_are_read_from_the_list_and_end_with_it() {
        assert_eq!(kinds(&tree()), ["a", "b_c", "d"]);
        assert!(embedded_symbols(&tree()).contains(&"ggml_metallib_b_c_end".to_owned()));
    }

    #[test]
    fn headers_come_first_and_once_and_only_where_included() {
        assert_eq!(
            library_source(&tree(), "a").unwrap(),
            "COMMON\nARGUMENTS\nA\n"
        );
        assert_eq!(
            library_source(&tree(), "b_c").unwrap(),
            "COMMON\nARGUMENTS\nDEQUANTIZE\nB\n"
        );
    }

    #[test]
    fn what_a_header_includes_stands_before_it() {
        assert_eq!(
            library_source(&tree(), "e").unwrap(),
            "COMMON\nARGUMENTS\nOUT PROD ARGS\nOUT PROD\nE\n"
        );
    }

    #[test]
    fn an_include_that_cannot_be_followed_at_run_time_is_an_error() {
        let error = library_source(&tree(), "d").unwrap_err().to_string();
        assert!(
            error.contains("d.metal") && error.contains("surprise.h"),
            "{error}"
        );
    }

    #[test]
    fn a_device_file_without_the_list_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            embed(&Tree::default(), dir.path())
                .unwrap_err()
                .to_string()
                .contains("GGML_METAL_LIBS")
        );
    }

    #[test]
    fn the_assembly_moves_with_the_text_it_embeds() {
        let before = embedding("a", Path::new("a.metal"), "1");
        assert!(before.contains("_ggmlrs_ggml_metallib_a_start:\n.incbin \"a.metal\"\n"));
        assert_ne!(before, embedding("a", Path::new("a.metal"), "2"));
    }

    #[test]
    fn the_real_kernels_embed_whole() {
        let dir = tempfile::tempdir().unwrap();
        let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let layout = Layout::find(manifest_dir);
        let source = Source::obtain(&layout, manifest_dir, dir.path()).unwrap();
        let mut tree = Tree::read(&source.dir).unwrap();
        Stack::read(&layout.patches)
            .unwrap()
            .apply(&mut tree)
            .unwrap();

        let assembly = read_text(&embed(&tree, dir.path()).unwrap()).unwrap();
        assert_eq!(assembly.matches(".incbin").count(), kinds(&tree).len());
        assert_eq!(kinds(&tree).len(), 35);
    }

    #[test]
    fn objective_c_files_are_found_in_the_tree() {
        assert_eq!(objective_c_sources(&tree()).len(), 2);
    }
}
