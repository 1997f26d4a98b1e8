//! Norms and rotary positions.

use ggml_rs::DType::I32;
use ggml_rs::graph::{Rope, RopeMode};

use super::slopes::{Values, WIDE, check, check_at};

#[test]
fn norms() {
    check("norm", &[&[6, 3, 2]], WIDE, &|_, p, _| p[0].norm(1e-3));
    check("rms_norm", &[&[6, 3, 2]], WIDE, &|_, p, _| {
        p[0].rms_norm(1e-3)
    });
    check("l2_norm", &[&[6, 3, 2]], WIDE, &|_, p, _| {
        p[0].l2_norm(1e-3)
    });
    check("group_norm", &[&[3, 2, 4, 2]], WIDE, &|_, p, _| {
        p[0].group_norm(2, 1e-3)
    });
    check(
        "norm of a permuted tensor",
        &[&[6, 3, 2]],
        WIDE,
        &|_, p, _| p[0].permute([0, 2, 1, 3])?.norm(1e-3),
    );
    // Rows of a length below eps are divided by it.
    let short = vec![0.3, 0.4, -0.2, 0.1, 30.0, -20.0, 10.0, 5.0];
    check_at("l2_norm below eps", &[(&[4, 2], short)], &|_, p, _| {
        p[0].l2_norm(8.0)
    });
}

#[test]
fn rotary_positions() {
    for (mode, offset) in [
        (RopeMode::Normal, 0),
        (RopeMode::Neox, 0),
        (RopeMode::Normal, 2),
    ] {
        let what = format!("rope {mode:?} at {offset}");
        check(&what, &[&[8, 3, 2]], WIDE, &|g, p, frozen| {
            let (positions, input) = g.input("positions", I32, [2])?;
            frozen.push((input, Values::Ids(vec![3, 7])));
            let options = Rope {
                mode,
                offset,
                dims: Some(4),
                freq_base: 100.0,
                attn_factor: 1.3,
                ..Rope::default()
            };
            p[0].rope(positions, options)
        });
    }
}
