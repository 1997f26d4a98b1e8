//! `cargo xtask mac-report`: what a Mac says, in one Markdown file for an issue.
//!
//! Every step is recorded as it went: a step that could not run is reported as not run, with the reason, and the next one
//! follows. On other hosts only the simulated device can be asked, and the report says so at its top and at every table.

mod facts;
mod render;
mod step;

use std::path::PathBuf;

use anyhow::{Result, ensure};

pub use self::{
    render::render,
    step::{Ending, Ran, Section, Tested},
};

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Ask the simulated device; a real one otherwise.
    pub simulated: bool,
    /// A built `backend-ops`; cargo builds and runs it where none is given.
    pub backend_ops: Option<PathBuf>,
    /// Only cases whose parameters match this: the report then says that it is partial.
    pub params: Option<String>,
    /// The gate alone: neither the other cases, nor bench, nor symbols.
    pub gate_only: bool,
}

/// Everything that a report holds.
#[derive(Debug, Clone)]
pub struct Report {
    /// Whether nothing in it speaks of Apple hardware.
    pub simulated: bool,
    /// The selection, where not all cases were asked for.
    pub partial: Option<String>,
    /// The machine, name and value.
    pub facts: Vec<(String, String)>,
    /// Runs of backend-ops.
    pub tested: Vec<Tested>,
    /// Other commands, with what they printed.
    pub sections: Vec<Section>,
}

impl Report {
    /// Whether everything ran and nothing failed but what has to fail: half staging on the simdgroup kernel overflows.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.tested.iter().all(Tested::is_as_expected)
            && self
                .sections
                .iter()
                .all(|section| matches!(section.ending, Ending::Code(0)))
    }
}

/// Runs all steps.
///
/// # Errors
/// On a host that is no Mac, unless the simulated device is asked for.
pub fn collect(options: &Options) -> Result<Report> {
    ensure!(
        cfg!(target_os = "macos") != options.simulated,
        if options.simulated {
            "this is a Mac: there is no simulated device in its build. Leave --simulated out"
        } else {
            "this is no Mac, so nothing here can speak of Apple hardware. --simulated tries the report on the simulated device"
        }
    );
    let mut tested = Vec::new();
    for tensor in ["off", "on"] {
        for staging in ["float", "half"] {
            let arguments = [
                "-o",
                "OUT_PROD",
                "--set",
                "gate",
                "--tensor",
                tensor,
                "--staging",
                staging,
            ];
            eprintln!("gate: tensor {tensor}, staging {staging}");
            tested.push(step::backend_ops(options, "gate", &arguments));
        }
    }
    eprintln!("gate: the direct route");
    tested.push(step::backend_ops(
        options,
        "gate",
        &["-o", "OUT_PROD", "--set", "gate", "--route", "direct"],
    ));
    let mut sections = Vec::new();
    if !options.gate_only {
        eprintln!("upstream's cases");
        tested.push(step::backend_ops(
            options,
            "upstream's cases",
            &["--set", "upstream"],
        ));
        for tensor in ["off", "on"] {
            eprintln!("float staging of the other products: tensor {tensor}");
            tested.push(step::backend_ops(
                options,
                "float-staged products",
                &[
                    "-o",
                    "MUL_MAT,MUL_MAT_ID",
                    "--staging",
                    "float",
                    "--tensor",
                    tensor,
                ],
            ));
            tested.push(step::backend_ops(
                options,
                "ground truth",
                &[
                    "-o",
                    "MUL_MAT_ID",
                    "--set",
                    "ground-truth",
                    "--tensor",
                    tensor,
                ],
            ));
        }
        eprintln!("the direct route");
        tested.push(step::backend_ops(
            options,
            "OUT_PROD's direct route",
            &["-o", "OUT_PROD", "--route", "direct"],
        ));
        // Whether it is faster, beside both stagings with temporaries.
        sections.push(step::cargo(
            "OUT_PROD with and without temporaries",
            &[
                "run",
                "--release",
                "-p",
                "backend-ops",
                "--",
                "perf",
                "-b",
                "MTL0",
                "--set",
                "staging",
                "--tensor",
                "off",
            ],
        ));
        eprintln!("staging bench");
        sections.push(step::cargo(
            "Staging bench",
            &["bench", "-p", "ggml-rs-benches", "--bench", "staging"],
        ));
        eprintln!("symbols");
        // This test runs nm on the archive and lists every strong symbol without the prefix.
        sections.push(step::cargo(
            "Symbols of the archive (nm)",
            &["test", "-p", "ggml-sys", "--test", "symbols"],
        ));
    }
    Ok(Report {
        simulated: options.simulated,
        partial: options.params.clone(),
        facts: facts::collect(&tested),
        tested,
        sections,
    })
}
