//! What a Metal device alone does not run, and so needs a scheduler with the CPU: operations, and backwards of operations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ggml_rs::Device;

use super::{Support, Table, supports};
use crate::case::Case;
use crate::modes::grad;

/// The column that it is about.
const METAL: &str = "Metal (simulated)";

/// The heading of its section in docs/ops.md.
const HEADING: &str = "## What a Metal device alone does not run";

/// Both lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alone {
    ops: Vec<String>,
    /// By operation, the nodes of its backward that Metal refuses although it runs the operation.
    backwards: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Alone {
    /// The device among these that the lists are about: as in the table, the simulated one with its tensor API off.
    #[must_use]
    pub fn device(devices: &[Device]) -> Option<Device> {
        let metal = |device: &&Device| device.is_simulated() && device.tensor_api() == Some(false);
        devices.iter().find(metal).copied()
    }

    /// From the table, and the backwards of cases. Nothing is computed.
    #[must_use]
    pub fn of(table: &Table, device: Device, cases: &[Box<dyn Case>]) -> Self {
        let missing = |op: &&str| {
            let cpu = table.get(op, "CPU");
            table.get(op, METAL) == Support::None && matches!(cpu, Support::Full | Support::Partial)
        };
        let ops = table.ops().filter(missing).map(str::to_owned).collect();
        let mut backwards: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for case in cases {
            if case.is_fusion() || !supports(device, &**case) {
                continue;
            }
            for graph in grad::backwards(&**case) {
                let refused = device.unsupported(&graph).into_iter();
                let refused: Vec<_> = refused.map(|node| node.op).collect();
                if !refused.is_empty() {
                    backwards.entry(case.op()).or_default().extend(refused);
                }
            }
        }
        Self { ops, backwards }
    }

    /// The operations, as pages list them.
    #[must_use]
    pub fn operations(&self) -> String {
        let names: Vec<_> = self.ops.iter().map(|op| code(op)).collect();
        names.join(", ")
    }

    /// The operations whose backward makes others that Metal does not run, as pages list them.
    #[must_use]
    pub fn gradients(&self) -> String {
        let whole = self.backwards.iter().filter(|(_, made)| self.never(made));
        let names: Vec<_> = whole.map(|(op, _)| code(op)).collect();
        names.join(", ")
    }

    /// Whether a backward makes what Metal never runs, and not only what it does not run of some types and layouts.
    fn never(&self, made: &BTreeSet<String>) -> bool {
        made.iter().any(|op| self.ops.contains(op))
    }

    /// Backwards with what they make.
    fn listed(&self, never: bool) -> String {
        let of = self
            .backwards
            .iter()
            .filter(|(_, made)| self.never(made) == never);
        let listed: Vec<_> = of
            .map(|(op, made)| {
                let made: Vec<_> = made.iter().map(String::as_str).collect();
                format!("{} ({})", code(op), made.join(", "))
            })
            .collect();
        listed.join(", ")
    }
}

/// An operation by the name of its method.
fn code(op: &str) -> String {
    format!("`{}`", op.to_lowercase())
}

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADING}\n")?;
        writeln!(
            f,
            "A graph with one of these needs a `Scheduler` of the Metal device and the CPU, whatever the types and layouts are; what is\n\
             *partial* above needs it for some. Backwards: those of the quick set, of operations that Metal runs.\n"
        )?;
        writeln!(f, "- Operations: {}.", self.operations())?;
        writeln!(
            f,
            "- The backward of, with what it makes: {}.",
            self.listed(true)
        )?;
        writeln!(
            f,
            "- With some types and layouts, the backward of: {}.",
            self.listed(false)
        )
    }
}

/// docs/ops.md: the table, and what Metal alone does not run; the latter as it stands in `older` where that device is not here.
#[must_use]
pub fn document(table: &Table, alone: Option<&Alone>, older: Option<&str>) -> String {
    let kept = || {
        let older = older?;
        older.find(HEADING).map(|at| older[at..].to_owned())
    };
    let section = alone.map(Alone::to_string).or_else(kept);
    match section {
        Some(section) => format!("{table}\n{section}"),
        None => table.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Answers;
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["ADD", "CROSS_ENTROPY_LOSS", "FLASH_ATTN_BACK"].into_iter());
        let mut cpu = Answers::default();
        cpu.add("ADD", true);
        cpu.add("CROSS_ENTROPY_LOSS", true);
        cpu.add("FLASH_ATTN_BACK", false);
        table.add("CPU".into(), &cpu);
        let mut metal = Answers::default();
        metal.add("ADD", true);
        metal.add("CROSS_ENTROPY_LOSS", false);
        metal.add("FLASH_ATTN_BACK", false);
        table.add(METAL.into(), &metal);
        table
    }

    #[test]
    fn what_the_cpu_runs_and_metal_does_not_is_listed() {
        let cpu = Device::cpu().expect("every build has it");
        let mut alone = Alone::of(&table(), cpu, &[]);
        alone.ops.push("GET_ROWS_BACK".to_owned());
        assert_eq!(alone.operations(), "`cross_entropy_loss`, `get_rows_back`");
        alone
            .backwards
            .insert("GET_ROWS", ["GET_ROWS_BACK".to_owned()].into());
        alone.backwards.insert("MUL_MAT", ["ACC".to_owned()].into());
        assert_eq!(alone.gradients(), "`get_rows`");
        let text = document(&table(), Some(&alone), None);
        assert!(text.contains("`get_rows` (GET_ROWS_BACK)"), "{text}");
        assert_eq!(Table::parse(&text), Some(table()));
        // A machine without the device keeps what stands there.
        assert_eq!(document(&table(), None, Some(&text)), text);
    }
}
