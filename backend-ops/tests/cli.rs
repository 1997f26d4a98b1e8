//! The command line contract, on the binary itself: usage errors, exit codes, output formats, and cases on the CPU.

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
fn a_bad_regex_is_explained() {
    assert_refused(&["test", "-p", "m=["], &["m=[", "unclosed character class"]);
}

#[test]
fn a_case_string_without_its_parenthesis_is_explained() {
    assert_refused(
        &["test", "-o", "CONT(type=f32"],
        &["unbalanced parentheses"],
    );
}

#[test]
fn a_selection_without_cases_is_no_pass() {
    assert_refused(&["test", "-o", "OUT_PROD", "-p", "m=77777"], &["m=77777"]);
    assert_refused(&["test", "-o", "CONT(type=f32)"], &["-o"]);
}

#[test]
fn what_is_not_built_yet_is_refused() {
    for args in [
        &["grad"][..],
        &["perf"],
        &["support"],
        &["-j", "2"],
        &["--set", "blas"],
    ] {
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

/// A broken sum of counts shows here: the CPU copies these types to F32 and not to F16.
#[test]
fn the_cpu_takes_what_it_can_and_the_rest_is_counted_by_reason() {
    let output = backend_ops(&["test", "-b", "CPU", "-o", "CPY", "-p", "type_src=q[48]_0"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for part in [
        "  run 4, unsupported 4, total 8\n",
        "2 q4_0 to f16\n",
        "2 q8_0 to f16\n",
        "  4/4 tests passed\n",
    ] {
        assert!(text.contains(part), "{part:?}: {text}");
    }
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
