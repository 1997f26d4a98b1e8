//! The lists of OUT_PROD cases: upstream's, the gate, and ours.

use ggml_rs::DType;

use super::OutProd;

/// Upstream's `base_types`, in its order.
const BASE_TYPES: [DType; 11] = [
    DType::F32,
    DType::F16,
    DType::Q8_0,
    DType::Q1_0,
    DType::Q2_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q4_K,
    DType::MXFP4,
    DType::NVFP4,
    DType::IQ2_XXS,
];

/// The types the gate's grid goes over.
const GATE_TYPES: [DType; 6] = [
    DType::F32,
    DType::F16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q4_K,
];

/// The floats that kernels take.
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// The largest |gradient| the gate draws: about what a LoRA backward of a 0.8B model showed (131273), and well past half's
/// largest value, 65504.
const GRADIENT_RANGE: f32 = 1.5e5;

const PLAIN_AND_TRANSPOSED: [bool; 2] = [false, true];

/// Every type that ggml turns into floats, and so every type a weight can have: what our own cases go over.
fn weight_types() -> impl Iterator<Item = DType> {
    let quantized = DType::ALL.into_iter().filter(|dtype| dtype.dequantizes());
    FLOATS.into_iter().chain(quantized)
}

fn f32_grad(type_a: DType, mnk: [usize; 3]) -> OutProd {
    OutProd::new(type_a, DType::F32, mnk)
}

/// Upstream's 1415 cases in upstream's order, its one repeated case included.
#[must_use]
pub fn upstream() -> Vec<OutProd> {
    let mut cases = Vec::new();
    for type_a in BASE_TYPES {
        for type_b in [DType::F32, DType::F16] {
            for [n, k] in pairs([1, 16]) {
                let case = OutProd::new(type_a, type_b, [256, n, k]);
                for bs in pairs([1, 3]) {
                    cases.extend(pairs([1, 2]).map(|nr| case.clone().batched(bs, nr)));
                }
            }
        }
    }
    let sweep = f32_grad(DType::F32, [256, 16, 16]);
    cases.extend([1, 8, 16, 32].map(|ne2| sweep.clone().batched([ne2, 1], [1, 1])));
    cases.extend([8, 16, 32].map(|nr2| sweep.clone().batched([1, 1], [nr2, 1])));
    cases
}

/// All pairs of two values, the last index fastest: upstream's nested loops.
fn pairs(values: [usize; 2]) -> [[usize; 2]; 4] {
    let [x, y] = values;
    [[x, x], [x, y], [y, x], [y, y]]
}

/// The 37 cases of the gate: 33 that half staging passes, then the four whose gradients exceed half's range.
#[must_use]
pub fn gate() -> Vec<OutProd> {
    let mut cases: Vec<_> = GATE_TYPES
        .iter()
        .flat_map(|&type_a| pairs([1, 16]).map(|[n, k]| f32_grad(type_a, [256, n, k])))
        .collect();
    cases.push(f32_grad(DType::F32, [32, 32, 32]));
    cases.extend(both_layouts(&f32_grad(DType::Q4_K, [256, 8, 600_000])));
    for (type_a, m) in [(DType::F32, 1024), (DType::Q8_0, 256)] {
        let case = OutProd {
            a_own_buffer: true,
            ..f32_grad(type_a, [m, 1024, 8])
        };
        cases.extend(both_layouts(&case));
    }
    cases.extend(both_layouts(&f32_grad(DType::Q8_0, [256, 8, 600_000])));
    for type_a in [DType::F32, DType::Q8_0] {
        let case = OutProd {
            b_range: GRADIENT_RANGE,
            ..f32_grad(type_a, [256, 64, 64])
        };
        cases.extend(both_layouts(&case));
    }
    cases
}

