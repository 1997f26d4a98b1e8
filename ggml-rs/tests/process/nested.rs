//! Closures of custom ops that use this crate in the middle of a run, and panic there: nothing waits for itself, nothing ends the
//! process. Each test is a process of its own, with a limit of time.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ggml_rs::DType::{F32, Q8_0};
use ggml_rs::quantize::quantize;
use ggml_rs::{
    Backend, Cancel, CustomTask, DType, Device, Error, Graph, Input, Output, Param, Params, Plan,
    PlanOptions, Result, Tasks, ThreadPool, ThreadPoolOptions,
};

use crate::common::child::in_a_child;
use crate::common::{if_free, traced, until};

fn cpu() -> Backend {
    let mut backend = Device::cpu().unwrap().open().unwrap();
    backend.set_threads(2).unwrap();
    backend
}

fn pool() -> ThreadPool {
    let mut options = ThreadPoolOptions::default();
    options.threads = 2;
    options.polling = 0;
    ThreadPool::new(options).unwrap()
}

fn cpu_on(pool: &ThreadPool) -> Backend {
    let mut backend = Device::cpu().unwrap().open().unwrap();
    backend.set_thread_pool(pool).unwrap();
    backend
}

fn param(name: &str) -> Param {
    let builder = Params::builder().tensor(name, F32, [4]).unwrap();
    let params = builder.allocate(Device::cpu().unwrap()).unwrap();
    let param = params.get(name).unwrap();
    param.set_f32(&[1.0; 4]).unwrap();
    param
}

/// A plan, its backend, and its output, of 4 values.
struct Small {
    plan: Plan,
    backend: Backend,
    y: Output,
}

impl Small {
    /// What [`Small::values`] gives is 6.
    fn on(backend: Backend) -> Self {
        let (graph, (x, y)) = Graph::build(|g| {
            let (x, x_in) = g.input("x", F32, [4])?;
            Ok((x_in, g.output("y", x.scale(2.0)?)?))
        })
        .unwrap();
        let mut small = Self::new(graph, y, backend);
        small.set(&x);
        small
    }

    /// Reads a parameter of ones: 3.
    fn reading(param: &Param, backend: Backend) -> Self {
        let (graph, y) = Graph::build(|g| g.output("y", g.weight(param)?.scale(3.0)?)).unwrap();
        Self::new(graph, y, backend)
    }

    /// Sets a parameter to 6.
    fn writing(param: &Param, backend: Backend) -> Self {
        let (graph, (x, y)) = Graph::build(|g| {
            let (x, x_in) = g.input("x", F32, [4])?;
            let y = x.scale(2.0)?.cpy(g.weight(param)?)?;
            Ok((x_in, g.output("y", y)?))
        })
        .unwrap();
        let mut small = Self::new(graph, y, backend);
        small.set(&x);
        small
    }

    fn new(graph: Graph, y: Output, backend: Backend) -> Self {
        let plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        Self { plan, backend, y }
    }

    fn set(&mut self, x: &Input) {
        self.plan.set_f32(x, &[3.0; 4]).unwrap();
    }

    fn run(&mut self) -> Result<()> {
        self.plan.run(&mut self.backend)
    }

    fn values(&mut self) -> Result<Vec<f32>> {
        self.run()?;
        self.plan.read_f32(&self.y)
    }
}

/// A plan whose closure is `closure`, called by one thread in each run. Its result is 1 where the closure says so, else 0. It
/// reads `reads` and writes `writes`.
fn around(
    reads: Option<&Param>,
    writes: Option<&Param>,
    backend: Backend,
    closure: impl Fn() -> bool + Send + Sync + 'static,
) -> Small {
    let (graph, (x, y)) = Graph::build(|g| {
        let (x, x_in) = g.input("x", F32, [4])?;
        let read = match reads {
            Some(param) => x.add(g.weight(param)?)?,
            None => x,
        };
        let y = read.map_custom1(Tasks::One, move |task: &mut CustomTask<'_>| {
            let right = f32::from(closure());
            task.out::<f32>().unwrap().fill(right);
        })?;
        if let Some(param) = writes {
            g.output("written", x.cpy(g.weight(param)?)?)?;
        }
        Ok((x_in, g.output("y", y)?))
    })
    .unwrap();
    let mut small = Small::new(graph, y, backend);
    small.set(&x);
    small
}

#[track_caller]
fn refused_as_parameter<T: std::fmt::Debug>(outcome: Result<T>, name: &str) -> bool {
    let error = outcome.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Param(_)), "{text}");
    assert!(text.contains(&format!("`{name}`")), "{text}");
    assert!(text.contains("nested.rs:"), "{text}");
    true
}

