//! Tests in a process of their own, which may hang, abort, or be given little.

use std::env;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const CHILD: &str = "GGML_RS_TEST_CHILD";

/// Long enough for a busy machine; whoever waits for itself waits longer.
const LIMIT: Duration = Duration::from_secs(100);

/// Runs `body` in a new process: the test of this name calls it there again. Fails when the process fails, dies of a signal, or
/// has not ended in time.
pub fn in_a_child(test: &str, body: impl FnOnce()) {
    in_a_child_with(test, &[], body);
}

/// [`in_a_child`] with environment variables.
pub fn in_a_child_with(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if env::var_os(CHILD).is_some() {
        return body();
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, test)
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if started.elapsed() > LIMIT => break None,
            None => sleep(Duration::from_millis(10)),
        }
    };
    if ended.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut errors = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut errors).unwrap();
    match ended {
        Some(status) => assert!(status.success(), "{status}: {errors}"),
        None => panic!("it waits for itself, after {LIMIT:?}: {errors}"),
    }
}
