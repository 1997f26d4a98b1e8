//! Tensors of ggml made ready to be computed: what each reads, writes and does.

use std::collections::HashMap;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::call::{Call, Node};
use super::memory::{Memory, View};
use super::ops::{Definition, definition};
use super::site::Change;
use crate::error::{Error, Result, Unsupported};
use crate::graph::node;
use crate::layout::Layout;

type Tensor = NonNull<sys::ggml_tensor>;

/// Nodes and their memory. It reads ggml's tensors while it is made, and never again.
#[derive(Debug, Default)]
pub struct Machine {
    nodes: Vec<Node>,
    views: HashMap<Tensor, View>,
    memory: Memory,
}

impl Machine {
    /// The nodes among these tensors, each of which comes after those it depends on.
    ///
    /// # Safety
    /// The tensors and whatever they refer to must be alive.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the first node whose op has no definition; [`Error::Alloc`] when there are more values than
    /// memory is asked for.
    pub unsafe fn new(tensors: &[Tensor]) -> Result<Self> {
        let mut machine = Self::default();
        for &tensor in tensors {
            // SAFETY: the caller vouches for the tensors.
            unsafe {
                machine.place(tensor)?;
                machine.add(tensor)?;
            }
        }
        Ok(machine)
    }

    /// The view of a tensor. One that owns memory gets it here.
    ///
    /// # Safety
    /// As [`Machine::new`].
    unsafe fn place(&mut self, tensor: Tensor) -> Result<View> {
        if let Some(&view) = self.views.get(&tensor) {
            return Ok(view);
        }
        // SAFETY: the caller vouches for the tensor, which keeps what it is a view of.
        let (layout, raw) = unsafe { (Layout::of(tensor.as_ptr())?, tensor.as_ref()) };
        let view = match NonNull::new(raw.view_src) {
            Some(owner) => View {
                layout,
                offset: raw.view_offs,
                // SAFETY: as above.
                base: unsafe { self.place(owner) }?.base,
            },
            None => View {
                layout,
                offset: 0,
                base: self.memory.push(layout.elements())?,
            },
        };
        self.views.insert(tensor, view);
        Ok(view)
    }

    /// Adds the node that computes a tensor, if one does.
    ///
    /// # Safety
    /// As [`Machine::new`].
    unsafe fn add(&mut self, tensor: Tensor) -> Result<()> {
        // SAFETY: the caller vouches for the tensor.
        let raw = unsafe { tensor.as_ref() };
        let definition = definition(raw.op, &raw.op_params);
        if matches!(definition, Some(Definition::View)) {
            return Ok(());
        }
        let mut src = Vec::new();
        for &source in &raw.src {
            // SAFETY: the caller vouches for what the tensor refers to.
            let view = NonNull::new(source).map(|source| unsafe { self.place(source) });
            src.push(view.transpose()?);
        }
        // SAFETY: as above.
        let (name, op_name) = unsafe { (node::name(tensor), node::op_name(tensor)) };
        let Some(definition) = definition else {
            return Err(undefined(name, op_name, &src));
        };
        // SAFETY: as above.
        let dst = unsafe { self.place(tensor)? };
        self.nodes.push(Node {
            definition,
            op_name,
            params: raw.op_params,
            dst,
            src,
        });
        Ok(())
    }

    /// Writes a tensor's values in ne order; there must be as many as elements.
    pub fn set(&mut self, tensor: Tensor, values: &[f64]) -> Result<()> {
        let view = self.view(tensor)?;
        self.memory.scatter(&view, values);
        Ok(())
    }

    /// A tensor's values in ne order.
    pub fn read(&self, tensor: Tensor) -> Result<Vec<f64>> {
        Ok(self.memory.gather(&self.view(tensor)?).into_owned())
    }

    fn view(&self, tensor: Tensor) -> Result<View> {
        self.views.get(&tensor).copied().ok_or(Error::Internal {
            step: "evaluate",
            message: "a tensor is not one of the graph's".to_owned(),
        })
    }

    /// Computes every node; `change`, if there is one, changes what each reads and writes.
    pub fn run(&mut self, change: Option<Change<'_>>) -> Result<()> {
        for node in &self.nodes {
            let call = Call {
                node,
                memory: &self.memory,
                change,
            };
            let mut writes = match node.definition {
                Definition::View => Vec::new(),
                Definition::Result(compute) => vec![(node.dst, compute(&call)?)],
                Definition::Writes(compute) => compute(&call)?,
            };
            for (view, values) in &mut writes {
                call.changed(None, view, values);
            }
            for (view, values) in writes {
                self.memory.scatter(&view, &values);
            }
        }
        Ok(())
    }
}

fn undefined(node: String, op: String, src: &[Option<View>]) -> Error {
    let operands = src.iter().flatten().zip(["a", "b", "c", "d", "e"]);
    let operands = operands.map(|(view, role)| view.layout.operand(role));
    Error::Unsupported(Box::new(Unsupported {
        device: "the f64 reference".to_owned(),
        op,
        node,
        operands: operands.collect(),
        reason: "it has no definition of the op".to_owned(),
    }))
}
