//! The dependency files that `-MMD -MF` writes.

use std::path::PathBuf;

/// The prerequisites named in a Makefile rule: the source and every header read, system headers left out.
pub(crate) fn parse(text: &str) -> Vec<PathBuf> {
    // "target: prerequisites"; a drive letter's colon is not followed by a blank.
    let prerequisites = text.split_once(": ").map_or("", |(_, rest)| rest);
    let mut paths = Vec::new();
    let mut path = String::new();
    let mut chars = prerequisites.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some('\n' | '\r')) => {}
            ('\\', Some(' ' | '#' | '\\')) | ('$', Some('$')) => path.extend(chars.next()),
            (c, _) if c.is_whitespace() => take(&mut path, &mut paths),
            (c, _) => path.push(c),
        }
    }
    take(&mut path, &mut paths);
    paths
}

fn take(path: &mut String, paths: &mut Vec<PathBuf>) {
    if !path.is_empty() {
        paths.push(PathBuf::from(std::mem::take(path)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continued_lines_and_escaped_blanks() {
        let text = "a.o: src/a.c \\\n include/a\\ b.h \\\r\n  $$x/c.h\n";
        assert_eq!(
            parse(text),
            ["src/a.c", "include/a b.h", "$x/c.h"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_rule_without_prerequisites_has_none() {
        assert!(parse("a.o:\n").is_empty());
    }
}
