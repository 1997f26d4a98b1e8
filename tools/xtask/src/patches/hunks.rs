//! Diffs with the least context that is unambiguous.

use std::ops::Range;

use anyhow::{Context, Result, bail};
use patch_series::fits_at_one_place;

/// Every hunk starts with this many lines of context on each side. One line is rarely more than a brace.
const LEAST_CONTEXT: usize = 2;

/// A run of changed lines, from 0: `old` of the old text becomes `new` of the new one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    old: Range<usize>,
    new: Range<usize>,
}

/// Neighbouring changes that share one hunk, and its lines of context.
#[derive(Debug, Clone)]
struct Hunk {
    changes: Vec<Change>,
    context: usize,
}

/// The unified diff of one file. `zero_context` is what git says with `-U0`: it decides what counts as changed.
pub fn file_diff(file: &str, old: &str, new: &str, zero_context: &str) -> Result<String> {
    let texts = Texts {
        old: old.split_inclusive('\n').collect(),
        new: new.split_inclusive('\n').collect(),
    };
    let mut hunks: Vec<Hunk> = changes(zero_context)?
        .into_iter()
        .map(|change| Hunk {
            changes: vec![change],
            context: LEAST_CONTEXT,
        })
        .collect();
    join_overlapping(&mut hunks);
    while let Some(index) = hunks
        .iter()
        .position(|hunk| !fits_at_one_place(old, &texts.body(hunk)))
    {
        if hunks[index].context > texts.old.len() {
            bail!("a change of {file} fits at several places however much context it is given");
        }
        hunks[index].context += 1;
        join_overlapping(&mut hunks);
    }
    let mut diff = format!("--- a/{file}\n+++ b/{file}\n");
    for hunk in &hunks {
        diff.push_str(&texts.header(hunk));
        diff.push_str(&texts.body(hunk));
    }
    Ok(diff)
}

/// Hunks whose contexts touch become one, because the applier matches no line twice.
fn join_overlapping(hunks: &mut Vec<Hunk>) {
    let mut joined: Vec<Hunk> = Vec::new();
    for hunk in hunks.drain(..) {
        match joined.last_mut() {
            Some(last) if last.old_end() + last.context + hunk.context >= hunk.old_start() => {
                last.context = last.context.max(hunk.context);
                last.changes.extend(hunk.changes);
            }
            _ => joined.push(hunk),
        }
    }
    *hunks = joined;
}

impl Hunk {
    fn old_start(&self) -> usize {
        self.changes.first().map_or(0, |change| change.old.start)
    }

    fn old_end(&self) -> usize {
        self.changes.last().map_or(0, |change| change.old.end)
    }
}

/// Both texts in lines, each with its line end.
struct Texts<'t> {
    old: Vec<&'t str>,
    new: Vec<&'t str>,
}

impl Texts<'_> {
    /// The hunk's lines in the old text, context included.
    fn span(&self, hunk: &Hunk) -> Range<usize> {
        hunk.old_start().saturating_sub(hunk.context)
            ..(hunk.old_end() + hunk.context).min(self.old.len())
    }

    fn body(&self, hunk: &Hunk) -> String {
        let span = self.span(hunk);
        let mut body = String::new();
        let mut push = |sign: char, lines: &[&str]| {
            for line in lines {
                body.push(sign);
                body.push_str(line);
                if !line.ends_with('\n') {
                    body.push_str("\n\\ No newline at end of file\n");
                }
            }
        };
        let mut at = span.start;
        for change in &hunk.changes {
            push(' ', &self.old[at..change.old.start]);
            push('-', &self.old[change.old.clone()]);
            push('+', &self.new[change.new.clone()]);
            at = change.old.end;
        }
        push(' ', &self.old[at..span.end]);
        body
    }

    fn header(&self, hunk: &Hunk) -> String {
        let span = self.span(hunk);
        let first = &hunk.changes[0];
        let added: usize = hunk.changes.iter().map(|change| change.new.len()).sum();
        let removed: usize = hunk.changes.iter().map(|change| change.old.len()).sum();
        let new_start = first.new.start - (first.old.start - span.start);
        format!(
            "@@ -{} +{} @@{}\n",
            range(span.start, span.len()),
            range(new_start, span.len() + added - removed),
            self.function(span.start)
        )
    }

    /// What git shows behind a hunk's header: the last line in front of it that starts with a letter.
    fn function(&self, before: usize) -> String {
        let starts = |line: &&&str| {
            line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '$')
        };
        let Some(line) = self.old[..before].iter().rev().find(starts) else {
            return String::new();
        };
        let cut: String = line.chars().take(80).collect();
        format!(" {}", cut.trim_end())
    }
}

