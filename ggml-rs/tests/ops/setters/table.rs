//! docs/setters.md: what every device does with every request, printed and read back.

use std::collections::BTreeMap;
use std::fmt;

use ggml_rs::DType;

use super::requests::{Op, Request, requests};

pub const METAL: &str = "Metal (simulated)";
pub const TENSOR: &str = "the same, tensor API";
const COLUMNS: [&str; 3] = ["CPU", METAL, TENSOR];

/// What became of a request in the sizes that were asked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdict {
    kept: bool,
    refused: bool,
}

impl Verdict {
    pub fn add(&mut self, kept: bool) {
        self.kept |= kept;
        self.refused |= !kept;
    }
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    op: &'static str,
    /// The request's place among those of its op.
    place: usize,
    request: String,
    b: &'static str,
}

impl Row {
    pub fn new(op: Op, request: Request, b: DType) -> Self {
        let place = requests(op).iter().position(|&other| other == request);
        Self {
            op: op.name(),
            place: place.unwrap(),
            request: request.name(),
            b: match op {
                Op::Flash => "as `a`",
                _ => b.name(),
            },
        }
    }
}

type Cells = BTreeMap<String, Vec<(DType, Verdict)>>;

/// What was seen: by row, by device, by type of weights.
#[derive(Default)]
pub struct Table {
    rows: Vec<(Row, Cells)>,
    /// Cells of a child, as it printed them.
    printed: BTreeMap<String, String>,
}

const HEAD: &str = "\
# Requests: kept or refused

Generated: `SETTERS_UPDATE=1 cargo test -p ggml-rs --test ops setters::`. Do not edit; the test (ggml-rs/tests/ops/setters) makes the table again and
compares.

Every request that a node can carry, on every device, with every type of weights (`a`) and activations (`b`). *kept*: the device takes the
node, and its values are right where a request that is not kept gives others: activations of 1e30, weights of 2e5, values whose rounding
to half or to 8-bit blocks shows, against sums in f64. *refused*: `Plan::new` is `Error::Unsupported`, which names the request and a way
out; a `Scheduler` leaves the node to a device that keeps it, or is the same error. *by size*: some sizes are refused. Types that the
device does not multiply at all are left out; `-` where it multiplies none.

What is promised: `set_staging(Float)`, values and range of F32 but for the rounding of F32 sums; `FloatWeights`, `FloatActivations`, the
same of one operand, while the other may be rounded to f16; `Half`, nothing, it is a permission. `set_src_precision(p, i)`: operand `i` is
converted to nothing below `p` in ggml's order, F32, BF16, F16, Q8, Q4; on MUL_MAT_ID F32 asks for the range of F32 alone, and 8 bits are
kept of it. `set_route`: a kernel of Metal's, which reads in float (`MatVec`, `Direct`); no other device has routes, and there nothing is
promised. `float()`: values are added up in F32.
";

impl Table {
    pub fn add(&mut self, row: Row, column: &str, a: DType, verdict: Verdict) {
        let place = self.rows.iter().position(|(other, _)| *other == row);
        let place = place.unwrap_or_else(|| {
            self.rows.push((row, Cells::new()));
            self.rows.len() - 1
        });
        let cells = self.rows[place].1.entry(column.to_owned()).or_default();
        cells.push((a, verdict));
    }

    /// Adds another part of the table.
    pub fn append(&mut self, other: Self) {
        for (row, cells) in other.rows {
            for (column, types) in cells {
                for (a, verdict) in types {
                    self.add(row.clone(), &column, a, verdict);
                }
            }
        }
    }

    /// The cells of one column, a line each, for another process to read.
    pub fn cells(&self) -> String {
        let lines = self.rows.iter().map(|(row, cells)| {
            let text = cells.get(TENSOR).map(|cells| cell(cells));
            format!("cell\t{}\t{}\n", key(row), text.unwrap_or_default())
        });
        lines.collect()
    }

