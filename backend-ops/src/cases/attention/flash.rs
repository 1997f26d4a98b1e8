//! `FLASH_ATTN_EXT`: attention in one op. Upstream's `test_flash_attn_ext`.

use ggml_rs::{DType, FlashAttn, Tensor};

use super::mask;
use crate::case::{Case, Choices, Leaves, smaller};
use crate::cases::views;
use crate::data::{Init, Operand};
use crate::vars::Vars;

/// One FLASH_ATTN_EXT case.
#[derive(Clone, Debug)]
pub struct FlashCase {
    /// Length of a key and of a value.
    hsk: usize,
    hsv: usize,
    /// Heads of keys.
    nh: usize,
    /// Heads of queries to one of keys; sequences.
    nr23: [usize; 2],
    /// Keys.
    kv: usize,
    /// Queries.
    nb: usize,
    mask: bool,
    sinks: bool,
    max_bias: f32,
    logit_softcap: f32,
    /// Upstream's precision, f32 or the default. It is a wish that no kernel of Metal reads, and is not built: ggml-rs has a
    /// promise in its place, which Metal refuses.
    float: bool,
    /// Ours: that promise.
    promised: bool,
    type_k: DType,
    type_v: DType,
    /// Dims as they lie in memory.
    permute: [usize; 4],
    /// Ours: a mask by place instead of by blocks.
    causal: bool,
    /// Ours: what every value is, so that the result is too, however many keys there are; 0: values are random.
    constant: f32,
}

const UNPERMUTED: [usize; 4] = [0, 1, 2, 3];
/// Tokens before heads, as a cache has them.
const BY_TOKEN: [usize; 4] = [0, 2, 1, 3];

impl FlashCase {
    pub(crate) fn new(
        [hsk, hsv]: [usize; 2],
        nh: usize,
        nr23: [usize; 2],
        kv: usize,
        nb: usize,
    ) -> Self {
        Self {
            hsk,
            hsv,
            nh,
            nr23,
            kv,
            nb,
            mask: false,
            sinks: false,
            max_bias: 0.0,
            logit_softcap: 0.0,
            float: true,
            promised: false,
            type_k: DType::F16,
            type_v: DType::F16,
            permute: UNPERMUTED,
            causal: false,
            constant: 0.0,
        }
    }

    /// The same with a mask.
    pub(crate) fn masked(self) -> Self {
        Self { mask: true, ..self }
    }

    /// The same with keys and values of a type.
    pub(crate) fn cached_as(self, dtype: DType) -> Self {
        Self {
            type_k: dtype,
            type_v: dtype,
            ..self
        }
    }

    /// Heads are filled up to whole blocks.
    fn padded(&self) -> [usize; 2] {
        [
            self.hsk.next_multiple_of(self.type_k.block_len()),
            self.hsv.next_multiple_of(self.type_v.block_len()),
        ]
    }

    /// Whether values are the first elements of keys: upstream has them so for one model's shape.
    fn shares_cache(&self) -> bool {
        self.type_k == self.type_v && self.padded() == [576, 512]
    }

    /// A shape as it lies in memory.
    fn lying(&self, ne: [usize; 4]) -> [usize; 4] {
        let mut lying = ne;
        for (dim, n) in self.permute.into_iter().zip(ne) {
            lying[dim] = n;
        }
        lying
    }

    /// A cache is twice as long as what is used of it.
    fn cache(&self, name: &'static str, dtype: DType, head: usize) -> Operand {
        let mut ne = self.lying([head, self.kv, self.nh, self.nr23[1]]);
        ne[1] *= 2;
        let cache = Operand::new(name, dtype, ne);
        let holds_values = name == "v" || self.shares_cache();
        match self.constant != 0.0 && holds_values {
            true => cache.init(Init::Constant(self.constant)),
            false => cache,
        }
    }

    fn used<'g>(&self, cache: Tensor<'g>, head: usize) -> ggml_rs::Result<Tensor<'g>> {
        let ne = self.lying([head, self.kv, self.nh, self.nr23[1]]);
        self.permuted(views::first(cache, ne)?)
    }

    fn permuted<'g>(&self, tensor: Tensor<'g>) -> ggml_rs::Result<Tensor<'g>> {
        match self.permute {
            UNPERMUTED => Ok(tensor),
            axes => tensor.permute(axes),
        }
    }
}

