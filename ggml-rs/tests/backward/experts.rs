//! Rows and matrices chosen by ids.

use ggml_rs::DType::{F16, F32};
use ggml_rs::{DType, RowIdsOptions};

use crate::slopes::{Values, WIDE, check};

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
    for dtype in [F32, F16, DType::Q8_0] {
        check(
            &format!("frozen experts of {dtype}"),
            &[&[32, 1, 3]],
            WIDE,
            &|g, p, frozen| {
                let (ids, input) = g.expert_ids("ids", 2, 3, 4)?;
                frozen.push((input, Values::Ids(IDS.to_vec())));
                let (experts, input) = g.input("experts", dtype, [32, 3, 4])?;
                // Values that every type holds; the CPU rounds activations where weights are not F32, and the sums show it.
                frozen.push((
                    input,
                    Values::Floats((0..384).map(|i| ((i % 5) as f32 - 2.0) / 2.0).collect()),
                ));
                if dtype == F32 {
                    return experts.mul_mat_id(p[0], ids);
                }
                experts.mul_mat_id(p[0], ids)?.sum_rows()
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
