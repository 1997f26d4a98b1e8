//! The ops, by family. Each has one check that mirrors the assertions of its ggml function, so that ggml
//! is only called with operands it accepts; the checks work on layouts and are tested without ggml.

mod arithmetic;
mod arrange;
mod attention;
mod conv;
mod copy;
mod custom;
mod experts;
mod glu;
mod image;
pub mod inplace;
mod matmul;
mod normalize;
mod optimizer;
mod precision;
mod recurrent;
mod reduce;
mod rope;
mod rows;
mod softmax;
mod sort;
mod unary;
mod view;
pub(crate) mod window;

pub use arrange::TriPart;
pub use attention::FlashAttn;
pub use conv::{Conv1d, Conv2d, Conv3d, ConvOptions, Pool, Pool1d, Pool2d, PoolOptions};
pub(crate) use custom::CustomOp;
pub use custom::{CustomInput, CustomTask, Element, Tasks};
pub use glu::GluOp;
pub use image::{Interpolation, Scale};
pub use optimizer::AdamW;
pub use precision::{Precision, Route, Staging};
pub use recurrent::{GatedDeltaNet, SsmScan};
pub use rope::{Rope, RopeMode};
pub use softmax::SoftMax;
pub use sort::SortOrder;

#[cfg(test)]
pub(crate) mod testing {
    use crate::dtype::DType;
    use crate::layout::Layout;
    use crate::shape::Shape;

    /// The layout of a new tensor.
    pub fn layout(dtype: DType, dims: &[usize]) -> Layout {
        Layout::contiguous(dtype, Shape::new(dims).unwrap()).unwrap()
    }

    /// The same with its first two dimensions exchanged.
    pub fn transposed(mut layout: Layout) -> Layout {
        layout.ne.swap(0, 1);
        layout.nb.swap(0, 1);
        layout
    }
}
