//! Worker processes: started, asked, replaced when they die.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::engine::queue::Queue;
use crate::engine::worker::{MARK, READY};
use crate::judge::outcome::CaseResult;
use crate::judge::verify;

/// How often a worker is started that ends before it is ready: the system may have ended it, for want of memory or otherwise.
const ATTEMPTS: usize = 3;

/// The simulated device's threads.
const SIMULATOR_THREADS: &str = "METAL_SIM_THREADS";

/// Why no worker could be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("start a worker process ({program}); -j 1 runs without")]
    Start {
        /// What was started.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// It ended before it had opened the device.
    #[error("a worker process ended before it was ready: {0}")]
    NotReady(String),
}

/// How a worker is started.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// This program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Threads of the simulated device, unless the environment says.
    pub threads: usize,
}

impl Recipe {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // With the verifier it has one thread, and refuses to be asked for more.
        if !verify::is_built_in() && std::env::var_os(SIMULATOR_THREADS).is_none() {
            command.env(SIMULATOR_THREADS, self.threads.to_string());
        }
        command
    }
}

/// A worker process.
pub struct Worker {
    child: Arc<Mutex<Child>>,
    to: Option<ChildStdin>,
    from: Lines<BufReader<ChildStdout>>,
    stderr: Arc<Mutex<Vec<String>>>,
    listener: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts one and waits until it has opened its device.
    ///
    /// # Errors
    /// When it cannot be started, or ends before, more than once.
    pub fn start(recipe: &Recipe) -> Result<Self, Error> {
        for _ in 1..ATTEMPTS {
            match Self::start_once(recipe) {
                Err(Error::NotReady(_)) => {}
                other => return other,
            }
        }
        Self::start_once(recipe)
    }

    fn start_once(recipe: &Recipe) -> Result<Self, Error> {
        let mut worker = Self::spawn(recipe).map_err(|source| Error::Start {
            program: recipe.program.display().to_string(),
            source,
        })?;
        match worker.answer() {
            Some(answer) if answer == READY => Ok(worker),
            _ => Err(Error::NotReady(worker.how_it_ended())),
        }
    }

    fn spawn(recipe: &Recipe) -> io::Result<Self> {
        let mut child = recipe.command().spawn()?;
        let (Some(to), Some(from), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let listener = thread::Builder::new().spawn({
            let stderr = Arc::clone(&stderr);
            move || listen(errors, &stderr)
        });
        let listener = match listener {
            Ok(listener) => listener,
            Err(refused) => {
                // It ends with its input.
                drop(to);
                let _ = child.wait();
                return Err(refused);
            }
        };
        Ok(Self {
            child: Arc::new(Mutex::new(child)),
            to: Some(to),
            from: BufReader::new(from).lines(),
            stderr,
            listener: Some(listener),
        })
    }

    /// Has it run a case.
    ///
    /// # Errors
    /// How it ended, if it did. There is nothing more to ask of it then.
    pub fn run(&mut self, case: &str) -> Result<CaseResult, String> {
        lock(&self.stderr).clear();
        let sent = self
            .to
            .as_mut()
            .map(|to| writeln!(to, "{case}").and_then(|()| to.flush()));
        match (sent, self.answer()) {
            (Some(Ok(())), Some(answer)) => serde_json::from_str(&answer)
                .map_err(|error| format!("its answer was no result ({error})")),
            _ => Err(self.how_it_ended()),
        }
    }

    /// The next line of the protocol.
    fn answer(&mut self) -> Option<String> {
        let lines = self.from.by_ref().map_while(Result::ok);
        lines
            .into_iter()
            .find_map(|line| line.strip_prefix(MARK).map(str::to_owned))
    }

    /// The exit status, which names a signal, and the first line that it wrote to stderr since it was last asked: where ggml or
    /// Rust gives up, that line says where.
    fn how_it_ended(&mut self) -> String {
        self.to = None;
        let status = lock(&self.child).wait();
        if let Some(listener) = self.listener.take() {
            // It ends with the pipe, and has nothing to say.
            let _ = listener.join();
        }
        let status = match status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        match lock(&self.stderr)
            .iter()
            .find(|line| !line.trim().is_empty())
        {
            Some(line) => format!("{status}: {}", line.trim()),
            None => status,
        }
    }
}

/// Lets it end, and does not leave it to the system as a zombie.
impl Drop for Worker {
    fn drop(&mut self) {
        self.to = None;
        // It has ended, or will as it reads the end of its input.
        let _ = lock(&self.child).wait();
    }
}

/// Passes on what a worker writes to stderr, and keeps it.
fn listen(errors: ChildStderr, kept: &Mutex<Vec<String>>) {
    for line in BufReader::new(errors).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        eprintln!("{line}");
        lock(kept).push(line);
    }
}

