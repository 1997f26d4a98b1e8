//! Rotary positions: pairs of a row's elements are turned by an angle that grows with the position.

use std::ffi::c_int;

use ggml_sys as sys;

use super::inplace::{self, Reads};
use crate::dtype::DType::{F32, I32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// Which elements make a pair, and which position turns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RopeMode {
    /// Neighbours: elements `2i` and `2i + 1`.
    #[doc(alias = "GGML_ROPE_TYPE_NORMAL")]
    #[default]
    Normal,
    /// Elements `i` and `i + dims/2`.
    #[doc(alias = "GGML_ROPE_TYPE_NEOX")]
    Neox,
    /// As [`RopeMode::Neox`], with four positions for a token (time, height, width, and one more): so many pairs after each
    /// other are turned by each of them, and again from the first.
    #[doc(alias = "GGML_ROPE_TYPE_MROPE")]
    Mrope([usize; 4]),
    /// As [`RopeMode::Mrope`], with the first three positions taking turns.
    #[doc(alias = "GGML_ROPE_TYPE_IMROPE")]
    Imrope([usize; 4]),
    /// As [`RopeMode::Mrope`], over the whole row (`dims` is half of it), and angles begin anew in each section.
    #[doc(alias = "GGML_ROPE_TYPE_VISION")]
    Vision([usize; 4]),
}

impl RopeMode {
    fn raw(self) -> u32 {
        match self {
            Self::Normal => sys::GGML_ROPE_TYPE_NORMAL,
            Self::Neox => sys::GGML_ROPE_TYPE_NEOX,
            Self::Mrope(_) => sys::GGML_ROPE_TYPE_MROPE,
            Self::Imrope(_) => sys::GGML_ROPE_TYPE_IMROPE,
            Self::Vision(_) => sys::GGML_ROPE_TYPE_VISION,
        }
    }

    fn sections(self) -> Option<[usize; 4]> {
        match self {
            Self::Normal | Self::Neox => None,
            Self::Mrope(sections) | Self::Imrope(sections) | Self::Vision(sections) => {
                Some(sections)
            }
        }
    }
}

/// How [`Tensor::rope`] turns pairs.
///
/// Pair `i` of a token at position `p` is turned by `freq_scale * p * freq_base^(-2i/dims) / freq_factors[i]`. With an
/// `ext_factor` (YaRN), pairs that turn fast are turned by the angle without `freq_scale`, and lengths change with it.
#[derive(Debug, Clone, Copy)]
pub struct Rope<'g> {
    /// Which elements make a pair.
    pub mode: RopeMode,
    /// How many elements of a row are turned, even. `None`: all (half of them is the number that ggml wants for
    /// [`RopeMode::Vision`]).
    pub dims: Option<usize>,
    /// The first element that is turned, even; those before and after the turned ones are copied.
    pub offset: usize,
    /// The context a model was trained with: YaRN only. 0: the first pair alone turns fast.
    pub n_ctx_orig: usize,
    /// See above.
    pub freq_base: f32,
    /// See above.
    pub freq_scale: f32,
    /// How much of YaRN; 0 turns it off.
    pub ext_factor: f32,
    /// What results are multiplied by.
    pub attn_factor: f32,
    /// Turns within the trained context from which on a pair turns fast: YaRN only.
    pub beta_fast: f32,
    /// Turns up to which a pair turns slowly: YaRN only.
    pub beta_slow: f32,
    /// F32, contiguous, `[at least ne[0]/2]`: what angles are divided by.
    pub freq_factors: Option<Tensor<'g>>,
}

impl Default for Rope<'_> {
    fn default() -> Self {
        Self {
            mode: RopeMode::Normal,
            dims: None,
            offset: 0,
            n_ctx_orig: 0,
            freq_base: 10_000.0,
            freq_scale: 1.0,
            ext_factor: 0.0,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            freq_factors: None,
        }
    }
}

