//! The data types of ggml's tensors.

use std::fmt;
use std::str::FromStr;

use ggml_sys as sys;

use crate::error::{Call, Checked, Error, Placed, Refused, Result, here};

/// A tensor's data type: a scalar, or a block format that stores a fixed number of values together.
///
/// ```
/// use ggml_rs::DType;
/// assert_eq!(DType::Q8_0.block_len(), 32);
/// assert_eq!(DType::Q8_0.row_bytes(64)?, 68);
/// assert_eq!("q4_K".parse::<DType>()?, DType::Q4_K);
/// # Ok::<(), ggml_rs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, reason = "ggml's own names")]
#[allow(missing_docs, reason = "the names are the documentation: ggml's own")]
#[non_exhaustive]
#[repr(u32)]
pub enum DType {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q8_1 = 9,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    Q8_K = 15,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I8 = 24,
    I16 = 25,
    I32 = 26,
    I64 = 27,
    F64 = 28,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
    NVFP4 = 40,
    Q1_0 = 41,
    Q2_0 = 42,
}

impl DType {
    /// Every data type, in ggml's order.
    pub const ALL: [DType; 35] = {
        use DType::*;
        [
            F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K,
            IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_S, IQ4_XS, I8, I16, I32, I64, F64,
            IQ1_M, BF16, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0,
        ]
    };

    /// ggml's name: `f32`, `q4_K`.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Values per block; 1 for scalars.
    #[doc(alias = "ggml_blck_size")]
    #[inline]
    pub const fn block_len(self) -> usize {
        self.row().1
    }

    /// Bytes per block; the size of a value for scalars.
    #[doc(alias = "ggml_type_size")]
    #[inline]
    pub const fn block_bytes(self) -> usize {
        self.row().2
    }

    /// Whether values are stored in blocks with shared scales.
    #[doc(alias = "ggml_is_quantized")]
    #[inline]
    pub const fn is_quantized(self) -> bool {
        self.block_len() > 1
    }

    /// Whether ggml turns blocks of this quantized type into floats, and floats into its blocks: all of them but Q8_1 and
    /// Q8_K, which exist only inside dot products.
    pub const fn dequantizes(self) -> bool {
        self.is_quantized() && !matches!(self, Self::Q8_1 | Self::Q8_K)
    }

    /// Whether ggml turns floats into this type only with an importance matrix:
    /// [`quantize_with_importance`](crate::quantize::quantize_with_importance).
    #[doc(alias = "ggml_quantize_requires_imatrix")]
    pub const fn needs_importance(self) -> bool {
        matches!(self, Self::IQ1_S | Self::IQ2_XXS | Self::IQ2_XS)
    }

