//! Attention in one op.

use ggml_sys as sys;

use crate::dtype::DType::{BF16, F16, F32};
use crate::error::{Checked, Placed, Result, here};
use crate::graph::Tensor;
use crate::layout::{Layout, Refusal};

/// The parameters and optional operands of [`Tensor::flash_attn_ext`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FlashAttn<'g> {
    /// What products of queries and keys are multiplied with: mostly 1 / sqrt(dk).
    pub scale: f32,
    /// Added to the scaled products.
    pub mask: Option<Tensor<'g>>,
    /// A logit for each head that takes its part of the softmax and gives nothing.
    pub sinks: Option<Tensor<'g>>,
    /// ALiBi: the mask is multiplied with a slope for each head. 0: it is not.
    pub max_bias: f32,
    /// Products `x` become `logit_softcap * tanh(x / logit_softcap)`. 0: they do not.
    pub logit_softcap: f32,
    /// Ask for floats to the end: queries are not rounded to another type, and products and sums are F32. Keys and values are
    /// what they are stored as. The CPU keeps this for every type. Metal, whose kernels round queries, is refused when a plan is
    /// made; the error says what to do.
    pub float: bool,
}

impl<'g> FlashAttn<'g> {
    /// Plain attention.
    pub const fn new(scale: f32) -> Self {
        Self {
            scale,
            mask: None,
            sinks: None,
            max_bias: 0.0,
            logit_softcap: 0.0,
            float: false,
        }
    }

    /// With this mask, F16 [kv, n or more, heads, batch]; its heads and batch divide those of the queries.
    pub const fn mask(self, mask: Tensor<'g>) -> Self {
        Self {
            mask: Some(mask),
            ..self
        }
    }

    /// With these sinks, F32 `[heads]`.
    #[doc(alias = "ggml_flash_attn_ext_add_sinks")]
    pub const fn sinks(self, sinks: Tensor<'g>) -> Self {
        Self {
            sinks: Some(sinks),
            ..self
        }
    }

    /// With this [`FlashAttn::max_bias`], for which there must be a mask.
    pub const fn max_bias(self, max_bias: f32) -> Self {
        Self { max_bias, ..self }
    }

    /// With this [`FlashAttn::logit_softcap`].
    pub const fn logit_softcap(self, logit_softcap: f32) -> Self {
        Self {
            logit_softcap,
            ..self
        }
    }

    /// With [`FlashAttn::float`].
    #[doc(alias = "ggml_flash_attn_ext_set_prec")]
    pub const fn float(self) -> Self {
        Self {
            float: true,
            ..self
        }
    }
}

