//! A graph as data: what was drawn, and how it is made again.

use std::fmt::Write;

use ggml_rs::DType::{self, F32};
use ggml_rs::{
    Builder, Device, Graph, Input, Output, Param, Params, Result, RowIdsOptions, Tensor,
};

use crate::fill::Fill;
use crate::op::{Make, Operands, Step, Value, op};

/// A drawn graph.
#[derive(Clone, Default)]
pub struct Program {
    pub seed: u64,
    pub steps: Vec<Step>,
    /// Type and shape of what each step makes, while it makes a tensor.
    pub made: Vec<Option<(DType, [usize; 4])>>,
    /// Steps that are read after a run.
    pub outputs: Vec<usize>,
    /// Steps that shrinking took out.
    pub gone: Vec<bool>,
}

/// A program's graph.
pub struct Built {
    pub graph: Graph,
    pub inputs: Vec<(Input, usize)>,
    pub params: Vec<(Param, usize)>,
    pub outputs: Vec<(Output, usize)>,
}

/// Tokens, while a graph is made.
#[derive(Default)]
pub struct Leaves {
    pub inputs: Vec<(Input, usize)>,
    pub params: Vec<(Param, usize)>,
}

impl Program {
    /// Makes the graph; its parameters lie on `device`.
    pub fn build(&self, device: Device) -> Result<Built> {
        let storage = self.storage(device)?;
        let (graph, (leaves, outputs)) = Graph::build(|g| {
            let mut leaves = Leaves::default();
            let mut values: Vec<Option<Value<'_>>> = Vec::with_capacity(self.steps.len());
            for (at, step) in self.steps.iter().enumerate() {
                let value = match self.gone[at] {
                    true => None,
                    false => Some(make(g, step, at, &values, storage.as_ref(), &mut leaves)?),
                };
                values.push(value);
            }
            let mut outputs = Vec::new();
            for &at in &self.outputs {
                if let Some(Value::Tensor(tensor)) = values[at] {
                    outputs.push((g.output("", tensor)?, at));
                }
            }
            Ok((leaves, outputs))
        })?;
        Ok(Built {
            graph,
            inputs: leaves.inputs,
            params: leaves.params,
            outputs,
        })
    }

    fn storage(&self, device: Device) -> Result<Option<Params>> {
        let mut builder = Params::builder();
        let mut any = false;
        for (at, step) in self.live() {
            if matches!(step.op.make, Make::Param | Make::Weight) {
                builder = builder.tensor(&at.to_string(), step.dtype, shape(step))?;
                any = true;
            }
        }
        any.then(|| builder.allocate(device)).transpose()
    }

    /// The steps that are left.
    pub fn live(&self) -> impl Iterator<Item = (usize, &Step)> {
        let steps = self.steps.iter().enumerate();
        steps.filter(|&(at, _)| !self.gone[at])
    }

    /// The bytes of a leaf.
    pub fn bytes(&self, at: usize) -> Vec<u8> {
        let step = &self.steps[at];
        let seed = self.seed.wrapping_mul(0x9e37_79b9) ^ (at as u64) << 40;
        let ne = match step.op.make {
            Make::Experts => [step.n[0], step.n[1], 1, 1],
            _ => shape(step),
        };
        step.fill.bytes(seed, step.dtype, ne)
    }

    /// Adds a step that was made, and what it made.
    pub fn push(&mut self, step: Step, value: Value<'_>) -> usize {
        let made = match value {
            Value::Tensor(tensor) => Some((tensor.dtype(), tensor.shape().ne())),
            Value::Rows(_) | Value::Experts(_) => None,
        };
        self.steps.push(step);
        self.made.push(made);
        self.gone.push(false);
        self.steps.len() - 1
    }

    /// The step whose memory a step's result lies in.
    pub fn root(&self, mut at: usize) -> usize {
        while let Some(shares) = self.steps[at].op.shares {
            at = self.steps[at].args[shares];
        }
        at
    }

    /// The same program in which an input stands for a step.
    pub fn with_leaf(&self, at: usize) -> Option<Self> {
        let (dtype, ne) = self.made[at]?;
        if matches!(self.steps[at].op.make, Make::Input) {
            return None;
        }
        let mut program = self.clone();
        program.steps[at] = Step {
            op: op("input"),
            args: Vec::new(),
            n: ne.to_vec(),
            x: Vec::new(),
            dtype,
            fill: Fill::Numbers,
            pattern: self.steps[at].pattern,
        };
        program.sweep();
        Some(program)
    }

    /// The same program without an output.
    pub fn without_output(&self, place: usize) -> Option<Self> {
        if self.outputs.len() < 2 {
            return None;
        }
        let mut program = self.clone();
        program.outputs.remove(place);
        program.sweep();
        Some(program)
    }

