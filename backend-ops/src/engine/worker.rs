//! A worker process: takes case strings on stdin, answers with results on stdout.
//!
//! Processes, because a kernel that ends its process must not end the run, and because the simulated device's function
//! constants are globals, so that two threads cannot run kernels at once.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};

use ggml_rs::Device;

use crate::case::Case;
use crate::case::find_smaller;
use crate::engine::runner::{self, Settings, Target};
use crate::judge::outcome::CaseResult;
use crate::select::filter::split_case;

/// Starts every line of the protocol: whatever else writes to stdout is no answer.
pub(crate) const MARK: char = '\u{1e}';
/// The first line, once the device is open.
pub(crate) const READY: &str = "ready";

/// Why a worker ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The other side is gone.
    #[error("talk to the process that started this worker")]
    Io(#[from] io::Error),
    /// A result has no JSON form.
    #[error("send a result")]
    Json(#[from] serde_json::Error),
    /// A device could not be opened.
    #[error(transparent)]
    Device(#[from] ggml_rs::Error),
    /// A case string that no case has.
    #[error("no case is called {0}")]
    NoCase(String),
}

/// Runs cases by their strings until stdin ends.
///
/// # Errors
/// When a device cannot be opened, the other side is gone, or a case does not exist.
pub fn serve(
    cases: &[Box<dyn Case>],
    device: Device,
    threads: usize,
    settings: Settings,
) -> Result<(), Error> {
    let known: HashMap<String, &dyn Case> =
        cases.iter().map(|case| (case.name(), &**case)).collect();
    let mut target = Target::with_threads(device, threads)?;
    let mut cpu = Target::with_threads(Device::cpu()?, threads)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{MARK}{READY}")?;
    out.flush()?;
    for name in io::stdin().lock().lines() {
        let name = name?;
        let result = match known.get(&name) {
            Some(case) => runner::run(*case, &mut target, &mut cpu, settings),
            None => {
                let form = split_case(&name)
                    .and_then(|(op, params)| {
                        find_smaller(cases.iter().map(|case| &**case), op, params)
                    })
                    .ok_or(Error::NoCase(name))?;
                runner::run(&*form, &mut target, &mut cpu, settings)
            }
        };
        send(&mut out, &result)?;
    }
    Ok(())
}

fn send(out: &mut impl Write, result: &CaseResult) -> Result<(), Error> {
    writeln!(out, "{MARK}{}", serde_json::to_string(result)?)?;
    Ok(out.flush()?)
}
