//! What a closure sees: its part of the result, and the operands.

use std::fmt;
use std::ops::Range;

use half::{bf16, f16};

use crate::dtype::DType;
use crate::layout::Layout;
use crate::shape::Shape;

/// A Rust type with the layout of a data type's elements.
pub trait Element: bytemuck::Pod + sealed::Sealed {
    /// The data type.
    const DTYPE: DType;
}

mod sealed {
    pub trait Sealed {}
}

/// Implements [`Element`] for a type: a macro, because a function implements no trait.
macro_rules! elements {
    ($($element:ty: $dtype:ident),*) => {
        $(
            impl sealed::Sealed for $element {}
            impl Element for $element {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}

elements!(f32: F32, f16: F16, bf16: BF16, f64: F64, i8: I8, i16: I16, i32: I32, i64: I64);

/// An operand, as a closure sees it.
#[derive(Clone, Copy)]
pub struct CustomInput<'a> {
    pub(super) layout: Layout,
    /// From the first element to the end of the last.
    pub(super) bytes: &'a [u8],
}

impl<'a> CustomInput<'a> {
    /// The shape.
    pub fn shape(&self) -> Shape {
        self.layout.shape()
    }

    /// The data type.
    pub fn dtype(&self) -> DType {
        self.layout.dtype
    }

    /// The strides in bytes.
    pub fn strides(&self) -> [usize; 4] {
        self.layout.nb
    }

    /// The bytes from the first element to the end of the last, gaps included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// All elements in ne order; `None` unless they are of this type and lie one after the other.
    pub fn values<T: Element>(&self) -> Option<&'a [T]> {
        if self.layout.dtype != T::DTYPE || !self.layout.is_contiguous() {
            return None;
        }
        bytemuck::try_cast_slice(self.bytes).ok()
    }

    /// The row with this number, counted through all dimensions from 1 on; `None` for a row that does not exist, of another
    /// type, or with gaps.
    pub fn row<T: Element>(&self, row: usize) -> Option<&'a [T]> {
        let ne = self.layout.ne;
        let packed = self.layout.has_packed_rows() || ne[0] == 1;
        if self.layout.dtype != T::DTYPE || !packed || row >= self.layout.shape().rows() {
            return None;
        }
        let place = [row % ne[1], row / ne[1] % ne[2], row / ne[1] / ne[2]];
        let start: usize = place
            .iter()
            .zip(&self.layout.nb[1..])
            .map(|(i, nb)| i * nb)
            .sum();
        let row = self.bytes.get(start..)?.get(..ne[0] * size_of::<T>())?;
        bytemuck::try_cast_slice(row).ok()
    }

    /// One element; `None` where there is none, or it is of another type.
    pub fn get<T: Element>(&self, place: [usize; 4]) -> Option<T> {
        let inside = place.iter().zip(self.layout.ne).all(|(&i, n)| i < n);
        if self.layout.dtype != T::DTYPE || !inside {
            return None;
        }
        let start: usize = place.iter().zip(self.layout.nb).map(|(i, nb)| i * nb).sum();
        let element = self.bytes.get(start..)?.get(..size_of::<T>())?;
        bytemuck::try_pod_read_unaligned(element).ok()
    }
}

impl fmt::Debug for CustomInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomInput({})", self.layout.operand("self"))
    }
}

/// One call of a closure: some rows of the result, and all operands.
///
/// Closures are called on ggml's threads, once for each part of the result: a task owns its rows, and no other task sees
/// them, so that closures need no locks to write. They run on the CPU alone, and have no gradient.
///
/// A panic in a closure does not cross ggml: the run goes on with what the result holds, and the panic continues in
/// [`Plan::run`](crate::Plan::run) after ggml has returned. The backend stays usable, and the plan can run again.
pub struct CustomTask<'a> {
    pub(super) layout: Layout,
    /// The rows that are this task's.
    pub(super) rows: Range<usize>,
    /// Their bytes, one row after the other.
    pub(super) out: &'a mut [u8],
    pub(super) inputs: Vec<CustomInput<'a>>,
    pub(super) index: usize,
    pub(super) count: usize,
}