/// `ggml_rope_multi`, of which ggml's other functions of the family are special cases.
type Make = unsafe extern "C-unwind" fn(
    *mut sys::ggml_context,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
    *mut sys::ggml_tensor,
    c_int,
    *mut c_int,
    c_int,
    c_int,
    f32,
    f32,
    f32,
    f32,
    f32,
    f32,
) -> *mut sys::ggml_tensor;

impl<'g> Tensor<'g> {
    /// Turns pairs of the elements of `a`, `[row, heads, tokens, batch]`, by the positions of their tokens: see [`Rope`].
    ///
    /// `positions` is I32, `[tokens]`, or `[4 * tokens]` for the modes with sections: all first positions, all second ones,
    /// and so on.
    ///
    /// ```
    /// # use ggml_rs::{DType, Device, Graph, Plan, PlanOptions};
    /// use ggml_rs::graph::Rope;
    /// let (graph, (x, positions, y)) = Graph::build(|g| {
    ///     let (x, x_in) = g.input("x", DType::F32, [2, 1, 2])?;
    ///     let (positions, positions_in) = g.input("positions", DType::I32, [2])?;
    ///     Ok((x_in, positions_in, g.output("y", x.rope(positions, Rope::default())?)?))
    /// })?;
    /// # let mut backend = Device::cpu()?.open()?;
    /// # let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&x, &[1.0, 0.0, 1.0, 0.0])?;
    /// plan.set_i32(&positions, &[0, 1])?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&y)?, [1.0, 0.0, 1f32.cos(), 1f32.sin()]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// Kernels compute positions and angles in f32: a position beyond 2^24 is rounded, and from 2^20 on angles lose 1e-3.
    ///
    /// # Errors
    /// [`Error::DType`](crate::Error::DType) unless positions are I32 and factors F32; [`Error::Shape`](crate::Error::Shape) when their numbers do
    /// not fit, or rows are odd; [`Error::Param`](crate::Error::Param) for `dims`, `offset` or sections that do not fit a row, and for
    /// numbers that give no angle.
    #[doc(alias = "ggml_rope")]
    #[doc(alias = "ggml_rope_ext")]
    #[doc(alias = "ggml_rope_multi")]
    #[doc(alias = "ggml_rope_custom")]
    #[doc(alias = "ggml_rope_set_offset")]
    #[track_caller]
    pub fn rope(self, positions: Tensor<'g>, options: Rope<'g>) -> Result<Self> {
        self.rope_node("rope", positions, options, sys::ggml_rope_multi)
    }

    /// [`Tensor::rope`], [in place](crate::graph::inplace) of `a`.
    ///
    /// # Errors
    /// As [`Tensor::rope`]; [`Error::Layout`](crate::Error::Layout) where elements share memory, or factors lie in the memory of `a`.
    #[doc(alias = "ggml_rope_inplace")]
    #[doc(alias = "ggml_rope_ext_inplace")]
    #[doc(alias = "ggml_rope_multi_inplace")]
    #[doc(alias = "ggml_rope_custom_inplace")]
    #[track_caller]
    pub fn rope_inplace(self, positions: Tensor<'g>, options: Rope<'g>) -> Result<Self> {
        let at = here();
        const OP: &str = "rope_inplace";
        let factors = options
            .freq_factors
            .map(|factors| ("factors", factors, Reads::Anywhere));
        let positions_read = Some(("positions", positions, Reads::Anywhere));
        let others: Vec<_> = [positions_read, factors].into_iter().flatten().collect();
        inplace::check(OP, self, &others).at(at)?;
        self.rope_node(OP, positions, options, sys::ggml_rope_multi_inplace)
    }

    /// [`Tensor::rope`] by the opposite angles: the gradient of [`Tensor::rope`] times `self`, the gradient of what came after
    /// it.
    ///
    /// # Errors
    /// As [`Tensor::rope`].
    #[doc(alias = "ggml_rope_ext_back")]
    #[doc(alias = "ggml_rope_multi_back")]
    #[track_caller]
    pub fn rope_back(self, positions: Tensor<'g>, options: Rope<'g>) -> Result<Self> {
        self.rope_node("rope_back", positions, options, sys::ggml_rope_multi_back)
    }

