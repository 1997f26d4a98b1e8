//! docs/ops.md says what the devices of this build say.

use std::fs;
use std::path::Path;

use backend_ops::cases::Set;
use backend_ops::support::{Query, Table};
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
    assert_eq!(
        known.with_columns_of(&committed).to_string(),
        text,
        "make it again with the command in its head"
    );
}
