//! A tensor as a file describes it.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::files::error::{Fault, FileError};
use crate::shape::Shape;

/// A tensor of a file: everything but its values. What is here was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

impl TensorInfo {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its data type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its shape in ne order, whatever order the file has.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Where its values begin, counted from the file's first byte of data.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes its values have.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Behind its last byte.
    pub(crate) fn end(&self) -> u64 {
        // Checked when it was made.
        self.offset + self.bytes as u64
    }
}

/// Refuses tensors that end behind the data or share bytes. `at` says where a tensor's offset stands in the file.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn check_places(
    tensors: &[TensorInfo],
    data: u64,
    at: impl Fn(usize) -> Option<u64>,
) -> Result<()> {
    let fail = |index: usize, fault| {
        let place = crate::files::Place::Tensor(tensors[index].name.clone());
        Err::<(), Error>(FileError::at(at(index), place, fault))
    };
    for (index, tensor) in tensors.iter().enumerate() {
        let bytes = tensor.bytes as u64;
        let end = tensor.offset.checked_add(bytes);
        if end.is_none_or(|end| end > data) {
            let offset = tensor.offset;
            return fail(
                index,
                Fault::Beyond {
                    offset,
                    bytes,
                    data,
                },
            );
        }
    }
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&index| tensors[index].offset);
    for pair in order.windows(2) {
        let [first, second] = [&tensors[pair[0]], &tensors[pair[1]]];
        if first.end() > second.offset {
            // The sort is stable, so of two that begin together the later in the file is blamed.
            let other = first.name.clone();
            return fail(pair[1], Fault::Overlaps { other });
        }
    }
    Ok(())
}

/// The shape of these dimensions, in ne order, and its bytes.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn sizes(dtype: DType, dims: &[usize]) -> std::result::Result<(Shape, usize), String> {
    let shape = Shape::checked(dims);
    let sizes = shape.and_then(|shape| Ok((shape, shape.checked_bytes(dtype)?)));
    sizes.map_err(|refused| refused.detail().to_owned())
}
