//! Tests in a process of their own, which may hang, abort, be given little, or set what holds for a process.

use std::env;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

const CHILD: &str = "GGML_RS_TEST_CHILD";

/// Long enough for a busy machine; whoever waits for itself waits longer.
const LIMIT: Duration = Duration::from_secs(100);

/// Runs `body` in a new process: the test of this name, with the path of its module, calls it there again. Fails when the process
/// fails, dies of a signal, has not ended in time, or has no test of this name. What it prints is printed here.
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
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let printed = read(child.stdout.take().unwrap());
    let errors = read(child.stderr.take().unwrap());
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
    let (printed, errors) = (printed.join().unwrap(), errors.join().unwrap());
    match ended {
        Some(status) => {
            let passed = status.success() && printed.contains(" 1 passed");
            assert!(passed, "{test}: {status}: {printed}{errors}");
        }
        None => panic!("it waits for itself, after {LIMIT:?}: {errors}"),
    }
    print!("{printed}");
}

/// All that a child writes, read at once: it must not wait for a reader.
fn read(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Lets this process have `more` bytes of address space beyond what it has.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub fn limit_address_space(more: u64) {
    const RLIMIT_AS: i32 = 9;
    const PAGE: u64 = 4096;
    unsafe extern "C" {
        fn setrlimit(resource: i32, limits: *const [u64; 2]) -> i32;
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    let limit = pages * PAGE + more;
    // SAFETY: the C library's function, with a `struct rlimit` of two 64-bit numbers, as it is on 64-bit Linux.
    assert_eq!(unsafe { setrlimit(RLIMIT_AS, &[limit, limit]) }, 0);
}
