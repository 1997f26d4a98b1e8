//! A compute whose scratch memory cannot be had is an error, not the end of the process, and so are threads that the system
//! refuses. It refuses them here for want of address space for their stacks: a limit of processes does not hold for root.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use ggml_rs::quantize::quantize;
use ggml_rs::{
    DType, Device, Error, Graph, Params, Plan, PlanOptions, Result, ThreadPool, ThreadPoolOptions,
};

use crate::common::child::{in_a_child_with, limit_address_space};

/// An arena of another thread would have address space in reserve.
const ONE_ARENA: &[(&str, &str)] = &[("MALLOC_ARENA_MAX", "1")];

/// Half weights make the CPU convert `b` into scratch of half its size: 32 MiB here.
#[test]
fn scratch_that_cannot_be_had_is_an_error() {
    let test = "out_of_memory::scratch_that_cannot_be_had_is_an_error";
    in_a_child_with(test, ONE_ARENA, || {
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
    });
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Those that it gave have ended, and the backend computes with fewer.
#[test]
fn a_refused_thread_of_a_backend_is_an_error() {
    let test = "out_of_memory::a_refused_thread_of_a_backend_is_an_error";
    in_a_child_with(test, ONE_ARENA, || {
        let (graph, (x, y)) = Graph::build(|g| {
            let (x, x_in) = g.input("x", DType::F32, [64])?;
            Ok((x_in, g.output("y", x.scale(2.0)?)?))
        })
        .unwrap();
        let mut backend = Device::cpu().unwrap().open().unwrap();
        backend.set_threads(512).unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.set_f32(&x, &[1.5; 64]).unwrap();
        let before = threads();
        limit_address_space(64 << 20);
        for _ in 0..3 {
            let error = plan.run(&mut backend).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Device { .. }), "{text}");
            let said = "the system refused one of the 512 threads";
            assert!(text.contains(said) && !text.contains("a check"), "{text}");
            assert_eq!(threads(), before);
        }
        let mut options = ThreadPoolOptions::default();
        options.threads = 300;
        let text = ThreadPool::new(options).unwrap_err().to_string();
        assert!(text.contains("one of the 300 threads"), "{text}");
        backend.set_threads(1).unwrap();
        plan.run(&mut backend).unwrap();
        assert_eq!(plan.read_f32(&y).unwrap(), [3.0; 64]);
    });
}

/// The calling thread does the work alone.
#[test]
fn a_refused_thread_of_quantization_is_done_without() {
    let test = "out_of_memory::a_refused_thread_of_quantization_is_done_without";
    in_a_child_with(test, ONE_ARENA, || {
        const LEN: usize = 1 << 19;
        let values: Vec<f32> = (0..LEN).map(|i| (i as f32 * 0.37).sin()).collect();
        let expected = quantize(DType::Q4_0, &values, 256).unwrap();
        let (graph, (x, y)) = Graph::build(|g| {
            let (x, x_in) = g.input("x", DType::Q4_0, [256, LEN / 256])?;
            Ok((x_in, g.output("x", x)?))
        })
        .unwrap();
        let mut backend = Device::cpu().unwrap().open().unwrap();
        backend.set_threads(1).unwrap();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        // The stacks of threads that have ended are kept for others: take them all.
        let (end, until_the_end) = mpsc::channel::<()>();
        let until_the_end = Arc::new(Mutex::new(until_the_end));
        for _ in 0..thread::available_parallelism().unwrap().get() + 4 {
            let until_the_end = Arc::clone(&until_the_end);
            thread::spawn(move || until_the_end.lock().unwrap().recv().is_err());
        }
        // Less than a stack, and enough for the blocks.
        limit_address_space(3 << 19);
        thread::Builder::new().spawn(|| ()).unwrap_err();
        assert_eq!(quantize(DType::Q4_0, &values, 256).unwrap(), expected);
        plan.set_f32(&x, &values).unwrap();
        plan.run(&mut backend).unwrap();
        assert_eq!(plan.read_bytes(&y).unwrap(), expected);
        drop(end);
    });
}

/// What a thread keeps may use the crate as it is dropped, when the crate's own values of the thread are gone.
#[test]
fn a_thread_may_end_with_what_is_refused() {
    struct AtTheEnd;

    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            assert!(matches!(allocate(1 << 28), Err(Error::Alloc { .. })));
            REFUSED.fetch_add(1, Ordering::Relaxed);
        }
    }

    thread_local! {
        static AT_THE_END: AtTheEnd = const { AtTheEnd };
    }

    static REFUSED: AtomicUsize = AtomicUsize::new(0);

    fn allocate(elements: usize) -> Result<Params> {
        let builder = Params::builder().tensor("large", DType::F32, [elements])?;
        builder.allocate(Device::cpu()?)
    }

    let test = "out_of_memory::a_thread_may_end_with_what_is_refused";
    in_a_child_with(test, ONE_ARENA, || {
        allocate(1).unwrap();
        limit_address_space(64 << 20);
        let thread = thread::spawn(|| {
            AT_THE_END.with(|_| ());
            allocate(1 << 28).map(drop).unwrap_err();
        });
        thread.join().unwrap();
        assert_eq!(REFUSED.load(Ordering::Relaxed), 2);
    });
}