    /// The same for the parameters of a ROPE node, which were checked when that was made.
    pub(in crate::graph) fn rope_back_like(
        self,
        positions: Tensor<'g>,
        factors: Option<Tensor<'g>>,
        params: &[i32; 16],
    ) -> Result<Self> {
        let float = |index: usize| f32::from_bits(params[index] as u32);
        let mut sections = [params[11], params[12], params[13], params[14]];
        let factors = factors.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        // SAFETY: the tensors are alive, the sections four numbers; `self` has the shape of the node's operand, so ggml's
        // assertions hold as they did for the node.
        self.make("rope_back", |context| unsafe {
            let node = sys::ggml_rope_multi_back(
                context,
                self.as_ptr(),
                positions.as_ptr(),
                factors,
                params[1],
                sections.as_mut_ptr(),
                params[2],
                params[4],
                float(5),
                float(6),
                float(7),
                float(8),
                float(9),
                float(10),
            );
            if params[15] != 0 {
                sys::ggml_rope_set_offset(node, params[15]);
            }
            node
        })
    }

    #[track_caller]
    fn rope_node(
        self,
        op: &'static str,
        positions: Tensor<'g>,
        options: Rope<'g>,
        make: Make,
    ) -> Result<Self> {
        let at = here();
        let window = check_rope(op, self.layout(), positions.layout(), &options).at(at)?;
        let factors = options.freq_factors;
        let factors = factors.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        let mut sections = window.sections;
        // SAFETY: the tensors are alive, the sections four numbers, and the check mirrors the assertions of
        // ggml_rope_impl and ggml_rope_set_offset; the latter refuses vision, whose offset is 0.
        self.make(op, |context| unsafe {
            let node = make(
                context,
                self.as_ptr(),
                positions.as_ptr(),
                factors,
                window.dims,
                sections.as_mut_ptr(),
                options.mode.raw() as c_int,
                window.n_ctx_orig,
                options.freq_base,
                options.freq_scale,
                options.ext_factor,
                options.attn_factor,
                options.beta_fast,
                options.beta_slow,
            );
            if window.offset != 0 {
                sys::ggml_rope_set_offset(node, window.offset);
            }
            node
        })
    }
}

/// The numbers of [`Rope`] that were checked, as ggml takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    dims: c_int,
    offset: c_int,
    n_ctx_orig: c_int,
    sections: [c_int; 4],
}

/// Mirrors `ggml_rope_impl`, and what kernels assert or take for granted while they compute.
fn check_rope(
    op: &'static str,
    a: Layout,
    positions: Layout,
    options: &Rope<'_>,
) -> Checked<Numbers> {
    check_operands(op, a, positions, options.mode)?;
    if let Some(factors) = options.freq_factors {
        check_factors(op, a, factors.layout())?;
    }
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("positions", positions)],
    };
    check_numbers(options).map_err(|why| refusal.param(why))?;
    window(a.ne[0], options).map_err(|why| refusal.param(why))
}

fn check_operands(op: &'static str, a: Layout, positions: Layout, mode: RopeMode) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("positions", positions)],
    };
    if positions.dtype != I32 {
        return Err(refusal.dtype("positions must be I32"));
    }
    let each = if mode.sections().is_some() { 4 } else { 1 };
    let wanted = a.ne[2].checked_mul(each);
    if Some(positions.ne[0]) != wanted || positions.elements() != positions.ne[0] {
        let detail = format!("positions must be a vector of {each} for each token, ne[2] of a");
        return Err(refusal.shape(detail));
    }
    if !positions.is_contiguous() {
        return Err(refusal.layout("positions must be contiguous: call cont() first"));
    }
    if !a.ne[0].is_multiple_of(2) {
        return Err(refusal.shape("ne[0] must be even: elements are turned in pairs"));
    }
    Ok(())
}