impl<'g> Tensor<'g> {
    /// Attention: queries `self` [dk, n, heads, batch] of F32, keys [dk, kv, k heads, batch] and values
    /// [dv, kv, v heads, batch] give [dv, heads, n, batch] of F32 with
    /// `out[:, h, i, b] = sum over j of softmax over j (scale * <q[:, i, h, b], k[:, j, h / g, b]> + mask[j, i, h, b]) * v[:, j, h / g, b]`
    /// for `g` query heads to a head of keys. Note that the result's heads come before its queries.
    ///
    /// It has no gradient: build attention from [`Tensor::mul_mat`] and softmax to differentiate it. Values of every type are
    /// added up in F32. Queries may be rounded first, and lose what is beyond 65504 where that is to f16: on the CPU to the type
    /// that keys are multiplied in (64 queries or more with keys and values of F32, or of F16, are not rounded), on Metal to f16
    /// or bf16. [`FlashAttn::float`] asks for more.
    ///
    /// ```
    /// use ggml_rs::{DType, Device, FlashAttn, Graph, Plan, PlanOptions};
    /// // One query that matches both keys alike: the mean of both values.
    /// let (graph, (q, k, v, out)) = Graph::build(|g| {
    ///     let (q, q_in) = g.input("q", DType::F32, [32, 1])?;
    ///     let (k, k_in) = g.input("k", DType::F32, [32, 2])?;
    ///     let (v, v_in) = g.input("v", DType::F32, [32, 2])?;
    ///     let out = q.flash_attn_ext(k, v, FlashAttn::new(1.0))?;
    ///     Ok((q_in, k_in, v_in, g.output("out", out)?))
    /// })?;
    /// let mut backend = Device::cpu()?.open()?;
    /// let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    /// plan.set_f32(&q, &[0.5; 32])?;
    /// plan.set_f32(&k, &[0.5; 64])?;
    /// plan.set_f32(&v, &[vec![1.0; 32], vec![3.0; 32]].concat())?;
    /// plan.run(&mut backend)?;
    /// assert_eq!(plan.read_f32(&out)?, [2.0; 32]);
    /// # Ok::<(), ggml_rs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless shapes fit as above, heads divide those of the queries, and mask and
    /// sinks fit; [`Error::DType`](crate::Error::DType) for queries or sinks that are not F32, a mask that is not F16, and
    /// keys or values that are no floats and do not dequantize; [`Error::Layout`](crate::Error::Layout) for a mask that is
    /// not contiguous; [`Error::Param`](crate::Error::Param) for a `max_bias` that is negative, or without a mask.
    #[doc(alias = "ggml_flash_attn_ext")]
    #[track_caller]
    pub fn flash_attn_ext(
        self,
        k: Tensor<'g>,
        v: Tensor<'g>,
        options: FlashAttn<'g>,
    ) -> Result<Self> {
        let at = here();
        check(self.layout(), k.layout(), v.layout(), &options).at(at)?;
        let mask = options.mask.map_or(std::ptr::null_mut(), Tensor::as_ptr);
        // SAFETY: the tensors are alive, and the check mirrors the assertions of all three functions; the second and third
        // are given the node that the first made.
        self.make("flash_attn_ext", |context| unsafe {
            let (q, k, v) = (self.as_ptr(), k.as_ptr(), v.as_ptr());
            let FlashAttn {
                scale,
                max_bias,
                logit_softcap,
                ..
            } = options;
            let node =
                sys::ggml_flash_attn_ext(context, q, k, v, mask, scale, max_bias, logit_softcap);
            if let Some(sinks) = options.sinks {
                sys::ggml_flash_attn_ext_add_sinks(node, sinks.as_ptr());
            }
            if options.float {
                sys::ggml_flash_attn_ext_set_prec(node, sys::GGML_PREC_F32);
            }
            node
        })
    }
}

/// Mirrors `ggml_flash_attn_ext` and `ggml_flash_attn_ext_add_sinks`, and what kernels take for granted about shapes.
fn check(q: Layout, k: Layout, v: Layout, options: &FlashAttn) -> Checked {
    let mask = options.mask.map(Tensor::layout);
    let sinks = options.sinks.map(Tensor::layout);
    let mut operands = vec![("q", q), ("k", k), ("v", v)];
    operands.extend(mask.map(|mask| ("mask", mask)));
    operands.extend(sinks.map(|sinks| ("sinks", sinks)));
    let refusal = Refusal {
        op: "flash_attn_ext",
        operands: &operands,
    };
    check_shapes(&refusal, q, k, v)?;
    let takes = |x: Layout| matches!(x.dtype, F32 | F16 | BF16) || x.dtype.dequantizes();
    if q.dtype != F32 || !takes(k) || !takes(v) {
        return Err(refusal.dtype("q must be F32, and k and v floats or of types that dequantize"));
    }
    if let Some(mask) = mask {
        check_mask(&refusal, q, k, mask)?;
    }
    if let Some(sinks) = sinks {
        check_sinks(&refusal, q, sinks)?;
    }
    let bias = options.max_bias;
    if !(bias >= 0.0 && bias.is_finite()) || (bias > 0.0 && mask.is_none()) {
        return Err(refusal.param(format!(
            "a max_bias of {bias}: it must not be negative, and needs a mask"
        )));
    }
    refusal.check_result(F32, [v.ne[0], q.ne[2], q.ne[1], q.ne[3]])
}

fn check_shapes(refusal: &Refusal, q: Layout, k: Layout, v: Layout) -> Checked {
    if q.ne[0] != k.ne[0] {
        return Err(refusal.shape("ne[0] of q and k, which are multiplied, must be the same"));
    }
    if k.ne[1] != v.ne[1] {
        return Err(refusal.shape("there must be a value, ne[1] of v, for each key, ne[1] of k"));
    }
    if !q.ne[2].is_multiple_of(k.ne[2]) || !q.ne[2].is_multiple_of(v.ne[2]) {
        return Err(refusal.shape("the heads of q, ne[2], must be a multiple of those of k and v"));
    }
    if q.ne[3] != k.ne[3] || q.ne[3] != v.ne[3] {
        return Err(refusal.shape("ne[3] of q, k and v must be the same"));
    }
    Ok(())
}

