//! The report as Markdown.

use std::fmt::Write as _;

use super::{Ending, Report, Section, Tested};

/// Stands at the top and at every table of a report that is not a Mac's.
const SIMULATED: &str = "**simulated device: says nothing about Apple hardware**";

/// The whole report.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut text = String::from("# ggml-rs on Metal\n\n");
    if report.simulated {
        line(&mut text, &format!("{SIMULATED}\n"));
    }
    if let Some(params) = &report.partial {
        line(
            &mut text,
            &format!("Partial: only cases whose parameters match `{params}`.\n"),
        );
    }
    table(&mut text, report, &["", ""]);
    for (name, value) in &report.facts {
        row(&mut text, &[name, value]);
    }
    text.push_str("\n## Cases\n\n");
    table(
        &mut text,
        report,
        &[
            "run",
            "arguments",
            "tensor API",
            "passed",
            "failed",
            "unsupported",
            "seconds",
            "ended",
        ],
    );
    for run in &report.tested {
        tested(&mut text, run);
    }
    for run in &report.tested {
        details(&mut text, run);
    }
    for section in &report.sections {
        commands(&mut text, report, section);
    }
    text
}

fn line(text: &mut String, content: &str) {
    text.push_str(content);
    text.push('\n');
}

fn table(text: &mut String, report: &Report, columns: &[&str]) {
    if report.simulated {
        line(text, &format!("{SIMULATED}\n"));
    }
    row(text, columns);
    row(text, &vec!["---"; columns.len()]);
}

fn row(text: &mut String, cells: &[&str]) {
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| cell.replace('|', "\\|").replace('\n', " "))
        .collect();
    line(text, &format!("| {} |", cells.join(" | ")));
}

fn tested(text: &mut String, run: &Tested) {
    let numbers = if matches!(run.ending, Ending::NotRun(_)) {
        // No number stands for a run that did not happen.
        ["-"; 4].map(str::to_owned)
    } else {
        [
            run.ran.passed.to_string(),
            run.ran.failed.len().to_string(),
            run.ran.unsupported.to_string(),
            format!("{:.1}", run.seconds),
        ]
    };
    let [passed, failed, unsupported, seconds] = &numbers;
    let cells = [
        &run.name,
        &run.arguments,
        &run.tensor_api,
        passed,
        failed,
        unsupported,
        seconds,
    ];
    let ended = ended(&run.ending);
    row(text, &[&cells.map(String::as_str)[..], &[&ended]].concat());
}

fn ended(ending: &Ending) -> String {
    match ending {
        Ending::NotRun(reason) => format!("NOT RUN: {reason}"),
        Ending::Signal => "CRASHED (ended by a signal)".to_owned(),
        Ending::Code(code) => format!("exit code {code}"),
    }
}

/// Failing cases, and what a run said that did not end well.
fn details(text: &mut String, run: &Tested) {
    if !run.ran.failed.is_empty() {
        let _ = writeln!(text, "\n### Failing: {} `{}`\n", run.name, run.arguments);
        for (case, reason) in &run.ran.failed {
            let _ = writeln!(text, "- `{case}`: {reason}");
        }
    }
    if !run.complaint.is_empty() {
        let _ = writeln!(text, "\n### Trouble: {} `{}`\n", run.name, run.arguments);
        let _ = writeln!(text, "```text\n{}\n```", run.complaint.trim_end());
    }
}

fn commands(text: &mut String, report: &Report, section: &Section) {
    let _ = writeln!(text, "\n## {}\n", section.title);
    if report.simulated {
        line(text, &format!("{SIMULATED}\n"));
    }
    let ended = ended(&section.ending);
    let _ = writeln!(
        text,
        "`{}`: {ended}, {:.0} seconds with building\n",
        section.command, section.seconds
    );
    let _ = writeln!(text, "```text\n{}\n```", section.output.trim_end());
}
