//! The verifier on kernels with exactly one fault each, and on correct twins of them: `verifier/faulty.metal`.

#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use addr2line::Loader;
use metal_sim::Build;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verifier");
const OUT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/verifier");
const KERNELS: &str = include_str!("verifier/faulty.metal");

/// A tree as ggml's, with our one kernel file in it.
fn tree() -> PathBuf {
    let tree = Path::new(OUT).join("tree");
    let metal = tree.join("src/ggml-metal");
    std::fs::create_dir_all(metal.join("kernels")).unwrap();
    let libraries = "#define GGML_METAL_LIBS X(FAULTY, faulty)\n";
    std::fs::write(metal.join("ggml-metal-device.m"), libraries).unwrap();
    for (name, place) in [
        ("faulty.metal", "kernels/faulty.metal"),
        ("ggml-metal-impl.h", "ggml-metal-impl.h"),
    ] {
        std::fs::copy(Path::new(HERE).join(name), metal.join(place)).unwrap();
    }
    tree
}

/// The program that dispatches them.
fn driver() -> &'static Path {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let objects = Build::new(tree(), Path::new(OUT).join("out"))
            .verified(true)
            .compile_kernels()
            .unwrap_or_else(|error| panic!("{error}"));
        let driver = Path::new(OUT).join("driver");
        let cpp = concat!(env!("CARGO_MANIFEST_DIR"), "/cpp/runtime");
        let status = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
            .args(["-std=c++17", "-DMETAL_SIM_VERIFIER", "-I", cpp])
            .arg(Path::new(HERE).join("driver.cpp"))
            .args(objects.iter().map(|object| &object.path))
            .args(["-lpthread", "-ldl", "-o"])
            .arg(&driver)
            .status()
            .unwrap();
        assert!(status.success());
        driver
    })
}

/// Line of the kernel file that ends with `//! label`.
fn line_of(label: &str) -> u32 {
    let end = format!("//! {label}");
    let index = KERNELS.lines().position(|line| line.ends_with(&end));
    1 + index.unwrap_or_else(|| panic!("no line ends with {end}")) as u32
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    access: &'static str,
    /// Of the kernel file.
    line: u32,
    lane: u32,
    threadgroup: String,
}

#[derive(Debug)]
struct Finding {
    detector: &'static str,
    kernel: String,
    other_kernel: String,
    same_value: bool,
    at: Place,
    other: Option<Place>,
    /// Space, block, name.
    memory: String,
    offset: i64,
    bytes: u64,
    line: u32,
}

#[derive(Debug)]
struct Report {
    findings: Vec<Finding>,
    /// How often a fault was seen that is not among them.
    lost: u64,
    /// Lines, and how often lanes met there.
    barriers: Vec<(u32, u64)>,
    fault: Option<String>,
    writer: Option<(String, Place)>,
    value: f32,
}

const DETECTORS: [&str; 8] = [
    "",
    "uninitialised",
    "out of bounds",
    "race in a simdgroup",
    "race in a threadgroup",
    "race in the grid",
    "race of dispatches",
    "divergent barrier",
];
const ACCESSES: [&str; 4] = ["", "read", "write", "atomic"];
const WHOLE_SIMDGROUP: u32 = 0x8000_0000;

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}

/// `NAME=ACCESS,PC,LANE,GROUP`; the line is that of the innermost frame in a kernel file.
fn place(text: &str, lines: &Loader) -> Option<Place> {
    let fields: Vec<&str> = text.split_once('=').unwrap().1.split(',').collect();
    let access = ACCESSES[number::<usize>(fields[0])];
    if access.is_empty() {
        return None;
    }
    let pc = u64::from_str_radix(fields[1], 16).unwrap();
    let mut frames = lines.find_frames(pc - 1).unwrap();
    let mut line = 0;
    while let Some(frame) = frames.next().unwrap() {
        let location = frame.location.unwrap();
        if location.file.is_some_and(|file| file.ends_with(".metal")) {
            line = location.line.unwrap_or(0);
            break;
        }
    }
    Some(Place {
        access,
        line,
        lane: u32::from_str_radix(fields[2], 16).unwrap(),
        threadgroup: fields[3].to_owned(),
    })
}

fn finding(fields: &[&str], lines: &Loader) -> Finding {
    let memory: Vec<&str> = fields[7].split_once('=').unwrap().1.split(',').collect();
    Finding {
        detector: DETECTORS[number::<usize>(fields[1])],
        kernel: fields[2].to_owned(),
        other_kernel: fields[3].to_owned(),
        same_value: fields[4] == "same=1",
        at: place(fields[5], lines).unwrap_or_else(|| Place {
            access: "",
            line: 0,
            lane: 0,
            threadgroup: String::new(),
        }),
        other: place(fields[6], lines),
        memory: format!(
            "{} {} {}",
            ["none", "device", "threadgroup"][number::<usize>(memory[0])],
            memory[1],
            memory[2]
        ),
        offset: number(memory[3]),
        bytes: number(memory[5]),
        line: number(fields[8].strip_prefix("line=").unwrap()),
    }
}

