//! `MAP_CUSTOM1`, `MAP_CUSTOM2`, `MAP_CUSTOM3` and `CUSTOM`: closures. Upstream has no cases; only the CPU runs them.

use ggml_rs::{CustomTask, DType, Tasks, Tensor};

use crate::case::{Case, Layout, Leaves};
use crate::data::{Operand, OperandData};
use crate::vars::Vars;

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Closure {
    /// How many operands there are: 1 to 3 for ggml's MAP_CUSTOM, up to 8 for CUSTOM.
    pub operands: usize,
    /// CUSTOM, whatever the number of operands is.
    pub custom: bool,
    /// Shape of the operands and of the result.
    pub ne: [usize; 4],
    /// Whether the first operand is overwritten.
    pub inplace: bool,
    /// One call, or one on each thread.
    pub tasks: Tasks,
    /// How the last operand lies in memory.
    pub layout: Layout,
}

/// The names of as many operands as CUSTOM takes.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

impl Closure {
    /// How an operand lies in memory: all but the last are packed.
    fn layout(&self, place: usize) -> Layout {
        match place + 1 == self.operands {
            true => self.layout,
            false => Layout::Plain,
        }
    }
}

impl Case for Closure {
    fn op(&self) -> &'static str {
        match self.operands {
            1 if !self.custom => "MAP_CUSTOM1",
            2 if !self.custom => "MAP_CUSTOM2",
            3 if !self.custom => "MAP_CUSTOM3",
            _ => "CUSTOM",
        }
    }

    fn params(&self) -> String {
        Vars::new()
            .with("ne", self.ne)
            .with("operands", self.operands)
            .with("inplace", self.inplace)
            .with("threads", self.tasks == Tasks::Threads)
            .with_unless_default("layout", self.layout, Layout::Plain)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        (0..self.operands)
            .map(|place| {
                let operand = Operand::new(NAMES[place], DType::F32, self.ne);
                self.layout(place).stored(operand)
            })
            .collect()
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let mut x = Vec::new();
        for (place, stored) in leaves.tensors().into_iter().enumerate() {
            x.push(self.layout(place).view(stored)?);
        }
        let tasks = self.tasks;
        match (self.op(), self.inplace) {
            ("MAP_CUSTOM1", false) => x[0].map_custom1(tasks, weigh),
            ("MAP_CUSTOM1", true) => x[0].map_custom1_inplace(tasks, weigh_inplace),
            ("MAP_CUSTOM2", false) => x[0].map_custom2(x[1], tasks, weigh),
            ("MAP_CUSTOM2", true) => x[0].map_custom2_inplace(x[1], tasks, weigh_inplace),
            ("MAP_CUSTOM3", false) => x[0].map_custom3(x[1], x[2], tasks, weigh),
            ("MAP_CUSTOM3", true) => x[0].map_custom3_inplace(x[1], x[2], tasks, weigh_inplace),
            (_, false) => leaves
                .graph()
                .custom_4d(DType::F32, self.ne, &x, tasks, weigh),
            (_, true) => x[0].custom_inplace(&x[1..], tasks, weigh_inplace),
        }
    }

    fn reference(&self, operands: &[OperandData]) -> ggml_rs::Result<Option<Vec<f64>>> {
        let read =
            |(place, data): (usize, &OperandData)| self.layout(place).read(data.values(), self.ne);
        let values: Vec<Vec<f32>> = operands.iter().enumerate().map(read).collect();
        let weighed = |i: usize| {
            let sum = values
                .iter()
                .zip(1..)
                .map(|(x, weight)| f64::from(weight) * f64::from(x[i]));
            (i / self.ne[0]) as f64 + sum.sum::<f64>()
        };
        Ok(Some((0..values[0].len()).map(weighed).collect()))
    }
}

/// The number of the row, and all operands, each times its number.
fn weigh(task: &mut CustomTask<'_>) {
    each(task, 0.0);
}

/// The same, of what stands in the result as the first operand.
fn weigh_inplace(task: &mut CustomTask<'_>) {
    each(task, 1.0);
}

/// Weights begin with the one after that of the result.
fn each(task: &mut CustomTask<'_>, of_result: f32) {
    let inputs = task.inputs().to_vec();
    let [_, n1, n2, _] = task.shape().ne();
    for row in task.rows() {
        let [i1, i2, i3] = [row % n1, row / n1 % n2, row / (n1 * n2)];
        let out = task.row_mut::<f32>(row).expect("a row of the result");
        for (i0, out) in out.iter_mut().enumerate() {
            // What is there is no number before it is written, but where the op works in place.
            let mut sum = if of_result == 0.0 {
                0.0
            } else {
                *out * of_result
            };
            let mut weight = of_result;
            for input in &inputs {
                weight += 1.0;
                sum += weight * input.get::<f32>([i0, i1, i2, i3]).expect("an element");
            }
            *out = row as f32 + sum;
        }
    }
}

/// All are ours.
pub(super) fn cases() -> Vec<Closure> {
    let mut cases = Vec::new();
    for (custom, counts) in [(false, vec![1, 2, 3]), (true, vec![1, 4, 8])] {
        for operands in counts {
            for inplace in [false, true] {
                for tasks in [Tasks::One, Tasks::Threads] {
                    let case = |ne, layout| Closure {
                        operands,
                        custom,
                        ne,
                        inplace,
                        tasks,
                        layout,
                    };
                    cases.extend(
                        [[1, 1, 1, 1], [33, 7, 3, 2], [5, 1, 1, 1]]
                            .map(|ne| case(ne, Layout::Plain)),
                    );
                    cases.extend(Layout::OTHERS.map(|layout| case([5, 4, 3, 2], layout)));
                }
            }
        }
    }
    // What is overwritten is contiguous.
    cases.retain(|case| !(case.inplace && case.operands == 1 && case.layout != Layout::Plain));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_name_the_calls() {
        assert_eq!(
            cases()[1].name(),
            "MAP_CUSTOM1(ne=[33,7,3,2],operands=1,inplace=0,threads=0)"
        );
    }
}
