//! Upstream's machine-readable formats: SQL and CSV, and JSON lines with the same fields, a hash of the result, and what was checked
//! of a gradient.

use std::io::{self, Write};
use std::time::SystemTime;

use serde::Serialize;

use super::{DeviceInfo, Header, Report};
use crate::case::Case;
use crate::judge::outcome::{CaseResult, Outcome};
use crate::judge::study::{Arm, MAX_ABS, Path};
use crate::modes::grad::Checked;

/// A result as upstream's table `test_backend_ops` holds it: its 16 fields in its order.
///
/// Mode `test` measures nothing, so the fields of mode `perf` are zero, as they are upstream.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// UTC, to the second.
    pub test_time: String,
    /// Upstream's commit; the build hash here.
    pub build_commit: String,
    /// The device's name.
    pub backend_name: String,
    /// ggml's op name.
    pub op_name: String,
    /// The parameters of the case string.
    pub op_params: String,
    /// `test` or `grad`; ours: `arm` for one arm of a study.
    pub test_mode: &'static str,
    /// Whether the device supports the case.
    pub supported: bool,
    /// Whether it passed.
    pub passed: bool,
    /// Why not.
    pub error_message: String,
    /// Mode `perf` only.
    pub time_us: f64,
    /// Mode `perf` only.
    pub flops: f64,
    /// Mode `perf` only.
    pub bandwidth_gb_s: f64,
    /// Mode `perf` only.
    pub memory_kb: u64,
    /// Mode `perf` only.
    pub n_runs: u64,
    /// The device's description; contains "simulated" for a simulated device.
    pub device_description: String,
    /// The backend the device belongs to.
    pub backend_reg_name: String,
    /// Hash of the result's bits, `null` where the case did not run. Ours, and in JSON only.
    pub result_hash: Option<String>,
}

impl Row {
    /// The row of a result.
    #[must_use]
    pub fn new(
        build_hash: &str,
        device: &DeviceInfo,
        result: &CaseResult,
        time: SystemTime,
    ) -> Self {
        let error_message = match &result.outcome {
            Outcome::Passed => String::new(),
            Outcome::Failed(failure) => failure.to_string(),
            Outcome::Unsupported(reason) => format!("not supported: {reason}"),
        };
        Self {
            test_time: humantime::format_rfc3339_seconds(time).to_string(),
            build_commit: build_hash.to_owned(),
            backend_name: device.name.clone(),
            op_name: result.op.to_owned(),
            op_params: result.params.clone(),
            test_mode: "test",
            supported: !matches!(result.outcome, Outcome::Unsupported(_)),
            passed: result.outcome == Outcome::Passed,
            error_message,
            device_description: device.description.clone(),
            backend_reg_name: device.registry.clone(),
            result_hash: result.hash.map(|hash| format!("{hash:016x}")),
            ..Self::default()
        }
    }

    /// The row of a case in another mode, without anything that the mode finds out.
    #[must_use]
    pub(crate) fn of_mode(mode: &'static str, case: &dyn Case, device: &DeviceInfo) -> Self {
        Self {
            test_time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            build_commit: ggml_sys::BUILD.hash.to_owned(),
            backend_name: device.name.clone(),
            op_name: case.op().to_owned(),
            op_params: case.params(),
            test_mode: mode,
            device_description: device.description.clone(),
            backend_reg_name: device.registry.clone(),
            ..Self::default()
        }
    }

    /// The row of one arm of a study, which follows that of its case. Upstream's fields have no place for its numbers, so they
    /// stand behind the parameters.
    #[must_use]
    pub fn of_arm(case: &Self, arm: &Arm) -> Self {
        let threadgroup = arm.kernel.as_ref().map_or_else(String::new, |kernel| {
            format!(",threadgroup_bytes={}", kernel.threadgroup_bytes)
        });
        let passed = arm.is_within_bound();
        let error_message = if passed {
            String::new()
        } else {
            format!("max_abs above {MAX_ABS:e}")
        };
        // A row belongs to the device that computed it.
        let cpu = arm.path == Path::CpuBackend;
        let device = |own: &str| {
            if cpu {
                "CPU".to_owned()
            } else {
                own.to_owned()
            }
        };
        Self {
            backend_name: device(&case.backend_name),
            device_description: device(&case.device_description),
            backend_reg_name: device(&case.backend_reg_name),
            op_params: format!(
                "{},arm={},rms={:.3e},max_abs={:.3e}{threadgroup}",
                case.op_params,
                arm.path.name().replace(' ', "_"),
                arm.rms,
                arm.max_abs
            ),
            test_mode: "arm",
            supported: true,
            passed,
            error_message,
            result_hash: Some(format!("{:016x}", arm.hash)),
            ..case.clone()
        }
    }

