//! What is checked: a result, and the inputs that it is computed from.

use crate::check::Interpreter;
use crate::error::{Call, Moved, Result};
use crate::graph::{Input, Tensor};
use crate::plan::Plan;

/// A graph whose gradients are checked: its result, the values of its inputs, and which of these are trained.
pub struct Subject<'g> {
    pub(super) result: Tensor<'g>,
    pub(super) given: Vec<Given>,
    pub(super) trained: Vec<Trained<'g>>,
}

impl<'g> Subject<'g> {
    /// A result, the inputs of which follow.
    pub fn new(result: Tensor<'g>) -> Self {
        Self {
            result,
            given: Vec::new(),
            trained: Vec::new(),
        }
    }

    /// An input without a gradient, as bytes of its type.
    pub fn given(&mut self, input: Input, bytes: Vec<u8>) {
        let values = Values::Bytes(bytes);
        self.given.push(Given { input, values });
    }

    /// An F32 input whose gradient is checked. `tensor` is marked with [`Tensor::set_param`].
    pub fn trained(&mut self, name: &str, tensor: Tensor<'g>, input: Input, values: Vec<f32>) {
        self.trained.push(Trained {
            name: name.to_owned(),
            index: self.given.len(),
            tensor,
        });
        self.given.push(Given::floats_of(input, values));
    }
}

/// An input and its values.
#[derive(Debug)]
pub(super) struct Given {
    pub input: Input,
    pub values: Values,
}

#[derive(Debug)]
pub(super) enum Values {
    Floats(Vec<f32>),
    Integers(Vec<i32>),
    Bytes(Vec<u8>),
}

/// An input whose gradient is checked.
pub(super) struct Trained<'g> {
    pub name: String,
    /// Which of the given inputs it is.
    pub index: usize,
    pub tensor: Tensor<'g>,
}

impl Given {
    /// Sets the input, where the graph needs it.
    pub fn set_plan(&self, call: Call, plan: &mut Plan) -> Result<()> {
        if !plan.needs(&self.input).moved_to(call.at)? {
            return Ok(());
        }
        let set = match &self.values {
            Values::Floats(values) => plan.set_f32(&self.input, values),
            Values::Integers(values) => plan.set_i32(&self.input, values),
            Values::Bytes(bytes) => plan.set_bytes(&self.input, bytes),
        };
        set.moved_to(call.at)
    }

    /// Sets the input, where the graph needs it.
    pub fn set_reference(&self, call: Call, reference: &mut Interpreter<'_>) -> Result<()> {
        if !reference.needs(&self.input).moved_to(call.at)? {
            return Ok(());
        }
        let set = match &self.values {
            Values::Floats(values) => reference.set_f32(&self.input, values),
            Values::Integers(values) => reference.set_i32(&self.input, values),
            Values::Bytes(bytes) => reference.set_bytes(&self.input, bytes),
        };
        set.moved_to(call.at)
    }

    pub fn floats_of(input: Input, values: Vec<f32>) -> Self {
        let values = Values::Floats(values);
        Self { input, values }
    }

    /// The values of a trained input, which are floats.
    pub fn floats(&self) -> Vec<f64> {
        match &self.values {
            Values::Floats(values) => values.iter().copied().map(f64::from).collect(),
            Values::Integers(_) | Values::Bytes(_) => Vec::new(),
        }
    }
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}
