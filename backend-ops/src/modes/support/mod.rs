//! Mode `support`: which cases a device runs. Nothing is computed.
//!
//! As upstream, every case is a line or a row with yes or no. `--output markdown` prints docs/ops.md instead: a table of
//! operations by device, made from the same answers.

mod alone;
mod table;

use std::io::{self, Write};

use ggml_rs::Device;

use crate::case::{Case, CaseGraph, Choices};
use crate::engine::session::{Verdict, describe, skip_reason};
use crate::report::{ConsoleReport, DeviceInfo, Header, Report, Row};

pub use alone::{Alone, document};
pub use table::{Answers, Support, Table};

/// What to ask.
pub struct Query {
    /// The cases. Fusions are left out: a device runs their ops one by one, and never refuses the whole.
    pub cases: Vec<Box<dyn Case>>,
    /// All devices, for numbering them as ggml does.
    pub all_devices: Vec<Device>,
    /// The devices to ask.
    pub devices: Vec<Device>,
    /// Seed, for the header.
    pub seed: u64,
}

/// Whether a device runs a case.
#[must_use]
pub fn supports(device: Device, case: &dyn Case) -> bool {
    // What ggml-rs refuses to build has no device to run it.
    CaseGraph::new(case, Choices::default())
        .is_ok_and(|built| device.unsupported(&built.graph).is_empty())
}

impl Query {
    fn asked(&self) -> impl Iterator<Item = &dyn Case> {
        let cases = self.cases.iter().map(|case| &**case);
        cases.filter(|case| !case.is_fusion())
    }

    /// Lists every case of every device: on lines for people, and as rows where there is someone to take them.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn list<W: Write>(
        &self,
        people: &mut ConsoleReport<W>,
        begin_rows: &mut dyn FnMut(&Header) -> io::Result<()>,
        row: &mut dyn FnMut(&Row) -> io::Result<()>,
    ) -> io::Result<Verdict> {
        let header = Header::new(self.seed, Choices::default(), self.all_devices.len());
        people.begin(&header)?;
        begin_rows(&header)?;
        let mut any = true;
        for (index, &device) in self.all_devices.iter().enumerate() {
            let info = describe(index, device);
            if !self.devices.contains(&device) {
                people.skip_device(&info, skip_reason(device))?;
                continue;
            }
            people.begin_device(&info)?;
            let (mut supported, mut total) = (0, 0);
            for case in self.asked() {
                let yes = supports(device, case);
                supported += usize::from(yes);
                total += 1;
                people.support(&case.name(), yes)?;
                row(&row_of(case, &info, yes))?;
            }
            writeln!(people.writer(), "  {supported}/{total} cases supported")?;
            any &= supported > 0;
        }
        people.writer().flush()?;
        // A device that runs nothing of what was asked for is worth a second look, as in a test.
        Ok(if any && !self.devices.is_empty() {
            Verdict::Passed
        } else {
            Verdict::NothingRan
        })
    }

    /// Asks every device about every case.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(self.asked().map(|case| case.op()));
        for &device in &self.devices {
            let mut answers = Answers::default();
            for case in self.asked() {
                answers.add(case.op(), supports(device, case));
            }
            table.add(column(device), &answers);
        }
        table
    }
}

/// A device's name in the table.
fn column(device: Device) -> String {
    let name = match device.registry_name() {
        "MTL" => "Metal",
        other => other,
    };
    if device.is_simulated() {
        format!("{name} (simulated)")
    } else {
        name.to_owned()
    }
}

/// Upstream's row.
fn row_of(case: &dyn Case, info: &DeviceInfo, yes: bool) -> Row {
    Row {
        supported: yes,
        passed: yes,
        error_message: if yes { "yes" } else { "no" }.to_owned(),
        ..Row::of_mode("support", case, info)
    }
}

#[cfg(test)]
mod tests {
    use ggml_rs::DType;

    use super::*;
    use crate::cases::{Binary, OutProd};
    use crate::report::samples;

    #[test]
    fn the_cpu_is_asked_without_computing_anything() {
        let cpu = Device::cpu().expect("every build has it");
        let add = |dtype| Binary::add(dtype, [1 << 12, 1 << 18, 1, 1], [1, 1, 1, 1]);
        // Three times 4 GiB: nothing was allocated either.
        assert!(supports(cpu, &add(DType::F32)));
        assert!(!supports(cpu, &add(DType::Q4_K)));
    }

    #[test]
    fn a_row_is_upstreams() {
        let case = OutProd::new(DType::F32, DType::F32, [1, 1, 1]);
        let row = row_of(&case, &samples::device(), false);
        assert_eq!((row.test_mode, &*row.error_message), ("support", "no"));
        assert_eq!((row.supported, row.passed), (false, false));
        assert_eq!(row.op_name, "OUT_PROD");
    }
}
