//! A small reader of C and C++: what is code, which functions there are, whom they call, what they assert.
//!
//! It knows comments, strings, characters, preprocessor lines and braces, and nothing else. Its limits:
//! - macros are not expanded; preprocessor lines are skipped, and both branches of an `#if` are read;
//! - a function is what stands before a brace at file level (or in `extern "C"` or a namespace) and ends with an argument
//!   list; methods of classes are not read;
//! - calls are found by name, in the same file; calls through pointers are not;
//! - C's `assert` is left out: ggml is compiled with NDEBUG.
//!
//! A file whose braces do not match is refused, so that an `#if` that splits them cannot hide a function.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

/// One function.
#[derive(Debug, Default)]
pub struct Function {
    /// Only this file can call it.
    pub is_static: bool,
    /// What it calls that looks like a function, in order, each name once.
    pub calls: Vec<String>,
    /// What it asserts, in order: conditions, or [`ABORT`].
    pub asserts: Vec<String>,
}

/// An assertion that always fails.
pub const ABORT: &str = "abort";

/// The functions of a file by name. Two definitions under one name (in branches of an `#if`) are one.
///
/// # Errors
/// When braces or parentheses do not match.
pub fn functions(text: &str) -> Result<BTreeMap<String, Function>> {
    let code = blank(text);
    let mut found = BTreeMap::new();
    file_level(text, &code, 0, code.len(), &mut found)?;
    Ok(found)
}

/// The names that a header declares with one of ggml's export macros.
pub fn declared(header: &str) -> Vec<String> {
    let code = blank(header);
    let marked = code
        .match_indices("GGML_API")
        .chain(code.match_indices("GGML_BACKEND_API"));
    marked
        .filter_map(|(at, _)| {
            let declaration = code[at..].split(';').next()?;
            let head = declaration.split_once('(')?.0.trim_end();
            let name = head.rsplit(|c: char| !is_word(c)).next()?;
            (!name.is_empty() && !name.starts_with("GGML_")).then(|| name.to_owned())
        })
        .collect()
}

/// The text with the contents of comments, strings, characters and preprocessor lines replaced by spaces: same length, same
/// lines, so that a position means the same in both.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    let mut line_start = true;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => end_of_line(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => {
                find(bytes, at + 2, b"*/").map_or(bytes.len(), |end| end + 2)
            }
            b'#' if line_start => end_of_line(bytes, at),
            quote @ (b'"' | b'\'') => {
                let end = end_of_literal(bytes, at, quote);
                clear(&mut out, at + 1, end.saturating_sub(1));
                at = end;
                line_start = false;
                continue;
            }
            byte => {
                line_start = byte == b'\n' || (line_start && byte.is_ascii_whitespace());
                at += 1;
                continue;
            }
        };
        clear(&mut out, at, end);
        at = end;
    }
    // Only whole literals and comments are replaced, so what is left is valid.
    String::from_utf8_lossy(&out).into_owned()
}

