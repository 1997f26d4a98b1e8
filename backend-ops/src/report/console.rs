//! The report for people: upstream's lines, with reasons and a way to repeat each failure.

use std::io::{self, Write};

use console::Style;
use ggml_rs::trace::Dispatch;
use ggml_rs::{Route, Staging};

use super::{DeviceInfo, Header, Report, arms};
use crate::case::Choices;
use crate::judge::exact::Exact;
use crate::judge::outcome::{CaseResult, Outcome, Reduced, Tally, Worst};

const MIB: usize = 1024 * 1024;

/// How a console report looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Whether to colour verdicts: only where a terminal shows them.
    pub colors: bool,
    /// Whether to hold a case's line back until it is complete. Without a progress bar the name is printed and flushed
    /// before the case runs; with one on the same terminal the bar shows the name meanwhile.
    pub whole_lines: bool,
    /// Whether to list the pipelines dispatched by each case.
    pub kernels: bool,
}

/// Prints one line per case, as upstream does, and a summary per device.
pub struct ConsoleReport<'r, W> {
    out: W,
    look: Look,
    ok: Style,
    fail: Style,
    /// The command that repeats a case, up to `-o`, for a device.
    repeat: Box<dyn Fn(&str) -> String + 'r>,
    /// What is asked of products, for the device's header.
    choices: Choices,
    devices: usize,
}

impl<'r, W: Write> ConsoleReport<'r, W> {
    /// A report to `out`. `repeat` makes the command that repeats a case on a device, up to the case itself, which follows `-o`.
    pub fn new(out: W, look: Look, repeat: impl Fn(&str) -> String + 'r) -> Self {
        let style = |style: Style| style.bold().force_styling(look.colors);
        Self {
            out,
            look,
            ok: style(Style::new().green()),
            fail: style(Style::new().red()),
            repeat: Box::new(repeat),
            choices: Choices::default(),
            devices: 0,
        }
    }

    /// Upstream's line of mode `support`.
    pub(crate) fn support(&mut self, name: &str, supported: bool) -> io::Result<()> {
        let verdict = match supported {
            true => self.ok.apply_to("SUPPORTED"),
            false => self.fail.apply_to("NOT SUPPORTED"),
        };
        writeln!(self.out, "  {name}: {verdict}")
    }

    /// Where it prints to, for lines of a mode's own below a device's header.
    pub(crate) fn writer(&mut self) -> &mut W {
        &mut self.out
    }

    fn verdict(&self, passed: bool) -> String {
        if passed {
            self.ok.apply_to("OK").to_string()
        } else {
            self.fail.apply_to("FAIL").to_string()
        }
    }

    fn list_kernels(&mut self, dispatches: &[Dispatch]) -> io::Result<()> {
        if dispatches.is_empty() {
            return writeln!(self.out, "      (no dispatches recorded)");
        }
        // A blocked product dispatches the same few pipelines many times over: count neighbours.
        for run in dispatches.chunk_by(|a, b| a == b) {
            let times = if run.len() > 1 {
                format!(" x{}", run.len())
            } else {
                String::new()
            };
            writeln!(
                self.out,
                "      {} ({} threadgroup bytes){times}",
                run[0].pipeline, run[0].threadgroup_bytes
            )?;
        }
        Ok(())
    }

    fn list_failures(&mut self, device: &DeviceInfo, tally: &Tally) -> io::Result<()> {
        if tally.failed().is_empty() {
            return Ok(());
        }
        let repeat = (self.repeat)(&device.name);
        writeln!(
            self.out,
            "\nFailing tests, each with the command that repeats it:"
        )?;
        for case in tally.failed() {
            writeln!(self.out, "  {case}")?;
            writeln!(self.out, "    {repeat} -o '{case}'")?;
            if let Some(reduced) = tally.reduced(case) {
                self.show_reduced(reduced, &repeat)?;
            }
        }
        writeln!(self.out)
    }

    fn show_reduced(&mut self, reduced: &Reduced, repeat: &str) -> io::Result<()> {
        let runs = reduced.runs;
        if reduced.smallest == reduced.case {
            return writeln!(self.out, "    no smaller form of it fails ({runs} run)");
        }
        let which = match reduced.cut_short {
            true => "a smaller form that fails, not the smallest",
            false => "the smallest form that fails",
        };
        writeln!(self.out, "    {which} ({runs} run): {}", reduced.failure)?;
        writeln!(self.out, "    {repeat} -o '{}'", reduced.smallest)
    }