impl Case for FlashCase {
    fn op(&self) -> &'static str {
        "FLASH_ATTN_EXT"
    }

    fn params(&self) -> String {
        Vars::new()
            .with("hsk", self.hsk)
            .with("hsv", self.hsv)
            .with("nh", self.nh)
            .with("nr23", self.nr23)
            .with("kv", self.kv)
            .with("nb", self.nb)
            .with("mask", self.mask)
            .with("sinks", self.sinks)
            .with("max_bias", self.max_bias)
            .with("logit_softcap", self.logit_softcap)
            .with("prec", if self.float { "f32" } else { "def" })
            .with("type_K", self.type_k)
            .with("type_V", self.type_v)
            .with("permute", self.permute)
            .with_unless_default("causal", self.causal, false)
            .with_unless_default("promised", self.promised, false)
            .with_unless_default("v", self.constant, 0.0)
            .to_string()
    }

    fn operands(&self) -> Vec<Operand> {
        let [hsk, hsv] = self.padded();
        let heads = self.nh * self.nr23[0];
        let q = self.lying([hsk, self.nb, heads, self.nr23[1]]);
        let mut operands = vec![
            Operand::new("q", DType::F32, q),
            self.cache("k", self.type_k, hsk),
        ];
        if !self.shares_cache() {
            operands.push(self.cache("v", self.type_v, hsv));
        }
        if self.mask {
            let draw = if self.causal {
                mask::causal
            } else {
                mask::in_blocks
            };
            let mask = Operand::new("m", DType::F16, [self.kv, self.nb, 1, self.nr23[1]]);
            operands.push(mask.init(Init::Drawn(draw)));
        }
        if self.sinks {
            // Large, so that a wrong sink shows.
            operands.push(Operand::new("s", DType::F32, [heads, 1, 1, 1]).within(10.0));
        }
        operands
    }

    fn smaller(&self) -> Vec<Box<dyn Case>> {
        smaller(self, |case| vec![&mut case.nh, &mut case.kv, &mut case.nb])
    }

    fn build<'g>(&self, leaves: &Leaves<'g>) -> ggml_rs::Result<Tensor<'g>> {
        let [hsk, hsv] = self.padded();
        let mut given = leaves.tensors().into_iter();
        let mut next = || given.next().expect("an operand for each tensor");
        let q = self.permuted(next())?;
        let k = self.used(next(), hsk)?;
        let v = match self.shares_cache() {
            true => views::first(k, [hsv, self.kv, self.nh, self.nr23[1]])?,
            false => self.used(next(), hsv)?,
        };
        let mut options = FlashAttn::new(1.0 / (self.hsk as f32).sqrt())
            .max_bias(self.max_bias)
            .logit_softcap(self.logit_softcap);
        if self.mask {
            options = options.mask(next());
        }
        if self.sinks {
            options = options.sinks(next());
        }
        if self.promised {
            options = options.float();
        }
        q.flash_attn_ext(k, v, options)
    }

    fn max_nmse(&self, _choices: Choices) -> f64 {
        if self.promised {
            // Nothing is rounded but to F32.
            1e-10
        } else if self.constant != 0.0 {
            // Weights add up to 1 whatever the scores are rounded to; a half stands for a value of blocks on Metal.
            1e-6
        } else {
            5e-4
        }
    }

    /// The two products.
    fn flops(&self) -> Option<f64> {
        let heads = self.nh * self.nr23[0] * self.nr23[1];
        Some(2.0 * (heads * self.nb * (self.hsk + self.hsv) * self.kv) as f64)
    }
}

/// The lengths of keys and values of models.
fn head_sizes() -> Vec<[usize; 2]> {
    let mut sizes = [40, 64, 72, 80, 96, 128].map(|n| [n, n]).to_vec();
    sizes.extend([[192, 128], [192, 192], [256, 256], [320, 256], [512, 512]]);
    sizes.push([576, 512]);
    sizes
}

/// How keys and queries share heads: heads of keys, then numbers of query heads to each.
fn heads(hsk: usize) -> Vec<(usize, Vec<usize>)> {
    let of_four = match hsk {
        128 => vec![1, 4, 12],
        192 => vec![1, 4, 8, 16],
        _ => vec![1, 4],
    };
    match hsk {
        320 => vec![(1, vec![1, 4, 32]), (4, of_four)],
        576 => vec![(1, vec![1, 4, 20]), (4, of_four)],
        _ => vec![(4, of_four)],
    }
}

/// The types of a cache, all of them for two lengths alone.
fn cache_types(hsk: usize) -> &'static [DType] {
    use DType::{BF16, F16, F32, IQ4_NL, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    match hsk {
        64 | 72 => &[F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0, IQ4_NL],
        _ => &[F16],
    }
}

