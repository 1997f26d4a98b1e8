//! A graph under construction: operands of any layout, taken from what there is or made anew.

use ggml_rs::DType::{self, F32};
use ggml_rs::{Builder, Error, Tensor};

use crate::common::Random;
use crate::fill::Fill;
use crate::op::{Make, Step, Value, op};
use crate::program::{Leaves, Program, make};

/// A program, and the graph that it is checked with while it is drawn.
pub struct Draw<'g> {
    g: Builder<'g>,
    pub random: Random,
    pub program: Program,
    values: Vec<Option<Value<'g>>>,
    /// What is being drawn.
    pub pattern: usize,
    /// What ggml-rs refused to make.
    pub refused: u64,
    /// An error that is no refusal.
    pub fault: Option<String>,
}

/// Tensors of more elements are not used: runs are short.
const LARGEST: usize = 1 << 13;

impl<'g> Draw<'g> {
    pub fn new(g: Builder<'g>, seed: u64) -> Self {
        Self {
            g,
            random: Random::new(seed),
            program: Program {
                seed,
                ..Program::default()
            },
            values: Vec::new(),
            pattern: 0,
            refused: 0,
            fault: None,
        }
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.random.below(n.max(1))
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.random.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.random.pick(from)
    }

    /// Adds a step; `None` where it is refused.
    pub fn step(&mut self, step: Step) -> Option<usize> {
        let at = self.values.len();
        let made = make(
            self.g,
            &step,
            at,
            &self.values,
            None,
            &mut Leaves::default(),
        );
        match made {
            Ok(value) => {
                self.values.push(Some(value));
                Some(self.program.push(step, value))
            }
            Err(error) => {
                self.refused += 1;
                if matches!(error, Error::Internal { .. }) {
                    self.fault = Some(format!("{} was not refused: {error}", step.op.name));
                }
                None
            }
        }
    }

    fn blank(&self, name: &str) -> Step {
        Step {
            op: op(name),
            args: Vec::new(),
            n: Vec::new(),
            x: Vec::new(),
            dtype: F32,
            fill: Fill::Numbers,
            pattern: self.pattern,
        }
    }

    /// An op with operands alone.
    pub fn op(&mut self, name: &str, args: &[usize]) -> Option<usize> {
        self.op_with(name, args, &[], &[])
    }

    /// An op with operands, whole numbers and others.
    pub fn op_with(&mut self, name: &str, args: &[usize], n: &[usize], x: &[f32]) -> Option<usize> {
        let mut step = self.blank(name);
        step.args = args.to_vec();
        step.n = n.to_vec();
        step.x = x.to_vec();
        self.step(step)
    }

    pub fn cast(&mut self, a: usize, dtype: DType) -> Option<usize> {
        let mut step = self.blank("cast");
        step.args = vec![a];
        step.dtype = dtype;
        self.step(step)
    }

    /// A leaf of this kind.
    fn leaf_of(&mut self, name: &str, dtype: DType, n: &[usize], fill: Fill) -> Option<usize> {
        let mut step = self.blank(name);
        (step.dtype, step.n, step.fill) = (dtype, n.to_vec(), fill);
        self.step(step)
    }

    /// A new input with these values.
    pub fn filled(&mut self, dtype: DType, ne: [usize; 4], fill: Fill) -> Option<usize> {
        self.leaf_of("input", dtype, &ne, fill)
    }

    /// A new input, contiguous. Now and then it is a parameter.
    pub fn input(&mut self, dtype: DType, ne: [usize; 4]) -> Option<usize> {
        let fill = match dtype {
            F32 => self.pick(&[Fill::Numbers, Fill::Numbers, Fill::Whole, Fill::Positive]),
            _ => Fill::Numbers,
        };
        match self.one_in(12) {
            true => self.leaf_of("weight", dtype, &ne, fill),
            false => self.filled(dtype, ne, fill),
        }
    }

    /// A new parameter that is trained.
    pub fn param(&mut self, ne: [usize; 4]) -> Option<usize> {
        self.leaf_of("param", F32, &ne, Fill::Numbers)
    }

    /// Ids of rows.
    pub fn ids(&mut self, ne: [usize; 4], rows: usize, distinct: bool) -> Option<usize> {
        self.leaf_of("row_ids", DType::I32, &ne, Fill::Ids { rows, distinct })
    }