/// What happens in a pool.
pub enum Event {
    /// A worker has taken this case.
    Taken(usize),
    /// A case is done: its result, or how its worker ended.
    Done(usize, Box<Result<CaseResult, String>>),
    /// There is no worker to be had.
    Failed(Error),
}

/// Runs cases on so many workers; `costs` tell which are long. `report` hears of everything as it happens, until it fails.
///
/// # Errors
/// Those of `report`.
pub fn run<E>(
    recipe: &Recipe,
    workers: usize,
    cases: &[String],
    costs: &[f64],
    mut report: impl FnMut(Event) -> Result<(), E>,
) -> Result<(), E> {
    let pool = Pool {
        recipe,
        cases,
        queue: Mutex::new(Queue::new(costs)),
        children: Mutex::new(Some(Vec::new())),
    };
    thread::scope(|scope| {
        let (events, heard) = mpsc::channel();
        for number in 0..workers {
            let (pool, events) = (&pool, events.clone());
            let long_first = number == 0 && workers > 1;
            let refused = events.clone();
            let work = move || pool.work(long_first, events);
            if let Err(source) = thread::Builder::new().spawn_scoped(scope, work) {
                let program = recipe.program.display().to_string();
                let _ = refused.send(Event::Failed(Error::Start { program, source }));
            }
        }
        drop(events);
        let outcome = heard.iter().try_for_each(&mut report);
        if outcome.is_err() {
            pool.stop();
        }
        outcome
    })
}

struct Pool<'a> {
    recipe: &'a Recipe,
    cases: &'a [String],
    queue: Mutex<Queue>,
    /// Those that live; `None` once no more are wanted.
    children: Mutex<Option<Vec<Arc<Mutex<Child>>>>>,
}

impl Pool<'_> {
    /// One worker after another, until there are no more cases or nobody listens.
    fn work(&self, long_first: bool, events: Sender<Event>) {
        let mut worker = None;
        let next = || lock(&self.queue).take(long_first);
        while let Some(case) = next() {
            if events.send(Event::Taken(case)).is_err() {
                return;
            }
            let event = self.run_case(&mut worker, case);
            let failed = matches!(event, Event::Failed(_));
            if events.send(event).is_err() || failed {
                return;
            }
        }
    }

    fn run_case(&self, worker: &mut Option<Worker>, case: usize) -> Event {
        let running = match worker {
            Some(running) => running,
            None => match Worker::start(self.recipe) {
                Ok(started) => {
                    self.register(&started);
                    worker.insert(started)
                }
                Err(error) => return Event::Failed(error),
            },
        };
        let result = running.run(&self.cases[case]);
        if result.is_err() {
            *worker = None;
        }
        Event::Done(case, Box::new(result))
    }

    fn register(&self, worker: &Worker) {
        match lock(&self.children).as_mut() {
            Some(children) => children.push(Arc::clone(&worker.child)),
            None => kill(&worker.child),
        }
    }

    /// Nobody waits for results any more.
    fn stop(&self) {
        lock(&self.queue).clear();
        let children = lock(&self.children).take();
        children.iter().flatten().for_each(kill);
    }
}

fn kill(child: &Arc<Mutex<Child>>) {
    // One that has ended cannot be killed, and need not be.
    let _ = lock(child).kill();
}

/// What is locked here is whole at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