    /// Field name, SQL type and value as text, in upstream's order.
    fn fields(&self) -> [(&'static str, &'static str, String); 16] {
        let flag = |flag: bool| u8::from(flag).to_string();
        let real = |value: f64| format!("{value:.6}");
        [
            ("test_time", "TEXT", self.test_time.clone()),
            ("build_commit", "TEXT", self.build_commit.clone()),
            ("backend_name", "TEXT", self.backend_name.clone()),
            ("op_name", "TEXT", self.op_name.clone()),
            ("op_params", "TEXT", self.op_params.clone()),
            ("test_mode", "TEXT", self.test_mode.to_owned()),
            ("supported", "INTEGER", flag(self.supported)),
            ("passed", "INTEGER", flag(self.passed)),
            ("error_message", "TEXT", self.error_message.clone()),
            ("time_us", "REAL", real(self.time_us)),
            ("flops", "REAL", real(self.flops)),
            ("bandwidth_gb_s", "REAL", real(self.bandwidth_gb_s)),
            ("memory_kb", "INTEGER", self.memory_kb.to_string()),
            ("n_runs", "INTEGER", self.n_runs.to_string()),
            (
                "device_description",
                "TEXT",
                self.device_description.clone(),
            ),
            ("backend_reg_name", "TEXT", self.backend_reg_name.clone()),
        ]
    }
}

/// A machine-readable format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// `CREATE TABLE` and one `INSERT` per case, for sqlite3.
    Sql,
    /// Seven of the fields, every value quoted.
    Csv,
    /// One object per line, all fields and the result's hash.
    Json,
}

/// What stands behind the fields of a checked gradient's row, in JSON only.
#[derive(Serialize)]
struct Gradient<'a> {
    gradient: &'a Checked,
}

/// The fields of CSV rows, which upstream prints in the order of the full row.
const CSV_FIELDS: [&str; 7] = [
    "backend_name",
    "op_name",
    "op_params",
    "test_mode",
    "supported",
    "error_message",
    "backend_reg_name",
];

/// Prints one row per case and nothing else.
pub struct RowReport<W> {
    out: W,
    format: RowFormat,
    mode: &'static str,
    build_hash: String,
}

impl<W: Write> RowReport<W> {
    /// A report to `out`.
    pub fn new(out: W, format: RowFormat) -> Self {
        Self {
            out,
            format,
            mode: "test",
            build_hash: String::new(),
        }
    }

    /// The same with rows of another mode than `test`.
    #[must_use]
    pub fn mode(self, mode: &'static str) -> Self {
        Self { mode, ..self }
    }

    /// Prints a row; as JSON, with the fields of `extra` behind its own.
    pub(crate) fn write_with(&mut self, row: &Row, extra: &impl Serialize) -> io::Result<()> {
        #[derive(Serialize)]
        struct With<'a, E> {
            #[serde(flatten)]
            row: &'a Row,
            #[serde(flatten)]
            extra: &'a E,
        }
        if self.format == RowFormat::Json {
            serde_json::to_writer(&mut self.out, &With { row, extra })?;
            writeln!(self.out)?;
        } else {
            self.write_row(row)?;
        }
        self.out.flush()
    }

    pub(crate) fn write_row(&mut self, row: &Row) -> io::Result<()> {
        match self.format {
            RowFormat::Sql => {
                let fields = row.fields();
                let names: Vec<_> = fields.iter().map(|(name, _, _)| *name).collect();
                let values: Vec<_> = fields.iter().map(|(_, _, value)| sql_text(value)).collect();
                writeln!(
                    self.out,
                    "INSERT INTO test_backend_ops ({}) VALUES ({});",
                    names.join(", "),
                    values.join(", ")
                )
            }
            RowFormat::Csv => {
                let fields = row.fields();
                let values = fields.iter().filter(|(name, ..)| CSV_FIELDS.contains(name));
                let line: Vec<_> = values.map(|(_, _, value)| csv_text(value)).collect();
                writeln!(self.out, "{}", line.join(","))
            }
            RowFormat::Json => {
                serde_json::to_writer(&mut self.out, row)?;
                writeln!(self.out)
            }
        }
    }
}

fn sql_text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

fn csv_text(value: &str) -> String {
    format!("\"{}\"", value.replace('"', "\"\""))
}

/// `CREATE TABLE`, from the same list of fields as the rows.
fn sql_table(row: &Row) -> String {
    let columns: Vec<_> = row
        .fields()
        .iter()
        .map(|(name, kind, _)| format!("  {name} {kind}"))
        .collect();
    format!(
        "CREATE TABLE IF NOT EXISTS test_backend_ops (\n{}\n);\n",
        columns.join(",\n")
    )
}

impl<W: Write> Report for RowReport<W> {
    fn begin(&mut self, header: &Header) -> io::Result<()> {
        self.build_hash.clone_from(&header.build_hash);
        match self.format {
            RowFormat::Sql => writeln!(self.out, "{}", sql_table(&Row::default())),
            RowFormat::Csv => {
                let names: Vec<_> = CSV_FIELDS.iter().map(|name| csv_text(name)).collect();
                writeln!(self.out, "{}", names.join(","))
            }
            RowFormat::Json => Ok(()),
        }
    }

