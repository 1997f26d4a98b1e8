//! Reductions: what their documentation says about types, layouts, range, NaN and infinities, on the CPU and on the
//! simulated Metal device. How exact they are over many lengths is the subject of the workspace's test `reductions`.

use ggml_rs::DType::{self, BF16, F16, F32};
use ggml_rs::{Device, Error, Graph, Result, Tensor};

use crate::common::{Operand, PLACEMENTS, devices, run_on};

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

type Op = for<'g> fn(Tensor<'g>) -> Result<Tensor<'g>>;

struct Reduction {
    name: &'static str,
    rows: Op,
    whole: Op,
    reference: fn(&[f32]) -> f32,
}

const REDUCTIONS: [Reduction; 4] = [
    Reduction {
        name: "sum",
        rows: |a| a.sum_rows(),
        whole: |a| a.sum(),
        reference: |x| sum(x) as f32,
    },
    Reduction {
        name: "mean",
        rows: |a| a.mean_rows(),
        whole: |a| a.mean(),
        reference: |x| (sum(x) / x.len() as f64) as f32,
    },
    Reduction {
        name: "max",
        rows: |a| a.max_rows(),
        whole: |a| a.max(),
        reference: |x| x.iter().copied().fold(-INF, f32::max),
    },
    Reduction {
        name: "min",
        rows: |a| a.min_rows(),
        whole: |a| a.min(),
        reference: |x| x.iter().copied().fold(INF, f32::min),
    },
];

fn sum(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x)).sum()
}

fn operand(dtype: DType, dims: &[usize], values: &[f32]) -> Operand {
    Operand {
        values: values.to_vec(),
        ..Operand::new(dtype, dims, 0)
    }
}

/// Runs on one device, with both placements, which must agree.
fn run(
    device: Device,
    a: &Operand,
    build: impl for<'g> Fn(Tensor<'g>) -> Result<Tensor<'g>>,
) -> Vec<f32> {
    let [pooled, separate] = PLACEMENTS.map(|placement| {
        run_on(device, &[a], placement, |_, x| build(x[0])).expect("a reduction that runs")
    });
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&pooled), bits(&separate), "on {}", device.name());
    pooled
}

#[track_caller]
fn assert_same(got: &[f32], expected: &[f32], what: &str) {
    let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
    assert!(
        got.len() == expected.len() && got.iter().zip(expected).all(same),
        "{what}: {got:?}, not {expected:?}"
    );
}

/// A view of the operand, and for each of its rows the elements' places in the operand.
struct Look {
    name: &'static str,
    view: Op,
    rows: fn() -> Vec<Vec<usize>>,
}

/// All of an operand of [6, 4, 3].
const LOOKS: [Look; 7] = [
    Look {
        name: "plain",
        view: |a| Ok(a),
        rows: || {
            (0..12)
                .map(|r| (0..6).map(|i| 6 * r + i).collect())
                .collect()
        },
    },
    Look {
        name: "transposed",
        view: |a| a.transpose(),
        rows: || {
            let row = |i3: usize, i0: usize| (0..4).map(|i1| 24 * i3 + 6 * i1 + i0).collect();
            (0..18).map(|r| row(r / 6, r % 6)).collect()
        },
    },
    Look {
        name: "permuted",
        view: |a| a.permute([0, 2, 1, 3]),
        rows: || {
            let row = |i1: usize, i2: usize| (0..6).map(|i0| 24 * i2 + 6 * i1 + i0).collect();
            (0..12).map(|r| row(r / 3, r % 3)).collect()
        },
    },
    // Contiguous, but for the strides of dimensions of 1, by which some kernels step.
    Look {
        name: "permuted around a dimension of 1",
        view: |a| a.reshape([6, 12])?.permute([0, 2, 1, 3]),
        rows: || {
            (0..12)
                .map(|r| (0..6).map(|i| 6 * r + i).collect())
                .collect()
        },
    },
    Look {
        name: "a transposed column",
        view: |a| a.reshape([1, 72])?.transpose(),
        rows: || vec![(0..72).collect()],
    },
    Look {
        name: "rows of one",
        view: |a| a.reshape([72])?.permute([3, 2, 1, 0]),
        rows: || (0..72).map(|i| vec![i]).collect(),
    },
    // Contiguous, but it begins where a kernel that reads four floats at once must not.
    Look {
        name: "from the second element on",
        view: |a| {
            let size = a.strides()[0];
            a.view([8, 8], [8 * size, 64 * size, 64 * size], size)
        },
        rows: || {
            (0..8)
                .map(|r| (0..8).map(|i| 1 + 8 * r + i).collect())
                .collect()
        },
    },
];

