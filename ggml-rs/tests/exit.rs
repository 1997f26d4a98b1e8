//! The process ends while other threads make plans and run them: `main` returns, exits, or panics.
//!
//! The test starts children of itself. Three detached threads of a child work on a device without end, and the main thread
//! leaves while they do. A signal fails, and so does another exit status than the one that the end has, and an error in one of
//! the threads, as long as the process lives: its destructors have run by then, because the handler that was registered first
//! runs last, and that one waits a little for the threads to stumble.

use std::env;
use std::ffi::c_int;
use std::process::{self, Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use ggml_rs::DType::{F16, F32};
use ggml_rs::quantize::quantize;
use ggml_rs::{DType, Device, Graph, Input, Plan, PlanOptions, Result};
use libtest_mimic::{Arguments, Failed, Trial};

/// Times a device, in all three ways together.
const EXITS: u64 = 200;
const CHILD: &str = "--child";
const WAYS: [(&str, i32); 3] = [("return", 0), ("exit", 0), ("panic", 101)];
/// What a child ends with when one of its threads failed.
const THREAD_FAILED: c_int = 77;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [first, device, way, seed] = arguments.as_slice()
        && first == CHILD
    {
        return child(device, way, seed.parse().expect("a number"));
    }
    let mut trials = vec![Trial::test(
        "the_cpu_computes_while_the_process_ends",
        || exits("CPU"),
    )];
    if cfg!(all(feature = "metal-sim", not(target_os = "macos"))) {
        trials.push(Trial::test(
            "the_simulated_metal_device_computes_while_the_process_ends",
            || exits("MTL0"),
        ));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn exits(device: &str) -> std::result::Result<(), Failed> {
    let program = env::current_exe()?;
    let (mut ends, mut faults) = (0, Vec::new());
    for seed in 0..EXITS {
        let (way, wanted) = WAYS[(seed % 3) as usize];
        let output = Command::new(&program)
            .args([CHILD, device, way, &seed.to_string()])
            // Looking up a panic's names takes longer than all else.
            .env("RUST_BACKTRACE", "0")
            .output()?;
        ends += 1;
        if output.status.code() != Some(wanted) {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            faults.push(format!("seed {seed}, {way}: {}: {errors}", output.status));
        }
    }
    println!(
        "{device}: {ends} processes ended under load, {} of them wrongly",
        faults.len()
    );
    match faults.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} of {ends} ended wrongly: {first}", faults.len()).into()),
    }
}

static FAILED: AtomicBool = AtomicBool::new(false);

fn child(device: &str, way: &str, seed: u64) -> ExitCode {
    // Before anything else registers one.
    at_exit(linger);
    let device = Device::by_name(device).expect("the device");
    let (ready, started) = mpsc::channel();
    for work in [run_plans, make_plans, set_and_measure] {
        let ready = ready.clone();
        thread::spawn(move || {
            if let Err(error) = work(device, &ready) {
                eprintln!("{error}");
                FAILED.store(true, Ordering::SeqCst);
            }
        });
    }
    for _ in 0..3 {
        started.recv().expect("all threads start");
    }
    thread::sleep(Duration::from_micros(seed * 7919 % 2000));
    match way {
        "exit" => process::exit(0),
        "panic" => panic!("on purpose"),
        _ => ExitCode::SUCCESS,
    }
}

/// Runs one plan over and over.
fn run_plans(device: Device, ready: &Sender<()>) -> Result<()> {
    let mut backend = device.open()?;
    let (mut plan, x) = plan(&backend, 16)?;
    plan.set_f32(&x, &[0.5; 64 * 16])?;
    plan.run(&mut backend)?;
    let _ = ready.send(());
    loop {
        plan.run(&mut backend)?;
    }
}

/// Opens backends, and makes plans that run once.
fn make_plans(device: Device, ready: &Sender<()>) -> Result<()> {
    for size in (1..).map(|i| 1 + i % 40) {
        let mut backend = device.open()?;
        backend.set_threads(1 + size % 2)?;
        let (mut plan, x) = plan(&backend, size)?;
        plan.set_f32(&x, &vec![0.5; 64 * size])?;
        plan.run(&mut backend)?;
        let _ = ready.send(());
    }
    Ok(())
}

/// What needs no run: lookups, quantized values, measures.
fn set_and_measure(device: Device, ready: &Sender<()>) -> Result<()> {
    loop {
        let again = Device::by_name(device.name())?;
        let (graph, _) = graph(5)?;
        Plan::measure(&graph, &again.open()?, PlanOptions::default())?;
        quantize(DType::Q4_K, &[0.25; 512], 256)?;
        let _ = ready.send(());
    }
}

fn plan(backend: &ggml_rs::Backend, columns: usize) -> Result<(Plan, Input)> {
    let (graph, x) = graph(columns)?;
    Ok((Plan::new(graph, backend, PlanOptions::default())?, x))
}

/// Products of several types, and what Metal fuses.
fn graph(columns: usize) -> Result<(Graph, Input)> {
    Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [64, columns])?;
        let half = x.cast(F16)?;
        let y = x.rms_norm(1e-5)?.mul(x)?.add(x)?;
        let y = half.mul_mat(y)?.soft_max()?;
        g.output("y", y.mul_mat(y)?)?;
        Ok(x_in)
    })
}

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> c_int;
    fn _exit(status: c_int) -> !;
}

fn at_exit(handler: extern "C" fn()) {
    // SAFETY: the C library's function; the handler is a function of this program.
    assert_eq!(unsafe { atexit(handler) }, 0);
}

/// Runs when everything that was registered later has been destroyed.
extern "C" fn linger() {
    thread::sleep(Duration::from_millis(8));
    if FAILED.load(Ordering::SeqCst) {
        // SAFETY: the C library's function.
        unsafe { _exit(THREAD_FAILED) };
    }
}