    fn show_exact(&mut self, exact: &Exact) -> io::Result<()> {
        writeln!(
            self.out,
            "      {}: {} of {} elements differ in bits",
            exact.against, exact.differ, exact.elements
        )?;
        if let Some(worst) = &exact.worst {
            writeln!(self.out, "        worst:    {worst}")?;
        }
        match &exact.furthest {
            Some(furthest)
                if exact
                    .worst
                    .is_none_or(|worst| worst.index != furthest.index) =>
            {
                writeln!(self.out, "        furthest: {furthest}")
            }
            _ => Ok(()),
        }
    }

    fn list_counts(&mut self, tally: &Tally) -> io::Result<()> {
        let unsupported = tally.total() - tally.run();
        writeln!(
            self.out,
            "  run {}, unsupported {unsupported}, total {}",
            tally.run(),
            tally.total()
        )?;
        for (reason, count) in tally.unsupported() {
            writeln!(self.out, "    unsupported: {count:5} {reason}")?;
        }
        if !tally.gradients().is_empty() {
            for line in tally.gradients().lines().map_err(io::Error::other)? {
                writeln!(self.out, "  {line}")?;
            }
        }
        match tally.worst() {
            Some(worst) => writeln!(self.out, "  {}", describe(worst)),
            None => Ok(()),
        }
    }
}

fn describe(worst: &Worst) -> String {
    let margin = match worst.share() {
        0.0 => "exact".to_owned(),
        share if share > 1.0 => "beyond the limit".to_owned(),
        share => format!("{:.1} times below the limit", 1.0 / share),
    };
    format!(
        "worst NMSE {:.3e} of at most {:.1e} ({margin}): {}",
        worst.nmse, worst.limit, worst.case
    )
}

fn describe_route(device: &DeviceInfo, route: Route) -> String {
    let name = match route {
        Route::MatVec => "mat-vec (MUL_MAT row by row)",
        Route::Direct => "direct (OUT_PROD in one kernel, without temporaries, staged in float)",
        _ => "auto (MUL_MAT as the device decides; OUT_PROD with temporaries)",
    };
    match device.tensor_api {
        Some(_) => name.to_owned(),
        None => format!("{name} (no effect on this device)"),
    }
}

fn describe_staging(tensor_api: Option<bool>, choices: Choices) -> String {
    let name = match choices.staging {
        None => "each op's own (OUT_PROD float; MUL_MAT and MUL_MAT_ID half)",
        Some(Staging::Float) => "float",
        Some(Staging::FloatWeights) => "float weights",
        Some(Staging::FloatActivations) => "float activations",
        Some(_) => "half",
    };
    match tensor_api {
        Some(true) => {
            let ops = match choices.route {
                Some(Route::Direct) => "MUL_MAT",
                _ => "OUT_PROD and MUL_MAT",
            };
            format!("{name}; the tensor kernel of {ops} stages a alone and reads b in place")
        }
        Some(false) => name.to_owned(),
        None => format!("{name} (no effect on this device)"),
    }
}