#[test]
fn every_layout_is_reduced_by_what_it_looks_like() {
    for device in devices() {
        for dtype in [F32, F16, BF16] {
            // Small integers: every sum is exact.
            let values: Vec<f32> = (0..72).map(|i| (i * 29 % 37) as f32 - 11.0).collect();
            let a = operand(dtype, &[6, 4, 3], &values);
            for look in &LOOKS {
                for reduction in &REDUCTIONS {
                    check_look(device, &a, look, reduction);
                }
            }
        }
    }
}

fn check_look(device: Device, a: &Operand, look: &Look, reduction: &Reduction) {
    let what = format!(
        "{} of {} {} on {}",
        reduction.name,
        look.name,
        a.dtype,
        device.name()
    );
    let rows: Vec<Vec<f32>> = (look.rows)()
        .into_iter()
        .map(|row| row.into_iter().map(|i| a.values[i]).collect())
        .collect();
    let round = |x| operand(a.dtype, &[1], &[x]).rounded()[0];
    let close = |got: &[f32], expected: &[f32]| {
        assert_eq!(got.len(), expected.len(), "{what}");
        // Means are not exact: half a unit in the last place, and what F32 lost.
        for (got, &expected) in got.iter().zip(expected) {
            let slack = (expected.abs() * 1e-6).max((round(expected) - expected).abs() * 1.01);
            assert!(
                (got - expected).abs() <= slack,
                "{what}: {got}, not {expected}"
            );
        }
    };
    let expected: Vec<f32> = rows.iter().map(|row| (reduction.reference)(row)).collect();
    close(
        &run(device, a, |a| (reduction.rows)((look.view)(a)?)),
        &expected,
    );
    let expected = (reduction.reference)(&rows.concat());
    close(
        &run(device, a, |a| (reduction.whole)((look.view)(a)?)),
        &[expected],
    );
}

#[test]
fn rows_keep_the_other_dimensions() {
    Graph::build(|g| {
        let (a, _) = g.input("a", F16, [6, 4, 3, 2])?;
        for reduction in &REDUCTIONS {
            let (rows, whole) = ((reduction.rows)(a)?, (reduction.whole)(a)?);
            assert_eq!(rows.shape().ne(), [1, 4, 3, 2], "{}", reduction.name);
            assert_eq!(whole.shape().ne(), [1; 4], "{}", reduction.name);
            assert_eq!((rows.dtype(), whole.dtype()), (F16, F16));
            g.output(reduction.name, whole)?;
        }
        Ok(())
    })
    .unwrap();
}

/// Whether `float4` is aligned does not show on the simulated device, so what the graph does is counted.
#[test]
fn only_what_kernels_must_not_read_is_copied() {
    let nodes = |offset: usize, nb1: usize| {
        let (graph, _) = Graph::build(|g| {
            let (a, _) = g.input("a", F32, [64])?;
            let look = a.view([8, 4], [nb1, 4 * nb1, 4 * nb1], offset)?;
            g.output("y", look.sum_rows()?)
        })
        .unwrap();
        graph.nodes()
    };
    // The view and its sums; between them, a copy of what is not aligned or has gaps.
    assert_eq!([nodes(0, 32), nodes(16, 32)], [2, 2]);
    assert_eq!([nodes(4, 32), nodes(0, 48)], [3, 3]);
}

