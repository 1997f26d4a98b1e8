//! What is wrong in ggml's kernels and left as it is, each with its reason in docs/findings.md.

use ggml_rs::sim::{Access, Detector, Finding};

/// A fault that is known.
struct Known {
    /// What the kernels' names begin with.
    kernel: &'static str,
    detector: Detector,
    access: Access,
    /// Whether the later write leaves the same bytes.
    same_value: bool,
}

const KNOWN: [Known; 2] = [
    // The last threadgroup reads rows behind the matrix, and drops what it makes of them.
    Known {
        kernel: "kernel_mul_mv_",
        detector: Detector::OutOfBounds,
        access: Access::Read,
        same_value: false,
    },
    // Every simdgroup copies the same table into threadgroup memory.
    Known {
        kernel: "kernel_mul_mv_",
        detector: Detector::RaceInThreadgroup,
        access: Access::Write,
        same_value: true,
    },
];

/// Whether a finding is known.
pub(super) fn is_known(finding: &Finding) -> bool {
    KNOWN.iter().any(|known| {
        finding.kernel.starts_with(known.kernel)
            && finding.detector == known.detector
            && finding.site.access == known.access
            && finding.same_value == known.same_value
    })
}