    fn end_case(&mut self, device: &DeviceInfo, result: &CaseResult) -> io::Result<()> {
        let row = Row {
            test_mode: self.mode,
            ..Row::new(&self.build_hash, device, result, SystemTime::now())
        };
        match &result.gradient {
            Some(gradient) => self.write_with(&row, &Gradient { gradient })?,
            None => self.write_row(&row)?,
        }
        for arm in &result.arms {
            self.write_row(&Row::of_arm(&row, arm))?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use ggml_rs::Staging;

    use super::*;
    use crate::judge::study::Path;
    use crate::report::samples;

    fn printed(format: RowFormat, outcome: Outcome) -> String {
        let mut out = Vec::new();
        let mut report = RowReport::new(&mut out, format);
        report.begin(&samples::header()).expect("writing to memory");
        report
            .end_case(&samples::device(), &samples::result(outcome))
            .expect("writing to memory");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn csv_has_upstreams_seven_fields() {
        let text = printed(RowFormat::Csv, Outcome::Unsupported("src1 \"f16\"".into()));
        assert_eq!(
            text,
            "\"backend_name\",\"op_name\",\"op_params\",\"test_mode\",\"supported\",\"error_message\",\"backend_reg_name\"\n\
             \"MTL0\",\"ADD\",\"m=1\",\"test\",\"0\",\"not supported: src1 \"\"f16\"\"\",\"MTL\"\n"
        );
    }

    #[test]
    fn sql_creates_the_table_it_fills() {
        let text = printed(RowFormat::Sql, Outcome::Passed);
        let (table, insert) = text
            .split_once("\n\n")
            .expect("a blank line after the table");
        assert_eq!(
            table.matches(" TEXT").count()
                + table.matches(" INTEGER").count()
                + table.matches(" REAL").count(),
            16
        );
        assert!(
            insert.contains("'MTL0', 'ADD', 'm=1', 'test', '1', '1', '', '0.000000'"),
            "{insert}"
        );
        assert!(insert.ends_with("'MTL');\n"), "{insert}");
    }

    #[test]
    fn sql_quotes_are_doubled() {
        assert_eq!(sql_text("it's"), "'it''s'");
    }

    #[test]
    fn json_is_one_object_per_line() {
        let text = printed(RowFormat::Json, Outcome::Passed);
        let row: serde_json::Value = serde_json::from_str(text.trim_end()).expect("one object");
        assert_eq!(row.as_object().map(serde_json::Map::len), Some(17));
        assert_eq!(row["passed"], true);
        assert_eq!(row["build_commit"], "abc");
    }

    #[test]
    fn a_gradients_row_names_its_operands_and_what_the_cpu_did() {
        let checked = Checked {
            trained: vec!["a".to_owned()],
            untrained: [("b".to_owned(), "why".to_owned())].into(),
            on_cpu: ["REPEAT_BACK".to_owned()].into(),
            ..Checked::default()
        };
        let result = CaseResult {
            gradient: Some(Box::new(checked)),
            ..samples::result(Outcome::Unsupported("CPU".into()))
        };
        let mut out = Vec::new();
        let mut report = RowReport::new(&mut out, RowFormat::Json);
        report
            .end_case(&samples::device(), &result)
            .expect("writing to memory");
        let row: serde_json::Value = serde_json::from_slice(&out).expect("one object");
        assert_eq!(
            (&row["passed"], &row["supported"]),
            (&false.into(), &false.into())
        );
        let gradient = &row["gradient"];
        assert_eq!(gradient["trained"][0], "a");
        assert_eq!(gradient["untrained"]["b"], "why");
        assert_eq!(gradient["on_cpu"][0], "REPEAT_BACK");
    }

    #[test]
    fn arms_follow_their_case_with_its_parameters() {
        let arm = |path, max_abs| Arm {
            path,
            rms: 4.13e-4,
            max_abs,
            kernel: None,
            hash: 1,
        };
        let result = CaseResult {
            arms: vec![
                arm(Path::Staged(Staging::FloatWeights), 6e-3),
                arm(Path::CpuBackend, 6e-2),
            ],
            ..samples::result(Outcome::Passed)
        };
        let mut out = Vec::new();
        let mut report = RowReport::new(&mut out, RowFormat::Csv);
        report
            .end_case(&samples::device(), &result)
            .expect("writing to memory");
        let text = String::from_utf8(out).expect("UTF-8");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[1],
            "\"MTL0\",\"ADD\",\"m=1,arm=float_weights,rms=4.130e-4,max_abs=6.000e-3\",\"arm\",\"1\",\"max_abs above 5e-3\",\"MTL\""
        );
        // Exempt from the bound.
        assert!(lines[2].contains("arm=CPU_backend") && lines[2].contains("\"1\",\"\","));
    }

    #[test]
    fn the_time_is_upstreams_format() {
        let row = Row::new(
            "abc",
            &samples::device(),
            &samples::result(Outcome::Passed),
            SystemTime::UNIX_EPOCH,
        );
        assert_eq!(row.test_time, "1970-01-01T00:00:00Z");
    }
}
