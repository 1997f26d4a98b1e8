//! The reference's memory: one vector of values per tensor that owns memory, and views into them.
//!
//! A view says where it lies in bytes, as ggml does; here bytes become indices of values, so that the strides and offsets
//! of the graph decide which values an op reads.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::layout::Layout;

/// Where a tensor's values lie: in which vector, and at which byte of the tensor that owns it.
#[derive(Debug, Clone, Copy)]
pub struct View {
    pub base: usize,
    pub offset: usize,
    pub layout: Layout,
}

impl View {
    /// The index of the first value. Offsets of views are whole blocks.
    fn first(&self) -> usize {
        self.offset / self.layout.dtype.block_bytes() * self.layout.dtype.block_len()
    }

    /// The index of every element, in ne order.
    fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        let Layout { dtype, nb, .. } = self.layout;
        let (block, bytes) = (dtype.block_len(), dtype.block_bytes());
        places(self.layout.ne).map(move |[i0, i1, i2, i3]| {
            let byte = self.offset + i0 / block * nb[0] + i1 * nb[1] + i2 * nb[2] + i3 * nb[3];
            byte / bytes * block + i0 % block
        })
    }
}

/// Every place of a tensor of this shape, in ne order.
pub fn places(ne: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    (0..ne.iter().product::<usize>()).map(move |flat| place(ne, flat))
}

/// The place of an element in ne order.
pub fn place(ne: [usize; 4], flat: usize) -> [usize; 4] {
    let row = flat / ne[0];
    let plane = row / ne[1];
    [flat % ne[0], row % ne[1], plane % ne[2], plane / ne[2]]
}

/// The number in ne order of the element at a place.
pub fn flat(ne: [usize; 4], [i0, i1, i2, i3]: [usize; 4]) -> usize {
    i0 + ne[0] * (i1 + ne[1] * (i2 + ne[2] * i3))
}

/// The most values of a graph: 2 GiB. Computing takes copies of the largest tensors beside them.
pub const MOST_VALUES: usize = 1 << 28;

/// The vectors. A value that nothing has written is NaN, as in a plan's memory.
#[derive(Debug, Default)]
pub struct Memory {
    bases: Vec<Vec<f64>>,
    values: usize,
}

impl Memory {
    /// A vector for a tensor of this many elements.
    ///
    /// # Errors
    /// [`Error::Alloc`] when there would be more than [`MOST_VALUES`] values in all: a `Vec` that finds no memory ends the process.
    pub fn push(&mut self, elements: usize) -> Result<usize> {
        let values = self.values.saturating_add(elements);
        if values > MOST_VALUES {
            return Err(Error::Alloc {
                what: "the f64 reference".to_owned(),
                bytes: values.saturating_mul(size_of::<f64>()),
                detail: format!("it is for graphs of at most {MOST_VALUES} values"),
            });
        }
        self.values = values;
        self.bases.push(vec![f64::NAN; elements]);
        Ok(self.bases.len() - 1)
    }

    /// The values of a view in ne order.
    pub fn gather(&self, view: &View) -> Cow<'_, [f64]> {
        let base = &self.bases[view.base];
        if view.layout.is_contiguous() {
            Cow::Borrowed(&base[view.first()..][..view.layout.elements()])
        } else {
            Cow::Owned(view.indices().map(|index| base[index]).collect())
        }
    }

    /// Writes values in ne order to where a view lies.
    pub fn scatter(&mut self, view: &View, values: &[f64]) {
        let base = &mut self.bases[view.base];
        if view.layout.is_contiguous() {
            base[view.first()..][..values.len()].copy_from_slice(values);
        } else {
            for (index, &value) in view.indices().zip(values) {
                base[index] = value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::shape::Shape;

    fn view(dtype: DType, dims: &[usize]) -> View {
        let layout = Layout::contiguous(dtype, Shape::new(dims).unwrap()).unwrap();
        View {
            base: 0,
            offset: 0,
            layout,
        }
    }

    fn counted(elements: usize) -> Memory {
        let mut memory = Memory::default();
        memory.push(elements).unwrap();
        memory.bases[0] = (0..elements).map(|i| i as f64).collect();
        memory
    }

    #[test]
    fn strides_decide_what_is_read_and_written() {
        let mut memory = counted(6);
        let mut transposed = view(DType::F32, &[3, 2]);
        transposed.layout.ne.swap(0, 1);
        transposed.layout.nb.swap(0, 1);
        assert_eq!(*memory.gather(&transposed), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        memory.scatter(&transposed, &[9.0, 8.0, 7.0, 6.0, 5.0, 4.0]);
        assert_eq!(memory.bases[0], [9.0, 7.0, 5.0, 8.0, 6.0, 4.0]);
    }

    #[test]
    fn offsets_count_in_blocks() {
        let memory = counted(128);
        let mut second = view(DType::Q8_0, &[32]);
        second.offset = 34;
        assert_eq!(memory.gather(&second)[0], 32.0);
        let mut rows = view(DType::Q8_0, &[32, 2]);
        rows.layout.nb[1] = 68;
        assert_eq!(memory.gather(&rows)[32], 64.0);
    }

    #[test]
    fn memory_that_nobody_has_is_an_error() {
        let mut memory = counted(8);
        for elements in [MOST_VALUES - 7, usize::MAX] {
            let error = memory.push(elements).unwrap_err();
            assert!(matches!(error, Error::Alloc { bytes, .. } if bytes > 1 << 31));
        }
        assert_eq!(memory.push(1), Ok(1));
    }

    #[test]
    fn places_and_numbers_agree() {
        let ne = [2, 3, 2, 2];
        assert!(places(ne).enumerate().all(|(i, at)| flat(ne, at) == i));
    }
}
