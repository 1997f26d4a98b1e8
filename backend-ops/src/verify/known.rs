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

#[cfg(test)]
mod tests {
    use ggml_rs::sim::{Lane, Position, Site};

    use super::*;

    /// A read behind `a` by a mat-vec kernel, which is known.
    fn behind() -> Finding {
        Finding {
            detector: Detector::OutOfBounds,
            kernel: "kernel_mul_mv_q4_0_f32_nsg=2".to_owned(),
            other_kernel: None,
            same_value: false,
            site: Site {
                position: Position::Offset(0),
                access: Access::Read,
                lane: Lane::Index(0),
                threadgroup: [0; 3],
            },
            other: None,
            address: Address::Tensor {
                name: "a".to_owned(),
                buffer: Some(1),
            },
            offset: 0,
            size: 18,
            bytes: 2,
            count: 1,
        }
    }

    #[test]
    fn only_what_is_listed_is_known() {
        assert!(is_known(&behind()));
        let others: [fn(&mut Finding); 6] = [
            |finding| finding.kernel = "kernel_mul_mm_q4_0_f32".to_owned(),
            |finding| finding.site.access = Access::Write,
            |finding| finding.address = Address::Threadgroup(0),
            |finding| finding.detector = Detector::Uninitialised,
            |finding| finding.detector = Detector::RaceOfDispatches,
            |finding| finding.same_value = true,
        ];
        for (at, change) in others.into_iter().enumerate() {
            let mut finding = behind();
            change(&mut finding);
            assert!(!is_known(&finding), "change {at}: {finding}");
        }
    }

    #[test]
    fn a_race_is_known_only_where_it_writes_the_same_bytes() {
        let race = |same_value| {
            let mut finding = behind();
            finding.kernel = "kernel_mul_mv_iq4_nl_f32".to_owned();
            finding.detector = Detector::RaceInThreadgroup;
            finding.site.access = Access::Write;
            finding.address = Address::Threadgroup(0);
            finding.same_value = same_value;
            finding
        };
        assert!(is_known(&race(true)));
        assert!(!is_known(&race(false)));
    }
}
