//! Orders of dimensions.

/// Dimension i of a tensor becomes dimension `axes[i]` of the view: `ggml_permute`.
pub(crate) type Axes = [usize; 4];

/// Upstream's mark for "not permuted", printed as such.
pub(crate) const UNPERMUTED: Axes = [0; 4];

/// The first two dimensions exchanged.
pub(crate) const TRANSPOSED: Axes = [1, 0, 2, 3];

/// The shape of a permuted view.
pub(super) fn permute(ne: [usize; 4], axes: Axes) -> [usize; 4] {
    if axes == UNPERMUTED {
        return ne;
    }
    let mut permuted = [1; 4];
    for (n, axis) in ne.into_iter().zip(axes) {
        permuted[axis] = n;
    }
    permuted
}

/// The permutation that undoes this one.
pub(super) fn inverse(axes: Axes) -> Axes {
    std::array::from_fn(|axis| axes.into_iter().position(|to| to == axis).unwrap_or(0))
}

/// The elements of a contiguous tensor in the order in which its permuted view reads them.
pub(super) fn reorder(values: &[f32], ne: [usize; 4], axes: Axes) -> Vec<f32> {
    let strides = permute([1, ne[0], ne[0] * ne[1], ne[0] * ne[1] * ne[2]], axes);
    let view = permute(ne, axes);
    let at = |mut index: usize| {
        let mut at = 0;
        for (n, stride) in view.into_iter().zip(strides) {
            at += index % n * stride;
            index /= n;
        }
        values[at]
    };
    (0..values.len()).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reordering_transposes_each_matrix() {
        let values = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(
            reorder(&values, [3, 2, 1, 1], [1, 0, 2, 3]),
            [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
        );
        assert_eq!(reorder(&values, [3, 2, 1, 1], UNPERMUTED), values);
        assert_eq!(permute([3, 2, 7, 1], [0, 2, 1, 3]), [3, 7, 2, 1]);
    }

    #[test]
    fn an_inverse_restores_the_order() {
        let axes = [1, 2, 0, 3];
        assert_eq!(
            permute(permute([3, 2, 7, 5], axes), inverse(axes)),
            [3, 2, 7, 5]
        );
    }
}
