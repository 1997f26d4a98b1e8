//! Parameters in a graph.

use std::ptr::NonNull;

use ggml_sys as sys;

use super::{Builder, checked_name};
use crate::dtype::DType;
use crate::error::{Call, Placed, Result};
use crate::graph::Tensor;
use crate::params::Param;

/// A parameter that a graph uses, and the graph's own description of it.
pub(crate) struct Leaf {
    /// Keeps the values alive.
    pub param: Param,
    pub tensor: NonNull<sys::ggml_tensor>,
    trainable: bool,
}

impl<'g> Builder<'g> {
    /// A parameter that is trained: the tensor is marked as by [`Tensor::set_param`], so a backward pass gives it a
    /// gradient. The same parameter gives the same tensor.
    ///
    /// Its values are the parameter's own, shared with every other plan that uses it. The graph keeps them alive.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless it is F32; [`Error::Param`](crate::Error::Param) when this graph has it as a
    /// frozen weight; [`Error::Alloc`](crate::Error::Alloc).
    #[doc(alias = "ggml_set_param")]
    #[track_caller]
    pub fn param(self, param: &Param) -> Result<Tensor<'g>> {
        let call = Call::new("Builder::param");
        if param.dtype() != DType::F32 {
            return Err(call.dtype(format!(
                "`{}` is of type {}: gradients are F32, so take it as a weight",
                param.name(),
                param.dtype()
            )));
        }
        self.stored(call, param, true)
    }

    /// A parameter of any type that is not trained. The same parameter gives the same tensor.
    ///
    /// Ops that write to a tensor ([`Tensor::cpy`], for one) may write to it: the new values are the parameter's, for every
    /// plan that uses it.
    ///
    /// # Errors
    /// [`Error::Param`](crate::Error::Param) when this graph trains it; [`Error::Alloc`](crate::Error::Alloc).
    #[track_caller]
    pub fn weight(self, param: &Param) -> Result<Tensor<'g>> {
        self.stored(Call::new("Builder::weight"), param, false)
    }

    fn stored(self, call: Call, param: &Param, trainable: bool) -> Result<Tensor<'g>> {
        let known = {
            let parts = self.core.parts.borrow();
            let index = parts.by_param.get(&param.key());
            index.map(|&index| (parts.params[index].tensor, parts.params[index].trainable))
        };
        if let Some((tensor, as_trainable)) = known {
            if as_trainable == trainable {
                return Tensor::new(tensor, self);
            }
            let detail = format!(
                "the graph has `{}` both as trainable and as frozen",
                param.name()
            );
            return Err(call.param(detail));
        }
        let tensor = self.describe(call, param, trainable)?;
        let mut parts = self.core.parts.borrow_mut();
        let index = parts.params.len();
        parts.by_param.insert(param.key(), index);
        parts.params.push(Leaf {
            param: param.clone(),
            tensor,
            trainable,
        });
        drop(parts);
        Tensor::new(tensor, self)
    }

    /// A description of this graph's own of the parameter's memory.
    fn describe(
        self,
        call: Call,
        param: &Param,
        trainable: bool,
    ) -> Result<NonNull<sys::ggml_tensor>> {
        let name = checked_name(param.name()).of(call)?;
        let ne = param.shape().ne().map(|n| n as i64);
        let tensor = self.core.create("new_tensor", |context| {
            // SAFETY: the context is alive and has room; `ne` has four entries whose product was checked when the
            // parameter was listed.
            unsafe { sys::ggml_new_tensor(context, param.dtype().raw(), 4, ne.as_ptr()) }
        })?;
        // SAFETY: the tensor is new and of the parameter's type and shape; `Parts::params` and then the graph keep the
        // parameter. The name is NUL-terminated and fits.
        unsafe {
            param.attach(tensor)?;
            sys::ggml_set_name(tensor.as_ptr(), name.as_ptr());
            if trainable {
                sys::ggml_set_param(tensor.as_ptr());
            }
        }
        Ok(tensor)
    }
}
