//! The tables, made of the entries of a series.

use std::fmt::Write;

use patch_series::{Entry, Finding};

/// A finding's `section`, and its heading.
const SECTIONS: [(&str, &str); 5] = [
    ("metal-kernels", "Metal: kernels"),
    ("metal-host", "Metal: host"),
    ("cpu", "CPU"),
    ("blas", "BLAS"),
    ("graphs", "Graphs"),
];

/// What is wrong with the findings: each line names the patch.
pub fn wrong(entries: &[Entry]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (entry, finding) in findings(entries) {
        let mut say = |what: String| wrong.push(format!("{}: a finding's {what}", entry.name));
        if !SECTIONS.iter().any(|(key, _)| *key == finding.section) {
            let known = SECTIONS.map(|(key, _)| key).join(", ");
            say(format!(
                "section is {:?}, not one of {known}",
                finding.section
            ));
        }
        for (field, text) in [
            ("where", &finding.place),
            ("wrong", &finding.wrong),
            ("reproducer", &finding.reproducer),
        ] {
            if text.trim().is_empty() {
                say(format!("{field} is empty"));
            }
            if text.contains('\n') {
                say(format!(
                    "{field} has several lines, which no cell of a table has"
                ));
            }
        }
        for number in &finding.also {
            let mut others = entries.iter().filter(|other| other.name != entry.name);
            if !others.any(|other| other.number() == number) {
                say(format!(
                    "`also` names {number:?}, and no other patch has this number"
                ));
            }
        }
    }
    wrong
}

/// A table for each section, and the patches that mend nothing, so that a forgotten finding shows.
pub fn by_section(entries: &[Entry]) -> String {
    let mut page = String::new();
    for (key, heading) in SECTIONS {
        let of_section: Vec<_> = findings(entries)
            .filter(|(_, finding)| finding.section == key)
            .collect();
        if of_section.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "## {heading}\n\n| where | what is wrong | smallest reproducer | patch |\n|---|---|---|---|\n"
        );
        for (entry, finding) in of_section {
            row(
                &mut page,
                &[
                    &finding.place,
                    &finding.wrong,
                    &finding.reproducer,
                    &numbers(entry, finding),
                ],
            );
        }
        page.push('\n');
    }
    let mends = |entry: &Entry| {
        !entry.findings.is_empty()
            || findings(entries)
                .any(|(_, other)| other.also.iter().any(|also| also == entry.number()))
    };
    let others: Vec<_> = entries
        .iter()
        .filter(|entry| !mends(entry))
        .map(|entry| format!("`{}`", entry.name))
        .collect();
    if !others.is_empty() {
        let _ = writeln!(
            page,
            "Patches that add something and mend no fault: {}.",
            others.join(", ")
        );
    }
    page
}

/// One table in the order of the patches, without the reproducers.
pub fn by_patch(entries: &[Entry]) -> String {
    let mut page = "| patch | what was wrong | where |\n|---|---|---|\n".to_owned();
    for (entry, finding) in findings(entries) {
        row(
            &mut page,
            &[&numbers(entry, finding), &finding.wrong, &finding.place],
        );
    }
    page
}

fn findings(entries: &[Entry]) -> impl Iterator<Item = (&Entry, &Finding)> {
    entries
        .iter()
        .flat_map(|entry| entry.findings.iter().map(move |finding| (entry, finding)))
}

/// The patches that mend it, that of its entry first.
fn numbers(entry: &Entry, finding: &Finding) -> String {
    let also = finding.also.iter().map(String::as_str);
    let numbers: Vec<_> = std::iter::once(entry.number()).chain(also).collect();
    numbers.join(", ")
}

/// A `|` ends a cell wherever it stands, in code too.
fn row(page: &mut String, cells: &[&str]) {
    for cell in cells {
        let _ = write!(page, "| {} ", cell.trim().replace('|', "\\|"));
    }
    page.push_str("|\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, findings: Vec<Finding>) -> Entry {
        Entry {
            name: name.to_owned(),
            fixes: String::new(),
            proof: Vec::new(),
            upstream: String::new(),
            drop_when: String::new(),
            findings,
        }
    }

    fn finding(section: &str, place: &str, also: &[&str]) -> Finding {
        Finding {
            section: section.to_owned(),
            place: place.to_owned(),
            wrong: "a | b".to_owned(),
            reproducer: "`f()`".to_owned(),
            also: also.iter().map(|&number| number.to_owned()).collect(),
        }
    }

    fn series() -> [Entry; 4] {
        [
            entry("0001-a", vec![finding("cpu", "c", &["0003"])]),
            entry("0002-b", vec![]),
            entry("0003-c", vec![]),
            entry(
                "0004-d",
                vec![finding("metal-host", "d", &[]), finding("cpu", "e", &[])],
            ),
        ]
    }

    #[test]
    fn findings_are_grouped_by_section_in_the_order_of_the_series() {
        assert_eq!(wrong(&series()), [] as [&str; 0]);
        assert_eq!(
            by_section(&series()),
            "\
## Metal: host

| where | what is wrong | smallest reproducer | patch |
|---|---|---|---|
| d | a \\| b | `f()` | 0004 |

## CPU

| where | what is wrong | smallest reproducer | patch |
|---|---|---|---|
| c | a \\| b | `f()` | 0001, 0003 |
| e | a \\| b | `f()` | 0004 |

Patches that add something and mend no fault: `0002-b`.
"
        );
    }

    #[test]
    fn the_changelog_has_a_line_for_each_finding() {
        assert_eq!(
            by_patch(&series()),
            "\
| patch | what was wrong | where |
|---|---|---|
| 0001, 0003 | a \\| b | c |
| 0004 | a \\| b | d |
| 0004 | a \\| b | e |
"
        );
    }

    #[test]
    fn a_finding_that_is_not_whole_is_named_with_its_patch() {
        let mut entries = series();
        entries[0].findings[0].section = "gpu".to_owned();
        entries[0].findings[0].also = vec!["0001".to_owned(), "0009".to_owned()];
        entries[3].findings[0].place = " ".to_owned();
        entries[3].findings[1].wrong = "a\nb".to_owned();
        let wrong = wrong(&entries);
        assert_eq!(wrong.len(), 5, "{wrong:#?}");
        for (line, parts) in wrong.iter().zip([
            ["0001-a", "\"gpu\", not one of metal-kernels"],
            ["0001-a", "`also` names \"0001\""],
            ["0001-a", "`also` names \"0009\""],
            ["0004-d", "where is empty"],
            ["0004-d", "wrong has several lines"],
        ]) {
            assert!(
                parts.iter().all(|part| line.contains(part)),
                "{line}: {parts:?}"
            );
        }
    }
}
