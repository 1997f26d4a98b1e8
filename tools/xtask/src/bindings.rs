//! Generating the committed bindings.
//!
//! ggml-sys's build script knows how (feature `buildtime-bindgen`, `ggml-sys/build/bindings.rs`), since it has the patched headers.
//! This command runs it and takes what it made.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::pin::checkout;

const PACKAGE: &str = "ggml-sys";

/// Replaces the committed bindings by freshly generated ones.
///
/// # Errors
/// When they cannot be generated or written.
pub fn write() -> Result<()> {
    let file = committed();
    fs::write(&file, generate()?).with_context(|| format!("cannot write {}", file.display()))?;
    println!("wrote {}", file.display());
    Ok(())
}

/// Whether the committed bindings are what the headers say.
///
/// # Errors
/// When they cannot be generated.
pub fn check() -> Result<bool> {
    let file = committed();
    let old =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let new = generate()?;
    if let Some((number, (old, new))) = first_difference(&old, &new) {
        println!(
            "{} does not match ggml's headers. Run `cargo xtask bindings`.\nline {number}\n  committed: {old}\n  generated: {new}",
            file.display()
        );
        return Ok(false);
    }
    println!("{} matches ggml's headers", file.display());
    Ok(true)
}

fn committed() -> PathBuf {
    checkout().join("ggml-sys/src/bindings.rs")
}

/// Runs ggml-sys's build script with the feature `buildtime-bindgen` and reads the file that it wrote.
fn generate() -> Result<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "check",
            "--package",
            PACKAGE,
            "--features",
            "buildtime-bindgen",
            "--message-format",
            "json-render-diagnostics",
        ])
        .current_dir(checkout())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("ggml-sys did not build with the feature buildtime-bindgen");
    }
    let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
    let file = out_dir(&messages)
        .context("cargo did not say where ggml-sys's OUT_DIR is")?
        .join("bindings.rs");
    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

/// `OUT_DIR` of ggml-sys's build script, from cargo's JSON messages.
fn out_dir(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "build-script-executed")
        .find(|message| {
            message["package_id"]
                .as_str()
                .is_some_and(|id| id.contains(PACKAGE))
        })
        .and_then(|message| message["out_dir"].as_str().map(PathBuf::from))
}

/// Number (from 1) and both versions of the first line in which two texts differ.
fn first_difference<'t>(old: &'t str, new: &'t str) -> Option<(usize, (&'t str, &'t str))> {
    let (mut old, mut new) = (old.lines(), new.lines());
    (1..).find_map(|number| match (old.next(), new.next()) {
        (None, None) => Some(None),
        (a, b) if a == b => None,
        (a, b) => Some(Some((number, (a.unwrap_or("(end)"), b.unwrap_or("(end)"))))),
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_out_dir_is_ggml_sys_s() {
        let messages = concat!(
            "not json\n",
            "{\"reason\":\"build-script-executed\",\"package_id\":\"path+file:///x/other#0.1.0\",\"out_dir\":\"/no\"}\n",
            "{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///x/ggml-sys#0.1.0\"}\n",
            "{\"reason\":\"build-script-executed\",\"package_id\":\"path+file:///x/ggml-sys#0.1.0\",\"out_dir\":\"/yes\"}\n",
        );
        assert_eq!(out_dir(messages), Some(PathBuf::from("/yes")));
        assert_eq!(out_dir(""), None);
    }

    #[test]
    fn the_first_difference_is_found_also_at_the_end() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some((2, ("b", "c"))));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some((2, ("(end)", "b"))));
    }
}
