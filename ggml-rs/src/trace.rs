//! What a plan dispatched to the device: the proof of which kernel ran.

/// One kernel dispatch of a Metal device, real or simulated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dispatch {
    /// The pipeline's name, with its function constants (`kernel_mul_mm_f32_f32_fp32_...`).
    pub pipeline: String,
    /// Bytes of threadgroup memory given to the dispatch.
    pub threadgroup_bytes: usize,
}
