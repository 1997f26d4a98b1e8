//! Views of operands that are stored with gaps.

use ggml_rs::Tensor;

/// The first `ne` elements of each dimension, at the tensor's own strides.
pub(super) fn first<'g>(tensor: Tensor<'g>, ne: [usize; 4]) -> ggml_rs::Result<Tensor<'g>> {
    from(tensor, ne, 0)
}

/// `ne` elements of each dimension from the `start`th of dimension 0 on.
pub(super) fn from<'g>(
    tensor: Tensor<'g>,
    ne: [usize; 4],
    start: usize,
) -> ggml_rs::Result<Tensor<'g>> {
    let [nb0, nb1, nb2, nb3] = tensor.strides();
    tensor.view(ne, [nb1, nb2, nb3], start * nb0)
}

/// The first half of each dimension, rounded down.
pub(super) fn half<'g>(tensor: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
    first(tensor, tensor.shape().ne().map(|n| n / 2))
}
