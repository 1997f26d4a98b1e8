//! Conversion between `f32` and the other data types.
//!
//! Quantized types go through ggml's own row functions, halves through the `half` crate: both round to
//! nearest even.
//!
//! ```
//! use ggml_rs::{DType, quantize::{dequantize, quantize}};
//! let row: Vec<f32> = (0..32).map(|i| i as f32).collect();
//! let blocks = quantize(DType::Q8_0, &row, 32)?;
//! assert_eq!(blocks.len(), 34);
//! let error = dequantize(DType::Q8_0, &blocks)?.iter().zip(&row).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
//! assert!(error < 0.2);
//! # Ok::<(), ggml_rs::Error>(())
//! ```

mod scales;

use std::borrow::Cow;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use ggml_sys as sys;

use crate::dtype::DType;
use crate::error::{Call, Checked, Error, Placed, Refused, Result};
use crate::guard;
use crate::runtime;
use crate::tasks;

/// Converts rows of `row_len` values to `dtype`, in parallel when there are many.
///
/// Types that ggml quantizes only with an importance matrix ([`DType::needs_importance`]) get one of all ones, as in ggml's
/// own tests. [`quantize_with_importance`] takes one.
///
/// # Errors
/// [`Error::Shape`] unless the values fill whole rows and rows whole blocks; [`Error::DType`] for a type that
/// f32 values do not convert to; [`Error::Param`] for a value that is not finite and would be quantized, or too large for its type:
/// the scale of a block is a half, and one that overflows reads back as infinity (Q8_0 holds 127 times 65504, Q4_0 8 times, others
/// less or more); NVFP4 holds 2688. The error names the value and what fits. Halves are rounded as IEEE says, to infinity from
/// 65520 (F16) on.
#[doc(alias = "ggml_quantize_chunk")]
#[track_caller]
pub fn quantize(dtype: DType, values: &[f32], row_len: usize) -> Result<Vec<u8>> {
    quantize_in(Call::new("quantize"), dtype, values, row_len, None)
}

/// As [`quantize`], where errors count as much as `importance` says: one positive number for each place of a row, the same for
/// every row. Only how they compare matters. For a weight that is how much its inputs vary, such as the mean of their squares over some data.
///
/// Types that no importance changes (halves, Q8_0 and others without a choice of scales) take it and leave it alone.
///
/// ```
/// use ggml_rs::{DType, quantize::{dequantize, quantize_with_importance}};
/// let row: Vec<f32> = (0..256).map(|i| (i as f32 * 0.7).sin()).collect();
/// // Only the first quarter matters.
/// let importance: Vec<f32> = (0..256).map(|i| if i < 64 { 1.0 } else { 1e-3 }).collect();
/// let blocks = quantize_with_importance(DType::IQ2_XXS, &row, 256, &importance)?;
/// assert_eq!(dequantize(DType::IQ2_XXS, &blocks)?.len(), 256);
/// # Ok::<(), ggml_rs::Error>(())
/// ```
///
/// # Errors
/// As [`quantize`], and [`Error::Param`] unless there is one importance from 1e-10 to 1e10 for each place of a row.
#[track_caller]
pub fn quantize_with_importance(
    dtype: DType,
    values: &[f32],
    row_len: usize,
    importance: &[f32],
) -> Result<Vec<u8>> {
    let call = Call::new("quantize_with_importance");
    let refuse = |detail: String| Err(call.param(detail));
    if importance.len() != row_len {
        let given = importance.len();
        return refuse(format!("an importance of {given} for rows of {row_len}"));
    }
    // Sums of their products with squares of values must neither overflow nor vanish.
    let allowed = 1e-10..=1e10;
    if let Some(place) = importance.iter().position(|value| !allowed.contains(value)) {
        let value = importance[place];
        return refuse(format!(
            "importance {place} is {value}; from {:e} to {:e} is allowed, a small one for what does not matter",
            allowed.start(),
            allowed.end()
        ));
    }
    quantize_in(call, dtype, values, row_len, Some(importance))
}