impl<W: Write> Report for ConsoleReport<'_, W> {
    fn begin(&mut self, header: &Header) -> io::Result<()> {
        self.choices = header.choices;
        self.devices = header.devices;
        writeln!(
            self.out,
            "ggml {}, build {}, seed {}",
            header.ggml_version, header.build_hash, header.seed
        )?;
        writeln!(self.out, "Testing {} devices\n", header.devices)
    }

    fn skip_device(&mut self, device: &DeviceInfo, reason: &str) -> io::Result<()> {
        writeln!(
            self.out,
            "Backend {}/{}: {}\n  {reason}",
            device.index + 1,
            self.devices,
            device.name
        )
    }

    fn begin_device(&mut self, device: &DeviceInfo) -> io::Result<()> {
        writeln!(
            self.out,
            "Backend {}/{}: {}",
            device.index + 1,
            self.devices,
            device.name
        )?;
        writeln!(self.out, "  Device description: {}", device.description)?;
        writeln!(
            self.out,
            "  Device memory: {} MB ({} MB free)",
            device.memory.total / MIB,
            device.memory.free / MIB
        )?;
        if let Some(on) = device.tensor_api {
            writeln!(self.out, "  tensor API: {}", if on { "on" } else { "off" })?;
        }
        writeln!(
            self.out,
            "  staging: {}",
            describe_staging(device.tensor_api, self.choices)
        )?;
        if let Some(route) = self.choices.route {
            writeln!(self.out, "  route: {}", describe_route(device, route))?;
        }
        writeln!(self.out)
    }

    fn begin_case(&mut self, name: &str) -> io::Result<()> {
        if self.look.whole_lines {
            return Ok(());
        }
        write!(self.out, "  {name}: ")?;
        // The case may end the process: its name must be out by then.
        self.out.flush()
    }

    fn end_case(&mut self, device: &DeviceInfo, result: &CaseResult) -> io::Result<()> {
        if self.look.whole_lines {
            write!(self.out, "  {}: ", result.name())?;
        }
        match &result.outcome {
            Outcome::Passed => writeln!(self.out, "{}", self.verdict(true))?,
            Outcome::Failed(failure) => writeln!(self.out, "{failure} {}", self.verdict(false))?,
            Outcome::Unsupported(reason) => {
                writeln!(self.out, "not supported [{}] {reason}", device.name)?
            }
        }
        for exact in &result.exact {
            self.show_exact(exact)?;
        }
        if let Some(checked) = result
            .gradient
            .as_ref()
            .filter(|checked| checked.is_partial())
        {
            writeln!(self.out, "      {checked}")?;
        }
        for line in arms::lines(&result.arms) {
            writeln!(self.out, "      {line}")?;
        }
        if self.look.kernels && !matches!(result.outcome, Outcome::Unsupported(_)) {
            self.list_kernels(&result.kernels)?;
        }
        Ok(())
    }

    fn end_device(&mut self, device: &DeviceInfo, tally: &Tally) -> io::Result<()> {
        self.list_failures(device, tally)?;
        self.list_counts(tally)?;
        writeln!(
            self.out,
            "  {}/{} tests passed",
            tally.passed(),
            tally.run()
        )?;
        writeln!(
            self.out,
            "  Backend {}: {}",
            device.name,
            self.verdict(tally.is_pass())
        )
    }

    fn finish(&mut self, passed: usize, devices: usize) -> io::Result<()> {
        writeln!(self.out, "{passed}/{devices} backends passed")?;
        writeln!(self.out, "{}", self.verdict(passed == devices))?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use ggml_rs::check::Difference;

    use super::*;
    use crate::judge::outcome::{Against, Failure};
    use crate::report::samples;

    fn printed(
        look: Look,
        drive: impl FnOnce(&mut ConsoleReport<'_, &mut Vec<u8>>) -> io::Result<()>,
    ) -> String {
        let mut out = Vec::new();
        let repeat = |device: &str| format!("backend-ops test -b {device} --seed 7");
        drive(&mut ConsoleReport::new(&mut out, look, repeat)).expect("writing to memory");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn the_name_is_out_before_the_case_runs() {
        assert_eq!(
            printed(Look::default(), |r| r.begin_case("ADD(m=1)")),
            "  ADD(m=1): "
        );
        assert_eq!(
            printed(
                Look {
                    whole_lines: true,
                    ..Look::default()
                },
                |r| r.begin_case("ADD(m=1)")
            ),
            ""
        );
    }

    #[test]
    fn one_line_per_case_in_upstreams_form() {
        let at = Difference {
            index: 3,
            reference: 2.5,
            got: f32::NAN,
        };
        let nan = Failure::Nan {
            at,
            against: Against::Reference,
        };
        for (outcome, line) in [
            (Outcome::Passed, "  ADD(m=1): OK\n"),
            (
                Outcome::Failed(nan),
                "  ADD(m=1): NaN at index 3 (device=NaN, f64 reference=2.5) FAIL\n",
            ),
            (
                Outcome::Unsupported("src1 type f16".into()),
                "  ADD(m=1): not supported [MTL0] src1 type f16\n",
            ),
        ] {
            let result = samples::result(outcome);
            let split = printed(Look::default(), |r| {
                r.begin_case(&result.name())?;
                r.end_case(&samples::device(), &result)
            });
            let whole = Look {
                whole_lines: true,
                ..Look::default()
            };
            assert_eq!(split, line);
            assert_eq!(
                printed(whole, |r| r.end_case(&samples::device(), &result)),
                line
            );
        }
    }

    #[test]
    fn a_failure_comes_with_the_command_that_repeats_it() {
        let mut tally = Tally::default();
        tally.add(&samples::result(Outcome::Failed(Failure::Routing(
            "x".into(),
        ))));
        let text = printed(Look::default(), |r| {
            r.end_device(&samples::device(), &tally)
        });
        assert!(
            text.contains("backend-ops test -b MTL0 --seed 7 -o 'ADD(m=1)'"),
            "{text}"
        );
        assert!(text.contains("  0/1 tests passed\n"), "{text}");
    }

    #[test]
    fn a_smaller_form_comes_with_its_command() {
        let mut tally = Tally::default();
        tally.add(&samples::result(Outcome::Failed(Failure::Routing(
            "x".into(),
        ))));
        tally.add_reduced(Reduced {
            case: "ADD(m=1)".into(),
            smallest: "ADD(m=0)".into(),
            failure: "routing: y".into(),
            runs: 3,
            cut_short: false,
        });
        let text = printed(Look::default(), |r| {
            r.end_device(&samples::device(), &tally)
        });
        assert!(
            text.contains(
                "    the smallest form that fails (3 run): routing: y\n    \
                 backend-ops test -b MTL0 --seed 7 -o 'ADD(m=0)'\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn exact_elements_follow_their_case() {
        let form = (ggml_rs::DType::F32, [2, 1, 1, 1]);
        let exact = Exact::measure(form, Against::Reference, &[1.0, 8.0], &[1.5, 8.75]);
        let result = CaseResult {
            exact: vec![exact],
            ..samples::result(Outcome::Passed)
        };
        let text = printed(Look::default(), |r| r.end_case(&samples::device(), &result));
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines[1], "f64 reference: 2 of 2 elements differ in bits");
        assert!(
            lines[2].starts_with("worst:    index 1 = [1,0,0,0]: device 8.75"),
            "{text}"
        );
        assert!(
            lines[3].starts_with("furthest: index 0 = [0,0,0,0]: device 1.5"),
            "{text}"
        );
    }

    #[test]
    fn nothing_run_is_not_ok() {
        let text = printed(Look::default(), |r| {
            r.end_device(&samples::device(), &Tally::default())
        });
        assert!(
            text.contains("0/0 tests passed") && text.contains("Backend MTL0: FAIL"),
            "{text}"
        );
    }

    #[test]
    fn colours_only_on_request() {
        let colored = Look {
            colors: true,
            ..Look::default()
        };
        let result = samples::result(Outcome::Passed);
        assert!(printed(colored, |r| r.end_case(&samples::device(), &result)).contains("\u{1b}["));
        assert!(
            !printed(Look::default(), |r| r.end_case(&samples::device(), &result))
                .contains('\u{1b}')
        );
    }

    #[test]
    fn kernels_are_listed_with_their_bytes() {
        let kernels = Look {
            kernels: true,
            ..Look::default()
        };
        let dispatch = Dispatch {
            pipeline: "kernel_mul_mm".into(),
            threadgroup_bytes: 12288,
        };
        let result = CaseResult {
            kernels: vec![dispatch.clone(), dispatch],
            ..samples::result(Outcome::Passed)
        };
        let text = printed(kernels, |r| r.end_case(&samples::device(), &result));
        assert!(
            text.ends_with("      kernel_mul_mm (12288 threadgroup bytes) x2\n"),
            "{text}"
        );
    }

    #[test]
    fn staging_says_what_it_has_an_effect_on() {
        let half = Choices {
            staging: Some(Staging::Half),
            route: None,
        };
        assert_eq!(describe_staging(Some(false), half), "half");
        assert!(describe_staging(Some(true), half).contains("reads b in place"));
        assert!(describe_staging(None, Choices::default()).contains("no effect"));
    }

    #[test]
    fn a_route_stands_in_the_header_where_one_is_asked_for() {
        let header = |route| {
            printed(Look::default(), |r| {
                let choices = Choices {
                    staging: None,
                    route,
                };
                r.begin(&Header {
                    choices,
                    ..samples::header()
                })?;
                r.begin_device(&samples::device())
            })
        };
        assert!(!header(None).contains("route"));
        let direct = header(Some(Route::Direct));
        assert!(
            direct.contains("  route: direct (OUT_PROD in one kernel"),
            "{direct}"
        );
    }
}