/// What the verifier says of a run. Its process ends well unless a dispatch failed.
fn verify(arguments: &[&str]) -> Report {
    report(Command::new(driver()).args(arguments))
}

fn report(run: &mut Command) -> Report {
    let output = run.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{run:?}: {} {text} {errors}",
        output.status
    );
    let lines = Loader::new(driver()).unwrap();
    let mut report = Report {
        findings: Vec::new(),
        lost: 0,
        barriers: Vec::new(),
        fault: None,
        writer: None,
        value: f32::NAN,
    };
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[0] {
            "finding" => report.findings.push(finding(&fields, &lines)),
            "lost" => report.lost = number(fields[1]),
            "barrier" => report.barriers.push((number(fields[2]), number(fields[4]))),
            "fault" => report.fault = Some(fields[1].to_owned()),
            "writer" => {
                report.writer = Some((fields[1].to_owned(), place(fields[2], &lines).unwrap()));
            }
            "value" => report.value = number(fields[1]),
            _ => panic!("{text}"),
        }
    }
    report
}

/// The one finding of a run.
#[track_caller]
fn only(arguments: &[&str]) -> Finding {
    let mut report = verify(arguments);
    assert_eq!(report.findings.len(), 1, "{arguments:?}: {report:#?}");
    report.findings.remove(0)
}

#[track_caller]
fn silent(arguments: &[&str]) {
    let report = verify(arguments);
    assert!(
        report.findings.is_empty() && report.fault.is_none(),
        "{arguments:?}: {report:#?}"
    );
}

fn at(access: &'static str, label: &str, lane: u32) -> Place {
    in_group(access, label, lane, "0.0.0")
}

fn in_group(access: &'static str, label: &str, lane: u32, threadgroup: &str) -> Place {
    Place {
        access,
        line: line_of(label),
        lane,
        threadgroup: threadgroup.to_owned(),
    }
}

#[test]
fn a_read_of_threadgroup_memory_that_no_lane_wrote() {
    let found = only(&["kernel_uninitialised_threadgroup"]);
    assert_eq!(found.detector, "uninitialised");
    assert_eq!(found.kernel, "kernel_uninitialised_threadgroup");
    assert_eq!(found.at, at("read", "uninitialised-threadgroup", 31 - 7));
    assert_eq!(
        (found.memory.as_str(), found.offset, found.bytes),
        ("threadgroup 0 ", 28, 4)
    );
    silent(&["kernel_initialised_threadgroup"]);
    // Each threadgroup finds it unwritten.
    silent(&["groups=3", "kernel_initialised_threadgroup"]);

    let found = only(&["kernel_uninitialised_array"]);
    assert_eq!(found.at, at("read", "uninitialised-array", 31));
    assert_eq!(found.memory, "threadgroup -1 values");
}

#[test]
fn a_read_of_device_memory_that_nobody_wrote() {
    let found = only(&["kernel_uninitialised_device"]);
    assert_eq!(found.detector, "uninitialised");
    assert_eq!(found.at, at("read", "uninitialised-device", 5));
    assert_eq!((found.memory.as_str(), found.offset), ("device 0 dst", 20));
    silent(&["write-dst", "kernel_uninitialised_device"]);
    silent(&["kernel_copy", "kernel_uninitialised_device"]);
}

/// The kernel runs on, as on a GPU, though it reads what lies behind its tensor in the same buffer.
#[test]
fn a_read_beyond_a_tensor() {
    let report = verify(&["kernel_reads_beyond"]);
    let [found] = &report.findings[..] else {
        panic!("{report:#?}")
    };
    assert_eq!(report.fault, None);
    assert_eq!(found.detector, "out of bounds");
    assert_eq!(found.at, at("read", "reads-beyond", 31));
    assert_eq!((found.memory.as_str(), found.offset), ("device 1 src", 128));
    silent(&["groups=2", "kernel_copy"]);
}

/// It is stopped before it happens.
#[test]
fn a_write_beyond_a_tensor() {
    let report = verify(&["kernel_writes_beyond"]);
    let [found] = &report.findings[..] else {
        panic!("{report:#?}")
    };
    assert_eq!(found.detector, "out of bounds");
    assert_eq!(found.at, at("write", "writes-beyond", 31));
    assert_eq!((found.memory.as_str(), found.offset), ("device 0 dst", 128));
    let fault = report.fault.unwrap();
    assert!(
        fault.contains("writes 4 bytes at byte 128 of buffer 0 dst, which has 128"),
        "{fault}"
    );
}