/// As [`quantize`], for a public function that was called.
///
/// # Errors
/// As [`quantize_with_importance`], as errors of that call.
pub(crate) fn quantize_in(
    call: Call,
    dtype: DType,
    values: &[f32],
    row_len: usize,
    importance: Option<&[f32]>,
) -> Result<Vec<u8>> {
    let row_bytes = check_rows(dtype, values.len(), row_len).of(call)?;
    match dtype {
        DType::F32 => Ok(bytemuck::cast_slice(values).to_vec()),
        DType::F16 => Ok(halves::<f16>(values)),
        DType::BF16 => Ok(halves::<bf16>(values)),
        _ if dtype.dequantizes() => {
            check_values(dtype, values).of(call)?;
            quantize_rows(call, dtype, values, row_len, row_bytes, importance)
        }
        _ => Err(call.dtype(format!(
            "f32 does not convert to {dtype}: {}",
            set_by(dtype)
        ))),
    }
}

/// Converts bytes of `dtype` to `f32`.
///
/// # Errors
/// [`Error::Shape`] unless the bytes are whole blocks; [`Error::DType`] for a type that does not convert to
/// f32.
#[track_caller]
pub fn dequantize(dtype: DType, bytes: &[u8]) -> Result<Vec<f32>> {
    let call = Call::new("dequantize");
    check_dequantize(dtype, bytes.len()).of(call)?;
    dequantize_checked(dtype, bytes)
}

/// Whether so many bytes of a type convert to f32.
pub(crate) fn check_dequantize(dtype: DType, bytes: usize) -> Checked {
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) && !dtype.dequantizes() {
        let detail = format!("{dtype} does not convert to f32: {}", read_by(dtype));
        return Err(Refused::dtype("dequantize", detail));
    }
    if !bytes.is_multiple_of(dtype.block_bytes()) {
        let detail = format!(
            "{bytes} bytes are not whole blocks of {dtype} ({} bytes)",
            dtype.block_bytes()
        );
        return Err(Refused::shape("dequantize", detail));
    }
    Ok(())
}

/// Converts what [`check_dequantize`] took.
pub(crate) fn dequantize_checked(dtype: DType, bytes: &[u8]) -> Result<Vec<f32>> {
    match dtype {
        DType::F32 => Ok(bytemuck::pod_collect_to_vec(bytes)),
        DType::F16 => Ok(bytemuck::pod_collect_to_vec::<u8, f16>(bytes).to_f32_vec()),
        DType::BF16 => Ok(bytemuck::pod_collect_to_vec::<u8, bf16>(bytes).to_f32_vec()),
        _ => dequantize_blocks(dtype, bytes),
    }
}

fn check_rows(dtype: DType, len: usize, row_len: usize) -> Checked<usize> {
    if row_len == 0 || !len.is_multiple_of(row_len) {
        let detail = format!("{len} values are not whole rows of {row_len}");
        return Err(Refused::shape("quantize", detail));
    }
    dtype.checked_row_bytes(row_len)
}

/// What ggml quantizes without a fault.
fn check_values(dtype: DType, values: &[f32]) -> Checked {
    let most = largest(dtype);
    let allowed = |value: &f32| value.is_finite() && value.abs() <= most;
    let Some(index) = values.iter().position(|value| !allowed(value)) else {
        return Ok(());
    };
    let detail = format!(
        "value {index} is {}; {dtype} takes finite values up to {most:e}",
        values[index]
    );
    Err(Refused::param("quantize", detail))
}

/// How values of a type are read from a plan, a parameter or a file.
pub(crate) fn read_by(dtype: DType) -> &'static str {
    match dtype {
        DType::I32 => "use read_i32",
        DType::I64 => "use read_i64",
        DType::F32 | DType::F16 | DType::BF16 => "use read_f32",
        _ if dtype.dequantizes() => "use read_f32",
        _ => "use read_bytes",
    }
}

/// How values of a type are set that are no floats.
fn set_by(dtype: DType) -> &'static str {
    match dtype {
        DType::I32 => "use set_i32",
        DType::I64 => "use set_i64",
        _ => "use set_bytes",
    }
}