/// Operands beyond half's range, each alone and both at once, for a full tile and for one whose bounds are checked. An F16
/// weight cannot exceed that range, so it stays just inside: float staging and half staging both have to take it.
#[must_use]
pub fn range() -> Vec<OutProd> {
    const WITHIN_F16: f32 = 6e4;
    let mut cases = Vec::new();
    for type_a in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_K] {
        let weight = if type_a == DType::F16 {
            WITHIN_F16
        } else {
            GRADIENT_RANGE
        };
        for mnk in [[256, 64, 64], [256, 33, 31]] {
            for (a_range, b_range) in [
                (weight, 1.0),
                (1.0, GRADIENT_RANGE),
                (weight, GRADIENT_RANGE),
            ] {
                cases.extend(both_layouts(&OutProd {
                    a_range,
                    b_range,
                    ..f32_grad(type_a, mnk)
                }));
            }
        }
    }
    cases
}

/// Up to 4096 steps, held to the rounding of F32: edges of all that the CPU cuts a product into, at every level of the CPU, and the
/// types and layouts that are packed in different ways.
#[must_use]
pub fn precise() -> Vec<OutProd> {
    const SHAPES: [[usize; 3]; 16] = [
        [64, 64, 4096],
        [96, 24, 4095],
        [8, 4, 383],
        [16, 6, 384],
        [32, 12, 385],
        [33, 13, 769],
        [31, 11, 1],
        [255, 5, 767],
        [257, 7, 64],
        [1023, 25, 40],
        [25, 1033, 40],
        [4097, 12, 5],
        [12, 600, 500],
        [600, 1, 500],
        [1, 600, 500],
        [500, 300, 200],
    ];
    let precise = |case: OutProd| OutProd {
        precise: true,
        ..case
    };
    let mut cases: Vec<_> = SHAPES
        .iter()
        .flat_map(|&mnk| both_layouts(&f32_grad(DType::F32, mnk)))
        .collect();
    for type_a in weight_types() {
        cases.extend(both_layouts(&f32_grad(type_a, [512, 25, 400])));
    }
    for type_b in [DType::F16, DType::BF16] {
        cases.extend(both_layouts(&OutProd::new(
            DType::BF16,
            type_b,
            [70, 29, 390],
        )));
    }
    cases.extend(both_layouts(&OutProd {
        a_perm: true,
        ..f32_grad(DType::F32, [65, 33, 400]).batched([3, 2], [2, 2])
    }));
    cases.extend(both_layouts(&OutProd {
        b_v: 1100,
        ..f32_grad(DType::F32, [70, 40, 1000]).batched([2, 1], [1, 3])
    }));
    cases.into_iter().map(precise).collect()
}

fn both_layouts(case: &OutProd) -> [OutProd; 2] {
    PLAIN_AND_TRANSPOSED.map(|trans_b| case.clone().transposed(trans_b))
}

/// Our own cases: those of the gate that upstream does not have, and what upstream does not reach.
#[must_use]
pub fn ours() -> Vec<OutProd> {
    let upstream = upstream();
    let mut cases: Vec<_> = gate()
        .into_iter()
        .filter(|case| !upstream.contains(case))
        .collect();
    cases.extend(other_types());
    cases.extend(half_gradients());
    cases.extend(batches());
    cases.extend(padded_rows());
    cases.extend(spread_rows());
    cases.extend(sizes());
    cases.extend(extremes());
    cases
}

/// Weight types that upstream's list lacks, BF16 among them, and the transposed gradient for all of them.
fn other_types() -> Vec<OutProd> {
    let mut cases = Vec::new();
    for type_a in weight_types() {
        for [n, k] in pairs([1, 16]) {
            let plain = f32_grad(type_a, [256, n, k]);
            cases.push(plain.clone().transposed(true));
            if !BASE_TYPES.contains(&type_a) {
                cases.push(plain);
            }
        }
    }
    cases
}

/// Gradients of half width beyond upstream's: BF16, transposed, padded, in batches, and long enough to be cut up.
fn half_gradients() -> Vec<OutProd> {
    let mut cases = Vec::new();
    for type_b in [DType::F16, DType::BF16] {
        for type_a in [
            DType::F32,
            DType::F16,
            DType::BF16,
            DType::Q8_0,
            DType::Q4_K,
        ] {
            let case = OutProd::new(type_a, type_b, [256, 33, 31]);
            cases.extend(both_layouts(&case));
            cases.extend(both_layouts(&case.clone().batched([2, 3], [2, 2])));
            cases.extend(both_layouts(&OutProd { b_v: 48, ..case }));
        }
        cases.extend(both_layouts(&OutProd::new(
            DType::F32,
            type_b,
            [32, 8, 100_000],
        )));
    }
    cases
}

