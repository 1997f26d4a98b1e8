//! Views: windows of a larger tensor, with their dimensions in another order.

use ggml_rs::{Result, Tensor};

use crate::common::forward::{Given, index, places};

/// A window of a parent, permuted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How its layout is called.
    pub name: &'static str,
    /// The parent's shape.
    pub parent: [usize; 4],
    /// Where the window begins.
    pub start: [usize; 4],
    /// The window's shape, in the parent's order.
    pub window: [usize; 4],
    /// Dimension `d` of the window is dimension `axes[d]` of the view.
    pub axes: [usize; 4],
}

const IN_ORDER: [usize; 4] = [0, 1, 2, 3];

impl Cut {
    /// Every layout of a view of this shape. Blocks of a row stay together: `block` is 1 for elements.
    pub fn all(shape: [usize; 4], block: usize) -> Vec<Self> {
        let around = [2 * block, 2, 1, 1];
        let mut cuts = vec![
            Self::plain(shape),
            Self::of("a window", shape, IN_ORDER, around, [block, 1, 1, 0]),
            Self::of("permuted rows", shape, [0, 2, 1, 3], [0; 4], [0; 4]),
            Self::of(
                "a window of permuted rows",
                shape,
                [0, 3, 1, 2],
                around,
                [block, 1, 0, 1],
            ),
        ];
        if block == 1 {
            cuts.extend([
                Self::transposed([shape[1], shape[0], shape[2], shape[3]]),
                Self::of(
                    "a transposed window",
                    shape,
                    [1, 0, 2, 3],
                    [3, 1, 1, 0],
                    [1, 1, 0, 0],
                ),
                Self::of(
                    "reversed dimensions",
                    shape,
                    [3, 2, 1, 0],
                    [0, 1, 0, 0],
                    [0; 4],
                ),
            ]);
        }
        cuts
    }

    /// The whole parent.
    pub fn plain(shape: [usize; 4]) -> Self {
        Self::of("plain", shape, IN_ORDER, [0; 4], [0; 4])
    }

    /// Dimensions 0 and 1 of the parent exchanged.
    pub fn transposed(parent: [usize; 4]) -> Self {
        let axes = [1, 0, 2, 3];
        Self::of(
            "transposed",
            axes.map(|axis| parent[axis]),
            axes,
            [0; 4],
            [0; 4],
        )
    }

    fn of(
        name: &'static str,
        shape: [usize; 4],
        axes: [usize; 4],
        around: [usize; 4],
        start: [usize; 4],
    ) -> Self {
        let window = axes.map(|axis| shape[axis]);
        Self {
            name,
            parent: std::array::from_fn(|d| window[d] + around[d]),
            start,
            window,
            axes,
        }
    }

    /// The view's shape.
    pub fn shape(&self) -> [usize; 4] {
        let mut shape = [0; 4];
        for (n, axis) in self.window.into_iter().zip(self.axes) {
            shape[axis] = n;
        }
        shape
    }

    /// The parent's element for each of the view's, in ne order.
    pub fn places(&self) -> Vec<usize> {
        let place = |i: [usize; 4]| {
            let in_parent = std::array::from_fn(|d| self.start[d] + i[self.axes[d]]);
            index(self.parent, in_parent)
        };
        places(self.shape()).map(place).collect()
    }

    /// The view's values in a tensor of their own.
    pub fn packed(&self, parent: &Given) -> Given {
        let values = parent.values();
        let packed = self.places().into_iter().map(|i| values[i] as f32);
        Given::float(parent.dtype(), &self.shape(), packed.collect())
    }

    /// Cuts the view out of the parent.
    pub fn view<'g>(&self, parent: Tensor<'g>) -> Result<Tensor<'g>> {
        let nb = parent.strides();
        let block = parent.dtype().block_len();
        let offset =
            self.start[0] / block * nb[0] + (1..4).map(|d| self.start[d] * nb[d]).sum::<usize>();
        parent
            .view(self.window, [nb[1], nb[2], nb[3]], offset)?
            .permute(self.axes)
    }
}
