//! OUT_PROD and MUL_MAT on the CPU backend against sums in f64.

mod range;

use ggml_rs::DType::{self, BF16, F16, F32, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q6_K, Q8_0};
use ggml_rs::check::compare;
use ggml_rs::check::reference::{self, Values};
use ggml_rs::{Device, Error, Graph, Placement, Plan, PlanOptions, Precision, Staging};

use crate::common::{Operand, PLACEMENTS, run_on_cpu};

/// Only rounding of the f32 sums separates OUT_PROD from the reference.
const ROUNDING: f64 = 1e-10;
/// MUL_MAT's quantized dot products also round `b`, to 8 bits: upstream's limit.
const QUANTIZED_B: f64 = 5e-4;

#[track_caller]
fn check(reference: &[f64], got: &[f32], limit: f64, case: &str) {
    let found = compare(reference, got).unwrap();
    assert!(found.within(limit), "{case}: {found:?}");
}

fn out_prod_case(
    dtype: DType,
    [m, n, k]: [usize; 3],
    bs: [usize; 2],
    nr: [usize; 2],
    transposed: bool,
) {
    let a = Operand::new(dtype, &[m, k, bs[0], bs[1]], 1);
    let [b2, b3] = [bs[0] * nr[0], bs[1] * nr[1]];
    let b = Operand::new(
        F32,
        &if transposed {
            [k, n, b2, b3]
        } else {
            [n, k, b2, b3]
        },
        2,
    );
    let left = a.rounded();
    let left = Values::contiguous(&left, a.shape.ne()).unwrap();
    let right = Values::contiguous(&b.values, b.shape.ne()).unwrap();
    let expected = reference::out_prod(
        left,
        if transposed {
            right.transposed()
        } else {
            right
        },
    )
    .unwrap();
    for placement in PLACEMENTS {
        let got = run_on_cpu(&[&a, &b], placement, |_, x| {
            x[0].out_prod(if transposed { x[1].transpose()? } else { x[1] })
        });
        let case = format!(
            "out_prod {dtype} m={m} n={n} k={k} bs={bs:?} nr={nr:?} trans={transposed} {placement:?}"
        );
        check(
            &expected,
            &got.unwrap_or_else(|error| panic!("{case}: {error}")),
            ROUNDING,
            &case,
        );
    }
}

#[test]
fn out_prod_of_every_kind_of_weight() {
    for dtype in [F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q6_K] {
        for transposed in [false, true] {
            out_prod_case(dtype, [256, 16, 16], [1, 1], [1, 1], transposed);
            out_prod_case(dtype, [256, 1, 1], [2, 3], [1, 1], transposed);
        }
    }
}

#[test]
fn out_prod_repeats_f32_over_batches_and_takes_ragged_sizes() {
    out_prod_case(F32, [32, 32, 32], [2, 3], [2, 2], false);
    for (m, n, k) in [(1, 1, 1), (1, 7, 5), (33, 1, 65), (31, 17, 127)] {
        out_prod_case(F32, [m, n, k], [1, 2], [3, 1], true);
    }
}

#[test]
fn gradients_beyond_half_stay_finite() {
    let (a, mut b) = (
        Operand::new(Q8_0, &[256, 64], 1),
        Operand::new(F32, &[64, 64], 2),
    );
    b.values.iter_mut().for_each(|value| *value *= 1.5e5);
    assert!(
        b.values.iter().any(|value| value.abs() > 65504.0),
        "half must not hold every value"
    );
    let left = a.rounded();
    let expected = reference::out_prod(
        Values::contiguous(&left, a.shape.ne()).unwrap(),
        Values::contiguous(&b.values, b.shape.ne()).unwrap(),
    );
    let got = run_on_cpu(&[&a, &b], Placement::Pooled, |_, x| x[0].out_prod(x[1])).unwrap();
    check(&expected.unwrap(), &got, ROUNDING, "b_range 1.5e5");
}

