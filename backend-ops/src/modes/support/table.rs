//! docs/ops.md: operations by device, printed and read back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How much of an operation a device runs, by the cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Every case.
    Full,
    /// Some cases.
    Partial,
    /// No case.
    None,
    /// Nobody asked the device: it is not here, and was not when the table was made.
    Unknown,
}

impl Support {
    fn from_counts(supported: usize, total: usize) -> Self {
        match supported {
            0 => Self::None,
            all if all == total => Self::Full,
            _ => Self::Partial,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::None => "none",
            Self::Unknown => "?",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Full, Self::Partial, Self::None, Self::Unknown]
            .into_iter()
            .find(|support| support.name() == text)
    }
}

/// A device's answers, by operation.
#[derive(Clone, Debug, Default)]
pub struct Answers(BTreeMap<String, (usize, usize)>);

impl Answers {
    /// Adds the answer to a case.
    pub fn add(&mut self, op: &str, supported: bool) {
        let (yes, all) = self.0.entry(op.to_owned()).or_default();
        *yes += usize::from(supported);
        *all += 1;
    }
}

/// Operations by device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Operations, each with its support in the order of `devices`.
    ops: BTreeMap<String, Vec<Support>>,
    devices: Vec<String>,
}

/// The order of columns, whatever devices there are.
const ORDER: [&str; 3] = ["CPU", "Metal (simulated)", "BLAS"];

const HEAD: &str = "\
# Operations by device

Generated: `cargo run --release -p backend-ops --features blas -- support --output markdown --update docs/ops.md`. Do not edit; a test
(tests/tests/ops_doc.rs) makes the table again and compares.

From the cases of `backend-ops`, which a device is asked about and does not run: full, it supports every case of the operation;
partial, some; none, none. ggml-rs's own checks and tables have a say, then the device's `supports_op`. Metal is the simulated device,
with its tensor API off: it answers for the Apple GPU that it describes itself as. `?`: the device was not there when the table was made.
";

impl Table {
    /// A table of operations without devices.
    pub fn new(ops: impl Iterator<Item = &'static str>) -> Self {
        Self {
            ops: ops.map(|op| (op.to_owned(), Vec::new())).collect(),
            devices: Vec::new(),
        }
    }

    /// Adds a device's column.
    pub fn add(&mut self, device: String, answers: &Answers) {
        let answers = &answers.0;
        for (op, row) in &mut self.ops {
            let (yes, all) = answers.get(op).copied().unwrap_or_default();
            row.push(Support::from_counts(yes, all));
        }
        self.devices.push(device);
    }

    /// The devices that have a column.
    #[must_use]
    pub fn devices(&self) -> &[String] {
        &self.devices
    }

    /// The operations.
    pub fn ops(&self) -> impl Iterator<Item = &str> {
        self.ops.keys().map(String::as_str)
    }

    /// How much of an operation a device runs; unknown without such a row or column.
    #[must_use]
    pub fn get(&self, op: &str, device: &str) -> Support {
        let column = self.devices.iter().position(|name| name == device);
        let found = column.and_then(|column| Some(self.ops.get(op)?[column]));
        found.unwrap_or(Support::Unknown)
    }

    /// The table with the columns of an older one for devices that are not here: a machine without OpenBLAS must be able
    /// to make it. An operation that the older one lacks is unknown there.
    #[must_use]
    pub fn with_columns_of(mut self, older: &Self) -> Self {
        let missing: Vec<_> = older
            .devices
            .iter()
            .filter(|device| !self.devices.contains(device))
            .cloned()
            .collect();
        for device in missing {
            for (op, row) in &mut self.ops {
                row.push(older.get(op, &device));
            }
            self.devices.push(device);
        }
        self
    }

    /// The table without the columns of other devices.
    #[must_use]
    pub fn only(mut self, devices: &[String]) -> Self {
        let keep: Vec<bool> = (self.devices.iter())
            .map(|name| devices.contains(name))
            .collect();
        for row in self.ops.values_mut() {
            let mut kept = keep.iter();
            row.retain(|_| kept.next() == Some(&true));
        }
        self.devices.retain(|name| devices.contains(name));
        self
    }

