//! The machine, as its own commands describe it.

use std::process::Command;

use super::step::Tested;

/// Name, command and arguments. A command that a host does not have is reported as such.
const COMMANDS: [(&str, &str, &[&str]); 6] = [
    ("OS", "sw_vers", &[]),
    ("kernel", "uname", &["-srm"]),
    ("chip", "sysctl", &["-n", "machdep.cpu.brand_string"]),
    ("C++ compiler", "c++", &["--version"]),
    ("Metal compiler", "xcrun", &["metal", "--version"]),
    ("rustc", "rustc", &["--version"]),
];

/// What the machine and the runs say about where they ran.
pub fn collect(tested: &[Tested]) -> Vec<(String, String)> {
    let device = |field: fn(&Tested) -> &str| {
        let known = tested.iter().map(field).find(|text| !text.is_empty());
        known
            .unwrap_or("not known: no run reported a case")
            .to_owned()
    };
    let mut facts = vec![
        ("device".to_owned(), device(|run| &run.device)),
        ("build hash".to_owned(), device(|run| &run.build_hash)),
    ];
    facts.extend(COMMANDS.map(|(name, command, args)| (name.to_owned(), ask(command, args))));
    facts
}

fn ask(command: &str, args: &[&str]) -> String {
    match Command::new(command).args(args).output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines()
                .take(3)
                .map(str::trim)
                .collect::<Vec<_>>()
                .join("; ")
        }
        Ok(output) => format!("not known: {command} ended with {}", output.status),
        Err(error) => format!("not known: {command}: {error}"),
    }
}