fn clear(bytes: &mut [u8], from: usize, to: usize) {
    for byte in bytes.iter_mut().take(to).skip(from) {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// The end of a line that backslashes may continue.
fn end_of_line(bytes: &[u8], from: usize) -> usize {
    (from..bytes.len())
        .find(|&at| {
            let before = bytes[..at].strip_suffix(b"\r").unwrap_or(&bytes[..at]);
            bytes[at] == b'\n' && !before.ends_with(b"\\")
        })
        .unwrap_or(bytes.len())
}

/// Behind the closing quote. C++'s digit separators (`1'000`) would be misread: ggml has none.
fn end_of_literal(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    bytes[from..]
        .windows(what.len())
        .position(|window| window == what)
        .map(|at| from + at)
}

/// Reads the functions between two positions at file level.
fn file_level(
    text: &str,
    code: &str,
    from: usize,
    to: usize,
    found: &mut BTreeMap<String, Function>,
) -> Result<()> {
    let bytes = code.as_bytes();
    let (mut at, mut head) = (from, from);
    while at < to {
        match bytes[at] {
            b';' => head = at + 1,
            b'}' => bail!("line {}: a brace closes nothing", line_of(code, at)),
            b'{' => {
                let end = matching(code, at, b'{', b'}')?;
                let before = code[head..at].trim();
                if before.starts_with("extern \"") || before.starts_with("namespace") {
                    file_level(text, code, at + 1, end, found)?;
                } else if let Some(name) = function_name(before) {
                    let function = found.entry(name.to_owned()).or_default();
                    function.is_static |= before.split_whitespace().any(|word| word == "static");
                    read_body(text, code, at + 1, end, function)?;
                }
                at = end;
                // `struct x { .. } name;` and initializers go on until their semicolon; a function's body ends here.
                head = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// The name in `static int name(int a)`; nothing for types and initializers.
fn function_name(head: &str) -> Option<&str> {
    if !head.ends_with(')') {
        return None;
    }
    // The argument list is the last group of parentheses.
    let mut depth = 0;
    let open = head.char_indices().rev().find(|&(_, c)| {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    let before = head[..open.0].trim_end();
    let name = before.rsplit(|c: char| !is_word(c)).next()?;
    let is_function = !name.is_empty() && before.len() > name.len() && !before.contains('=');
    is_function.then_some(name)
}

fn read_body(
    text: &str,
    code: &str,
    from: usize,
    to: usize,
    function: &mut Function,
) -> Result<()> {
    let mut at = from;
    while let Some(open) = code[at..to].find('(').map(|offset| at + offset) {
        let before = code[at..open].trim_end();
        let name = before.rsplit(|c: char| !is_word(c)).next().unwrap_or("");
        at = open + 1;
        match name {
            "GGML_ASSERT" => {
                let end = matching(code, open, b'(', b')')?;
                function.asserts.push(condition(text, code, open + 1, end));
            }
            "GGML_ABORT" | "abort" | "exit" => function.asserts.push(ABORT.to_owned()),
            "" => {}
            _ if function.calls.iter().any(|call| call == name) => {}
            _ => function.calls.push(name.to_owned()),
        }
    }
    Ok(())
}

/// A condition on one line, without its comments.
fn condition(text: &str, code: &str, from: usize, to: usize) -> String {
    // Strings are blank in `code`: a message joined with `&&` is taken from the text, comments are not.
    let (text, code) = (&text.as_bytes()[from..to], &code.as_bytes()[from..to]);
    let mut in_string = false;
    let kept: Vec<u8> = text
        .iter()
        .zip(code)
        .map(|(&original, &blanked)| {
            if blanked == b'"' {
                in_string = !in_string;
            }
            if in_string { original } else { blanked }
        })
        .collect();
    let kept = String::from_utf8_lossy(&kept);
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where the bracket at `from` closes.
fn matching(code: &str, from: usize, open: u8, close: u8) -> Result<usize> {
    let mut depth = 0usize;
    for (at, &byte) in code.as_bytes().iter().enumerate().skip(from) {
        if byte == open {
            depth += 1;
        } else if byte == close {
            depth -= 1;
            if depth == 0 {
                return Ok(at);
            }
        }
    }
    bail!(
        "line {}: `{}` is never closed",
        line_of(code, from),
        char::from(open)
    )
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
#define HIDDEN(x) { \
    GGML_ASSERT(x)
/* GGML_ASSERT(in_a_comment); { */
struct shape { int n; };
static const int table[] = { 1, 2 };

static int helper(int a) { // {
    GGML_ASSERT(a > 0 /* why */ && "text ) with a bracket");
    return a;
}

struct shape * ggml_make(
        int a,
        int (*f)(int)) {
    GGML_ASSERT(a <
        f(3));
    char c = '{';
    if (a == 7) { GGML_ABORT("seven: %d", a); }
    return helper(a) + helper(a) + other (a);
}

extern "C" {
int ggml_inside(void) { return 1; }
}
"#;

    #[test]
    fn functions_calls_and_conditions_are_found() {
        let found = functions(FILE).unwrap();
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            ["ggml_inside", "ggml_make", "helper"]
        );
        let (make, helper) = (&found["ggml_make"], &found["helper"]);
        assert!(helper.is_static && !make.is_static);
        assert_eq!(helper.asserts, ["a > 0 && \"text ) with a bracket\""]);
        assert_eq!(make.asserts, ["a < f(3)", ABORT]);
        assert_eq!(make.calls, ["f", "if", "helper", "other"]);
    }

    #[test]
    fn braces_that_do_not_match_are_refused() {
        for (text, why) in [
            ("int f(void) {\n", "line 1"),
            ("int f(void) {}\n}\n", "line 2"),
            ("int f(void) { GGML_ASSERT((x); }", "never closed"),
        ] {
            let error = functions(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn declarations_are_those_with_the_export_macro() {
        let header = "
            GGML_API struct ggml_tensor * ggml_add(struct ggml_context * ctx); // GGML_API int no(void);
            GGML_DEPRECATED(GGML_API int ggml_old(void), \"use ggml_new (it is better)\");
            GGML_API bool ggml_is(\n  void);
            static inline int ggml_private(void);";
        assert_eq!(declared(header), ["ggml_add", "ggml_old", "ggml_is"]);
    }
}
