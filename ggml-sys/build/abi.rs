//! The bindings against the compiler of the target.
//!
//! They hold sizes, alignments and offsets as clang saw them, and assert at compile time that rustc agrees.
//! The same numbers become assertions in C here: where the compiler that builds ggml lays a struct out differently, the
//! build fails, also when it is a cross build of which nothing can be run.

/// The bindings in git.
#[cfg(any(not(feature = "buildtime-bindgen"), test))]
pub const COMMITTED: &str = include_str!("../src/bindings.rs");

/// The generated C file.
pub const FILE: &str = "ggmlrs-abi.c";

/// Headers that declare the structs asked about.
const HEADERS: [&str; 5] = [
    "ggml.h",
    "ggml-backend.h",
    "ggml-cpu.h",
    "ggml-opt.h",
    "gguf.h",
];

/// Field names that bindgen gives a trailing underscore, because Rust reserves them.
const RESERVED: [&str; 2] = ["type_", "async_"];

/// C text that does not compile unless every number in `bindings` is right.
pub fn c_asserts(bindings: &str) -> String {
    let mut text: String = HEADERS
        .iter()
        .map(|header| format!("#include \"{header}\"\n"))
        .collect();
    text.push_str("#include <stddef.h>\n");
    for (expression, value) in facts(bindings) {
        text.push_str(&format!(
            "_Static_assert({expression} == {value}, \"ggml-sys/src/bindings.rs is not for this target: {expression}\");\n"
        ));
    }
    text
}

/// What the bindings say, each as an expression in C and its value.
fn facts(bindings: &str) -> Vec<(String, usize)> {
    let mut facts = Vec::new();
    for statement in bindings.split(';') {
        let Some((subject, value)) = statement
            .rsplit_once(" - ")
            .and_then(|(left, right)| Some((left, right.strip_suffix("usize]")?.parse().ok()?)))
        else {
            continue;
        };
        // Structs without a name in C have one that bindgen made up.
        if !subject.contains("__bindgen_") {
            facts.extend(expression(subject).map(|expression| (expression, value)));
        }
    }
    facts
}

/// `size_of::<S>()`, `align_of::<S>()` or `offset_of!(S, field)` at the end of `subject`, in C.
fn expression(subject: &str) -> Option<String> {
    let last = subject.rsplit("::core::mem::").next()?;
    if let Some(name) = between(last, "size_of::<", ">()") {
        return Some(format!("sizeof({})", c_type(name)));
    }
    if let Some(name) = between(last, "align_of::<", ">()") {
        return Some(format!("_Alignof({})", c_type(name)));
    }
    let (name, field) = between(last, "offset_of!(", ")")?.split_once(", ")?;
    let field = if RESERVED.contains(&field) {
        field.trim_end_matches('_')
    } else {
        field
    };
    Some(format!("offsetof({}, {field})", c_type(name)))
}

fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    text.strip_prefix(start)?.strip_suffix(end)
}

/// ggml names a struct without a tag with an ending `_t`.
fn c_type(name: &str) -> String {
    if name.ends_with("_t") {
        name.to_owned()
    } else {
        format!("struct {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::tree::write_if_changed;

    const SAMPLE: &str = "const _: () = {\n    [\"Size of ggml_x\"][::core::mem::size_of::<ggml_x>() - 16usize];\n    \
        [\"Alignment of ggml_x\"][::core::mem::align_of::<ggml_x>() - 8usize];\n    [\n        \"Offset of field: \
        ggml_x::type_\",\n    ][::core::mem::offset_of!(ggml_x, type_) - 8usize];\n};\n\
        [\"\"][::core::mem::size_of::<a__bindgen_ty_1>() - 4usize];\n\
        [\"\"][::core::mem::size_of::<ggml_h_t>() - 2usize];\n";

    #[test]
    fn sizes_alignments_and_offsets_are_read() {
        let fact = |expression: &str, value| (expression.to_owned(), value);
        assert_eq!(
            facts(SAMPLE),
            [
                fact("sizeof(struct ggml_x)", 16),
                fact("_Alignof(struct ggml_x)", 8),
                fact("offsetof(struct ggml_x, type)", 8),
                fact("sizeof(ggml_h_t)", 2),
            ]
        );
    }

    /// Every struct that the bindings define is asked about; nothing is lost on the way to C.
    #[test]
    fn all_numbers_of_the_bindings_become_assertions() {
        let numbers = COMMITTED.matches("][::core::mem::").count();
        let unnamed = COMMITTED
            .split(';')
            .filter(|statement| {
                statement.contains("][::core::mem::") && statement.contains("__bindgen_")
            })
            .count();
        assert_eq!(facts(COMMITTED).len(), numbers - unnamed);
        let tensor = ("offsetof(struct ggml_tensor, data)".to_owned(), 248);
        assert!(facts(COMMITTED).contains(&tensor));
    }

    /// The C compiler accepts the real numbers and refuses a wrong one, by name.
    #[test]
    fn a_wrong_number_does_not_compile() {
        let dir = tempfile::tempdir().unwrap();
        let compile = |text: &str| {
            let file = dir.path().join("abi.c");
            write_if_changed(&file, text).unwrap();
            let output = std::process::Command::new("cc")
                .args(["-std=c11", "-fsyntax-only"])
                .arg(format!("-I{}/ggml/include", env!("GGML_SYS_OUT_DIR")))
                .arg(&file)
                .output()
                .unwrap();
            (
                output.status.success(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        let text = c_asserts(COMMITTED);
        assert_eq!(compile(&text), (true, String::new()));
        let right = "offsetof(struct ggml_tensor, data) == 248";
        assert!(text.contains(right));
        let (accepted, message) =
            compile(&text.replace(right, "offsetof(struct ggml_tensor, data) == 256"));
        assert!(
            !accepted && message.contains("ggml_tensor, data"),
            "{message}"
        );
    }
}
