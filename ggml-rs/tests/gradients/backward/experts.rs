//! Rows and matrices chosen by ids.

use ggml_rs::DType::{BF16, F16, F32};
use ggml_rs::{DType, RowIdsOptions};

use super::slopes::{Run, Values, WIDE, check, random};

const IDS: [i32; 6] = [3, 1, 0, 3, 2, 1];

#[test]
fn experts_and_their_activations() {
    for rows in [1, 2] {
        check(
            &format!("mul_mat_id of {rows}"),
            &[&[5, 3, 4], &[5, rows, 3]],
            WIDE,
            &|g, p, frozen| {
                let (ids, input) = g.expert_ids("ids", 2, 3, 4)?;
                frozen.push((input, Values::Ids(IDS.to_vec())));
                p[0].mul_mat_id(p[1], ids)
            },
        );
    }
    check("add_id", &[&[5, 2, 3], &[5, 4]], WIDE, &|g, p, frozen| {
        let (ids, input) = g.expert_ids("ids", 2, 3, 4)?;
        frozen.push((input, Values::Ids(IDS.to_vec())));
        p[0].add_id(p[1], ids)
    });
}

#[test]
fn rows_that_are_read() {
    check("get_rows", &[&[5, 4]], WIDE, &|g, p, frozen| {
        let (ids, input) = g.row_ids("ids", [6], 4)?;
        frozen.push((input, Values::Ids(IDS.to_vec())));
        p[0].get_rows(ids)
    });
    check(
        "get_rows of two matrices",
        &[&[5, 4, 2]],
        WIDE,
        &|g, p, frozen| {
            let (ids, input) = g.row_ids("ids", [3, 2], 4)?;
            frozen.push((input, Values::Ids(IDS.to_vec())));
            p[0].get_rows(ids)
        },
    );
}

#[test]
fn rows_that_are_written() {
    check(
        "set_rows",
        &[&[5, 4, 2], &[5, 2, 2]],
        WIDE,
        &|g, p, frozen| {
            let (ids, input) = g.row_ids_with("ids", [2], RowIdsOptions::new(4).distinct())?;
            frozen.push((input, Values::Ids(vec![3, 1])));
            // Not into the parameter itself, whose values have to stay.
            p[0].scale(2.0)?.set_rows(p[1], ids)
        },
    );
}

/// Gradients of activations do not depend on how the experts' values are stored, nor on what half precision holds.
#[test]
fn frozen_experts_of_every_type_give_the_same_gradient() {
    let gradient = |dtype: DType| {
        let activations = random(&[32, 1, 3], WIDE, 5);
        let mut run = Run::new(&[(&[32, 1, 3], activations)], &|g, p, frozen| {
            let (ids, input) = g.expert_ids("ids", 2, 3, 4)?;
            frozen.push((input, Values::Ids(IDS.to_vec())));
            let (experts, input) = g.input("experts", dtype, [32, 3, 4])?;
            // Values that every type holds: with 127 in each block, q8_0's scale is 1.
            let value = |i: usize| {
                if i.is_multiple_of(32) {
                    127.0
                } else {
                    (i * 37 % 255) as f32 - 127.0
                }
            };
            let values = (0..384).map(value).collect();
            frozen.push((input, Values::Floats(values)));
            experts.mul_mat_id(p[0], ids)?.scale(1e4)
        })
        .unwrap();
        run.gradients().remove(0)
    };
    let floats = gradient(F32);
    assert!(floats.iter().all(|d| d.is_finite()) && floats.iter().any(|d| d.abs() > 65504.0));
    for dtype in [F16, BF16, DType::Q8_0] {
        for (found, expected) in gradient(dtype).iter().zip(&floats) {
            assert!(
                (found - expected).abs() <= 1.0,
                "{dtype}: {found}, not {expected}"
            );
        }
    }
}

/// Rows of the gradient are selected, not multiplied with zeros.
#[test]
fn an_infinity_stays_with_its_expert() {
    // The third expert's products are zero, where the slope of the logarithm has no bound.
    let experts = (0..60).map(|i| if i / 15 == 2 { 0.0 } else { 1.0 });
    let params = [
        (&[5, 3, 4][..], experts.collect()),
        (&[5, 1, 3][..], vec![1.0; 15]),
    ];
    let mut run = Run::new(&params, &|g, p, frozen| {
        let (ids, input) = g.expert_ids("ids", 2, 3, 4)?;
        frozen.push((input, Values::Ids(IDS.to_vec())));
        p[0].mul_mat_id(p[1], ids)?.log()
    })
    .unwrap();
    let gradient = run.gradients().remove(0);
    for (expert, values) in gradient.chunks(15).enumerate() {
        let finite = values.iter().all(|d| d.is_finite());
        assert_eq!(finite, expert != 2, "expert {expert}: {values:?}");
    }
}
