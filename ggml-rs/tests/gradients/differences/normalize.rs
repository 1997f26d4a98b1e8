//! Normalisations, softmax and its loss, rotary positions.

use ggml_rs::DType::F32;
use ggml_rs::check::{Data, Inputs};
use ggml_rs::graph::{Rope, RopeMode, SoftMax};
use ggml_rs::{Result, Tensor};

use super::Case;

type Norm = for<'g> fn(Tensor<'g>, f32) -> Result<Tensor<'g>>;

const NORMS: [(&str, Norm); 3] = [
    ("NORM", |a, eps| a.norm(eps)),
    ("RMS_NORM", |a, eps| a.rms_norm(eps)),
    ("L2_NORM", |a, eps| a.l2_norm(eps)),
];

fn norms() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, norm) in NORMS {
        // An eps of the order of the squares takes part in the gradient.
        for eps in [1e-6, 0.1] {
            cases.push(Case::new(name, format!("eps {eps}"), move |t| {
                norm(t.trained([6, 3, 2, 2], Data::unit())?, eps)
            }));
        }
        cases.push(Case::new(
            name,
            "the operand is used again, with weights",
            move |t| {
                let (a, w) = (
                    t.trained([6, 3], Data::unit())?,
                    t.trained([6, 1], Data::unit())?,
                );
                norm(a, 1e-5)?.mul(w)?.add(a)
            },
        ));
        cases.push(Case::new(name, "permuted, rows packed", move |t| {
            let a = t.trained([6, 2, 3], Data::unit())?.permute([0, 2, 1, 3])?;
            norm(a, 1e-5)
        }));
        cases.push(Case::new(
            name,
            "result transposed before it is used",
            move |t| {
                norm(t.trained([6, 3], Data::unit())?, 1e-5)?
                    .transpose()?
                    .cont()
            },
        ));
    }
    // Shorter than eps, so that the length is divided by a constant.
    cases.push(Case::new("L2_NORM", "rows shorter than eps", |t| {
        t.trained([6, 3], Data::unit())?.l2_norm(20.0)
    }));
    for groups in [1, 2, 4] {
        cases.push(Case::new(
            "GROUP_NORM",
            format!("{groups} groups"),
            move |t| {
                t.trained([3, 2, 4, 2], Data::unit())?
                    .group_norm(groups, 1e-3)
            },
        ));
    }
    cases.push(Case::new("GROUP_NORM", "the operand is used again", |t| {
        let a = t.trained([3, 2, 4], Data::unit())?;
        a.group_norm(2, 1e-3)?.mul(a)
    }));
    cases
}

/// Softmax of 2 by 4 heads, with what `options` makes of a mask and sinks.
fn softmax(
    what: &str,
    options: impl for<'g> Fn(&mut Inputs<'g>) -> Result<SoftMax<'g>> + 'static,
) -> Case {
    Case::new("SOFT_MAX", what, move |t| {
        let a = t.trained([6, 3, 4, 2], Data::unit())?;
        a.soft_max_ext(options(t)?)
    })
}

fn softmaxes() -> Vec<Case> {
    vec![
        Case::new("SOFT_MAX", "plain", |t| {
            t.trained([6, 3, 2], Data::unit())?.soft_max()
        }),
        Case::new("SOFT_MAX", "the operand is used again", |t| {
            let a = t.trained([6, 3], Data::unit())?;
            a.soft_max()?.mul(a)
        }),
        Case::new("SOFT_MAX", "result permuted before it is used", |t| {
            t.trained([6, 3, 2], Data::unit())?
                .soft_max()?
                .permute([2, 0, 1, 3])?
                .cont()
        }),
        softmax("mask and scale", |t| {
            let mask = Some(t.fixed(F32, [6, 5, 2], Data::unit())?);
            Ok(SoftMax {
                mask,
                scale: 0.4,
                ..SoftMax::default()
            })
        }),
        softmax("a mask of F16", |t| {
            let mask = Some(t.fixed(ggml_rs::DType::F16, [6, 3], Data::unit())?);
            Ok(SoftMax {
                mask,
                ..SoftMax::default()
            })
        }),
        softmax("ALiBi", |t| {
            let mask = Some(t.fixed(F32, [6, 3], Data::unit())?);
            Ok(SoftMax {
                mask,
                max_bias: 8.0,
                ..SoftMax::default()
            })
        }),
        softmax("sinks", |t| {
            let sinks = Some(t.fixed(F32, [4], Data::unit())?);
            Ok(SoftMax {
                sinks,
                scale: 0.7,
                ..SoftMax::default()
            })
        }),
        softmax("trained sinks, a mask and ALiBi", |t| {
            let mask = Some(t.fixed(F32, [6, 3], Data::unit())?);
            let sinks = Some(t.trained([4], Data::unit())?);
            Ok(SoftMax {
                mask,
                sinks,
                scale: 0.7,
                max_bias: 4.0,
            })
        }),
        Case::new("SOFT_MAX", "causal", |t| {
            let a = t.trained([4, 4, 2], Data::unit())?;
            a.mul(a)?.diag_mask_inf(0)?.soft_max()
        }),
    ]
}