/// ggml asserts one factor for each pair that is turned; the CPU's kernel reads one for each pair of a row.
fn check_factors(op: &'static str, a: Layout, factors: Layout) -> Checked {
    let refusal = Refusal {
        op,
        operands: &[("a", a), ("factors", factors)],
    };
    if factors.dtype != F32 {
        return Err(refusal.dtype("factors must be F32"));
    }
    if factors.ne[0] < a.ne[0] / 2 {
        return Err(refusal.shape("there must be a factor for each pair of a row, ne[0] / 2"));
    }
    if !factors.is_contiguous() {
        return Err(refusal.layout("factors must be contiguous: call cont() first"));
    }
    Ok(())
}

/// Numbers that give an angle.
fn check_numbers(options: &Rope<'_>) -> std::result::Result<(), String> {
    let &Rope {
        freq_base,
        freq_scale,
        ext_factor,
        attn_factor,
        beta_fast,
        beta_slow,
        ..
    } = options;
    for (name, value) in [("freq_base", freq_base), ("freq_scale", freq_scale)] {
        if !(value.is_finite() && value > 0.0) {
            return Err(format!("{name} {value} is not above 0 and finite"));
        }
    }
    let rest = [ext_factor, attn_factor, beta_fast, beta_slow];
    if rest.iter().any(|value| !value.is_finite()) {
        return Err("a factor is not finite".to_owned());
    }
    // A context of 0 has no turns: its logarithm is minus infinity, which the bounds of the dimensions turn into 0.
    let yarn = beta_fast > 0.0 && beta_slow > 0.0 && freq_base != 1.0;
    if ext_factor != 0.0 && !yarn {
        let detail = "beta_fast and beta_slow above 0 and a freq_base other than 1";
        return Err(format!("an ext_factor needs {detail}"));
    }
    Ok(())
}