#[test]
fn sizes_at_the_edges() {
    // One element; rows of one; around the simdgroup, the threadgroup and the longest row of one thread.
    let shapes: [&[usize]; 9] = [
        &[1],
        &[1, 7],
        &[31],
        &[33, 2],
        &[1024],
        &[1025, 2],
        &[1, 1500],
        &[3, 1, 1, 700],
        &[40_001],
    ];
    for device in devices() {
        for dims in shapes {
            let len: usize = dims.iter().product();
            let values: Vec<f32> = (0..len).map(|i| (i % 5) as f32 - 1.0).collect();
            let a = operand(F32, dims, &values);
            for reduction in &REDUCTIONS {
                let what = format!("{} of {dims:?} on {}", reduction.name, device.name());
                let whole = run(device, &a, reduction.whole)[0];
                let expected = (reduction.reference)(&values);
                assert!(
                    (whole - expected).abs() <= 1e-6 * expected.abs(),
                    "{what}: {whole}"
                );
                let rows: Vec<f32> = values.chunks(dims[0]).map(reduction.reference).collect();
                let found = run(device, &a, reduction.rows);
                let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6 * b.abs();
                assert_eq!(found.len(), rows.len(), "{what}");
                assert!(found.iter().zip(&rows).all(close), "rows: {what}");
            }
        }
    }
}

#[test]
fn extrema_keep_nan_and_infinities() {
    let (low, high) = (-3e38, 3e38);
    #[rustfmt::skip]
    let cases: &[(&[f32], f32, f32)] = &[
        (&[NAN, 1.0, 2.0], NAN, NAN),
        (&[1.0, NAN, 2.0], NAN, NAN),
        (&[1.0, 2.0, NAN], NAN, NAN),
        (&[1.0, -NAN, 2.0], NAN, NAN),
        (&[INF, NAN, -INF], NAN, NAN),
        (&[-INF, -INF, -INF], -INF, -INF),
        (&[-INF, low, -INF], low, -INF),
        (&[INF, INF, INF], INF, INF),
        (&[INF, high, 1.0], INF, 1.0),
        (&[-1.0, -2.0, -3.0], -1.0, -3.0),
        (&[-0.0, -0.0, -0.0], 0.0, 0.0),
    ];
    for device in devices() {
        for dtype in [F32, F16, BF16] {
            for &(row, max, min) in cases {
                // Long enough for two steps, with the last value repeated.
                let long: Vec<f32> = row.iter().copied().chain([row[2]; 2000]).collect();
                for values in [row, &long] {
                    let a = operand(dtype, &[values.len()], values);
                    let [max, min] = [max, min].map(|x| operand(dtype, &[1], &[x]).rounded());
                    let what = format!("{row:?} as {dtype} on {}", device.name());
                    assert_same(&run(device, &a, |a| a.max()), &max, &format!("max {what}"));
                    assert_same(&run(device, &a, |a| a.min()), &min, &format!("min {what}"));
                    assert_same(
                        &run(device, &a, |a| a.max_rows()),
                        &max,
                        &format!("max_rows {what}"),
                    );
                    assert_same(
                        &run(device, &a, |a| a.min_rows()),
                        &min,
                        &format!("min_rows {what}"),
                    );
                }
            }
        }
    }
}

#[test]
fn nan_in_one_row_stays_there_and_reaches_the_whole() {
    let values: Vec<f32> = (0..40)
        .map(|i| if i == 17 { NAN } else { i as f32 })
        .collect();
    for device in devices() {
        for dtype in [F32, F16, BF16] {
            let a = operand(dtype, &[8, 5], &values);
            for reduction in &REDUCTIONS {
                let what = format!("{} of {dtype} on {}", reduction.name, device.name());
                let rows: Vec<bool> = run(device, &a, reduction.rows)
                    .iter()
                    .map(|x| x.is_nan())
                    .collect();
                assert_eq!(rows, [false, false, true, false, false], "{what}");
                assert!(run(device, &a, reduction.whole)[0].is_nan(), "{what}");
            }
        }
    }
}