fn losses() -> Vec<Case> {
    vec![
        Case::new("CROSS_ENTROPY_LOSS", "labels that add up to 1", |t| {
            let (a, b) = (
                t.trained([6, 4], Data::unit())?,
                t.fixed(F32, [6, 4], Data::Shares)?,
            );
            a.cross_entropy_loss(b)
        }),
        Case::new("CROSS_ENTROPY_LOSS", "labels of any sum", |t| {
            let labels = t.fixed(F32, [6, 4], Data::Within(0.0, 0.5))?;
            t.trained([6, 4], Data::unit())?.cross_entropy_loss(labels)
        }),
        Case::new("CROSS_ENTROPY_LOSS", "several matrices, scaled", |t| {
            let a = t.trained([6, 2, 3], Data::unit())?;
            let b = t.fixed(F32, [6, 2, 3], Data::Shares)?;
            a.scale(3.0)?.cross_entropy_loss(b)?.scale(0.3)
        }),
        Case::new("DIAG_MASK_ZERO", "plain", |t| {
            let a = t.trained([5, 4, 2], Data::unit())?;
            a.mul(a)?.diag_mask_zero(1)
        }),
        Case::new("DIAG_MASK_INF", "under a softmax", |t| {
            t.trained([5, 4, 2], Data::unit())?
                .diag_mask_inf(1)?
                .soft_max()
        }),
    ]
}

const TOKENS: usize = 3;

/// Rotation of two heads of 16 over three tokens of two sequences.
fn rope(
    what: &str,
    options: impl for<'g> Fn(&mut Inputs<'g>) -> Result<Rope<'g>> + 'static,
) -> Case {
    Case::new("ROPE", what, move |t| {
        let a = t.trained([16, 2, TOKENS, 2], Data::unit())?;
        let options = options(t)?;
        let ids: &[i32] = match options.mode {
            RopeMode::Normal | RopeMode::Neox => &[3, 17, 30],
            _ => &[3, 17, 30, 1, 5, 2, 9, 8, 7, 0, 0, 4],
        };
        a.rope(t.integers([ids.len()], ids)?, options)
    })
}

fn ropes() -> Vec<Case> {
    let modes = [
        ("normal", RopeMode::Normal),
        ("neox", RopeMode::Neox),
        ("sections", RopeMode::Mrope([2, 3, 2, 1])),
        ("interleaved sections", RopeMode::Imrope([3, 3, 2, 0])),
        ("vision", RopeMode::Vision([4, 4, 0, 0])),
    ];
    let mut cases = Vec::new();
    for (name, mode) in modes {
        cases.push(rope(name, move |_| {
            Ok(Rope {
                mode,
                ..Rope::default()
            })
        }));
    }
    for (name, mode) in &modes[..4] {
        let mode = *mode;
        let named = |what: &str| format!("{name}, {what}");
        cases.push(rope(&named("part of the row"), move |_| {
            Ok(Rope {
                mode,
                dims: Some(8),
                ..Rope::default()
            })
        }));
        cases.push(rope(&named("part of the row, from an offset"), move |_| {
            Ok(Rope {
                mode,
                dims: Some(8),
                offset: 4,
                ..Rope::default()
            })
        }));
        cases.push(rope(&named("frequency factors"), move |t| {
            let freq_factors = Some(t.fixed(F32, [8], Data::Within(0.5, 2.0))?);
            Ok(Rope {
                mode,
                freq_factors,
                ..Rope::default()
            })
        }));
        cases.push(rope(&named("YaRN"), move |_| {
            Ok(Rope {
                mode,
                n_ctx_orig: 64,
                freq_scale: 0.25,
                ext_factor: 1.0,
                attn_factor: 1.2,
                ..Rope::default()
            })
        }));
    }
    cases
}

pub fn cases() -> Vec<Case> {
    let mut cases = norms();
    cases.extend(softmaxes());
    cases.extend(losses());
    cases.extend(ropes());
    cases
}