/// Mask, sinks, slopes and softcap.
fn logits(hsk: usize) -> Vec<FlashCase> {
    let mut all = Vec::new();
    for mask in [true, false] {
        for sinks in [true, false] {
            for max_bias in [0.0, 8.0] {
                for logit_softcap in [0.0, 10.0] {
                    if (max_bias > 0.0 && !mask) || (logit_softcap > 0.0 && hsk != 128) {
                        continue;
                    }
                    all.push(FlashCase {
                        mask,
                        sinks,
                        max_bias,
                        logit_softcap,
                        ..FlashCase::new([hsk; 2], 1, [1, 1], 1, 1)
                    });
                }
            }
        }
    }
    all
}

/// The numbers of keys, queries and heads of one length of keys and values.
fn sizes([hsk, hsv]: [usize; 2]) -> Vec<FlashCase> {
    let sequences = if hsk > 64 { &[1][..] } else { &[1, 3] };
    let mut all = Vec::new();
    for (nh, queries_per_key) in heads(hsk) {
        for &nr3 in sequences {
            for &nr2 in &queries_per_key {
                let lengths = if nr2 == 1 {
                    &[113, 512, 1024][..]
                } else {
                    &[512]
                };
                for &kv in lengths {
                    let case = |nb| FlashCase::new([hsk, hsv], nh, [nr2, nr3], kv, nb);
                    all.extend([1, 3, 32, 75].map(case));
                }
            }
        }
    }
    all
}

/// Upstream's: every model's lengths with every kind of logits; then caches of two types.
pub(super) fn cases() -> Vec<FlashCase> {
    let mut cases = Vec::new();
    for lengths in head_sizes() {
        let hsk = lengths[0];
        let precisions = if hsk == 128 {
            &[true, false][..]
        } else {
            &[true]
        };
        for logits in logits(hsk) {
            for size in sizes(lengths) {
                for &float in precisions {
                    for &dtype in cache_types(hsk) {
                        let case = FlashCase {
                            mask: logits.mask,
                            sinks: logits.sinks,
                            max_bias: logits.max_bias,
                            logit_softcap: logits.logit_softcap,
                            float,
                            type_k: dtype,
                            type_v: dtype,
                            ..size.clone()
                        };
                        let plain = case.max_bias == 0.0 && case.logit_softcap == 0.0;
                        let permuted = case.mask && plain && case.kv == 512;
                        cases.push(case.clone());
                        if permuted {
                            cases.push(FlashCase {
                                permute: BY_TOKEN,
                                ..case
                            });
                        }
                    }
                }
            }
        }
    }
    cases.extend(mixed());
    cases
}

/// Keys and values of different types, and of one bit.
fn mixed() -> Vec<FlashCase> {
    use DType::{F16, F32, Q1_0, Q4_0, Q8_0};
    [
        ([64, 64], [128, 2], [Q8_0, Q4_0]),
        ([64, 64], [128, 2], [Q4_0, F16]),
        ([72, 72], [96, 2], [Q4_0, Q8_0]),
        ([64, 64], [96, 2], [F16, F32]),
        ([128, 128], [256, 1], [F16, Q4_0]),
        ([128, 128], [96, 2], [Q1_0, Q1_0]),
        ([128, 64], [128, 2], [Q1_0, Q4_0]),
        ([64, 128], [128, 2], [Q4_0, Q1_0]),
        ([128, 64], [64, 2], [Q1_0, F16]),
    ]
    .map(|(lengths, [kv, nb], [type_k, type_v])| FlashCase {
        mask: nb != 1,
        type_k,
        type_v,
        ..FlashCase::new(lengths, 4, [1, 1], kv, nb)
    })
    .to_vec()
}

/// The lengths that Metal has kernels for and upstream does not test, numbers of keys around those of a block, a causal mask,
/// and heads that are no power of two with slopes.
pub(super) fn ours() -> Vec<FlashCase> {
    let mut cases = Vec::new();
    for hsk in [32, 48, 112] {
        cases.extend([1, 9].map(|nb| FlashCase {
            mask: true,
            ..FlashCase::new([hsk, hsk], 2, [2, 1], 130, nb)
        }));
    }
    for kv in [1, 7, 31, 32, 33, 63, 64, 65] {
        for nb in [1, 5, 21] {
            cases.push(FlashCase {
                mask: true,
                sinks: nb == 5,
                permute: BY_TOKEN,
                ..FlashCase::new([64, 64], 3, [2, 2], kv, nb)
            });
        }
    }
    for (kv, nb) in [(40, 1), (40, 40), (200, 33)] {
        cases.push(FlashCase {
            mask: true,
            causal: true,
            max_bias: if nb == 40 { 8.0 } else { 0.0 },
            ..FlashCase::new([128, 128], 3, [4, 1], kv, nb)
        });
    }
    cases.extend(promised());
    cases.extend(constant());
    cases
}