#[test]
fn an_access_beyond_threadgroup_memory() {
    let found = only(&["kernel_reads_beyond_threadgroup"]);
    assert_eq!(found.detector, "out of bounds");
    assert_eq!(found.at, at("read", "reads-beyond-threadgroup", 31));
    assert_eq!(
        (found.memory.as_str(), found.offset),
        ("threadgroup 0 ", 128)
    );

    let report = verify(&["kernel_writes_beyond_threadgroup"]);
    let [found] = &report.findings[..] else {
        panic!("{report:#?}")
    };
    assert_eq!(found.at, at("write", "writes-beyond-threadgroup", 31));
    let fault = report.fault.unwrap();
    assert!(
        fault.contains("writes 4 bytes at byte 128 of threadgroup memory"),
        "{fault}"
    );
}

#[test]
fn a_race_of_two_lanes_of_a_simdgroup() {
    let found = only(&["kernel_race_simdgroup"]);
    assert_eq!(found.detector, "race in a simdgroup");
    assert_eq!(found.at, at("read", "race-simdgroup-read", 1));
    assert_eq!(found.other, Some(at("write", "race-simdgroup-write", 0)));
    assert_eq!((found.memory.as_str(), found.offset), ("threadgroup 0 ", 0));
    for mode in ["hardware", "strict"] {
        silent(&[mode, "kernel_ordered_simdgroup"][usize::from(mode == "hardware")..]);
    }
}

#[test]
fn a_race_of_two_simdgroups() {
    let found = only(&["threads=64", "kernel_race_threadgroup"]);
    assert_eq!(found.detector, "race in a threadgroup");
    assert_eq!(found.at, at("read", "race-threadgroup-read", 32));
    assert_eq!(found.other, Some(at("write", "race-threadgroup-write", 0)));
    silent(&["threads=32", "kernel_race_threadgroup"]);
    silent(&["threads=64", "kernel_ordered_threadgroup"]);
}

#[test]
fn a_race_of_two_threadgroups() {
    let report = verify(&["write-dst", "groups=2", "kernel_race_grid"]);
    assert!(!report.findings.is_empty(), "{report:#?}");
    for found in &report.findings {
        assert_eq!(found.detector, "race in the grid");
        assert_eq!(found.at.line, line_of("race-grid"));
        assert_eq!((found.at.lane, found.at.threadgroup.as_str()), (0, "1.0.0"));
        let other = found.other.as_ref().unwrap();
        assert_eq!((other.lane, other.threadgroup.as_str()), (0, "0.0.0"));
        assert_eq!(other.line, line_of("race-grid"));
    }
    silent(&["write-dst", "kernel_race_grid"]);
    silent(&["write-dst", "groups=2", "kernel_atomic_grid"]);
}

#[test]
fn a_race_of_equal_values_is_told_apart() {
    let found = only(&["threads=16", "kernel_same_value"]);
    assert_eq!(found.detector, "race in a simdgroup");
    assert!(found.same_value);
    assert_eq!(found.at, at("write", "same-value", 1));
    assert_eq!(found.other, Some(at("write", "same-value", 0)));
    let found = only(&["threads=16", "kernel_last_one_wins"]);
    assert!(!found.same_value);
    assert_eq!(found.at, at("write", "last-one-wins", 1));
}

#[test]
fn a_barrier_that_orders_other_memory() {
    let found = only(&["threads=64", "groups=1", "kernel_wrong_flags"]);
    assert_eq!(found.detector, "race in a threadgroup");
    assert_eq!(found.at.line, line_of("wrong-flags-read"));
    assert_eq!(found.other.unwrap().line, line_of("wrong-flags-write"));
    silent(&["threads=64", "kernel_right_flags"]);
}

#[test]
fn a_missing_barrier_between_dispatches() {
    let report = verify(&["segment", "write-dst", "kernel_copy", "kernel_race_grid"]);
    assert!(!report.findings.is_empty(), "{report:#?}");
    for found in &report.findings {
        assert_eq!(found.detector, "race of dispatches");
        assert_eq!(found.kernel, "kernel_race_grid");
        assert_eq!(found.other_kernel, "kernel_copy");
        assert_eq!(found.at.line, line_of("race-grid"));
        assert_eq!(found.other, Some(at("write", "copy", 0)));
    }
    silent(&["write-dst", "kernel_copy", "kernel_race_grid"]);
    // Both read the same tensor.
    silent(&["segment", "groups=2", "kernel_copy"]);
}