fn halves<H: bytemuck::Pod>(values: &[f32]) -> Vec<u8>
where
    [H]: HalfFloatSliceExt,
{
    let mut halves = vec![H::zeroed(); values.len()];
    halves.as_mut_slice().convert_from_f32_slice(values);
    bytemuck::cast_slice(&halves).to_vec()
}

/// Values per task: enough to outweigh starting a thread.
const TASK: usize = 1 << 18;

/// Quantizes values that [`check_values`] took.
fn quantize_rows(
    call: Call,
    dtype: DType,
    values: &[f32],
    row_len: usize,
    row_bytes: usize,
    importance: Option<&[f32]>,
) -> Result<Vec<u8>> {
    let quantizer = Quantizer::new(dtype, row_len, importance)?;
    // Words, because ggml's blocks hold 16- and 32-bit numbers.
    let mut words = vec![0_u64; (values.len() / row_len * row_bytes).div_ceil(8)];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let bytes = &mut bytes[..values.len() / row_len * row_bytes];
    let threads = tasks::threads();
    // Blocks of 8 rows keep every task's first byte aligned as the first one's is.
    let rows = (values.len() / row_len)
        .div_ceil(threads)
        .max(TASK.div_ceil(row_len))
        .next_multiple_of(8);
    let parts = values
        .chunks(rows * row_len)
        .zip(bytes.chunks_mut(rows * row_bytes));
    tasks::share(parts.len(), parts, |(from, to)| quantizer.run(from, to))?;
    scales::check(call, &quantizer, values, bytes)?;
    Ok(bytes.to_vec())
}

/// The largest value that ggml quantizes without a fault. What is too large for the scale of its block is found afterwards.
///
/// NVFP4's scales are clamped to 448, and its levels end at 6: larger values would be cut off without a word.
///
/// The search for a scale adds up powers of the values: those of Q3_K, Q6_K and IQ4_XS overflow from 1e13 on, and a scale of 0 comes
/// out. No block whose scale is a half holds a tenth of 2^36. MXFP4's scale is a power of 2, up to f32's range.
///
/// For some types it searches a grid of points, and asserts that a point was found: none is, once sums of fourth powers overflow.
/// Their largest values are those of the largest half times what a grid and a scale of the block give, below 2^25 for each.
fn largest(dtype: DType) -> f32 {
    use DType::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, MXFP4, NVFP4};
    match dtype {
        NVFP4 => 448.0 * 6.0,
        IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S => (1 << 25) as f32,
        MXFP4 => f32::MAX,
        _ => (1_u64 << 36) as f32,
    }
}

/// ggml's quantization of one type, ready to be used from several threads.
struct Quantizer<'i> {
    dtype: DType,
    row_len: usize,
    importance: Option<Cow<'i, [f32]>>,
}

impl<'i> Quantizer<'i> {
    fn new(dtype: DType, row_len: usize, importance: Option<&'i [f32]>) -> Result<Self> {
        runtime::ready()?;
        // SAFETY: the type is valid. Builds ggml's tables under its own lock, so not under `guard::call`.
        let needs_importance = unsafe {
            sys::ggml_quantize_init(dtype.raw());
            sys::ggml_quantize_requires_imatrix(dtype.raw())
        };
        Ok(Self {
            dtype,
            row_len,
            importance: importance
                .map(Cow::Borrowed)
                .or_else(|| needs_importance.then(|| vec![1.0; row_len].into())),
        })
    }

    /// Quantizes whole rows.
    fn run(&self, from: &[f32], to: &mut [u8]) -> Result<()> {
        let importance = self
            .importance
            .as_ref()
            .map_or(std::ptr::null(), |ones| ones.as_ptr());
        let rows = (from.len() / self.row_len) as i64;
        // SAFETY: `from` holds `rows` rows and `to` room for them, importance one row where it is needed.
        guard::call("ggml_quantize_chunk", || unsafe {
            let to = to.as_mut_ptr().cast();
            sys::ggml_quantize_chunk(
                self.dtype.raw(),
                from.as_ptr(),
                to,
                0,
                rows,
                self.row_len as i64,
                importance,
            )
        })?;
        Ok(())
    }
}