    /// Ids of experts.
    pub fn experts(&mut self, used: usize, tokens: usize, experts: usize) -> Option<usize> {
        let fill = Fill::Ids {
            rows: experts,
            distinct: true,
        };
        self.leaf_of("expert_ids", DType::I32, &[used, tokens, experts], fill)
    }

    pub fn tensor(&self, at: usize) -> Tensor<'g> {
        match self.values[at] {
            Some(Value::Tensor(tensor)) => tensor,
            _ => panic!("%{at} is no tensor"),
        }
    }

    pub fn ne(&self, at: usize) -> [usize; 4] {
        self.tensor(at).shape().ne()
    }

    pub fn dtype(&self, at: usize) -> DType {
        self.tensor(at).dtype()
    }

    /// A tensor of those that there are for which this holds, the last ones most likely.
    pub fn find(&mut self, fits: impl Fn(Tensor<'g>) -> bool) -> Option<usize> {
        let small = |tensor: Tensor<'g>| tensor.shape().elements() <= LARGEST;
        let of = |value: &Option<Value<'g>>| match value {
            Some(Value::Tensor(tensor)) if small(*tensor) && fits(*tensor) => true,
            Some(_) | None => false,
        };
        let fitting = self
            .values
            .iter()
            .enumerate()
            .filter(|(_, value)| of(value));
        let fitting: Vec<usize> = fitting.map(|(at, _)| at).collect();
        let last = fitting.len().saturating_sub(6);
        let from = if self.one_in(3) { 0 } else { last };
        let fitting = &fitting[from..];
        (!fitting.is_empty()).then(|| fitting[self.random.below(fitting.len())])
    }

    /// A size.
    pub fn dim(&mut self) -> usize {
        self.pick(&[1, 1, 2, 3, 4, 5, 7, 8])
    }

    /// The length of a row of this type.
    pub fn row(&mut self, dtype: DType) -> usize {
        match dtype.block_len() {
            1 => self.pick(&[1, 2, 3, 4, 5, 7, 8, 16, 17, 32, 33, 64, 65, 128]),
            len => len * self.pick(&[1, 1, 1, 2]),
        }
    }

    pub fn shape(&mut self, dtype: DType) -> [usize; 4] {
        let rank = self.pick(&[1, 2, 2, 3, 3, 4]);
        let batch = [1, 1, 2, 3];
        let mut ne = [
            self.row(dtype),
            self.dim(),
            self.pick(&batch),
            self.pick(&batch),
        ];
        ne[rank..].fill(1);
        ne
    }

    /// A float tensor: what there is, or a leaf in any layout.
    pub fn any(&mut self, dtype: DType) -> Option<usize> {
        if !self.one_in(4)
            && let Some(found) = self.find(|tensor| tensor.dtype() == dtype)
        {
            return Some(found);
        }
        let ne = self.shape(dtype);
        self.leaf(dtype, ne)
    }

    /// Values that can be computed with.
    pub fn f32(&mut self) -> Option<usize> {
        self.any(F32)
    }

    /// Contiguous F32.
    pub fn packed(&mut self) -> Option<usize> {
        let a = self.f32()?;
        match self.tensor(a).is_contiguous() {
            true => Some(a),
            false => self.op("cont", &[a]),
        }
    }

    /// Contiguous F32 whose memory is not an input's, so that a result may be placed over it.
    pub fn computed(&mut self, ne: [usize; 4]) -> Option<usize> {
        let a = self.input(F32, ne)?;
        match self.one_in(3) {
            true => Some(a),
            false => self.op_with("scale", &[a], &[], &[0.5]),
        }
    }

    /// The type and shape of another: often that one, or another one that there is.
    pub fn like(&mut self, other: usize) -> Option<usize> {
        let (dtype, ne) = (self.dtype(other), self.ne(other));
        match self.below(8) {
            0 | 1 => Some(other),
            2..5 => self
                .find(|tensor| tensor.dtype() == dtype && tensor.shape().ne() == ne)
                .or_else(|| self.leaf(dtype, ne)),
            _ => self.leaf(dtype, ne),
        }
    }

    /// What is repeated over another.
    pub fn part(&mut self, other: usize) -> Option<usize> {
        let ne = self.ne(other);
        let part = match self.below(5) {
            0 => [1; 4],
            1 | 2 => [ne[0], 1, 1, 1],
            3 => [ne[0], ne[1], 1, 1],
            _ => return self.like(other),
        };
        let dtype = self.dtype(other);
        self.leaf(dtype, part)
    }

    /// A new leaf, whose elements may lie anywhere.
    pub fn leaf(&mut self, dtype: DType, ne: [usize; 4]) -> Option<usize> {
        let [n0, n1, n2, n3] = ne;
        let scalar = dtype.block_len() == 1;
        match self.below(14) {
            0 => {
                let a = self.input(dtype, [n0, n2, n1, n3])?;
                self.op_with("permute", &[a], &[0, 2, 1, 3], &[])
            }
            1 if scalar => {
                let a = self.input(dtype, [n1, n0, n2, n3])?;
                self.op("transpose", &[a])
            }
            2 => {
                let a = self.input(dtype, [n0, n1 + 1, n2, n3])?;
                self.window(a, ne, 1)
            }
            3 if scalar => {
                let a = self.input(dtype, [n0 + 3, n1, n2, n3])?;
                self.window(a, ne, 0)
            }
            4 => self.odd(dtype, ne),
            5 if scalar && n1 > 1 => {
                // Rows that overlap.
                let a = self.input(dtype, [n0 * n1, 1, n2, n3])?;
                let [nb0, _, nb2, nb3] = self.tensor(a).strides();
                let step = nb0 * (1 + self.below(n0));
                self.op_with("view", &[a], &[n0, n1, n2, n3, step, nb2, nb3, 0], &[])
            }
            _ => self.input(dtype, ne),
        }
    }

    /// A window of this shape, at the end of dimension `dim` or at its beginning.
    pub fn window(&mut self, a: usize, ne: [usize; 4], dim: usize) -> Option<usize> {
        let nb = self.tensor(a).strides();
        let rest = self.ne(a)[dim] - ne[dim];
        let offset = nb[dim] * self.below(rest + 1);
        let [n0, n1, n2, n3] = ne;
        let n = [n0, n1, n2, n3, nb[1], nb[2], nb[3], offset];
        self.op_with("view", &[a], &n, &[])
    }

    /// A leaf whose strides along dimensions of 1 are those of no new tensor.
    fn odd(&mut self, dtype: DType, ne: [usize; 4]) -> Option<usize> {
        let a = self.input(dtype, ne)?;
        let [nb0, mut nb @ ..] = self.tensor(a).strides();
        for (nb, n) in nb.iter_mut().zip(&ne[1..]) {
            if *n == 1 {
                *nb = nb0 * self.random.below(40);
            }
        }
        let [n0, n1, n2, n3] = ne;
        self.op_with("view", &[a], &[n0, n1, n2, n3, nb[0], nb[1], nb[2], 0], &[])
    }

    /// The drawn program.
    pub fn finish(mut self) -> Self {
        self.outputs();
        self.program.sweep();
        self
    }

    /// Declares what nothing reads as outputs, and mostly the memory that was written to as a whole, in which a write beside
    /// its place shows.
    fn outputs(&mut self) {
        let count = self.program.steps.len();
        let mut read = vec![false; count];
        let mut wanted = vec![false; count];
        for at in 0..count {
            let step = &self.program.steps[at];
            for &arg in &step.args {
                read[arg] = true;
            }
            let root = self.program.root(at);
            if step.op.writes && !self.random.next().is_multiple_of(4) {
                wanted[root] = true;
            }
            if !matches!(step.op.make, Make::Node(_)) {
                read[at] = true;
            }
        }
        for at in 0..count {
            if read[at] && !wanted[at] && !self.one_in(12) {
                continue;
            }
            if let Some(output) = self.readable(at) {
                self.program.outputs.push(output);
            }
        }
        self.program.outputs.sort_unstable();
        self.program.outputs.dedup();
    }

    /// The step itself, or a copy that can be read.
    fn readable(&mut self, at: usize) -> Option<usize> {
        match self.values[at] {
            Some(Value::Rows(_)) => self.op("ids_to_tensor", &[at]),
            Some(Value::Tensor(tensor)) if tensor.is_contiguous() => Some(at),
            Some(Value::Tensor(_)) => self.op("cont", &[at]),
            Some(Value::Experts(_)) | None => None,
        }
    }
}