/// Batches and broadcast of src0 over dims 2 and 3: attention's backward needs all four dims, with the gradient transposed.
fn batches() -> Vec<OutProd> {
    let mut cases = Vec::new();
    for type_a in weight_types() {
        for (bs, nr) in [
            ([3, 2], [1, 1]),
            ([1, 1], [4, 1]),
            ([1, 1], [1, 3]),
            ([3, 2], [2, 2]),
        ] {
            cases.extend(both_layouts(
                &f32_grad(type_a, [256, 17, 5]).batched(bs, nr),
            ));
        }
    }
    cases
}

/// Rows of src1 that are not contiguous: a view of a wider tensor, with and without batches.
fn padded_rows() -> Vec<OutProd> {
    let mut cases = Vec::new();
    for type_a in [DType::F32, DType::BF16, DType::Q8_0, DType::Q4_K] {
        for (bs, nr) in [([1, 1], [1, 1]), ([2, 3], [2, 1])] {
            let case = OutProd {
                b_v: 48,
                ..f32_grad(type_a, [256, 33, 31]).batched(bs, nr)
            };
            cases.extend(both_layouts(&case));
        }
    }
    cases
}

/// A src0 whose rows are not packed: a permuted view, as heads of attention are.
fn spread_rows() -> Vec<OutProd> {
    let mut cases = Vec::new();
    for type_a in FLOATS {
        for (bs, nr) in [([3, 1], [1, 1]), ([3, 2], [2, 2])] {
            let case = OutProd {
                a_perm: true,
                ..f32_grad(type_a, [65, 33, 31]).batched(bs, nr)
            };
            cases.extend(both_layouts(&case));
        }
    }
    cases
}

/// Sizes of 1 and sizes just off the kernels' tiles of 64, 32 and 32. Quantized rows keep whole blocks.
fn sizes() -> Vec<OutProd> {
    const ANY: [[usize; 3]; 12] = [
        [1, 1, 1],
        [1, 16, 16],
        [16, 1, 16],
        [16, 16, 1],
        [64, 32, 32],
        [63, 31, 31],
        [65, 33, 33],
        [127, 32, 64],
        [128, 65, 7],
        [7, 129, 100],
        [300, 5, 130],
        [2, 3, 1000],
    ];
    const BLOCKS: [[usize; 3]; 3] = [[512, 1, 1], [512, 33, 7], [768, 31, 65]];
    let mut cases = Vec::new();
    for type_a in FLOATS {
        cases.extend(
            ANY.iter()
                .flat_map(|&mnk| both_layouts(&f32_grad(type_a, mnk))),
        );
    }
    for type_a in weight_types() {
        cases.extend(
            BLOCKS
                .iter()
                .flat_map(|&mnk| both_layouts(&f32_grad(type_a, mnk))),
        );
    }
    cases
}