fn dequantize_blocks(dtype: DType, bytes: &[u8]) -> Result<Vec<f32>> {
    runtime::ready()?;
    // SAFETY: the type is valid, and its traits are static.
    let to_float = unsafe { sys::ggml_get_type_traits(dtype.raw()).as_ref() }
        .and_then(|traits| traits.to_float);
    let to_float = to_float.ok_or_else(|| Error::Internal {
        step: "ggml_get_type_traits",
        message: format!("{dtype} has no conversion to f32"),
    })?;
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    let mut values = vec![0.0; bytes.len() / dtype.block_bytes() * dtype.block_len()];
    // SAFETY: both sides hold the same number of whole blocks, and the source is aligned for ggml's blocks.
    unsafe {
        to_float(
            words.as_ptr().cast(),
            values.as_mut_ptr(),
            values.len() as i64,
        )
    };
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(len: usize) -> Vec<f32> {
        (0..len).map(|i| (i as f32 * 0.37).sin()).collect()
    }

    /// Root mean square of the round trip's error, relative to that of the values.
    fn round_trip(dtype: DType) -> f64 {
        let values = wave(1024);
        let back = dequantize(dtype, &quantize(dtype, &values, 256).unwrap()).unwrap();
        crate::check::nmse(
            &values.iter().map(|&v| f64::from(v)).collect::<Vec<_>>(),
            &back,
        )
        .sqrt()
    }

    #[test]
    fn round_trips_lose_what_their_bits_say() {
        assert_eq!(round_trip(DType::F32), 0.0);
        // Half a unit in the last place at most, relative to each value.
        assert!(round_trip(DType::F16) < 2f64.powi(-11));
        assert!(round_trip(DType::BF16) < 2f64.powi(-8));
        for (dtype, bound) in [
            (DType::Q8_0, 0.01),
            (DType::Q4_0, 0.15),
            (DType::Q4_K, 0.1),
            (DType::Q6_K, 0.03),
        ] {
            let error = round_trip(dtype);
            assert!(error > 0.0 && error < bound, "{dtype}: {error}");
        }
    }

    #[test]
    fn every_other_quantized_type_converts_both_ways() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.dequantizes()) {
            let error = round_trip(dtype);
            assert!(error < 1.0, "{dtype}: {error}");
        }
    }

    #[test]
    fn the_split_into_tasks_does_not_show() {
        let values = wave(TASK * 3);
        let whole = quantize(DType::Q5_K, &values, 256).unwrap();
        let rows = values
            .chunks(256)
            .flat_map(|row| quantize(DType::Q5_K, row, 256).unwrap());
        assert!(rows.eq(whole.iter().copied()));
    }

    /// Leaves `byte` in the stack below the caller's frame.
    #[inline(never)]
    fn paint(byte: u8) {
        std::hint::black_box(&mut [byte; 1 << 16]);
    }

    /// Blocks of zeros, of tiny, of single, of equal and of mixed values.
    fn plain_blocks() -> Vec<Vec<f32>> {
        let scales = [0.0, f32::MIN_POSITIVE, 1e-42, 1e-20, 1e-9, 1e-5, 1.0, 1e4];
        let shapes: [fn(usize) -> f32; 6] = [
            |_| 1.0,
            |_| -1.0,
            |i| f32::from(i == 77),
            |i| -f32::from(i == 3),
            |i| if i % 64 < 32 { 0.0 } else { (i as f32).sin() },
            |i| if i < 128 { 1e-20 } else { (i as f32).cos() },
        ];
        let blocks = scales.iter().flat_map(|scale| {
            let block =
                move |shape: &fn(usize) -> f32| (0..256).map(|i| shape(i) * scale).collect();
            shapes.iter().map(block).collect::<Vec<_>>()
        });
        blocks.collect()
    }

    /// A block of zeros of IQ4_NL held what functions before had left on the stack.
    #[test]
    fn every_bit_of_a_block_comes_from_its_values() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.dequantizes()) {
            for importance in [None, Some(vec![1.0; 256])] {
                let quantizer = Quantizer::new(dtype, 256, importance.as_deref()).unwrap();
                for values in plain_blocks() {
                    let over = |byte: u8| {
                        let mut words = vec![u64::from_ne_bytes([byte; 8]); 256];
                        let size = dtype.row_bytes(256).unwrap();
                        let bytes = &mut bytemuck::cast_slice_mut(&mut words)[..size];
                        paint(byte);
                        quantizer.run(&values, bytes).unwrap();
                        bytes.to_vec()
                    };
                    let same = over(0x55) == over(0xaa);
                    assert!(same, "{dtype} of {values:?}, {}", importance.is_some());
                }
            }
        }
    }

    #[test]
    fn a_scale_that_overflows_is_refused_with_the_value_and_what_fits() {
        let mut values = wave(64);
        values[40] = -1e9;
        let refused = quantize(DType::Q8_0, &values, 32).unwrap_err();
        assert!(matches!(refused, Error::Param(_)));
        let said = refused.to_string();
        for part in [
            "value 40 is -1000000000",
            "65504",
            "Divided by 128",
            "7.8125e6",
        ] {
            assert!(said.contains(part), "{said}");
        }
        // The largest that fits, and the next that does not.
        for (most, fits) in [(127.0 * 65_504.0, true), (127.0 * 65_520.0, false)] {
            values[40] = most;
            assert_eq!(quantize(DType::Q8_0, &values, 32).is_ok(), fits, "{most}");
        }
        values[40] = 2688.0;
        quantize(DType::NVFP4, &values, 64).unwrap();
        values[40] = 2689.0;
        assert!(matches!(
            quantize(DType::NVFP4, &values, 64),
            Err(Error::Param(_))
        ));
    }

    /// Sums of the search for a scale overflow, and a scale of 0 came out: finite, and nothing of the values.
    #[test]
    fn no_value_is_large_enough_to_become_0() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.dequantizes()) {
            for importance in [None, Some(vec![1e-10; 256]), Some(vec![1e10; 256])] {
                for power in 10..=38 {
                    let mut values = wave(256);
                    values[7] = 10_f32.powi(power);
                    let call = Call::new("test");
                    let made = quantize_in(call, dtype, &values, 256, importance.as_deref());
                    let Ok(bytes) = made else {
                        continue;
                    };
                    let back = dequantize(dtype, &bytes).unwrap()[7];
                    let near = (0.4..2.5).contains(&(back / values[7]));
                    assert!(near, "{dtype}: 1e{power} reads back as {back}");
                }
            }
        }
    }

    #[test]
    fn misuse_is_refused() {
        let values = wave(64);
        assert!(matches!(
            quantize(DType::Q8_0, &values, 48),
            Err(Error::Shape(_))
        ));
        assert!(matches!(
            quantize(DType::Q4_K, &values, 64),
            Err(Error::Shape(_))
        ));
        assert!(matches!(
            quantize(DType::Q8_0, &values, 0),
            Err(Error::Shape(_))
        ));
        assert!(matches!(
            quantize(DType::Q8_1, &values, 64),
            Err(Error::DType(_))
        ));
        assert!(matches!(
            quantize(DType::I32, &values, 64),
            Err(Error::DType(_))
        ));
        assert!(matches!(
            quantize(DType::Q8_0, &[f32::NAN; 32], 32),
            Err(Error::Param(_))
        ));
        assert!(matches!(
            dequantize(DType::Q8_0, &[0; 35]),
            Err(Error::Shape(_))
        ));
        assert!(matches!(
            dequantize(DType::Q8_K, &[0; 292]),
            Err(Error::DType(_))
        ));
        assert!(matches!(
            dequantize(DType::I32, &[0; 4]),
            Err(Error::DType(_))
        ));
    }
}
