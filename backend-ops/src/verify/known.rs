//! What is wrong in ggml's kernels and left as it is, each with its reason in docs/findings.md.

use ggml_rs::sim::{Access, Address, Detector, Finding};

/// A fault that is known.
struct Known {
    /// What the kernels' names begin with.
    kernels: &'static [&'static str],
    detector: Detector,
    access: Access,
    /// In threadgroup memory; else in a tensor, or in none.
    in_threadgroup: bool,
    /// Whether the later write leaves the same bytes.
    same_value: bool,
}

impl Known {
    /// Reads from behind a tensor, of which nothing comes into the result.
    const fn behind(kernels: &'static [&'static str]) -> Self {
        Self {
            kernels,
            detector: Detector::OutOfBounds,
            access: Access::Read,
            in_threadgroup: false,
            same_value: false,
        }
    }

    /// Reads of what nobody has written, of which nothing comes into the result.
    const fn unwritten(kernels: &'static [&'static str], in_threadgroup: bool) -> Self {
        Self {
            kernels,
            detector: Detector::Uninitialised,
            access: Access::Read,
            in_threadgroup,
            same_value: false,
        }
    }

    /// Writes of one value to one place in threadgroup memory.
    const fn equal(kernels: &'static [&'static str], detector: Detector) -> Self {
        Self {
            kernels,
            detector,
            access: Access::Write,
            in_threadgroup: true,
            same_value: true,
        }
    }

    fn is(&self, finding: &Finding) -> bool {
        let kernel = &finding.kernel;
        let in_threadgroup = matches!(finding.address, Address::Threadgroup(_) | Address::Array(_));
        self.kernels.iter().any(|known| kernel.starts_with(known))
            && finding.detector == self.detector
            && finding.site.access == self.access
            && in_threadgroup == self.in_threadgroup
            && finding.same_value == self.same_value
    }
}

const KNOWN: [Known; 6] = [
    Known::behind(&["kernel_mul_mv_"]),
    Known::equal(
        &[
            "kernel_mul_mv_iq4_nl_",
            "kernel_mul_mv_iq4_xs_",
            "kernel_mul_mv_mxfp4_",
            "kernel_mul_mv_id_iq4_nl_",
            "kernel_mul_mv_id_iq4_xs_",
            "kernel_mul_mv_id_mxfp4_",
        ],
        Detector::RaceInThreadgroup,
    ),
    Known::behind(&["kernel_flash_attn_ext_"]),
    // Of threadgroup memory, and of the scratch behind the result.
    Known::unwritten(&["kernel_flash_attn_ext_"], true),
    Known::unwritten(&["kernel_flash_attn_ext_"], false),
    Known::equal(&["kernel_flash_attn_ext_vec_"], Detector::RaceInSimdgroup),
];

/// Whether a finding is known.
pub(super) fn is_known(finding: &Finding) -> bool {
    KNOWN.iter().any(|known| known.is(finding))
}
