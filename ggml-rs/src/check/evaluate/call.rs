//! One node as an op's definition sees it.

use std::borrow::Cow;

use super::memory::{Memory, View, flat};
use super::ops::Definition;
use super::site::{Change, Site};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// A node: its op, where its result lies, and where its operands lie.
#[derive(Debug, Clone)]
pub struct Node {
    pub definition: Definition,
    /// The op's name as ggml prints it, for errors.
    pub op_name: String,
    pub params: [i32; 16],
    pub dst: View,
    pub src: Vec<Option<View>>,
}

/// An operand's values in ne order, with their shape.
#[derive(Debug, Clone)]
pub struct Operand<'a> {
    pub ne: [usize; 4],
    pub values: Cow<'a, [f64]>,
}

impl Operand<'_> {
    /// The value at a place.
    pub fn at(&self, at: [usize; 4]) -> f64 {
        self.values[flat(self.ne, at)]
    }

    /// The value at a place of a larger tensor over which this one is repeated.
    pub fn repeated(&self, at: [usize; 4]) -> f64 {
        self.at([0, 1, 2, 3].map(|d| at[d] % self.ne[d]))
    }

    /// The rows, one after the other.
    pub fn rows(&self) -> std::slice::Chunks<'_, f64> {
        self.values.chunks(self.ne[0])
    }

    /// A row.
    pub fn row(&self, i1: usize, i2: usize, i3: usize) -> &[f64] {
        let first = flat(self.ne, [0, i1, i2, i3]);
        &self.values[first..][..self.ne[0]]
    }

    /// A value as an index, which the safe layer has checked.
    pub fn index(&self, at: [usize; 4]) -> usize {
        self.at(at) as usize
    }
}

/// A node together with the memory that its operands lie in.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub node: &'a Node,
    pub memory: &'a Memory,
    /// What changes values on their way in and out, if something does.
    pub change: Option<Change<'a>>,
}

impl<'a> Call<'a> {
    /// An operand.
    ///
    /// # Errors
    /// [`Error::Internal`] for an operand that the node does not have.
    pub fn src(&self, index: usize) -> Result<Operand<'a>> {
        self.optional(index).ok_or_else(|| Error::Internal {
            step: "evaluate",
            message: format!("{} has no operand {index}", self.node.op_name),
        })
    }

    /// An operand that not every node of the op has.
    pub fn optional(&self, index: usize) -> Option<Operand<'a>> {
        let view = self.node.src.get(index)?.as_ref()?;
        let mut values = self.memory.gather(view);
        if self.change.is_some() {
            self.changed(Some(index), view, values.to_mut());
        }
        Some(Operand {
            ne: view.layout.ne,
            values,
        })
    }

    /// Changes what operand `index`, or the result, is made of.
    pub fn changed(&self, operand: Option<usize>, view: &View, values: &mut [f64]) {
        let Some(change) = self.change else {
            return;
        };
        let operands = self.node.src.iter().flatten();
        let operands: Vec<DType> = operands.map(|view| view.layout.dtype).collect();
        let site = Site {
            op: &self.node.op_name,
            operand,
            dtype: view.layout.dtype,
            operands: &operands,
            result: self.dtype(),
            row: view.layout.ne[0],
        };
        change(&site, values);
    }

    /// The result's shape.
    pub fn ne(&self) -> [usize; 4] {
        self.node.dst.layout.ne
    }

    /// The result's type.
    pub fn dtype(&self) -> DType {
        self.node.dst.layout.dtype
    }

    /// A parameter that ggml keeps as an i32.
    pub fn int(&self, index: usize) -> i64 {
        self.node.params[index].into()
    }

    /// A parameter that ggml keeps as an f32.
    pub fn float(&self, index: usize) -> f64 {
        f32::from_bits(self.node.params[index] as u32).into()
    }
}
