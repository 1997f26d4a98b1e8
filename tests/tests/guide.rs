//! The guide's program in C: it compiles against the patched headers, links with what the crates link, and prints what it says.
//!
//! The programs in Rust are the doctests of this package (`guide` in `src/lib.rs`).

use std::env;
use std::fs;
use std::process::Command;

const PAGE: &str = include_str!("../../docs/guide/porting.md");

/// The text of the only block in this language.
fn block(language: &str) -> &'static str {
    let fence = format!("```{language}\n");
    let mut blocks = PAGE.split(&fence).skip(1);
    let block = blocks.next().unwrap().split("```").next().unwrap();
    assert!(blocks.next().is_none(), "more than one block of {language}");
    block
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{errors}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[cfg_attr(
    not(target_os = "linux"),
    ignore = "on other systems ggml needs frameworks and libraries that cargo knows of"
)]
fn the_program_in_c_prints_what_the_page_says() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("port.c"), folder.path().join("port"));
    fs::write(&source, block("c")).unwrap();
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    run(Command::new(compiler)
        .args([
            "-x",
            "c",
            "-std=c11",
            "-Wall",
            "-Werror",
            "-include",
            env!("GGML_PREFIX_HEADER"),
        ])
        .arg(format!("-I{}/ggml/include", env!("GGML_ROOT")))
        .arg(&source)
        .args(["-x", "none", env!("GGML_ARCHIVE")])
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program));
    assert_eq!(run(&mut Command::new(program)), "6 0\n");
    assert!(PAGE.contains("Both print `6 0`"));
}