#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
fn metal() -> Backend {
    Device::by_name("MTL0").unwrap().open().unwrap()
}

/// A run that wanted to be alone waited for the outer run, the inner one for that, and the outer one for the inner one.
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
#[test]
fn a_closure_runs_a_cpu_plan_while_others_use_the_metal_device() {
    in_a_child(
        "nested::a_closure_runs_a_cpu_plan_while_others_use_the_metal_device",
        || {
            let inner = Mutex::new(Small::on(cpu()));
            let begun = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&begun);
            let mut outer = around(None, None, cpu(), move || {
                count.fetch_add(1, Ordering::Relaxed);
                // The others begin meanwhile.
                thread::sleep(Duration::from_millis(20));
                inner.lock().unwrap().values().unwrap() == [6.0; 4]
            });
            const ROUNDS: usize = 10;
            thread::scope(|scope| {
                for (device, recorded) in [("MTL0", false), ("MTL0", true), ("CPU", true)] {
                    let begun = &begun;
                    scope.spawn(move || {
                        let device = Device::by_name(device).unwrap();
                        let mut other = Small::on(device.open().unwrap());
                        for round in 1..=ROUNDS {
                            while begun.load(Ordering::Relaxed) < round {
                                thread::sleep(Duration::from_millis(1));
                            }
                            match recorded {
                                true => {
                                    drop(other.plan.run_with(&mut other.backend, traced()).unwrap())
                                }
                                false => other.run().unwrap(),
                            }
                        }
                    });
                }
                for _ in 0..ROUNDS {
                    assert_eq!(outer.values().unwrap(), [1.0; 4]);
                }
            });
        },
    );
}

#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
#[test]
fn a_closure_runs_a_metal_plan() {
    in_a_child("nested::a_closure_runs_a_metal_plan", || {
        let inner = Mutex::new(Small::on(metal()));
        let mut outer = around(None, None, cpu(), move || {
            inner.lock().unwrap().values().unwrap() == [6.0; 4]
        });
        assert_eq!(outer.values().unwrap(), [1.0; 4]);
    });
}

/// Each record has its own run's dispatches.
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
#[test]
fn a_closure_records_a_run_inside_of_one_that_is_recorded() {
    in_a_child(
        "nested::a_closure_records_a_run_inside_of_one_that_is_recorded",
        || {
            let inner = Mutex::new(Small::on(metal()));
            let (graph, (x, y)) = Graph::build(|g| {
                let (x, x_in) = g.input("x", F32, [4])?;
                let closure = x.scale(5.0)?.map_custom1(Tasks::One, move |task| {
                    let mut inner = inner.lock().unwrap();
                    let Small { plan, backend, .. } = &mut *inner;
                    let dispatches = plan.run_with(backend, traced()).unwrap().dispatches.len();
                    task.out::<f32>().unwrap().fill(dispatches as f32);
                })?;
                Ok((x_in, g.output("y", closure.scale(7.0)?.sqr()?)?))
            })
            .unwrap();
            let mut on = ggml_rs::Scheduler::new([metal(), cpu()]).unwrap();
            let mut plan = Plan::new(graph, &on, PlanOptions::default()).unwrap();
            plan.set_f32(&x, &[1.0; 4]).unwrap();
            let dispatches = plan.run_with(&mut on, traced()).unwrap().dispatches;
            assert_eq!(dispatches.len(), 3, "{dispatches:?}");
            assert_eq!(plan.read_f32(&y).unwrap(), [49.0; 4]);
        },
    );
}