/// Floats to the end, for every type of a cache: by rows, with keys in parts, and in tiles.
fn promised() -> Vec<FlashCase> {
    let of = |dtype| {
        [(65, 3), (600, 1), (65, 70)].map(|(kv, nb)| FlashCase {
            promised: true,
            mask: nb == 70,
            sinks: nb == 1,
            ..FlashCase::new([64, 64], 2, [2, 1], kv, nb).cached_as(dtype)
        })
    };
    cache_types(64).iter().copied().flat_map(of).collect()
}

/// Many keys, each with the same value: what adds up in half stays at 2048 times the value, or is infinite. One query goes through
/// keys in parts, few row by row, many in tiles.
fn constant() -> Vec<FlashCase> {
    const QUERIES: [usize; 3] = [1, 3, 75];
    let mut cases = Vec::new();
    let mut each = |case: FlashCase| {
        cases.extend([1.0, 40000.0].map(|constant| FlashCase {
            constant,
            ..case.clone()
        }));
    };
    let of = |lengths, nb| FlashCase::new(lengths, 1, [2, 1], 4096, nb);
    for nb in QUERIES {
        for &dtype in cache_types(64) {
            each(of([64, 64], nb).cached_as(dtype));
        }
        each(of([64, 64], nb).masked());
        each(FlashCase {
            permute: BY_TOKEN,
            ..of([64, 64], nb)
        });
    }
    for case in mixed() {
        each(FlashCase {
            kv: 4096,
            nh: 1,
            ..case
        });
    }
    each(FlashCase::new([64, 64], 1, [1, 1], 16384, 1));
    // The lengths of models and Metal's own, and the kinds of logits: sums that are infinite tell with fewer keys, too.
    let infinite = |case| FlashCase {
        constant: 40000.0,
        kv: 1024,
        ..case
    };
    let ours = [32, 48, 112].map(|n| [n, n]);
    for lengths in head_sizes().into_iter().chain(ours) {
        cases.extend(QUERIES.map(|nb| infinite(of(lengths, nb))));
    }
    for logits in logits(128) {
        cases.extend(QUERIES.map(|nb| FlashCase {
            mask: logits.mask,
            sinks: logits.sinks,
            max_bias: logits.max_bias,
            logit_softcap: logits.logit_softcap,
            ..infinite(of([64, 64], nb))
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_strings_are_upstreams() {
        let cases = cases();
        assert_eq!(
            cases[0].name(),
            "FLASH_ATTN_EXT(hsk=40,hsv=40,nh=4,nr23=[1,1],kv=113,nb=1,mask=1,sinks=1,max_bias=0.000000,logit_softcap=0.000000,prec=f32,type_K=f16,type_V=f16,permute=[0,1,2,3])"
        );
        assert!(cases.iter().any(|case| case.params().ends_with(
            "max_bias=8.000000,logit_softcap=10.000000,prec=def,type_K=f16,type_V=f16,permute=[0,1,2,3]"
        )));
    }

    #[test]
    fn long_constant_rows_name_their_value() {
        let constant = constant();
        let named = |end: &str| constant.iter().any(|case| case.params().ends_with(end));
        assert!(named(",v=1.000000") && named(",v=40000.000000"));
        // Types, mask and permuted for each number of queries, mixed types, and one row that is longer; in two values. Then one of
        // each length and of each kind of logits.
        assert_eq!(constant.len(), 2 * (3 * 11 + 9 + 1) + 3 * (15 + 12));
    }

    #[test]
    fn every_combination_is_there_once() {
        let cases = cases();
        let count = |hsk, hsv| {
            let of = |case: &&FlashCase| [case.hsk, case.hsv] == [hsk, hsv];
            cases.iter().filter(of).count()
        };
        // Logits (6) times sizes (4 of keys and heads, 2 of sequences) times queries (4), and permuted ones.
        assert_eq!(count(40, 40), 6 * 4 * 2 * 4 + 2 * 2 * 2 * 4);
        assert_eq!(count(72, 72), 9 * (6 * 4 * 4 + 2 * 2 * 4) + 1);
        // With softcaps (12) and both precisions.
        assert_eq!(count(128, 128), 2 * (12 * 5 * 4 + 2 * 3 * 4) + 2);
        assert_eq!(count(576, 512), 6 * (5 + 4) * 4 + 2 * (3 + 2) * 4);
    }
}