#[test]
fn what_lockstep_hides_is_a_race_by_msl() {
    silent(&["kernel_lockstep"]);
    silent(&["order=1", "kernel_lockstep"]);
    let found = only(&["strict", "kernel_lockstep"]);
    assert_eq!(found.detector, "race in a simdgroup");
    assert_eq!(found.at, at("read", "lockstep-read", 1));
    assert_eq!(found.other, Some(at("write", "lockstep-write", 0)));

    silent(&["kernel_sum_as_barrier"]);
    let found = only(&["strict", "kernel_sum_as_barrier"]);
    assert_eq!(found.at.line, line_of("sum-as-barrier-read"));
    assert_eq!(found.other.unwrap().line, line_of("sum-as-barrier-write"));
}

#[test]
fn a_collective_operation_orders_only_the_lanes_that_take_part() {
    let found = only(&["kernel_half_met"]);
    assert_eq!(found.at, at("read", "half-met-read", 16));
    assert_eq!(found.other, Some(at("write", "half-met-write", 3)));
}

#[test]
fn a_matrix_is_moved_by_the_whole_simdgroup() {
    let report = verify(&["wide-dst", "kernel_matrix_race"]);
    let lane_0 = report.findings.iter().find(|found| {
        found.detector == "race in a simdgroup"
            && found.at == at("read", "matrix-race-load", WHOLE_SIMDGROUP)
    });
    let other = lane_0.and_then(|found| found.other.clone());
    assert_eq!(other.map(|other| other.lane), Some(0), "{report:#?}");
    silent(&["wide-dst", "kernel_matrix_ordered"]);
}

#[test]
fn a_result_that_depends_on_the_order_is_blamed_on_its_last_writer() {
    let ascending = verify(&["threads=64", "kernel_last_one_wins"]);
    let reversed = verify(&["threads=64", "order=1", "kernel_last_one_wins"]);
    assert_eq!((ascending.value, reversed.value), (64.0, 1.0));
    for (report, lane) in [(ascending, 63), (reversed, 0)] {
        let blamed = Some((
            "kernel_last_one_wins".to_owned(),
            at("write", "last-one-wins", lane),
        ));
        assert_eq!(report.writer, blamed);
        assert!(!report.findings.is_empty());
    }
}

/// Faults that are known would hide others, if nobody counted what there is no room for.
#[test]
fn faults_beyond_the_list_are_counted() {
    let report = verify(&["findings=4096", "kernel_initialised_threadgroup"]);
    assert_eq!((report.findings.len(), report.lost), (4096, 0));
    let report = verify(&["findings=4097", "kernel_uninitialised_threadgroup"]);
    assert_eq!((report.findings.len(), report.lost), (4096, 2));
    // What is in the list already needs no room.
    let report = verify(&["findings=4096", "findings=4096", "kernel_copy"]);
    assert_eq!((report.findings.len(), report.lost), (4096, 0));
}

#[test]
fn more_threads_than_one_are_refused() {
    let asked = |threads| {
        let mut run = Command::new(driver());
        report(run.arg("kernel_copy").env("METAL_SIM_THREADS", threads)).fault
    };
    assert_eq!(asked("1"), None);
    let refused = "METAL_SIM_THREADS=2: this simulator has its verifier, which runs on one thread";
    assert!(asked("2").is_some_and(|fault| fault.contains(refused)));
}

#[test]
fn lanes_at_different_barriers() {
    let report = verify(&["threads=64", "kernel_divergent"]);
    let [found] = &report.findings[..] else {
        panic!("{report:#?}")
    };
    assert_eq!(found.detector, "divergent barrier");
    assert_eq!(found.line, line_of("divergent"));
    assert!(report.fault.unwrap().contains("kernel_divergent"));
}

#[test]
fn a_barrier_is_listed_and_missed_when_it_is_removed() {
    let line = line_of("threadgroup-barrier");
    let report = verify(&["threads=64", "groups=2", "kernel_ordered_threadgroup"]);
    assert_eq!(report.barriers, [(line, 2)]);

    let remove = format!("remove=faulty.metal:{line}");
    let report = verify(&[&remove, "threads=64", "kernel_ordered_threadgroup"]);
    let [found] = &report.findings[..] else {
        panic!("{report:#?}")
    };
    assert_eq!(found.detector, "race in a threadgroup");
    assert_eq!(found.at.line, line_of("removed-barrier-read"));
    assert_eq!(
        found.other.as_ref().unwrap().line,
        line_of("removed-barrier-write")
    );
    assert_eq!(report.barriers, []);

    let line = line_of("simdgroup-barrier");
    let report = verify(&["kernel_ordered_simdgroup"]);
    assert_eq!(report.barriers, [(line, 1)]);
    let remove = format!("remove=faulty.metal:{line}");
    assert_eq!(
        only(&[&remove, "kernel_ordered_simdgroup"]).detector,
        "race in a simdgroup"
    );
}
