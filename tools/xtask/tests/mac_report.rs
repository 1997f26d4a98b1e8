//! A report of made-up data, so that every way a step can end is seen once.

use xtask::mac_report::{Ending, Options, Ran, Report, Section, Tested, collect, render};

fn tested(name: &str, arguments: &str, ending: Ending, ran: Ran) -> Tested {
    Tested {
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        ending,
        ran,
        device: "Imagined M0".to_owned(),
        build_hash: "abc".to_owned(),
        tensor_api: "off".to_owned(),
        seconds: 1.25,
        complaint: String::new(),
    }
}

fn made_up() -> Report {
    let failed = vec![(
        "OUT_PROD(b_range=150000)".to_owned(),
        "NaN at 3 | inf".to_owned(),
    )];
    let mut crashed = tested(
        "upstream's cases",
        "test --set upstream",
        Ending::Signal,
        Ran {
            passed: 7,
            failed: Vec::new(),
            unsupported: 2,
        },
    );
    crashed.complaint = "assertion failed\n".to_owned();
    Report {
        simulated: false,
        partial: None,
        facts: vec![
            ("device".to_owned(), "Imagined M0".to_owned()),
            ("chip".to_owned(), "not known: sysctl".to_owned()),
        ],
        tested: vec![
            tested(
                "gate",
                "test --staging float",
                Ending::Code(0),
                Ran {
                    passed: 37,
                    ..Ran::default()
                },
            ),
            tested(
                "gate",
                "test --staging half",
                Ending::Code(1),
                Ran {
                    passed: 36,
                    failed,
                    unsupported: 0,
                },
            ),
            tested(
                "gate",
                "test --tensor on",
                Ending::NotRun("no such file".to_owned()),
                Ran::default(),
            ),
            crashed,
        ],
        sections: vec![Section {
            title: "Staging bench".to_owned(),
            command: "cargo bench".to_owned(),
            ending: Ending::Code(101),
            output: "it broke\n".to_owned(),
            seconds: 12.0,
        }],
    }
}

#[test]
fn every_ending_is_reported_as_it_was() {
    assert!(!made_up().is_clean());
    insta::assert_snapshot!(render(&made_up()));
}

#[test]
fn a_simulated_report_says_so_at_the_top_and_at_every_table() {
    let mut report = made_up();
    report.simulated = true;
    let text = render(&report);
    let label = "simulated device: says nothing about Apple hardware";
    assert!(text.lines().nth(2).unwrap().contains(label), "{text}");
    let lines: Vec<_> = text.lines().collect();
    let tables: Vec<_> = (0..lines.len())
        .filter(|at| lines[*at].starts_with("| ---"))
        .collect();
    assert_eq!(tables.len(), 2);
    for table in tables {
        assert!(lines[table - 3].contains(label), "{text}");
    }
    assert!(!render(&made_up()).contains("simulated"));
}

#[test]
fn a_host_that_is_no_mac_must_say_simulated() {
    let refusal = collect(&Options {
        simulated: cfg!(target_os = "macos"),
        ..Options::default()
    });
    let refusal = refusal.unwrap_err().to_string();
    assert!(refusal.contains("simulated"), "{refusal}");
}