    pub fn parse_cells(text: &str) -> Self {
        let cells = text.lines().filter_map(|line| line.split_once("cell\t"));
        let printed = cells.filter_map(|(_, cell)| cell.rsplit_once('\t'));
        Self {
            rows: Vec::new(),
            printed: printed
                .map(|(key, text)| (key.to_owned(), text.to_owned()))
                .collect(),
        }
    }

    pub fn merge(&mut self, child: &Self) {
        self.printed.clone_from(&child.printed);
    }

    /// The columns of devices that are not here are taken as they stand.
    pub fn only_columns_of(mut self, text: &str) -> Self {
        for (row, _) in &self.rows {
            if !self.printed.contains_key(&key(row))
                && let Some(cell) = committed(text, row, TENSOR)
            {
                self.printed.insert(key(row), cell);
            }
        }
        for (row, cells) in &mut self.rows {
            if !cells.contains_key(METAL)
                && let Some(cell) = committed(text, row, METAL)
            {
                self.printed.insert(format!("{}\t{METAL}", key(row)), cell);
            }
        }
        self
    }

    fn text(&self, row: &Row, cells: &Cells, column: &str) -> String {
        if column == TENSOR {
            return self.printed.get(&key(row)).cloned().unwrap_or_default();
        }
        let kept = self.printed.get(&format!("{}\t{column}", key(row)));
        cells
            .get(column)
            .map_or_else(|| kept.cloned().unwrap_or_default(), |cells| cell(cells))
    }
}

fn key(row: &Row) -> String {
    format!("{}\t{}\t{}", row.op, row.request, row.b)
}

/// A cell of a printed table.
fn committed(text: &str, row: &Row, column: &str) -> Option<String> {
    let section = text
        .split("## ")
        .find(|part| part.starts_with(&format!("{}\n", row.op)))?;
    let start = format!("| `{}` | {} |", row.request, row.b);
    let line = section.lines().find(|line| line.starts_with(&start))?;
    let place = COLUMNS.iter().position(|name| *name == column)?;
    line.split('|')
        .nth(3 + place)
        .map(|cell| cell.trim().to_owned())
}

/// One device's answers, the shorter list of types by name.
fn cell(cells: &[(DType, Verdict)]) -> String {
    let asked: Vec<_> = cells.iter().filter(|(_, v)| v.kept || v.refused).collect();
    let of = |kept: bool, refused: bool| {
        let of = asked
            .iter()
            .filter(|(_, v)| (v.kept, v.refused) == (kept, refused));
        of.map(|(dtype, _)| dtype.name()).collect::<Vec<_>>()
    };
    let answers = [
        ("kept", of(true, false)),
        ("refused", of(false, true)),
        ("by size", of(true, true)),
    ];
    let mut answers: Vec<_> = answers
        .into_iter()
        .filter(|(_, types)| !types.is_empty())
        .collect();
    answers.sort_by_key(|(_, types)| types.len());
    let Some((most, _)) = answers.pop() else {
        return "-".to_owned();
    };
    let named = answers
        .iter()
        .map(|(answer, types)| format!("{answer}: {}; ", types.join(", ")));
    let named: String = named.collect();
    match named.is_empty() {
        true => most.to_owned(),
        false => format!("{named}else {most}"),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEAD}")?;
        let mut rows: Vec<_> = self.rows.iter().collect();
        let ops: Vec<_> = rows.iter().map(|(row, _)| row.op).collect();
        rows.sort_by_key(|(row, _)| (ops.iter().position(|&op| op == row.op), row.place));
        let mut section = "";
        for (row, cells) in rows {
            if row.op != section {
                section = row.op;
                writeln!(f, "\n## {section}\n")?;
                writeln!(f, "| request | `b` | {} |", COLUMNS.join(" | "))?;
                writeln!(f, "|---|---|{}", "---|".repeat(COLUMNS.len()))?;
            }
            let cells = COLUMNS.map(|column| self.text(row, cells, column));
            writeln!(
                f,
                "| `{}` | {} | {} |",
                row.request,
                row.b,
                cells.join(" | ")
            )?;
        }
        Ok(())
    }
}