    /// The same program whose step reads an operand of one of its operands instead.
    pub fn with_shortcut(&self, at: usize, arg: usize) -> Option<Self> {
        let first = *self.steps[at].args.get(arg)?;
        if self.made[at].is_none() || self.made[at] != self.made[first] {
            return None;
        }
        let mut program = self.clone();
        for step in &mut program.steps {
            for arg in &mut step.args {
                if *arg == at {
                    *arg = first;
                }
            }
        }
        for output in &mut program.outputs {
            if *output == at {
                *output = first;
            }
        }
        program.outputs.sort_unstable();
        program.outputs.dedup();
        program.sweep();
        Some(program)
    }

    /// The same program in which a parameter is an input, or an input has plain values.
    pub fn with_numbers(&self, at: usize) -> Option<Self> {
        let mut program = self.clone();
        let step = &mut program.steps[at];
        match step.op.make {
            Make::Weight => step.op = op("input"),
            Make::Input if matches!(step.fill, Fill::Whole | Fill::Positive) => {
                step.fill = Fill::Numbers;
            }
            _ => return None,
        }
        Some(program)
    }

    /// Takes out what no output needs. What writes to memory that an output lies in is needed as well.
    pub fn sweep(&mut self) {
        let mut needed = vec![false; self.steps.len()];
        for &output in &self.outputs {
            needed[output] = true;
        }
        for at in (0..self.steps.len()).rev() {
            if needed[at] {
                for &arg in &self.steps[at].args {
                    needed[arg] = true;
                }
            }
        }
        self.gone = needed.into_iter().map(|needed| !needed).collect();
    }

    /// The steps that compute, by name.
    pub fn ops(&self) -> Vec<&'static str> {
        let nodes = self.live().map(|(_, step)| step.op);
        nodes
            .filter(|op| matches!(op.make, Make::Node(_)))
            .map(|op| op.name)
            .collect()
    }

    /// What a person needs to write the graph down.
    pub fn tell(&self) -> String {
        let mut text = String::new();
        for (at, step) in self.live() {
            let _ = write!(text, "%{at} = {}", step.op.name);
            let args = step.args.iter().map(|arg| format!("%{arg}"));
            let _ = write!(text, "({})", args.collect::<Vec<_>>().join(", "));
            if !step.n.is_empty() {
                let _ = write!(text, " {:?}", step.n);
            }
            if !step.x.is_empty() {
                let _ = write!(text, " {:?}", step.x);
            }
            match (step.op.make, self.made[at]) {
                (Make::Node(_), Some((dtype, ne))) => {
                    let _ = write!(text, " -> {dtype} {ne:?}");
                }
                (Make::Node(_), None) => {}
                _ => {
                    let _ = write!(text, " {} {:?}", step.dtype, step.fill);
                }
            }
            text.push_str("; ");
        }
        let outputs = self.outputs.iter().map(|at| format!("%{at}"));
        let _ = write!(text, "outputs {}", outputs.collect::<Vec<_>>().join(" "));
        text
    }
}

/// The shape of a leaf.
pub fn shape(step: &Step) -> [usize; 4] {
    step.n[..4].try_into().unwrap()
}

/// Makes one step.
pub fn make<'g>(
    g: Builder<'g>,
    step: &Step,
    at: usize,
    values: &[Option<Value<'g>>],
    storage: Option<&Params>,
    leaves: &mut Leaves,
) -> Result<Value<'g>> {
    let tensor: Tensor<'g> = match step.op.make {
        Make::Node(make) => return make(&Operands { g, step, values }),
        Make::Input => {
            let (tensor, input) = g.input("", step.dtype, shape(step))?;
            leaves.inputs.push((input, at));
            tensor
        }
        Make::Param | Make::Weight => {
            // While a graph is drawn, there is no storage.
            let Some(storage) = storage else {
                let (tensor, _) = g.input("", step.dtype, shape(step))?;
                return Ok(match step.op.make {
                    Make::Param if step.dtype == F32 => tensor.set_param()?.into(),
                    _ => tensor.into(),
                });
            };
            let param = storage.get(&at.to_string())?;
            leaves.params.push((param.clone(), at));
            match step.op.make {
                Make::Param => g.param(&param)?,
                _ => g.weight(&param)?,
            }
        }
        Make::Rows => {
            let Fill::Ids { rows, distinct } = step.fill else {
                panic!("ids of no rows");
            };
            let mut options = RowIdsOptions::new(rows);
            if distinct {
                options = options.distinct();
            }
            let (ids, input) = g.row_ids_with("", &step.n[..4], options)?;
            leaves.inputs.push((input, at));
            return Ok(ids.into());
        }
        Make::Experts => {
            let (ids, input) = g.expert_ids("", step.n[0], step.n[1], step.n[2])?;
            leaves.inputs.push((input, at));
            return Ok(ids.into());
        }
    };
    Ok(tensor.into())
}
