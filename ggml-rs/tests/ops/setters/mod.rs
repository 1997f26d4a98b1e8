//! Every request that a node can carry (staging, source precision, route, hint, float sums, a backward's staging and route), on every
//! device, for every type of weights and activations: a device that takes it keeps it, by values that show where it does not, and one
//! that does not refuses, with the request's name and a way out. `docs/setters.md` is what this saw.

mod inputs;
mod moved;
mod probe;
mod requests;
mod table;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use ggml_rs::{Device, RegistryOptions};
use table::Table;

/// Set for a child that switches the tensor API on, which has to happen before there are devices.
const TENSOR_API: &str = "SETTERS_TENSOR_API";
/// Set to write the table instead of comparing it.
const UPDATE: &str = "SETTERS_UPDATE";

#[test]
fn a_request_is_kept_or_refused() {
    let child = cfg!(all(feature = "metal-sim", not(target_os = "macos"))).then(start_child);
    let (mut seen, mut faults) = (Table::default(), Vec::new());
    for device in Device::all().unwrap() {
        probe::device(device, device_column(device), &mut seen, &mut faults);
    }
    assert!(faults.is_empty(), "{}: {faults:#?}", faults.len());
    if let Some(child) = child {
        seen.merge(&with_tensor_api(child));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/setters.md");
    if env::var_os(UPDATE).is_some() {
        fs::write(&file, seen.to_string()).unwrap();
        return;
    }
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(
        seen.only_columns_of(&text).to_string(),
        text,
        "docs/setters.md: write it again with {UPDATE}=1 cargo test -p ggml-rs --test ops setters::"
    );
}

fn device_column(device: Device) -> &'static str {
    match (device.is_simulated(), device.tensor_api()) {
        (true, Some(true)) => table::TENSOR,
        (true, _) => table::METAL,
        _ => device.name(),
    }
}

/// A process with the tensor API.
fn start_child() -> Child {
    Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "setters::a_child_with_the_tensor_api",
            "--ignored",
            "--nocapture",
        ])
        .env(TENSOR_API, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What it saw.
fn with_tensor_api(child: Child) -> Table {
    let child = child.wait_with_output().unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{output}\n{errors}");
    Table::parse_cells(&output)
}

#[test]
#[ignore = "started by a_request_is_kept_or_refused, in a process of its own"]
fn a_child_with_the_tensor_api() {
    assert!(env::var_os(TENSOR_API).is_some());
    let mut options = RegistryOptions::default();
    options.tensor_api = Some(true);
    // SAFETY: this process has one test, and no other thread uses the environment.
    unsafe { options.install() }.unwrap();
    let device = Device::by_name("MTL0").unwrap();
    assert_eq!(device.tensor_api(), Some(true));
    let (mut seen, mut faults) = (Table::default(), Vec::new());
    probe::device(device, table::TENSOR, &mut seen, &mut faults);
    assert!(faults.is_empty(), "{}: {faults:#?}", faults.len());
    print!("{}", seen.cells());
}