/// The largest n (a vocabulary) and k (tokens times batch) that training meets. With n = 151936 the transposed gradient
/// alone would fill the scratch many times over, so k must be split into blocks; k = 300 makes that at least two.
fn extremes() -> Vec<OutProd> {
    let mut cases = Vec::new();
    for type_a in [DType::F32, DType::Q8_0] {
        cases.extend(both_layouts(&f32_grad(type_a, [32, 151_936, 300])));
    }
    cases.extend(both_layouts(&f32_grad(DType::F32, [32, 8, 600_000])));
    cases.push(f32_grad(DType::F32, [1, 1, 600_000]));
    cases
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::cases::Case;

    #[test]
    fn upstream_has_1415_cases() {
        let cases = upstream();
        assert_eq!(cases.len(), 1415);
        assert_eq!(
            cases
                .iter()
                .filter(|c| c.type_a == DType::F32 && c.type_b == DType::F32)
                .count(),
            71
        );
        assert_eq!(
            cases[0].params(),
            "type_a=f32,type_b=f32,m=256,n=1,k=1,bs=[1,1],nr=[1,1],trans_b=0",
            "upstream's first"
        );
        assert_eq!(
            cases[1414].params(),
            "type_a=f32,type_b=f32,m=256,n=16,k=16,bs=[1,1],nr=[32,1],trans_b=0",
            "upstream's last"
        );
    }

    #[test]
    fn upstream_never_transposes_and_prints_no_field_of_ours() {
        for case in upstream() {
            assert!(case.params().ends_with("trans_b=0"), "{}", case.params());
        }
    }

    #[test]
    fn the_gate_has_37_cases_of_which_four_exceed_half() {
        let gate = gate();
        assert_eq!(gate.len(), 37);
        let beyond_half: Vec<_> = gate
            .iter()
            .filter(|c| c.b_range > 65504.0)
            .map(Case::params)
            .collect();
        assert_eq!(
            beyond_half,
            [
                "type_a=f32,type_b=f32,m=256,n=64,k=64,bs=[1,1],nr=[1,1],trans_b=0,b_range=150000.000000",
                "type_a=f32,type_b=f32,m=256,n=64,k=64,bs=[1,1],nr=[1,1],trans_b=1,b_range=150000.000000",
                "type_a=q8_0,type_b=f32,m=256,n=64,k=64,bs=[1,1],nr=[1,1],trans_b=0,b_range=150000.000000",
                "type_a=q8_0,type_b=f32,m=256,n=64,k=64,bs=[1,1],nr=[1,1],trans_b=1,b_range=150000.000000",
            ]
        );
    }

    #[test]
    fn the_gate_counts_as_its_authors_count_it() {
        let count = |wanted: &dyn Fn(&OutProd) -> bool| gate().iter().filter(|c| wanted(c)).count();
        assert_eq!(count(&|c| c.n <= 16 && c.k <= 16 && c.m == 256), 24);
        assert_eq!(count(&|c| c.k == 600_000), 4);
        assert_eq!(count(&|c| c.a_own_buffer), 4);
        assert_eq!(count(&|c| c.trans_b), 6);
    }

    #[test]
    fn the_range_set_exceeds_half_on_either_side() {
        let cases = range();
        let beyond = |range: f32| range > 65504.0;
        let count = |a, b| {
            let is = |c: &&OutProd| beyond(c.a_range) == a && beyond(c.b_range) == b;
            cases.iter().filter(is).count()
        };
        assert_eq!(
            [
                count(true, false),
                count(false, true),
                count(true, true),
                count(false, false)
            ],
            [12, 20, 12, 4]
        );
    }

    #[test]
    fn every_gate_case_is_also_in_the_default_set() {
        let all: HashSet<_> = upstream()
            .into_iter()
            .chain(ours())
            .map(|c| c.params())
            .collect();
        for case in gate() {
            assert!(all.contains(&case.params()), "{}", case.params());
        }
    }

    #[test]
    fn ours_adds_no_case_twice() {
        let upstream: HashSet<_> = upstream().iter().map(Case::params).collect();
        let mut seen = HashSet::new();
        for case in ours() {
            assert!(
                !upstream.contains(&case.params()),
                "upstream has {}",
                case.params()
            );
            assert!(seen.insert(case.params()), "repeated: {}", case.params());
        }
    }

    /// ggml 0.26.0 has 25 quantized types that become floats.
    #[test]
    fn weights_come_in_28_types() {
        assert_eq!(weight_types().count(), 3 + 25);
    }

    #[test]
    fn ours_reaches_what_upstream_does_not() {
        let ours = ours();
        let any = |wanted: &dyn Fn(&OutProd) -> bool| ours.iter().any(wanted);
        for type_a in weight_types() {
            assert!(
                any(&|c| c.type_a == type_a && c.trans_b && c.nr[0] > 1 && c.nr[1] > 1),
                "{}",
                type_a.name()
            );
        }
        for type_b in [DType::F16, DType::BF16] {
            assert!(any(&|c| c.type_b == type_b && c.trans_b && c.b_v > 0));
        }
        assert!(any(&|c| c.b_v > c.n && c.bs != [1, 1]));
        assert!(
            any(&|c| c.n == 151_936)
                && any(&|c| c.k == 600_000)
                && any(&|c| [c.m, c.n, c.k] == [1, 1, 1])
        );
    }
}
