//! The command line contract, on the binary itself: usage errors, exit codes, output formats, and cases on the CPU.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output};

const CONT: &str = "CONT(type=f32,ne=[2,1,1,1],use_view_slice=0)";

fn backend_ops(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_backend-ops"))
        .args(args)
        .output()
        .expect("the binary of this package runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Exit code 2 and one line on stderr that holds all of `parts`.
#[track_caller]
fn assert_refused(args: &[&str], parts: &[&str]) {
    let output = backend_ops(args);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
    for part in parts {
        assert!(
            message.contains(part),
            "{args:?} should say {part:?}: {message}"
        );
    }
}

#[test]
fn an_unknown_operation_lists_those_that_have_cases() {
    assert_refused(
        &["test", "-o", "OUT_PORD"],
        &["OUT_PORD", "OUT_PROD", "MUL_MAT"],
    );
}

#[test]
fn an_unknown_device_lists_those_that_exist() {
    assert_refused(&["test", "-b", "MTL9", "-o", "CONT"], &["MTL9", "CPU"]);
    assert_refused(
        &["test", "--require", "CUDA0", "-o", "CONT"],
        &["--require", "CUDA0", "CPU"],
    );
}

#[test]
#[cfg(not(any(feature = "blas", target_os = "macos")))]
fn the_comparison_with_blas_says_what_it_needs() {
    assert_refused(
        &["perf", "-o", "OUT_PROD", "--set", "blas"],
        &["no device BLAS", "libopenblas-dev", "--features blas"],
    );
}

#[test]
fn a_bad_regex_is_explained() {
    assert_refused(&["test", "-p", "m=["], &["m=[", "unclosed character class"]);
}

#[test]
fn an_unbalanced_case_string_is_explained() {
    assert_refused(
        &["test", "-o", "CONT(type=f32)x"],
        &["unbalanced parentheses"],
    );
}

#[test]
fn a_selection_without_cases_is_no_pass() {
    assert_refused(&["test", "-o", "OUT_PROD", "-p", "m=77777"], &["m=77777"]);
    assert_refused(&["test", "-o", "CONT(type=none)"], &["-o"]);
}

#[test]
fn gradients_are_checked_on_the_cpu_unless_a_device_is_named() {
    let output = backend_ops(&["grad", "-o", "SQR,ARGMAX", "--output", "csv"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows = String::from_utf8_lossy(&output.stdout).into_owned();
    let of = |op: &str| {
        let op = format!("\"CPU\",\"{op}\"");
        let rows: Vec<_> = rows.lines().filter(|row| row.starts_with(&op)).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.contains("\"grad\"")));
        rows.iter()
            .filter(|row| row.contains("\"grad\",\"1\",\"\""))
            .count()
    };
    // The place of a maximum has no gradient: that is no pass.
    assert!(of("SQR") > 0 && of("ARGMAX") == 0, "{rows}");
    assert!(stderr(&output).contains("ops with a backward in a case that passed: "));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for args in [&["-j", "0"][..], &["--set", "blas"]] {
        let output = backend_ops(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            stderr(&output).starts_with("error: "),
            "{args:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_backend_library_that_cannot_be_loaded_is_named() {
    assert_refused(
        &["test", "-o", "CONT", "--backend-lib", "/nonexistent.so"],
        &["/nonexistent.so"],
    );
}

#[test]
fn help_states_examples_and_exit_codes() {
    let output = backend_ops(&["--help"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0));
    for part in [
        "Examples:",
        "--set gate",
        "Exit codes:",
        "0  every case that ran passed",
        "simulated",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !text.contains("backend-lib"),
        "an internal flag stays hidden"
    );
}

#[test]
fn operations_are_listed_with_and_without_a_mode() {
    for args in [&["--list-ops"][..], &["test", "--list-ops"]] {
        let output = backend_ops(args);
        assert_eq!(output.status.code(), Some(0));
        assert!(
            stdout(&output).contains("  OUT_PROD\n"),
            "{}",
            stdout(&output)
        );
    }
    let coverage = stdout(&backend_ops(&["--show-coverage"]));
    assert!(
        coverage.contains("✓ OUT_PROD") && coverage.contains("✗ FLASH_ATTN_BACK"),
        "{coverage}"
    );
}

#[test]
fn a_case_passes_on_the_cpu() {
    let output = backend_ops(&["test", "-b", "CPU", "-o", CONT]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for part in [
        &format!("  {CONT}: OK\n"),
        "seed 1\n",
        "  run 1, unsupported 0, total 1\n",
        "  1/1 tests passed\n",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours in a pipe: {text:?}");
}

#[test]
fn numbers_of_threads_are_compared_on_the_cpu_alone() {
    let case = ["threads", "-o", "CROSS_ENTROPY_LOSS"];
    let output = backend_ops(&case);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    let (passed, run) = tally(&text);
    assert!(passed == run && run > 0, "{text}");
    // Nothing that the CPU runs: nothing is compared.
    let nothing = backend_ops(&["threads", "-o", "CPY", "-p", "type_src=q8_0,type_dst=f16"]);
    assert_eq!(nothing.status.code(), Some(2), "{}", stdout(&nothing));
    assert_refused(
        &[&case[..], &["-b", "MTL0"]].concat(),
        &["MTL0", "run it with -b CPU"],
    );
}

/// A broken sum of counts shows here: the CPU copies these types to F32 and not to F16.
#[test]
fn the_cpu_takes_what_it_can_and_the_rest_is_counted_by_reason() {
    let output = backend_ops(&[
        "test",
        "-b",
        "CPU",
        "-o",
        "CPY",
        "-p",
        "type_src=q[48]_0,type_dst=f",
    ]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for part in [" 4 q4_0 to f16\n", " 4 q8_0 to f16\n"] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
    let mut unsupported = 0;
    for line in text.lines() {
        if let Some(reason) = line.trim().strip_prefix("unsupported: ") {
            let count = reason.split_whitespace().next().expect("a count");
            unsupported += count.parse::<usize>().expect("a number");
        }
    }
    let refused = text.matches(": not supported [CPU] ").count();
    assert_eq!(unsupported, refused, "{text}");
    let (passed, run) = tally(&text);
    assert!(passed == run && run > 0, "{text}");
    let total = run + unsupported;
    let counts = format!("  run {run}, unsupported {unsupported}, total {total}\n");
    assert!(text.contains(&counts), "{counts}: {text}");
}

#[test]
fn a_device_that_supports_nothing_selected_proves_nothing() {
    let output = backend_ops(&[
        "test",
        "-b",
        "CPU",
        "-o",
        "CPY",
        "-p",
        "type_src=q8_0,type_dst=f16",
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stdout(&output).contains("  0/0 tests passed\n"));
    assert!(
        stderr(&output).contains("nothing ran"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_same_seed_gives_the_same_error() {
    let worst = |seed: &str| {
        let text = stdout(&backend_ops(&[
            "test", "-b", "CPU", "-o", "OUT_PROD", "-p", "m=127", "--seed", seed,
        ]));
        text.lines()
            .find(|line| line.contains("worst NMSE"))
            .map(str::to_owned)
            .expect("a worst case")
    };
    assert_eq!(worst("5"), worst("5"));
    assert_ne!(worst("5"), worst("6"));
}

#[test]
fn rows_are_alone_on_stdout() {
    for (format, lines) in [("csv", 2), ("json", 1)] {
        let output = backend_ops(&["test", "-b", "CPU", "-o", CONT, "--output", format]);
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(
            stderr(&output).contains("1/1 tests passed"),
            "people read stderr then: {}",
            stderr(&output)
        );
    }
    let sql = stdout(&backend_ops(&[
        "test", "-b", "CPU", "-o", CONT, "--output", "sql",
    ]));
    assert!(
        sql.starts_with("CREATE TABLE") && sql.matches("INSERT INTO").count() == 1,
        "{sql}"
    );
}

/// The tensor API is switched off because its kernel reads `b` unstaged: on devices that have it, half would pass.
const SIMDGROUP: [&str; 4] = ["test", "--tensor", "off", "-oOUT_PROD"];

#[test]
fn half_staging_overflows_and_the_report_says_how_to_repeat_it() {
    let output = backend_ops(
        &[
            &SIMDGROUP[..],
            &[
                "-b",
                "MTL0",
                "-p",
                "type_a=q8_0.*b_range",
                "--staging",
                "half",
            ],
        ]
        .concat(),
    );
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    for part in [
        "staging: half\n",
        "tensor API: off\n",
        "f64 reference=",
        " FAIL\n",
        "    backend-ops test -b MTL0 --seed 1 --staging half --tensor off -o 'OUT_PROD(type_a=q8_0,",
        "  0/2 tests passed\n",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
}

#[test]
fn the_kernels_that_ran_are_shown_with_their_memory() {
    let output = backend_ops(
        &[
            &SIMDGROUP[..],
            &["-b", "MTL0", "-p", "m=32,n=32,k=32", "--kernels"],
        ]
        .concat(),
    );
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    let product = text
        .lines()
        .find(|line| line.contains("kernel_mul_mm_f32_f32_fp32"))
        .expect("the product is listed");
    assert!(product.ends_with("(12288 threadgroup bytes)"), "{product}");
}

/// How results are reported must not depend on where they were computed, nor in which order.
#[test]
fn any_number_of_workers_gives_the_same_report() {
    let report = |jobs: &str| {
        let args = [
            "test", "-b", "CPU", "-o", "ADD,CONT", "-p", "type=f16", "--output", "json", "-j", jobs,
        ];
        let output = backend_ops(&args);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // All but the time.
        let rows = stdout(&output);
        let rows = rows
            .lines()
            .map(|row| row.split_once(',').map(|(_, rest)| rest.to_owned()));
        rows.collect::<Vec<_>>()
    };
    let here = report("1");
    assert!(here.len() > 30, "{} cases", here.len());
    for jobs in ["2", "5"] {
        let there = report(jobs);
        assert_eq!(there.len(), here.len(), "-j {jobs}");
        for (there, here) in there.iter().zip(&here) {
            assert_eq!(there, here, "-j {jobs}");
        }
    }
}

/// The process that runs a case may be killed at any time: by a fault of a kernel, or by the system.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_that_is_killed_fails_its_case_and_the_run_goes_on() {
    let mut run = Command::new(env!("CARGO_BIN_EXE_backend-ops"))
        .args([
            "test",
            "-b",
            "CPU",
            "-o",
            "MUL_MAT",
            "-p",
            "type_a=f32,type_b=f32,m=16,",
            "-j",
            "2",
        ])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary of this package runs");
    let mut report = BufReader::new(run.stdout.take().expect("a pipe"));
    let mut text = String::new();
    // From the first result on, with dozens to come, a worker is busy; the other may not have started yet.
    while !text.ends_with(" OK\n") {
        let read = report.read_line(&mut text).expect("UTF-8");
        assert!(read > 0, "{text}");
    }
    let killed = Command::new("kill")
        .arg("-KILL")
        .args(children(run.id()))
        .status();
    assert!(killed.expect("kill exists").success());
    report.read_to_string(&mut text).expect("UTF-8");
    let status = run.wait().expect("it ends");
    assert_eq!(status.code(), Some(1), "{text}");
    let dead: Vec<_> = text
        .lines()
        .filter(|line| line.contains("SIGKILL"))
        .collect();
    assert!(matches!(dead.len(), 1 | 2), "{text}");
    for line in &dead {
        assert!(
            line.starts_with("  MUL_MAT(") && line.ends_with(" FAIL"),
            "{line}"
        );
    }
    let (passed, all) = tally(&text);
    assert!(
        all > 50 && passed + dead.len() == all,
        "{passed} of {all}: {text}"
    );
}

/// The child processes of all threads of a process.
#[cfg(target_os = "linux")]
fn children(parent: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).expect("it lives");
    let children =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).ok();
    let all: String = tasks.flatten().filter_map(children).collect();
    all.split_whitespace().map(str::to_owned).collect()
}

fn tally(text: &str) -> (usize, usize) {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_suffix(" tests passed"));
    let (passed, all) = line.and_then(|line| line.split_once('/')).expect("a tally");
    (
        passed.parse().expect("a number"),
        all.parse().expect("a number"),
    )
}

#[test]
fn a_worker_that_does_not_start_is_named() {
    let output = backend_ops(&["test", "-b", "CPU", "-o", CONT, "--worker", "MTL9", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("MTL9"), "{}", stderr(&output));
}

/// Whoever reads the report may stop at any line: the run ends then, without a word.
#[test]
fn a_reader_that_goes_away_ends_the_run() {
    for jobs in ["1", "2"] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_backend-ops"))
            .args(["test", "-b", "CPU", "-j", jobs, "--output", "csv"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the binary of this package runs");
        let mut report = BufReader::new(run.stdout.take().expect("a pipe"));
        report
            .read_line(&mut String::new())
            .expect("the names of the columns");
        drop(report);
        let output = run.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(2), "-j {jobs}");
        assert!(!stderr(&output).contains("error"), "{}", stderr(&output));
    }
}

#[test]
fn a_file_selects_its_cases_in_its_order() {
    let file = std::env::temp_dir().join(format!("backend-ops-cases-{}", std::process::id()));
    let path = file.to_str().expect("UTF-8");
    let smaller = "CONT(type=f32,ne=[1,1,1,1],use_view_slice=0)";
    std::fs::write(&file, format!("# two\n\n{CONT}\n{smaller}\n")).expect("written");
    let output = backend_ops(&["test", "-b", "CPU", "--test-file", path]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    let at = |name| text.find(name).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(
        at(CONT) < at(smaller) && text.contains("  2/2 tests passed\n"),
        "{text}"
    );

    std::fs::write(&file, "2 0 10 5 4 3 0 2 0 10 5 4 3 4 40 200 800 -\n").expect("written");
    assert_refused(
        &["test", "--test-file", path],
        &["line 1", "upstream's export"],
    );
    std::fs::write(&file, format!("{CONT}\nCONT(type=f32)\n")).expect("written");
    assert_refused(
        &["test", "--test-file", path],
        &["line 2", "CONT(type=f32)"],
    );
    std::fs::write(&file, "# nothing\n").expect("written");
    assert_refused(&["test", "--test-file", path], &["names none"]);
    std::fs::remove_file(&file).expect("removed");
    assert_refused(&["test", "--test-file", path], &["--test-file", path]);
}

#[test]
fn exact_shows_elements_and_demands_bits() {
    // A copy is right to the bit; a product of 256 terms in single precision is not.
    let output = backend_ops(&["test", "-b", "CPU", "-o", CONT, "--exact=0"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in [
        "f64 reference: 0 of 2 elements differ in bits",
        "worst:    index 0 = [0,0,0,0]: device",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let product = [
        "test",
        "-b",
        "CPU",
        "-o",
        "MUL_MAT",
        "-p",
        "type_a=f32.*m=16,n=1,.*bs=.1,1.,nr=.1,1.",
    ];
    let output = backend_ops(&[&product[..], &["--exact"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let output = backend_ops(&[&product[..], &["--exact=0"]].concat());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in [
        " differ in bits from the f64 reference; furthest: index ",
        "--seed 1 --exact=0 -o 'MUL_MAT(",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Equal bits are asked of a product, which has none: any size fails as long as its sums round.
#[test]
fn a_failing_case_is_shrunk_and_its_smallest_form_runs() {
    let output = backend_ops(&[
        "test",
        "-b",
        "CPU",
        "-o",
        "MUL_MAT",
        "-p",
        "type_a=f32.*m=16,n=1,.*bs=.3,2.,nr=.2,2.",
        "--exact=0",
        "--bisect",
    ]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let mut lines = text
        .lines()
        .skip_while(|line| !line.contains("the smallest form that fails"));
    let command = lines.nth(1).expect("its command").trim();
    let (_, case) = command.split_once("-o ").expect("the case");
    let case = case.trim_matches('\'');
    assert!(
        case.contains(",m=1,n=1,k=") && !case.contains("k=256"),
        "{case}"
    );
    let output = backend_ops(&["test", "-b", "CPU", "--exact=0", "-o", case]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("0/1 tests passed"),
        "{}",
        stdout(&output)
    );
}

/// Every flag that shapes a case reaches the workers, and stands in the command of a failure.
#[test]
fn the_command_of_a_failure_has_what_the_run_had() {
    let output = Command::new(env!("CARGO_BIN_EXE_backend-ops"))
        .env("METAL_SIM_ORDER", "reversed")
        .args([
            "test",
            "-b",
            "MTL0",
            "-o",
            "OUT_PROD",
            "--set",
            "range",
            "-p",
            "type_a=q8_0",
        ])
        .args([
            "--staging",
            "half",
            "--tensor",
            "off",
            "--seed",
            "7",
            "-j",
            "2",
        ])
        .output()
        .expect("the binary of this package runs");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    let command = "METAL_SIM_ORDER=reversed backend-ops test -b MTL0 --seed 7 --set range --staging half --tensor off -o 'OUT_PROD(";
    assert!(text.contains(command), "{text}");
}