fn check_mask(refusal: &Refusal, q: Layout, k: Layout, mask: Layout) -> Checked {
    if mask.dtype != F16 {
        return Err(refusal.dtype("the mask must be F16"));
    }
    if !mask.is_contiguous() {
        return Err(refusal.layout("the mask must be contiguous: call cont() first"));
    }
    if mask.ne[0] != k.ne[1] || mask.ne[1] < q.ne[1] {
        return Err(
            refusal.shape("the mask must have a column for each key, and a row for each query")
        );
    }
    if !q.ne[2].is_multiple_of(mask.ne[2]) || !q.ne[3].is_multiple_of(mask.ne[3]) {
        return Err(refusal.shape("ne[2] and ne[3] of q must be multiples of the mask's"));
    }
    Ok(())
}

fn check_sinks(refusal: &Refusal, q: Layout, sinks: Layout) -> Checked {
    if sinks.dtype != F32 {
        return Err(refusal.dtype("the sinks must be F32"));
    }
    if sinks.ne != [q.ne[2], 1, 1, 1] {
        return Err(refusal.shape("there must be one sink for each head of q"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType::{self, I32, Q8_0, Q8_1};
    use crate::error::Refused;
    use crate::graph::ops::testing::{layout, transposed};

    fn with(q: &[usize], k: &[usize], v: &[usize]) -> Checked {
        let (q, k, v) = (layout(F32, q), layout(F16, k), layout(F16, v));
        check(q, k, v, &FlashAttn::new(1.0))
    }

    #[test]
    fn heads_divide_and_keys_have_values() {
        with(&[64, 5, 8, 2], &[64, 9, 2, 2], &[32, 9, 4, 2]).unwrap();
        for (q, k, v) in [
            (&[64, 5, 8], &[32, 9, 2], &[64, 9, 2]),
            (&[64, 5, 8], &[64, 9, 2], &[64, 8, 2]),
            (&[64, 5, 8], &[64, 9, 3], &[64, 9, 2]),
            (&[64, 5, 8], &[64, 9, 2], &[64, 9, 3]),
        ] {
            assert!(
                matches!(with(q, k, v), Err(Refused::Shape(_))),
                "{k:?} {v:?}"
            );
        }
        let batches = with(&[64, 5, 8, 2], &[64, 9, 8], &[64, 9, 8]);
        assert!(matches!(batches, Err(Refused::Shape(_))));
    }

    #[test]
    fn types_are_those_that_kernels_read() {
        let typed = |q: DType, k: DType| {
            let (q, kv) = (layout(q, &[64, 5]), layout(k, &[64, 9]));
            check(q, kv, kv, &FlashAttn::new(1.0))
        };
        typed(F32, Q8_0).unwrap();
        for (q, k) in [(F16, F16), (F32, Q8_1), (F32, I32)] {
            assert!(matches!(typed(q, k), Err(Refused::DType(_))), "{q} {k}");
        }
    }

    #[test]
    fn masks_and_sinks_cover_queries() {
        let (q, k) = (layout(F32, &[64, 5, 8]), layout(F16, &[64, 9, 2]));
        let refusal = Refusal {
            op: "flash_attn_ext",
            operands: &[("q", q), ("k", k)],
        };
        let mask = |mask: Layout| check_mask(&refusal, q, k, mask);
        mask(layout(F16, &[9, 64, 4])).unwrap();
        for dims in [&[8, 5][..], &[9, 4], &[9, 5, 3], &[9, 5, 1, 2]] {
            assert!(matches!(mask(layout(F16, dims)), Err(Refused::Shape(_))));
        }
        assert!(matches!(mask(layout(F32, &[9, 5])), Err(Refused::DType(_))));
        let turned = transposed(layout(F16, &[5, 9]));
        assert!(matches!(mask(turned), Err(Refused::Layout(_))));
        check_sinks(&refusal, q, layout(F32, &[8])).unwrap();
        assert!(check_sinks(&refusal, q, layout(F32, &[7])).is_err());
        assert!(check_sinks(&refusal, q, layout(F16, &[8])).is_err());
    }

    #[test]
    fn a_bias_needs_a_mask() {
        let (q, k) = (layout(F32, &[64, 5, 8]), layout(F16, &[64, 9, 8]));
        for bias in [8.0, -1.0, f32::NAN, f32::INFINITY] {
            let error = check(q, k, k, &FlashAttn::new(1.0).max_bias(bias));
            assert!(matches!(error, Err(Refused::Param(_))), "{bias}");
        }
    }
}