impl<'a> CustomTask<'a> {
    /// The number of this task, below [`CustomTask::count`].
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many tasks share the result. Some may have no rows and are not called.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The shape of the whole result.
    pub fn shape(&self) -> Shape {
        self.layout.shape()
    }

    /// The data type of the result.
    pub fn dtype(&self) -> DType {
        self.layout.dtype
    }

    /// The rows of the result that are this task's, counted through all dimensions from 1 on.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// An operand. In an op that works in place the first operand is the result, and does not count.
    ///
    /// # Panics
    /// When there are not so many.
    #[track_caller]
    pub fn input(&self, index: usize) -> CustomInput<'a> {
        self.inputs[index]
    }

    /// All operands.
    pub fn inputs(&self) -> &[CustomInput<'a>] {
        &self.inputs
    }

    /// This task's rows of the result, one after the other; `None` for another type. Before they are written they hold what
    /// was in the memory, or the operand's values where the op works in place.
    pub fn out<T: Element>(&mut self) -> Option<&mut [T]> {
        if self.layout.dtype != T::DTYPE {
            return None;
        }
        bytemuck::try_cast_slice_mut(self.out).ok()
    }

    /// The bytes of this task's rows.
    pub fn out_bytes(&mut self) -> &mut [u8] {
        self.out
    }

    /// One of this task's rows, by its number in the whole result; `None` for another type, or a row of another task.
    pub fn row_mut<T: Element>(&mut self, row: usize) -> Option<&mut [T]> {
        if !self.rows.contains(&row) {
            return None;
        }
        let (len, at) = (self.layout.ne[0], row - self.rows.start);
        self.out::<T>()?.get_mut(at * len..(at + 1) * len)
    }
}

impl fmt::Debug for CustomTask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomTask")
            .field("index", &self.index)
            .field("count", &self.count)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

/// The rows of one task of several: as many for each, but for the last ones.
pub(super) fn share(rows: usize, index: usize, count: usize) -> Range<usize> {
    let each = rows.div_ceil(count);
    let start = (each * index).min(rows);
    start..(start + each).min(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ops::testing::{layout, transposed};

    #[test]
    fn shares_cover_all_rows_once() {
        for (rows, count) in [(7, 3), (2, 5), (1, 1), (8, 4), (100, 7)] {
            let all: Vec<usize> = (0..count)
                .flat_map(|index| share(rows, index, count))
                .collect();
            assert_eq!(all, (0..rows).collect::<Vec<_>>(), "{rows} for {count}");
        }
    }

    #[test]
    fn operands_are_read_by_type_and_strides() {
        let values = [0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0];
        let bytes = bytemuck::cast_slice(&values);
        let plain = CustomInput {
            layout: layout(DType::F32, &[3, 2]),
            bytes,
        };
        assert_eq!(plain.values::<f32>(), Some(&values[..]));
        assert_eq!(plain.values::<i32>(), None);
        assert_eq!(plain.row::<f32>(1), Some(&values[3..]));
        assert_eq!(plain.row::<f32>(2), None);
        let turned = CustomInput {
            layout: transposed(plain.layout),
            bytes,
        };
        assert_eq!(turned.values::<f32>(), None);
        assert_eq!(turned.row::<f32>(0), None);
        assert_eq!(turned.get::<f32>([1, 2, 0, 0]), Some(5.0));
        assert_eq!(turned.get::<f32>([2, 0, 0, 0]), None);
        assert_eq!(turned.get::<f16>([0, 0, 0, 0]), None);
    }

    #[test]
    fn a_task_writes_its_rows_alone() {
        let mut out = [0_u8; 24];
        let mut task = CustomTask {
            layout: layout(DType::F32, &[3, 4]),
            rows: 1..3,
            out: &mut out,
            inputs: Vec::new(),
            index: 1,
            count: 2,
        };
        task.row_mut::<f32>(2).unwrap().fill(7.0);
        assert!(task.row_mut::<f32>(0).is_none() && task.row_mut::<f32>(3).is_none());
        assert!(task.out::<i32>().is_none());
        assert_eq!(task.out::<f32>().unwrap(), [0.0, 0.0, 0.0, 7.0, 7.0, 7.0]);
    }
}