/// A second lock for reading waits behind a thread that wants to write.
#[test]
fn a_closure_reads_what_its_run_reads() {
    in_a_child("nested::a_closure_reads_what_its_run_reads", || {
        let done = AtomicBool::new(false);
        let weight = param("weight");
        let inner = Mutex::new(Small::reading(&weight, cpu()));
        let read = weight.clone();
        let mut outer = around(Some(&weight), None, cpu(), move || {
            let values = inner.lock().unwrap().values().unwrap();
            read.read_f32().unwrap() == [1.0; 4] && values == [3.0; 4]
        });
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    weight.set_f32(&[1.0; 4]).unwrap();
                }
            });
            for _ in 0..100 {
                assert_eq!(outer.values().unwrap(), [1.0; 4]);
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_closure_is_refused_what_its_run_writes() {
    in_a_child("nested::a_closure_is_refused_what_its_run_writes", || {
        let written = param("written");
        let inner = Mutex::new((
            Small::reading(&written, cpu()),
            Small::writing(&written, cpu()),
        ));
        inner.lock().unwrap().1.run().unwrap();
        let param = written.clone();
        let mut outer = around(None, Some(&written), cpu(), move || {
            let (reading, writing) = &mut *inner.lock().unwrap();
            let output = writing.plan.read_f32(&writing.y);
            let cancel = Cancel::new();
            let until = reading.plan.run_with(&mut reading.backend, until(&cancel));
            let tried = reading.plan.run_with(&mut reading.backend, if_free());
            refused_as_parameter(param.read_f32(), "written")
                && refused_as_parameter(param.set_f32(&[0.0; 4]), "written")
                && refused_as_parameter(param.zero(), "written")
                && refused_as_parameter(output, "written")
                && refused_as_parameter(reading.run(), "written")
                && refused_as_parameter(until, "written")
                && refused_as_parameter(tried, "written")
                && refused_as_parameter(writing.run(), "written")
        });
        assert_eq!(outer.values().unwrap(), [1.0; 4]);
        assert_eq!(written.read_f32().unwrap(), [3.0; 4]);
    });
}

#[test]
fn a_closure_may_not_write_what_its_run_reads() {
    in_a_child("nested::a_closure_may_not_write_what_its_run_reads", || {
        let read = param("read");
        let inner = Mutex::new(Small::writing(&read, cpu()));
        let param = read.clone();
        let mut outer = around(Some(&read), None, cpu(), move || {
            refused_as_parameter(param.set_f32(&[0.0; 4]), "read")
                && refused_as_parameter(inner.lock().unwrap().run(), "read")
        });
        assert_eq!(outer.values().unwrap(), [1.0; 4]);
        assert_eq!(read.read_f32().unwrap(), [1.0; 4]);
    });
}

#[test]
fn a_closure_is_refused_the_pool_of_its_run() {
    in_a_child("nested::a_closure_is_refused_the_pool_of_its_run", || {
        let pool = pool();
        let inner = Mutex::new(Small::on(cpu_on(&pool)));
        let mut outer = around(None, None, cpu_on(&pool), move || {
            let error = inner.lock().unwrap().run().unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Device { .. }), "{text}");
            assert!(text.contains("threads of its own"), "{text}");
            true
        });
        assert_eq!(outer.values().unwrap(), [1.0; 4]);
    });
}

/// Two runs, each of which holds what the other one's closure wants.
#[test]
fn closures_of_two_runs_do_not_wait_in_a_circle() {
    in_a_child(
        "nested::closures_of_two_runs_do_not_wait_in_a_circle",
        || {
            let params = [param("first"), param("second")];
            let pools = [pool(), pool()];
            let refused = Arc::new(AtomicUsize::new(0));
            thread::scope(|scope| {
                for (mine, other) in [(0, 1), (1, 0)] {
                    let (params, pools, refused) = (&params, &pools, Arc::clone(&refused));
                    scope.spawn(move || {
                        let reading = Small::reading(&params[other], cpu());
                        let pooled = Small::on(cpu_on(&pools[other]));
                        let inner = Mutex::new((reading, pooled));
                        let param = params[other].clone();
                        let backend = cpu_on(&pools[mine]);
                        let mut outer = around(None, Some(&params[mine]), backend, move || {
                            let (reading, pooled) = &mut *inner.lock().unwrap();
                            for outcome in
                                [reading.run(), param.read_bytes().map(drop), pooled.run()]
                            {
                                match outcome {
                                    Ok(()) => {}
                                    Err(Error::Busy { .. } | Error::Device { .. }) => {
                                        refused.fetch_add(1, Ordering::Relaxed);
                                    }
                                    Err(error) => panic!("{error}"),
                                }
                            }
                            true
                        });
                        for _ in 0..100 {
                            assert_eq!(outer.values().unwrap(), [1.0; 4]);
                        }
                    });
                }
            });
            println!("{} were refused", refused.load(Ordering::Relaxed));
        },
    );
}

/// Backends, pools, graphs, plans and parameters of its own, in closures three deep.
#[test]
fn closures_make_run_and_drop_everything() {
    in_a_child("nested::closures_make_run_and_drop_everything", || {
        fn everything(depth: usize) -> bool {
            if depth == 0 {
                return true;
            }
            let param = param("own");
            let pool = pool();
            let mut reading = Small::reading(&param, cpu_on(&pool));
            assert_eq!(reading.values().unwrap(), [3.0; 4]);
            let mut writing = Small::writing(&param, cpu_on(&pool));
            assert_eq!(writing.values().unwrap(), [6.0; 4]);
            param.zero().unwrap();
            let cancel = Cancel::new();
            cancel.cancel();
            let cancelled = writing.plan.run_with(&mut writing.backend, until(&cancel));
            assert_eq!(cancelled, Err(Error::Cancelled));
            let blocks = quantize(Q8_0, &[1.0; 1 << 19], 32).unwrap();
            assert_eq!(blocks.len(), (1 << 19) / 32 * 34);
            // Refused by a check, and by ggml's own types: neither leaves anything behind.
            Graph::build(|g| Ok(g.input("x", DType::F32, [0])?.1)).unwrap_err();
            drop((reading, pool));
            let mut inner = around(None, None, cpu(), move || everything(depth - 1));
            inner.values().unwrap() == [1.0; 4]
        }
        assert!(everything(3));
    });
}

