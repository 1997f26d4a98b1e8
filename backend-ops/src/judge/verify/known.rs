//! What is wrong in ggml's kernels and left as it is, each with its reason in docs/findings.md.

use ggml_rs::sim::{Access, Address, Detector, Finding, Position};

/// A fault that is known: writes of one value to one place in threadgroup memory.
struct Known {
    /// What the kernels' names begin with.
    kernels: &'static [&'static str],
    /// The lines at which it is, of a file; `None`: anywhere in them.
    at: Option<(&'static str, &'static [u32])>,
    detector: Detector,
}

impl Known {
    const fn equal(kernels: &'static [&'static str], detector: Detector) -> Self {
        Self {
            kernels,
            at: None,
            detector,
        }
    }

    /// The same at these lines alone.
    const fn at(self, file: &'static str, lines: &'static [u32]) -> Self {
        Self {
            at: Some((file, lines)),
            ..self
        }
    }

    fn is(&self, finding: &Finding) -> bool {
        let kernel = &finding.kernel;
        let in_threadgroup = matches!(finding.address, Address::Threadgroup(_) | Address::Array(_));
        self.kernels.iter().any(|known| kernel.starts_with(known))
            && finding.detector == self.detector
            && finding.site.access == Access::Write
            && finding.same_value
            && in_threadgroup
            && self.is_there(&finding.site.position)
    }

    fn is_there(&self, position: &Position) -> bool {
        match (self.at, position) {
            (None, _) => true,
            (Some((file, lines)), Position::Line { file: at, line }) => {
                at == file && lines.contains(line)
            }
            (Some(_), Position::Offset(_)) => false,
        }
    }
}

const KNOWN: [Known; 3] = [
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
    Known::equal(&["kernel_flash_attn_ext_vec_"], Detector::RaceInSimdgroup)
        .at("fa_vec_common.metal", &[135, 141]),
    // Where the keys of a row are many, several simdgroups of a threadgroup do the same.
    Known::equal(&["kernel_flash_attn_ext_vec_"], Detector::RaceInThreadgroup)
        .at("fa_vec_common.metal", &[118, 120, 135, 141]),
];

/// Whether a finding is known.
pub(crate) fn is_known(finding: &Finding) -> bool {
    KNOWN.iter().any(|known| known.is(finding))
}

#[cfg(test)]
mod tests {
    use ggml_rs::sim::{Lane, Position, Site};

    use super::*;

    /// A read behind `a` by a mat-vec kernel.
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

    /// A table that each simdgroup of a mat-vec kernel copies, which is known.
    fn table() -> Finding {
        let mut finding = behind();
        finding.kernel = "kernel_mul_mv_iq4_nl_f32".to_owned();
        finding.detector = Detector::RaceInThreadgroup;
        finding.site.access = Access::Write;
        finding.address = Address::Threadgroup(0);
        finding.same_value = true;
        finding
    }

    #[test]
    fn only_what_is_listed_is_known() {
        assert!(!is_known(&behind()));
        assert!(is_known(&table()));
        let others: [fn(&mut Finding); 6] = [
            |finding| finding.kernel = "kernel_mul_mv_q4_0_f32".to_owned(),
            |finding| finding.site.access = Access::Read,
            |finding| finding.address = behind().address,
            |finding| finding.detector = Detector::Uninitialised,
            |finding| finding.detector = Detector::RaceOfDispatches,
            |finding| finding.same_value = false,
        ];
        for (at, change) in others.into_iter().enumerate() {
            let mut finding = table();
            change(&mut finding);
            assert!(!is_known(&finding), "change {at}: {finding}");
        }
    }

    /// Lanes that clear the same place, which is known.
    fn cleared() -> Finding {
        let mut finding = table();
        finding.kernel = "kernel_flash_attn_ext_vec_f16_dk64_dv64".to_owned();
        finding.detector = Detector::RaceInSimdgroup;
        finding.site.position = Position::Line {
            file: "fa_vec_common.metal".to_owned(),
            line: 135,
        };
        finding
    }

    #[test]
    fn of_flash_attention_nothing_is_known_at_other_places() {
        fn at(finding: &mut Finding, file: &str, line: u32) {
            finding.site.position = Position::Line {
                file: file.to_owned(),
                line,
            };
        }
        assert!(is_known(&cleared()));
        let others: [fn(&mut Finding); 6] = [
            |finding| finding.kernel = "kernel_flash_attn_ext_f16_dk64_dv64".to_owned(),
            |finding| at(finding, "fa_vec_common.metal", 136),
            |finding| at(finding, "fa_common.metal", 135),
            |finding| finding.site.position = Position::Offset(0),
            |finding| finding.site.access = Access::Read,
            |finding| finding.same_value = false,
        ];
        for (at, change) in others.into_iter().enumerate() {
            let mut finding = cleared();
            change(&mut finding);
            assert!(!is_known(&finding), "change {at}: {finding}");
        }
    }
}