    /// Whether this is a floating-point scalar.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F64)
    }

    /// Bytes of `len` values, which must fill whole blocks.
    ///
    /// # Errors
    /// [`Error::Shape`] when `len` is not a multiple of the block or the size overflows.
    #[doc(alias = "ggml_row_size")]
    #[track_caller]
    pub fn row_bytes(self, len: usize) -> Result<usize> {
        let at = here();
        self.checked_row_bytes(len).at(at)
    }

    /// As [`DType::row_bytes`].
    #[inline]
    pub(crate) fn checked_row_bytes(self, len: usize) -> Checked<usize> {
        let refuse = |detail: String| Refused::shape("row_bytes", detail);
        if !len.is_multiple_of(self.block_len()) {
            return Err(refuse(format!(
                "a row of {len} values is not a multiple of {}'s block of {}",
                self,
                self.block_len()
            )));
        }
        (len / self.block_len())
            .checked_mul(self.block_bytes())
            .ok_or_else(|| refuse(format!("{len} values of {self} overflow the address space")))
    }

    /// ggml's value of the type.
    pub(crate) const fn raw(self) -> sys::ggml_type {
        self as sys::ggml_type
    }

    /// The type of ggml's value, or `None` for a type that ggml has removed or that we do not know.
    #[inline]
    pub(crate) fn from_raw(raw: sys::ggml_type) -> Option<Self> {
        // Every op's result asks, so by place and not by search.
        static BY_RAW: [Option<DType>; sys::GGML_TYPE_COUNT as usize] = DType::by_raw();
        *BY_RAW.get(raw as usize)?
    }

    const fn by_raw() -> [Option<Self>; sys::GGML_TYPE_COUNT as usize] {
        let mut types = [None; sys::GGML_TYPE_COUNT as usize];
        let mut i = 0;
        while i < Self::ALL.len() {
            types[Self::ALL[i] as usize] = Some(Self::ALL[i]);
            i += 1;
        }
        types
    }

    /// Name, values per block, bytes per block. A constant table, so that sizes can be computed before
    /// ggml may be called at all; a test compares it with ggml's own.
    #[inline]
    const fn row(self) -> (&'static str, usize, usize) {
        match self {
            Self::F32 => ("f32", 1, 4),
            Self::F16 => ("f16", 1, 2),
            Self::Q4_0 => ("q4_0", 32, 18),
            Self::Q4_1 => ("q4_1", 32, 20),
            Self::Q5_0 => ("q5_0", 32, 22),
            Self::Q5_1 => ("q5_1", 32, 24),
            Self::Q8_0 => ("q8_0", 32, 34),
            Self::Q8_1 => ("q8_1", 32, 36),
            Self::Q2_K => ("q2_K", 256, 84),
            Self::Q3_K => ("q3_K", 256, 110),
            Self::Q4_K => ("q4_K", 256, 144),
            Self::Q5_K => ("q5_K", 256, 176),
            Self::Q6_K => ("q6_K", 256, 210),
            Self::Q8_K => ("q8_K", 256, 292),
            Self::IQ2_XXS => ("iq2_xxs", 256, 66),
            Self::IQ2_XS => ("iq2_xs", 256, 74),
            Self::IQ3_XXS => ("iq3_xxs", 256, 98),
            Self::IQ1_S => ("iq1_s", 256, 50),
            Self::IQ4_NL => ("iq4_nl", 32, 18),
            Self::IQ3_S => ("iq3_s", 256, 110),
            Self::IQ2_S => ("iq2_s", 256, 82),
            Self::IQ4_XS => ("iq4_xs", 256, 136),
            Self::I8 => ("i8", 1, 1),
            Self::I16 => ("i16", 1, 2),
            Self::I32 => ("i32", 1, 4),
            Self::I64 => ("i64", 1, 8),
            Self::F64 => ("f64", 1, 8),
            Self::IQ1_M => ("iq1_m", 256, 56),
            Self::BF16 => ("bf16", 1, 2),
            Self::TQ1_0 => ("tq1_0", 256, 54),
            Self::TQ2_0 => ("tq2_0", 256, 66),
            Self::MXFP4 => ("mxfp4", 32, 17),
            Self::NVFP4 => ("nvfp4", 64, 36),
            Self::Q1_0 => ("q1_0", 128, 18),
            Self::Q2_0 => ("q2_0", 64, 18),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    /// The type of this name. `str::parse` is a function of the standard library between the caller and this one, so that
    /// an error names a line there; of a direct call it names the caller's.
    ///
    /// # Errors
    /// [`Error::Param`] for a name that no type has.
    #[track_caller]
    fn from_str(name: &str) -> Result<Self> {
        let call = Call::new("DType::from_str");
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|dtype| dtype.name()).collect();
                call.param(format!(
                    "no type is named `{name}`; known: {}",
                    known.join(" ")
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>(), Ok(dtype));
        }
        assert!(
            "q9_9"
                .parse::<DType>()
                .unwrap_err()
                .to_string()
                .contains("q4_K")
        );
    }

    #[test]
    fn the_table_is_that_of_ggml() {
        crate::runtime::ready().unwrap();
        for raw in 0..sys::GGML_TYPE_COUNT {
            // SAFETY: the type is below the count.
            let (name, len, bytes) = unsafe {
                let name = std::ffi::CStr::from_ptr(sys::ggml_type_name(raw))
                    .to_str()
                    .unwrap();
                (
                    name,
                    sys::ggml_blck_size(raw) as usize,
                    sys::ggml_type_size(raw),
                )
            };
            match DType::from_raw(raw) {
                Some(dtype) => {
                    assert_eq!(
                        (dtype.name(), dtype.block_len(), dtype.block_bytes()),
                        (name, len, bytes)
                    );
                    // SAFETY: as above; ggml's table is static.
                    let to_float = unsafe { (*sys::ggml_get_type_traits(raw)).to_float };
                    let converts = dtype.is_quantized() && to_float.is_some();
                    assert_eq!(dtype.dequantizes(), converts, "{name}");
                    // SAFETY: the type is below the count.
                    let needs = unsafe { sys::ggml_quantize_requires_imatrix(raw) };
                    assert_eq!(dtype.needs_importance(), needs, "{name}");
                }
                None => assert_eq!(len, 0, "{name} is missing from DType"),
            }
        }
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(DType::Q4_K.row_bytes(512), Ok(288));
        assert!(
            DType::Q4_K
                .row_bytes(100)
                .unwrap_err()
                .to_string()
                .contains("multiple of q4_K's block of 256")
        );
        assert!(DType::F64.row_bytes(usize::MAX / 4).is_err());
    }
}