#[test]
fn sums_and_means_of_infinities() {
    for device in devices() {
        for dtype in [F32, F16, BF16] {
            for (row, expected) in [
                ([1.0, INF, 2.0], INF),
                ([-INF, 1.0, -INF], -INF),
                ([INF, 1.0, -INF], NAN),
            ] {
                let a = operand(dtype, &[3], &row);
                let what = format!("{row:?} as {dtype} on {}", device.name());
                for op in [
                    REDUCTIONS[0].rows,
                    REDUCTIONS[0].whole,
                    REDUCTIONS[1].rows,
                    REDUCTIONS[1].whole,
                ] {
                    assert_same(&run(device, &a, op), &[expected], &what);
                }
            }
        }
    }
}

#[test]
fn only_the_result_must_fit_the_type() {
    for device in devices() {
        // On the way 16 times what F16 holds; at the end 0, 65504 and too much.
        let turn = |sign: f32| [60000.0; 16].map(|x| x * sign);
        let back = operand(F16, &[16, 2], &[turn(1.0), turn(-1.0)].concat());
        assert_eq!(run(device, &back, |a| a.sum()), [0.0]);
        let full = operand(F16, &[64, 4], &[65504.0; 256]);
        assert_eq!(run(device, &full, |a| a.mean()), [65504.0]);
        assert_eq!(run(device, &full, |a| a.mean_rows()), [65504.0; 4]);
        assert_eq!(run(device, &full, |a| a.sum()), [INF]);
        assert_eq!(run(device, &full, |a| a.sum_rows()), [INF; 4]);
        // BF16 reaches as far as F32, and there the way counts.
        let huge = operand(BF16, &[4], &[3e38; 4]);
        assert_eq!(run(device, &huge, |a| a.mean()), [INF]);
    }
}

#[test]
fn integers_and_blocks_are_refused() {
    Graph::build(|g| {
        for dtype in [DType::I32, DType::I8, DType::F64, DType::Q8_0, DType::Q4_K] {
            let (a, _) = g.input("a", dtype, [256, 2])?;
            for reduction in &REDUCTIONS {
                for op in [reduction.rows, reduction.whole] {
                    let error = op(a).unwrap_err();
                    let text = error.to_string();
                    assert!(matches!(error, Error::DType(_)), "{text}");
                    assert!(text.contains(reduction.name), "{text}");
                }
            }
        }
        let (a, _) = g.input("a", F32, [2])?;
        g.output("y", a)
    })
    .unwrap();
}

/// Asks ggml itself: nothing of this crate stands between. The kernels are `kernel_op_sum_f32` and
/// `kernel_sum_rows_f32_f32`.
#[cfg(all(feature = "metal-sim", not(target_os = "macos")))]
#[test]
fn metal_refuses_what_it_has_no_kernel_for() {
    use ggml_sys as sys;

    type Make = unsafe extern "C-unwind" fn(
        *mut sys::ggml_context,
        *mut sys::ggml_tensor,
    ) -> *mut sys::ggml_tensor;
    let makes: [(&str, Make); 3] = [
        ("sum", sys::ggml_sum),
        ("sum_rows", sys::ggml_sum_rows),
        ("mean", sys::ggml_mean),
    ];
    Device::by_name("MTL0").unwrap();
    for (name, make) in makes {
        for dtype in [F32, F16, BF16, DType::I32] {
            // SAFETY: the devices exist; the context has room for two tensors without data and outlives them; none of the
            // three functions asserts anything.
            let supported = unsafe {
                let context = sys::ggml_init(sys::ggml_init_params {
                    mem_size: 4 * sys::ggml_tensor_overhead(),
                    mem_buffer: std::ptr::null_mut(),
                    no_alloc: true,
                });
                let raw = match dtype {
                    F32 => sys::GGML_TYPE_F32,
                    F16 => sys::GGML_TYPE_F16,
                    BF16 => sys::GGML_TYPE_BF16,
                    _ => sys::GGML_TYPE_I32,
                };
                let a = sys::ggml_new_tensor_1d(context, raw, 8);
                let device = sys::ggml_backend_dev_by_name(c"MTL0".as_ptr());
                let supported = sys::ggml_backend_dev_supports_op(device, make(context, a));
                sys::ggml_free(context);
                supported
            };
            assert_eq!(supported, dtype == F32, "{name} of {dtype}");
        }
    }
}