/// The elements of a row that are turned.
fn window(row: usize, options: &Rope<'_>) -> std::result::Result<Numbers, String> {
    let vision = matches!(options.mode, RopeMode::Vision(_));
    let all = if vision { row / 2 } else { row };
    let (dims, offset) = (options.dims.unwrap_or(all), options.offset);
    if dims == 0 || dims % 2 != 0 || offset % 2 != 0 {
        return Err(format!(
            "dims {dims} and offset {offset} must be even, and dims above 0"
        ));
    }
    if offset.checked_add(dims).is_none_or(|end| end > row) {
        return Err(format!(
            "{dims} elements from {offset} on are more than a row of {row}"
        ));
    }
    if vision && (dims != row / 2 || offset != 0) {
        return Err(format!(
            "vision turns a whole row: dims must be {} and offset 0",
            row / 2
        ));
    }
    let number = |n: usize| c_int::try_from(n).map_err(|_| format!("{n} exceeds 2^31 - 1"));
    let mut sections = [0; 4];
    if let Some(wanted) = options.mode.sections() {
        let sum = wanted
            .iter()
            .try_fold(0_usize, |sum, &n| sum.checked_add(n));
        let leading = wanted[..3].iter().any(|&n| n > 0);
        if !leading || sum.is_none_or(|sum| sum > row) {
            return Err(format!(
                "sections {wanted:?} are empty or more than a row of {row}"
            ));
        }
        for (section, n) in sections.iter_mut().zip(wanted) {
            *section = number(n)?;
        }
    }
    Ok(Numbers {
        dims: number(dims)?,
        offset: number(offset)?,
        n_ctx_orig: number(options.n_ctx_orig)?,
        sections,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::F16;
    use crate::error::Refused;
    use crate::graph::ops::testing::layout;

    fn refused(row: usize, options: Rope<'_>) -> String {
        window(row, &options).expect_err("a window that is refused")
    }

    #[test]
    fn a_window_lies_in_the_row_and_is_even() {
        let row = |options| window(16, &options).unwrap();
        let plain = row(Rope::default());
        assert_eq!((plain.dims, plain.offset), (16, 0));
        let part = |dims, offset| Rope {
            dims: Some(dims),
            offset,
            ..Rope::default()
        };
        assert_eq!(row(part(8, 8)).offset, 8);
        // Without a pair to turn, the CPU's kernel would not end.
        assert!(refused(16, part(0, 0)).contains("above 0"));
        assert!(refused(16, part(3, 0)).contains("even"));
        assert!(refused(16, part(8, 3)).contains("even"));
        assert!(refused(16, part(8, 10)).contains("more than a row"));
        assert!(refused(16, part(2, usize::MAX - 1)).contains("more than a row"));
    }

    #[test]
    fn sections_fit_a_row_and_are_not_empty() {
        let mode = |mode| Rope {
            mode,
            ..Rope::default()
        };
        let fits = window(16, &mode(RopeMode::Mrope([2, 3, 3, 0]))).unwrap();
        assert_eq!(fits.sections, [2, 3, 3, 0]);
        // Kernels take the remainder by the sum.
        for sections in [[0; 4], [0, 0, 0, 4], [16, 1, 0, 0], [usize::MAX, 2, 0, 0]] {
            assert!(refused(16, mode(RopeMode::Imrope(sections))).contains("sections"));
        }
        let vision = window(16, &mode(RopeMode::Vision([4, 4, 0, 0]))).unwrap();
        assert_eq!(vision.dims, 8);
        let half = Rope {
            dims: Some(4),
            ..mode(RopeMode::Vision([4, 4, 0, 0]))
        };
        assert!(refused(16, half).contains("vision"));
    }

    #[test]
    fn angles_are_numbers() {
        let fine = Rope::default();
        check_numbers(&fine).unwrap();
        let yarn = Rope {
            ext_factor: 1.0,
            ..fine
        };
        check_numbers(&yarn).unwrap();
        for wrong in [
            Rope {
                beta_slow: 0.0,
                ..yarn
            },
            Rope {
                freq_base: 0.0,
                ..fine
            },
            Rope {
                freq_scale: f32::NAN,
                ..fine
            },
            Rope {
                attn_factor: f32::INFINITY,
                ..fine
            },
        ] {
            check_numbers(&wrong).unwrap_err();
        }
    }

    #[test]
    fn each_token_has_its_positions() {
        let a = layout(F32, &[16, 4, 5]);
        let check = |positions, mode| check_operands("rope", a, positions, mode);
        let sections = RopeMode::Mrope([4, 4, 0, 0]);
        check(layout(I32, &[5]), RopeMode::Neox).unwrap();
        check(layout(I32, &[20]), sections).unwrap();
        for (positions, mode) in [
            (layout(I32, &[20]), RopeMode::Normal),
            (layout(I32, &[5]), sections),
            (layout(I32, &[5, 2]), RopeMode::Normal),
        ] {
            assert!(matches!(check(positions, mode), Err(Refused::Shape(_))));
        }
        let refused = check(layout(F32, &[5]), RopeMode::Normal);
        assert!(matches!(refused, Err(Refused::DType(_))));
        let odd = layout(F32, &[15, 4, 5]);
        let refused = check_operands("rope", odd, layout(I32, &[5]), RopeMode::Normal);
        assert!(matches!(refused, Err(Refused::Shape(_))));
    }

    #[test]
    fn each_pair_of_a_row_has_its_factor() {
        let a = layout(F32, &[16, 4, 5]);
        check_factors("rope", a, layout(F32, &[8])).unwrap();
        // Enough for dims of 8, which ggml asserts, and not for what the kernel reads.
        let refused = check_factors("rope", a, layout(F32, &[4]));
        assert!(matches!(refused, Err(Refused::Shape(_))));
        let refused = check_factors("rope", a, layout(F16, &[8]));
        assert!(matches!(refused, Err(Refused::DType(_))));
    }
}