/// What a thread of the closure's runs is a run like any other.
#[test]
fn threads_of_a_closure_run_plans() {
    in_a_child("nested::threads_of_a_closure_run_plans", || {
        let devices = Device::all().unwrap();
        let backends = devices.into_iter().map(|device| device.open().unwrap());
        let inner = Mutex::new(backends.map(Small::on).collect::<Vec<_>>());
        let mut outer = around(None, None, cpu(), move || {
            let mut inner = inner.lock().unwrap();
            thread::scope(|scope| {
                let runs: Vec<_> = inner
                    .iter_mut()
                    .map(|small| scope.spawn(|| small.values().unwrap() == [6.0; 4]))
                    .collect();
                runs.into_iter().all(|run| run.join().unwrap())
            })
        });
        assert_eq!(outer.values().unwrap(), [1.0; 4]);
    });
}

/// A payload that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("a payload was dropped");
        }
        // In the middle of another panic this ends the process.
        panic!("a payload was dropped while another panic passes");
    }
}

/// Both threads of two ops panic. One panic continues after the run; dropping another one would end the process.
#[test]
fn payloads_that_panic_are_not_dropped() {
    in_a_child("nested::payloads_that_panic_are_not_dropped", || {
        let (graph, x) = Graph::build(|g| {
            let (x, x_in) = g.input("x", F32, [4, 8])?;
            let first = x.map_custom1(Tasks::Threads, |_| panic_any(Bomb))?;
            let second = x.map_custom1(Tasks::Threads, |_| panic_any(Bomb))?;
            g.output("y", first.add(second)?)?;
            Ok(x_in)
        })
        .unwrap();
        let mut backend = cpu();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.set_f32(&x, &[0.0; 32]).unwrap();
        for _ in 0..3 {
            let run = AssertUnwindSafe(|| plan.run(&mut backend));
            let payload = catch_unwind(run).unwrap_err();
            assert!(payload.is::<Bomb>());
            std::mem::forget(payload);
        }
        assert!(!backend.is_poisoned());
        drop(plan);
    });
}

/// A record that nobody ends grows by every later dispatch: 17 MB for 1,000 runs of a few nodes.
#[cfg(all(feature = "metal-sim", target_os = "linux"))]
#[test]
fn a_panic_ends_the_record_of_its_run() {
    in_a_child("nested::a_panic_ends_the_record_of_its_run", || {
        let pages = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            let resident = statm.split_whitespace().nth(1).unwrap();
            resident.parse::<usize>().unwrap()
        };
        let (graph, x) = Graph::build(|g| {
            let (x, x_in) = g.input("x", F32, [4])?;
            let closure = x
                .scale(2.0)?
                .map_custom1(Tasks::One, |_| panic!("on purpose"))?;
            g.output("y", closure)?;
            Ok(x_in)
        })
        .unwrap();
        let mut on = ggml_rs::Scheduler::new([metal(), cpu()]).unwrap();
        let mut plan = Plan::new(graph, &on, PlanOptions::default()).unwrap();
        plan.set_f32(&x, &[1.0; 4]).unwrap();
        catch_unwind(AssertUnwindSafe(|| plan.run_with(&mut on, traced()))).unwrap_err();

        let (graph, x) = Graph::build(|g| {
            let (x, x_in) = g.input("x", F32, [4])?;
            let mut y = x;
            for _ in 0..100 {
                y = y.scale(1.0)?;
            }
            g.output("y", y)?;
            Ok(x_in)
        })
        .unwrap();
        let mut backend = metal();
        let mut plan = Plan::new(graph, &backend, PlanOptions::default()).unwrap();
        plan.set_f32(&x, &[1.0; 4]).unwrap();
        (0..50).for_each(|_| plan.run(&mut backend).unwrap());
        let before = pages();
        (0..1000).for_each(|_| plan.run(&mut backend).unwrap());
        let grown = pages().saturating_sub(before) * 4096;
        assert!(grown < 2 << 20, "{grown} bytes more");
        // It works for the next one.
        assert_eq!(
            plan.run_with(&mut backend, traced())
                .unwrap()
                .dispatches
                .len(),
            100
        );
    });
}
