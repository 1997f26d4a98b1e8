//! docs/ops.md says what the devices of this build say, and pages that list some of it list the same.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use backend_ops::case::{CaseGraph, Choices};
use backend_ops::cases::Set;
use backend_ops::support::{Alone, Query, Table, document};
use ggml_rs::Device;

fn file() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ops.md");
    fs::read_to_string(path).expect("docs/ops.md is there")
}

/// What the devices here say, the built-in simulated one with its tensor API off, as everywhere but on an Apple GPU.
fn asked() -> Table {
    let all_devices = Device::all().expect("every build has devices");
    let query = Query {
        cases: Set::Upstream.cases(),
        devices: all_devices.clone(),
        all_devices,
        seed: 1,
    };
    query.table()
}

/// The columns of devices that are not here are taken as they stand: a Mac has no simulated device, and not every machine has
/// OpenBLAS. But they must be there.
#[test]
fn the_table_of_operations_is_up_to_date() {
    let text = file();
    let committed = Table::parse(&text).expect("a table");
    for device in ["CPU", "Metal (simulated)", "BLAS"] {
        let columns = committed.devices();
        assert!(
            columns.iter().any(|name| name == device),
            "{device}: {columns:?}"
        );
    }
    let asked = asked();
    for device in committed.devices() {
        if !asked.devices().contains(device) {
            eprintln!("{device} is not here: its column is not checked");
        }
    }
    // A real Metal device has a column of its own, which is nobody's business here.
    let known = asked.only(committed.devices());
    let known = known.with_columns_of(&committed);
    assert_eq!(
        document(&known, alone(&known).as_ref(), Some(&text)),
        text,
        "make it again with the command in its head"
    );
}

fn alone(table: &Table) -> Option<Alone> {
    let devices = Device::all().expect("every build has devices");
    let metal = Alone::device(&devices)?;
    Some(Alone::of(table, metal, &Set::Quick.cases()))
}

/// The pages that say what needs a scheduler on Metal say all of it.
#[test]
fn pages_list_what_metal_alone_does_not_run() {
    let table = Table::parse(&file()).expect("a table");
    let Some(alone) = alone(&table) else {
        eprintln!("no simulated device here: the lists are not checked");
        return;
    };
    let (operations, gradients) = (alone.operations(), alone.gradients());
    for (page, lists) in [
        ("docs/guide/devices.md", &[&operations, &gradients][..]),
        ("docs/guide/training.md", &[&gradients]),
        ("README.md", &[&gradients]),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
        let text = fs::read_to_string(path).expect("a page");
        let words: Vec<_> = text.split_whitespace().collect();
        let text = words.join(" ");
        for list in lists {
            assert!(text.contains(*list), "{page} does not list {list}");
        }
        assert!(text.contains("ops.md"), "{page} does not name docs/ops.md");
    }
}

/// A refusal without a condition of ours says only that the device refuses. No case of any operation meets one.
#[test]
fn every_refusal_names_its_reason() {
    let devices = Device::all().expect("every build has devices");
    let mut counts = BTreeMap::new();
    for device in devices.into_iter().filter(|device| device.name() != "CPU") {
        for case in Set::Upstream.cases() {
            let Ok(built) = CaseGraph::new(&*case, Choices::default()) else {
                continue;
            };
            for refused in device.unsupported(&built.graph) {
                assert!(
                    !refused.reason.contains("supports_op"),
                    "{}: {refused}",
                    case.name()
                );
                let reason = without_numbers(&refused.reason);
                *counts
                    .entry((device.name(), refused.op, reason))
                    .or_insert(0) += 1;
            }
        }
    }
    for ((device, op, reason), count) in counts {
        println!("{count:5} {device} {op}: {reason}");
    }
}

/// Reasons that differ in a size are one.
fn without_numbers(reason: &str) -> String {
    let words = reason.split(' ').map(|word| {
        let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
        if digits.is_empty() || digits.parse::<u64>().is_err() {
            word.to_owned()
        } else {
            word.replace(digits, "N")
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