    /// Reads a printed table. Text around it is passed over.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut rows = text
            .lines()
            .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
            .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        let devices: Vec<String> = rows.next()?[1..].iter().map(|&name| name.into()).collect();
        let mut ops = BTreeMap::new();
        for row in rows.skip(1) {
            let support: Option<Vec<_>> =
                row[1..].iter().map(|cell| Support::parse(cell)).collect();
            ops.insert(row[0].to_owned(), support?);
        }
        let complete = ops.values().all(|row| row.len() == devices.len());
        complete.then_some(Self { ops, devices })
    }

    /// Columns in [`ORDER`], others behind them.
    fn columns(&self) -> Vec<&str> {
        let present: BTreeSet<&str> = self.devices.iter().map(String::as_str).collect();
        let known = ORDER.into_iter().filter(|name| present.contains(name));
        let others = present.iter().copied().filter(|name| !ORDER.contains(name));
        known.chain(others).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.columns();
        writeln!(f, "{HEAD}")?;
        writeln!(f, "| operation | {} |", columns.join(" | "))?;
        writeln!(f, "|---|{}", "---|".repeat(columns.len()))?;
        for op in self.ops() {
            let cells: Vec<_> = columns
                .iter()
                .map(|device| self.get(op, device).name())
                .collect();
            writeln!(f, "| {op} | {} |", cells.join(" | "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(list: &[(&str, bool)]) -> Answers {
        let mut answers = Answers::default();
        for (op, supported) in list {
            answers.add(op, *supported);
        }
        answers
    }

    fn sample() -> Table {
        let mut table = Table::new(["ADD", "SUM", "CONV_2D"].into_iter());
        let cpu = [
            ("ADD", true),
            ("SUM", true),
            ("SUM", false),
            ("CONV_2D", false),
        ];
        table.add("CPU".into(), &answers(&cpu));
        table
    }

    #[test]
    fn support_is_full_partial_or_none() {
        let table = sample();
        assert_eq!(table.get("ADD", "CPU"), Support::Full);
        assert_eq!(table.get("SUM", "CPU"), Support::Partial);
        assert_eq!(table.get("CONV_2D", "CPU"), Support::None);
        assert_eq!(table.get("ADD", "BLAS"), Support::Unknown);
        assert_eq!(table.get("MUL", "CPU"), Support::Unknown);
    }

    #[test]
    fn what_is_printed_can_be_read() {
        let mut table = sample();
        let nothing = answers(&[("ADD", false), ("SUM", false), ("CONV_2D", false)]);
        table.add("Metal (simulated)".into(), &nothing);
        let text = table.to_string();
        assert!(text.contains("| operation | CPU | Metal (simulated) |\n|---|---|---|\n"));
        assert!(text.contains("| SUM | partial | none |\n"), "{text}");
        assert_eq!(Table::parse(&text), Some(table));
        assert_eq!(Table::parse("no table"), None);
        assert_eq!(
            Table::parse("| operation | CPU |\n|---|---|\n| ADD | yes |"),
            None
        );
    }

    #[test]
    fn columns_can_be_left_out() {
        let mut table = sample();
        let nothing = answers(&[("ADD", false), ("SUM", false), ("CONV_2D", false)]);
        table.add("Apple".into(), &nothing);
        assert_eq!(table.only(&["CPU".into(), "BLAS".into()]), sample());
    }

    #[test]
    fn a_device_that_is_not_here_keeps_its_column() {
        let mut older = Table::new(["ADD", "CONV_2D"].into_iter());
        older.add(
            "BLAS".into(),
            &answers(&[("ADD", false), ("CONV_2D", true)]),
        );
        older.add(
            "CPU".into(),
            &answers(&[("ADD", false), ("CONV_2D", false)]),
        );
        let table = sample().with_columns_of(&older);
        assert_eq!(table.get("CONV_2D", "BLAS"), Support::Full);
        assert_eq!(table.get("SUM", "BLAS"), Support::Unknown);
        // Whoever is here answers for itself.
        assert_eq!(table.get("ADD", "CPU"), Support::Full);
        assert!(table.to_string().contains("| SUM | partial | ? |\n"));
    }
}
