//! Questions about single hunks, answered by the applier itself.

use diffy::{Line, Patch};

use crate::{Error, Texts, diff};

/// A hunk that finds no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedHunk {
    /// The file that it changes.
    pub file: String,
    /// Which of the file's hunks, from 1.
    pub number: usize,
    /// Its header and lines.
    pub text: String,
    /// Why: no such file, not such lines, or the change is there already.
    pub reason: &'static str,
}

/// The hunks of `diff` that do not fit into `tree`. Those that fit are applied to it.
///
/// # Errors
/// When `diff` is no diff of existing files.
pub fn failed_hunks(name: &str, diff: &str, tree: &mut Texts) -> Result<Vec<FailedHunk>, Error> {
    let mut failed = Vec::new();
    for (file, patch) in diff::parse(name, diff)? {
        for (index, hunk) in patch.hunks().iter().enumerate() {
            let text = hunk_text(hunk);
            let single = single_hunk(&text);
            let reason = match (tree.get(&file), Patch::from_str(&single)) {
                (None, _) => "there is no such file",
                (_, Err(_)) => "the hunk does not parse by itself",
                (Some(old), Ok(single)) => match diffy::apply(old, &single) {
                    Ok(new) => {
                        tree.insert(file.clone(), new);
                        continue;
                    }
                    Err(_) if diffy::apply(old, &single.reverse()).is_ok() => {
                        "this source has the change already"
                    }
                    Err(_) => "these lines are not there",
                },
            };
            failed.push(FailedHunk {
                file: file.clone(),
                number: index + 1,
                text,
                reason,
            });
        }
    }
    Ok(failed)
}

/// Whether `body`, a hunk's lines with their `' '`, `-` and `+`, fits into `old` at exactly one place.
///
/// The applier takes the place nearest to the one that the header names. A hunk that gives the same text whether it is
/// looked for from the file's start or from its end has only one.
#[must_use]
pub fn fits_at_one_place(old: &str, body: &str) -> bool {
    let count = |sign: char| {
        body.lines()
            .filter(|line| line.starts_with([' ', sign]))
            .count()
    };
    let from = |start: usize| {
        let hunk = format!(
            "@@ -{start},{} +{start},{} @@\n{body}",
            count('-'),
            count('+')
        );
        let text = single_hunk(&hunk);
        diffy::apply(old, &Patch::from_str(&text).ok()?).ok()
    };
    let last = old.lines().count().max(1);
    matches!((from(1), from(last)), (Some(first), Some(last)) if first == last)
}

fn single_hunk(hunk: &str) -> String {
    format!("--- a/file\n+++ b/file\n{hunk}")
}

fn hunk_text(hunk: &diffy::Hunk<'_, str>) -> String {
    let mut text = format!("@@ -{} +{} @@", hunk.old_range(), hunk.new_range());
    if let Some(function) = hunk.function_context() {
        text.push(' ');
        text.push_str(function.trim_end());
    }
    text.push('\n');
    for line in hunk.lines() {
        let (sign, line) = match line {
            Line::Context(line) => (' ', line),
            Line::Delete(line) => ('-', line),
            Line::Insert(line) => ('+', line),
        };
        text.push(sign);
        text.push_str(line);
        if !line.ends_with('\n') {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "{\n    x;\n}\nother\n{\n    x;\n}\nlast\n";

    #[test]
    fn a_hunk_that_fits_twice_is_ambiguous_until_its_context_tells() {
        assert!(!fits_at_one_place(OLD, " {\n-    x;\n+    y;\n }\n"));
        assert!(fits_at_one_place(OLD, " other\n {\n-    x;\n+    y;\n }\n"));
        assert!(fits_at_one_place(OLD, " {\n-    x;\n+    y;\n }\n last\n"));
        assert!(!fits_at_one_place(OLD, " nowhere\n+y\n"));
    }

    #[test]
    fn failed_hunks_are_named_and_the_others_applied() {
        let mut tree = Texts::from([("a.c".to_owned(), "1\n2\n3\n4\n5\n".to_owned())]);
        let diff = "--- a/a.c\n+++ b/a.c\n@@ -1,2 +1,2 @@ f\n 1\n-two\n+II\n@@ -4,2 +4,2 @@\n 4\n-5\n+V\n\
                    --- a/gone.c\n+++ b/gone.c\n@@ -1 +1 @@\n-a\n+b\n";
        let failed = failed_hunks("0001-x", diff, &mut tree).unwrap();
        assert_eq!(tree["a.c"], "1\n2\n3\n4\nV\n");
        assert_eq!(failed.len(), 2);
        assert_eq!(
            (failed[0].number, failed[0].reason),
            (1, "these lines are not there")
        );
        assert!(
            failed[0].text.starts_with("@@ -1,2 +1,2 @@ f\n 1\n-two\n"),
            "{}",
            failed[0].text
        );
        assert_eq!(
            (failed[1].file.as_str(), failed[1].reason),
            ("gone.c", "there is no such file")
        );
        let again = failed_hunks(
            "0001-x",
            &diff[..diff.find("--- a/gone").unwrap()],
            &mut tree,
        )
        .unwrap();
        assert_eq!(again[1].reason, "this source has the change already");
    }
}
