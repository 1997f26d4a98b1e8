//! A compute whose scratch memory cannot be had is an error, not the end of the process.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::env;
use std::fs;
use std::process::Command;

use ggml_rs::{DType, Device, Error, Graph, Plan, PlanOptions};

const CHILD: &str = "GGML_RS_TEST_LIMITED";
const PAGE: u64 = 4096;

/// Lets this process have `more` bytes of address space beyond what it has.
fn limit_address_space(more: u64) {
    const RLIMIT_AS: i32 = 9;
    unsafe extern "C" {
        fn setrlimit(resource: i32, limits: *const [u64; 2]) -> i32;
    }
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    let limit = pages * PAGE + more;
    // SAFETY: the C library's function, with a `struct rlimit` of two 64-bit numbers, as it is on 64-bit Linux.
    assert_eq!(unsafe { setrlimit(RLIMIT_AS, &[limit, limit]) }, 0);
}

/// Half weights make the CPU convert `b` into scratch of half its size: 32 MiB here.
#[test]
fn scratch_that_cannot_be_had_is_an_error() {
    if env::var_os(CHILD).is_none() {
        let child = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "scratch_that_cannot_be_had_is_an_error",
                "--nocapture",
            ])
            .env(CHILD, "1")
            // An arena of another thread would have address space in reserve.
            .env("MALLOC_ARENA_MAX", "1")
            .output()
            .unwrap();
        assert!(
            child.status.success(),
            "{}: {}",
            child.status,
            String::from_utf8_lossy(&child.stderr)
        );
        return;
    }
    const ROWS: usize = 1 << 18;
    let (graph, (a, b)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", DType::F16, [64, 1])?;
        let (b, b_in) = g.input("b", DType::F32, [64, ROWS])?;
        g.output("product", a.mul_mat(b)?)?;
        Ok((a_in, b_in))
    })
    .unwrap();
    let mut backend = Device::cpu().unwrap().open().unwrap();
    backend.set_threads(1).unwrap();
    let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
    plan.set_f32(&a, &[0.0; 64]).unwrap();
    plan.set_f32(&b, &vec![0.0; 64 * ROWS]).unwrap();
    limit_address_space(8 << 20);
    let error = plan.run(&mut backend).unwrap_err();
    assert!(
        matches!(&error, Error::Compute { status, .. } if status == "out of memory"),
        "{error}"
    );
    assert!(backend.is_poisoned());
}