/// A range as a unified diff writes it: from 1, or the line before where it is empty.
fn range(start: usize, len: usize) -> String {
    match len {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        _ => format!("{},{len}", start + 1),
    }
}

/// The changes in a diff without context.
fn changes(zero_context: &str) -> Result<Vec<Change>> {
    zero_context
        .lines()
        .filter_map(|line| line.strip_prefix("@@ -"))
        .map(|header| {
            let parsed = header.split_once(" @@").and_then(|(ranges, _)| {
                let (old, new) = ranges.split_once(" +")?;
                Some(Change {
                    old: parse_range(old)?,
                    new: parse_range(new)?,
                })
            });
            parsed.with_context(|| format!("git's hunk header {header:?}"))
        })
        .collect()
}

fn parse_range(text: &str) -> Option<Range<usize>> {
    let (start, len) = text.split_once(',').unwrap_or((text, "1"));
    let (start, len): (usize, usize) = (start.parse().ok()?, len.parse().ok()?);
    let start = if len == 0 {
        start
    } else {
        start.checked_sub(1)?
    };
    Some(start..start + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "int a() {\n    one;\n    two;\n    x;\n    y;\n}\nint b() {\n    zero;\n    two;\n    x;\n    y;\n}\n";

    #[test]
    fn context_grows_until_only_one_place_fits() {
        let new = OLD.replacen("    x;\n", "    z;\n", 1);
        let diff = file_diff("f.c", OLD, &new, "@@ -4 +4 @@\n").unwrap();
        // `two x y }` stands twice; `one` tells.
        assert_eq!(
            diff,
            "--- a/f.c\n+++ b/f.c\n@@ -2,5 +2,5 @@ int a() {\n     one;\n     two;\n-    x;\n+    z;\n     y;\n }\n"
        );
        let twice = OLD.replace("    one;\n", "    zero;\n");
        let new = twice.replacen("    x;\n", "    z;\n", 1);
        let diff = file_diff("f.c", &twice, &new, "@@ -4 +4 @@\n").unwrap();
        assert!(diff.contains("@@ -1,7 +1,7 @@\n int a() {\n"), "{diff}");
    }

    #[test]
    fn neighbours_share_a_hunk() {
        let new = OLD
            .replacen("    one;\n", "", 1)
            .replacen("    y;\n", "    y;\n    v;\n", 1);
        let diff = file_diff("f.c", OLD, &new, "@@ -2 +1,0 @@\n@@ -5,0 +5 @@\n").unwrap();
        assert_eq!(diff.matches("@@ -").count(), 1);
        assert!(diff.contains("@@ -1,7 +1,7 @@\n int a() {\n-    one;\n     two;\n     x;\n     y;\n+    v;\n }\n int b() {\n"), "{diff}");
    }

    #[test]
    fn what_cannot_be_told_apart_is_an_error() {
        assert!(changes("@@ -x +1 @@\n").is_err());
        assert_eq!(
            changes("@@ -0,0 +1,2 @@\n").unwrap(),
            [Change {
                old: 0..0,
                new: 0..2
            }]
        );
    }
}
