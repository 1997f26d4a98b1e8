//! What is wrong in ggml's kernels and left as it is, each with its reason in docs/findings.md.

use ggml_rs::sim::{Access, Address, Detector, Finding, Position};

/// A fault that is known.
struct Known {
    /// What the kernels' names begin with; with a star what they begin with, and what follows somewhere behind.
    kernels: &'static [&'static str],
    /// The lines at which it is, of a file; `None`: anywhere in them.
    at: Option<(&'static str, &'static [u32])>,
    detector: Detector,
    access: Access,
    memory: Memory,
    /// Whether the later write leaves the same bytes.
    same_value: bool,
}

/// Which memory.
enum Memory {
    Threadgroup,
    /// A tensor, or none.
    Device,
    /// The tensors that a kernel has by these indices.
    Buffers(&'static [u32]),
}

impl Memory {
    fn is(&self, address: &Address) -> bool {
        let in_threadgroup = matches!(address, Address::Threadgroup(_) | Address::Array(_));
        match (self, address) {
            (Self::Threadgroup, _) => in_threadgroup,
            (Self::Device, _) => !in_threadgroup,
            (Self::Buffers(known), Address::Tensor { buffer, .. }) => {
                buffer.is_some_and(|buffer| known.contains(&buffer))
            }
            (Self::Buffers(_), _) => false,
        }
    }
}

impl Known {
    /// Reads of which nothing comes into the result.
    const fn read(kernels: &'static [&'static str], detector: Detector, memory: Memory) -> Self {
        Self {
            kernels,
            at: None,
            detector,
            access: Access::Read,
            memory,
            same_value: false,
        }
    }

    /// Writes of one value to one place in threadgroup memory.
    const fn equal(kernels: &'static [&'static str], detector: Detector) -> Self {
        Self {
            kernels,
            at: None,
            detector,
            access: Access::Write,
            memory: Memory::Threadgroup,
            same_value: true,
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
        self.kernels.iter().any(|known| is_named(kernel, known))
            && finding.detector == self.detector
            && finding.site.access == self.access
            && finding.same_value == self.same_value
            && self.memory.is(&finding.address)
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

fn is_named(kernel: &str, known: &str) -> bool {
    match known.split_once('*') {
        None => kernel.starts_with(known),
        Some((begin, part)) => {
            let rest = kernel.strip_prefix(begin);
            rest.is_some_and(|rest| rest.contains(part))
        }
    }
}

/// Flash attention of heads that are no whole number of 8x8 blocks for each simdgroup.
const RAGGED_HEADS: &[&str] = &[
    "kernel_flash_attn_ext_*_dk40_dv40",
    "kernel_flash_attn_ext_*_dk48_dv48",
    "kernel_flash_attn_ext_*_dk72_dv72",
    "kernel_flash_attn_ext_*_dk80_dv80",
    "kernel_flash_attn_ext_*_dk96_dv96",
    "kernel_flash_attn_ext_*_dk112_dv112",
];
/// V's elements, and what is behind the result: the padded copies of K, V and mask.
const V: Memory = Memory::Buffers(&[3]);
const PADDED: Memory = Memory::Buffers(&[7]);
/// Where a simdgroup loads their blocks.
const LOADS: &[u32] = &[492, 493, 514, 515, 516, 517];

const KNOWN: [Known; 7] = [
    // Reads from behind a tensor.
    Known::read(&["kernel_mul_mv_"], Detector::OutOfBounds, Memory::Device),
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
    // K and V.
    Known::read(
        &["kernel_flash_attn_ext_pad"],
        Detector::OutOfBounds,
        Memory::Buffers(&[1, 2]),
    )
    .at("fa_aux.metal", &[95, 98]),
    Known::read(RAGGED_HEADS, Detector::OutOfBounds, V).at("fa_common.metal", LOADS),
    // Sums behind the last.
    Known::read(RAGGED_HEADS, Detector::Uninitialised, Memory::Threadgroup)
        .at("fa_common.metal", &[472]),
    Known::read(RAGGED_HEADS, Detector::Uninitialised, PADDED).at("fa_common.metal", LOADS),
    Known::equal(&["kernel_flash_attn_ext_vec_"], Detector::RaceInSimdgroup)
        .at("fa_vec_common.metal", &[135, 141]),
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

    /// A read of V by flash attention with heads of 40, from behind V.
    fn of_attention() -> Finding {
        Finding {
            kernel: "kernel_flash_attn_ext_f16_dk40_dv40".to_owned(),
            site: Site {
                position: Position::Line {
                    file: "fa_common.metal".to_owned(),
                    line: 492,
                },
                ..behind().site
            },
            address: Address::Tensor {
                name: "v".to_owned(),
                buffer: Some(3),
            },
            ..behind()
        }
    }

    #[test]
    fn of_flash_attention_nothing_is_known_at_other_places() {
        fn at(finding: &mut Finding, file: &str, line: u32) {
            finding.site.position = Position::Line {
                file: file.to_owned(),
                line,
            };
        }
        assert!(is_known(&of_attention()));
        let others: [fn(&mut Finding); 7] = [
            |finding| finding.kernel = "kernel_flash_attn_ext_f16_dk64_dv64".to_owned(),
            |finding| finding.kernel = "kernel_flash_attn_ext_vec_f16_dk64_dv64".to_owned(),
            |finding| at(finding, "fa_common.metal", 380),
            |finding| at(finding, "fa_vec_common.metal", 492),
            |finding| finding.site.position = Position::Offset(0),
            |finding| {
                // K.
                finding.address = Address::Tensor {
                    name: "k".to_owned(),
                    buffer: Some(2),
                };
            },
            |finding| finding.address = Address::Elsewhere,
        ];
        for (at, change) in others.into_iter().enumerate() {
            let mut finding = of_attention();
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