#[test]
fn mul_mat_of_every_kind_of_weight() {
    for (dtype, limit) in [
        (F32, ROUNDING),
        (F16, 1e-6),
        (BF16, 1e-4),
        (Q8_0, QUANTIZED_B),
        (Q4_K, QUANTIZED_B),
    ] {
        for [a2, b2] in [[1, 1], [2, 4]] {
            let (a, b) = (
                Operand::new(dtype, &[256, 19, a2], 1),
                Operand::new(F32, &[256, 11, b2], 2),
            );
            let left = a.rounded();
            let expected = reference::mul_mat(
                Values::contiguous(&left, a.shape.ne()).unwrap(),
                Values::contiguous(&b.values, b.shape.ne()).unwrap(),
            );
            let expected = expected.unwrap();
            for placement in PLACEMENTS {
                let got = run_on_cpu(&[&a, &b], placement, |_, x| x[0].mul_mat(x[1])).unwrap();
                check(
                    &expected,
                    &got,
                    limit,
                    &format!("mul_mat {dtype} {placement:?}"),
                );
            }
        }
    }
}

#[test]
fn what_the_cpu_does_not_run_is_refused_when_the_plan_is_made() {
    for (a, a_dims, b, b_dims, why) in [
        (F32, &[8, 4][..], Q8_0, &[32, 4][..], "b of type q8_0"),
        (DType::Q8_1, &[32, 4], F32, &[8, 4], "a of type q8_1"),
        (DType::Q8_K, &[256, 4], F32, &[8, 4], "a of type q8_K"),
    ] {
        let (graph, _) = Graph::build(|g| {
            let (a, _) = g.input("a", a, a_dims)?;
            let (b, _) = g.input("b", b, b_dims)?;
            g.output("product", a.out_prod(b)?)
        })
        .unwrap();
        let device = Device::cpu().unwrap();
        let reasons = device.unsupported(&graph);
        assert_eq!(
            (
                reasons.len(),
                reasons[0].op.as_str(),
                reasons[0].node.as_str()
            ),
            (1, "OUT_PROD", "product")
        );
        let error = Plan::new(graph, &device.open().unwrap(), PlanOptions::default()).unwrap_err();
        assert!(
            matches!(&error, Error::Unsupported(reason) if reason.reason.contains(why)),
            "{error}"
        );
    }
}

#[test]
fn source_precision_is_set_where_ggml_has_it() {
    Graph::build(|g| {
        let (a, _) = g.input("a", F32, [8, 4])?;
        let (b, _) = g.input("b", F32, [8, 4])?;
        let product = a.mul_mat(b)?;
        for source in [0, 1] {
            product.set_src_precision(Precision::F32, source)?;
        }
        assert!(matches!(
            product.set_src_precision(Precision::F32, usize::MAX),
            Err(Error::Param(_))
        ));
        assert!(matches!(
            a.set_src_precision(Precision::F16, 0),
            Err(Error::Param(_))
        ));
        let (ids, _) = g.expert_ids("ids", 1, 1, 1)?;
        let routed = a.mul_mat_id(b, ids);
        assert!(
            matches!(routed, Err(Error::Shape(_))),
            "four tokens, one id"
        );
        let outer = a.out_prod(b)?;
        for staging in [Staging::Float, Staging::Half] {
            product.set_staging(staging)?;
            outer.set_staging(staging)?;
        }
        for node in [product, outer] {
            assert!(matches!(
                node.set_staging(Staging::FloatWeights),
                Err(Error::Param(_))
            ));
        }
        assert!(matches!(
            a.add(b)?.set_staging(Staging::Float),
            Err(Error::Param(_))
        ));
        assert!(matches!(
            outer.set_src_precision(Precision::Q8, 0),
            Err(Error::Param(_))
        ));
        g.output("y", product)
    })
    .unwrap();
}
