//! Norms, softmax, losses and rotary positions, against formulas in f64.

use std::f64::consts::PI;

use ggml_rs::DType::{self, F16, F32};
use ggml_rs::graph::{Rope, RopeMode, SoftMax};
use ggml_rs::{Result, Tensor};

use crate::common;
use crate::common::forward::{Case, Given, index, places};

type Op = for<'g> fn(Tensor<'g>) -> Result<Tensor<'g>>;

const EPS: f32 = 1e-3;
const NE: [usize; 4] = [12, 5, 3, 2];

fn random(dims: &[usize], seed: u64, range: f32) -> Given {
    Given::random(F32, dims, seed, range)
}

/// Applies a function of rows to contiguous values.
fn by_rows(values: &[f64], row: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    values.chunks(row).flat_map(f).collect()
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn squares(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}

fn scaled(x: &[f64], factor: f64) -> Vec<f64> {
    x.iter().map(|x| x * factor).collect()
}

fn norm(x: &[f64]) -> Vec<f64> {
    let mean = mean(x);
    let centered: Vec<_> = x.iter().map(|x| x - mean).collect();
    let variance = squares(&centered) / x.len() as f64;
    scaled(&centered, 1.0 / (variance + f64::from(EPS)).sqrt())
}

fn rms_norm(x: &[f64]) -> Vec<f64> {
    scaled(
        x,
        1.0 / (squares(x) / x.len() as f64 + f64::from(EPS)).sqrt(),
    )
}

fn l2_norm(x: &[f64]) -> Vec<f64> {
    scaled(x, 1.0 / squares(x).sqrt().max(f64::from(EPS)))
}

fn soft_max(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<_> = x.iter().map(|x| (x - max).exp()).collect();
    scaled(&powers, 1.0 / powers.iter().sum::<f64>())
}

#[test]
fn rows_are_normalized() {
    type Row = fn(&[f64]) -> Vec<f64>;
    let ops: [(&str, Op, Op, Row); 4] = [
        ("norm", |a| a.norm(EPS), |a| a.norm_inplace(EPS), norm),
        (
            "rms_norm",
            |a| a.rms_norm(EPS),
            |a| a.rms_norm_inplace(EPS),
            rms_norm,
        ),
        (
            "l2_norm",
            |a| a.l2_norm(EPS),
            |a| a.l2_norm_inplace(EPS),
            l2_norm,
        ),
        (
            "soft_max",
            |a| a.soft_max(),
            |a| a.soft_max_inplace(),
            soft_max,
        ),
    ];
    for (name, op, over, row) in ops {
        // Rows of whole vectors of four, and others; longer than a simdgroup, and shorter.
        for ne in [NE, [7, 5, 3, 2], [131, 2, 1, 1], [1, 4, 1, 1]] {
            let given = || vec![random(&ne, 1, 3.0)];
            let case = |name: String| Case {
                name: format!("{name} {ne:?}"),
                expected: by_rows(&given()[0].values(), ne[0], row),
                given: given(),
                tolerance: 4e-6,
                metal: true,
            };
            case(name.to_owned()).check(|x| op(x[0]));
            case(format!("{name}_inplace")).check(|x| over(x[0]));
        }
    }
}

/// The window of rows of 7 in rows of 12, with gaps between its rows.
fn window(a: Tensor<'_>) -> Result<Tensor<'_>> {
    let [nb0, nb1, nb2, nb3] = a.strides();
    a.view([7, 5, 3, 2], [nb1, nb2, nb3], 4 * nb0)
}

#[test]
fn rows_with_gaps_are_normalized() {
    type Row = fn(&[f64]) -> Vec<f64>;
    let ops: [(&str, Op, Row); 3] = [
        ("norm", |a| a.norm(EPS), norm),
        ("rms_norm", |a| a.rms_norm(EPS), rms_norm),
        ("l2_norm", |a| a.l2_norm(EPS), l2_norm),
    ];
    for (name, op, row) in ops {
        let given = random(&NE, 1, 3.0);
        Case {
            name: name.to_owned(),
            expected: by_rows(&given.values(), 12, |x| row(&x[4..11])),
            given: vec![given],
            tolerance: 4e-6,
            metal: true,
        }
        .check(|x| op(window(x[0])?));
    }
}

#[test]
fn columns_are_normalized_where_kernels_read_them() {
    let given = || random(&[4, 6], 1, 3.0);
    let values = given().values();
    let columns: Vec<f64> = places([6, 4, 1, 1])
        .map(|i| values[i[1] + 4 * i[0]])
        .collect();
    let ops: [(&str, Op, Vec<f64>); 2] = [
        ("norm", |a| a.norm(EPS), by_rows(&columns, 6, norm)),
        ("l2_norm", |a| a.l2_norm(EPS), by_rows(&columns, 6, l2_norm)),
    ];
    for (name, op, expected) in ops {
        Case {
            name: format!("{name} of a transposed matrix"),
            given: vec![given()],
            expected,
            tolerance: 4e-6,
            metal: false,
        }
        .check(|x| op(x[0].transpose()?));
    }
}

#[test]
fn groups_of_channels_are_normalized() {
    for (ne, groups) in [([4, 3, 6, 1], 3), ([4, 3, 6, 1], 1), ([4, 3, 6, 2], 2)] {
        let given = || vec![random(&ne, 1, 3.0)];
        let group = ne[0] * ne[1] * ne[2] / groups;
        let case = |name: &str| Case {
            name: format!("{name} {ne:?} in {groups}"),
            expected: by_rows(&given()[0].values(), group, norm),
            given: given(),
            tolerance: 4e-6,
            // The kernel would leave the second batch out.
            metal: ne[3] == 1,
        };
        case("group_norm").check(|x| x[0].group_norm(groups, EPS));
        case("group_norm_inplace").check(|x| x[0].group_norm_inplace(groups, EPS));
    }
}

#[test]
fn the_gradient_of_rms_norm() {
    let given = || vec![random(&NE, 1, 1.0), random(&NE, 2, 2.0)];
    let (gradient, x) = (given()[0].values(), given()[1].values());
    let rows = gradient.chunks(12).zip(x.chunks(12)).flat_map(|(g, x)| {
        let (n, eps) = (x.len() as f64, f64::from(EPS));
        let dot: f64 = g.iter().zip(x).map(|(g, x)| g * x).sum();
        let mean = squares(x) / n + eps;
        let one = move |(g, x): (&f64, &f64)| (g - x * dot / (n * mean)) / mean.sqrt();
        g.iter().zip(x).map(one)
    });
    Case {
        name: "rms_norm_back".to_owned(),
        expected: rows.collect(),
        given: given(),
        tolerance: 4e-6,
        metal: false,
    }
    .check(|x| x[0].rms_norm_back(x[1], EPS));
}

/// ALiBi's slopes, by ggml's definition.
fn slope(head: usize, heads: usize, max_bias: f64) -> f64 {
    if max_bias == 0.0 {
        return 1.0;
    }
    let power = 1 << heads.ilog2();
    let base = |bias: f64| 2f64.powf(-bias / f64::from(power));
    match head.checked_sub(power as usize) {
        None => base(max_bias).powi(head as i32 + 1),
        Some(beyond) => base(max_bias / 2.0).powi(2 * beyond as i32 + 1),
    }
}

#[test]
fn masks_slopes_and_sinks() {
    let (scale, ne) = (0.7f32, NE);
    for mask_ne in [
        None,
        Some([12, 5, 1, 1]),
        Some([12, 8, 3, 1]),
        Some([12, 5, 1, 2]),
    ] {
        for mask_type in [F32, F16] {
            for (max_bias, sinks) in [(0.0f32, false), (0.0, true), (8.0, false), (8.0, true)] {
                if mask_ne.is_none() && (max_bias > 0.0 || mask_type == F16) {
                    continue;
                }
                check_soft_max(ne, scale, mask_type, mask_ne, max_bias, sinks);
            }
        }
    }
}

fn check_soft_max(
    ne: [usize; 4],
    scale: f32,
    mask_type: DType,
    mask_ne: Option<[usize; 4]>,
    max_bias: f32,
    sinks: bool,
) {
    let mut given = vec![random(&ne, 1, 3.0)];
    given.extend(mask_ne.map(|mask_ne| Given::random(mask_type, &mask_ne, 2, 2.0)));
    if sinks {
        given.push(random(&[ne[2]], 3, 2.0));
    }
    let values: Vec<_> = given.iter().map(Given::values).collect();
    let mut expected = Vec::new();
    for (row, x) in values[0].chunks(ne[0]).enumerate() {
        let (i1, i2, i3) = (row % ne[1], row / ne[1] % ne[2], row / ne[1] / ne[2]);
        let slope = slope(i2, ne[2], max_bias.into());
        let masked = |i: usize| match mask_ne {
            None => 0.0,
            Some(m) => slope * values[1][index(m, [i, i1, i2 % m[2], i3 % m[3]])],
        };
        let mut row: Vec<_> = (0..ne[0])
            .map(|i| x[i] * f64::from(scale) + masked(i))
            .collect();
        row.extend(sinks.then(|| values[values.len() - 1][i2]));
        expected.extend(&soft_max(&row)[..ne[0]]);
    }
    let case = |name: &str, given| Case {
        name: format!("{name} mask {mask_ne:?} {mask_type}, bias {max_bias}, sinks {sinks}"),
        given,
        expected: expected.clone(),
        tolerance: 4e-6,
        metal: true,
    };
    fn options<'g>(x: &[Tensor<'g>], mask: bool, sinks: bool, max_bias: f32) -> SoftMax<'g> {
        SoftMax {
            mask: mask.then(|| x[1]),
            sinks: sinks.then(|| x[x.len() - 1]),
            scale: 0.7,
            max_bias,
        }
    }
    let mask = mask_ne.is_some();
    let again = |given: &[Given]| {
        let same = |given: &Given| match &given.data {
            common::forward::Data::Float(dtype, values) => {
                Given::float(*dtype, &given.dims, values.clone())
            }
            common::forward::Data::I32(values) => Given::i32(&given.dims, values.clone()),
        };
        given.iter().map(same).collect::<Vec<_>>()
    };
    case("soft_max_ext", again(&given))
        .check(|x| x[0].soft_max_ext(options(x, mask, sinks, max_bias)));
    case("soft_max_ext_inplace", given)
        .check(|x| x[0].soft_max_ext_inplace(options(x, mask, sinks, max_bias)));
}

#[test]
fn the_gradient_of_soft_max() {
    let given = || {
        let y = by_rows(&random(&NE, 2, 2.0).values(), 12, soft_max);
        let y = y.into_iter().map(|x| x as f32).collect();
        vec![random(&NE, 1, 1.0), Given::float(F32, &NE, y)]
    };
    let (gradient, y) = (given()[0].values(), given()[1].values());
    let rows = gradient.chunks(12).zip(y.chunks(12)).flat_map(|(g, y)| {
        let dot: f64 = g.iter().zip(y).map(|(g, y)| g * y).sum();
        g.iter().zip(y).map(move |(g, y)| 0.5 * (g - dot) * y)
    });
    let expected: Vec<_> = rows.collect();
    let case = |name: &str| Case {
        name: name.to_owned(),
        given: given(),
        expected: expected.clone(),
        tolerance: 1e-6,
        metal: false,
    };
    case("soft_max_ext_back").check(|x| x[0].soft_max_ext_back(x[1], 0.5));
    case("soft_max_ext_back_inplace").check(|x| x[0].soft_max_ext_back_inplace(x[1], 0.5));
}

#[test]
fn cross_entropy_and_its_gradient() {
    let given = || {
        let labels = by_rows(&random(&NE, 2, 2.0).values(), 12, soft_max);
        let labels = labels.into_iter().map(|x| x as f32).collect();
        vec![
            random(&NE, 1, 3.0),
            Given::float(F32, &NE, labels),
            Given::float(F32, &[1], vec![0.75]),
        ]
    };
    let (logits, labels) = (given()[0].values(), given()[1].values());
    let shares = by_rows(&logits, 12, soft_max);
    let rows = logits.len() as f64 / 12.0;
    let pairs = || shares.iter().zip(&labels);
    let loss = -pairs().map(|(p, label)| label * p.ln()).sum::<f64>() / rows;
    let case = |name: &str, expected| Case {
        name: name.to_owned(),
        given: given(),
        expected,
        tolerance: 1e-5,
        metal: false,
    };
    case("cross_entropy_loss", vec![loss]).check(|x| x[0].cross_entropy_loss(x[1]));
    let gradient = pairs()
        .map(|(p, label)| 0.75 * (p - label) / rows)
        .collect();
    case("cross_entropy_loss_back", gradient).check(|x| x[2].cross_entropy_loss_back(x[0], x[1]));
}

/// A row of 16, 3 heads, 4 tokens, 2 batches.
const ROPE_NE: [usize; 4] = [16, 3, 4, 2];

/// Which pairs of a row are turned, and by what.
struct Turn {
    mode: RopeMode,
    dims: usize,
    offset: usize,
    freq_scale: f64,
    ext_factor: f64,
    factors: Option<Vec<f64>>,
}

impl Turn {
    fn sections(&self) -> Option<[usize; 4]> {
        match self.mode {
            RopeMode::Mrope(s) | RopeMode::Imrope(s) | RopeMode::Vision(s) => Some(s),
            _ => None,
        }
    }

    /// The two elements of pair `i`.
    fn pair(&self, i: usize) -> (usize, usize) {
        match self.mode {
            RopeMode::Normal => (self.offset + 2 * i, self.offset + 2 * i + 1),
            RopeMode::Vision(_) => (i, i + self.dims),
            _ => (self.offset + i, self.offset + i + self.dims / 2),
        }
    }

    fn pairs(&self) -> usize {
        match self.mode {
            RopeMode::Vision(_) => self.dims,
            _ => self.dims / 2,
        }
    }

    /// Which of the positions turns pair `i`, and the exponent of its frequency.
    fn position(&self, i: usize) -> (usize, usize) {
        let Some(sections) = self.sections() else {
            return (0, i);
        };
        let sector = i % sections.iter().sum::<usize>();
        let mut start = 0;
        let mut section = 3;
        for (s, &len) in sections.iter().enumerate() {
            if (start..start + len).contains(&sector) {
                section = s;
                break;
            }
            start += len;
        }
        match self.mode {
            RopeMode::Vision(_) => (section, sector - start),
            RopeMode::Imrope(_) => {
                let taking_turns = sector < 3 * sections[sector % 3];
                (if taking_turns { sector % 3 } else { 3 }, i)
            }
            _ => (section, i),
        }
    }

    /// Cosine and sine for pair `i` at a position, with what YaRN does to both.
    fn turn(&self, i: usize, exponent: usize, position: f64) -> (f64, f64) {
        let dims = self.dims as f64;
        let factor = self.factors.as_ref().map_or(1.0, |factors| factors[i]);
        let full = position * 10_000f64.powf(-2.0 * exponent as f64 / dims) / factor;
        let scaled = full * self.freq_scale;
        if self.ext_factor == 0.0 {
            return (scaled.cos(), scaled.sin());
        }
        let turns = |beta: f64| dims * (64.0 / (beta * 2.0 * PI)).ln() / (2.0 * 10_000f64.ln());
        let (low, high) = (
            turns(32.0).floor().max(0.0),
            turns(1.0).ceil().min(dims - 1.0),
        );
        let ramp = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        let mix = ramp * self.ext_factor;
        let angle = scaled * (1.0 - mix) + full * mix;
        let length = 1.0 + 0.1 * (1.0 / self.freq_scale).ln();
        (angle.cos() * length, angle.sin() * length)
    }

    fn apply(&self, values: &[f64], positions: &[i32], back: bool) -> Vec<f64> {
        let mut out = values.to_vec();
        let tokens = ROPE_NE[2];
        for (row, out) in out.chunks_mut(ROPE_NE[0]).enumerate() {
            let token = row / ROPE_NE[1] % tokens;
            for i in 0..self.pairs() {
                let (which, exponent) = self.position(i);
                let position = f64::from(positions[which * tokens + token]);
                let (cos, sin) = self.turn(i, exponent, position);
                let sin = if back { -sin } else { sin };
                let (a, b) = self.pair(i);
                let (x, y) = (out[a], out[b]);
                (out[a], out[b]) = (x * cos - y * sin, x * sin + y * cos);
            }
        }
        out
    }

    fn options<'g>(&self, x: &[Tensor<'g>]) -> Rope<'g> {
        Rope {
            mode: self.mode,
            dims: Some(self.dims),
            offset: self.offset,
            freq_scale: self.freq_scale as f32,
            ext_factor: self.ext_factor as f32,
            n_ctx_orig: 64,
            freq_factors: self.factors.as_ref().map(|_| x[2]),
            ..Rope::default()
        }
    }
}

fn turns() -> Vec<Turn> {
    let plain = |mode, dims, offset| Turn {
        mode,
        dims,
        offset,
        freq_scale: 1.0,
        ext_factor: 0.0,
        factors: None,
    };
    let factors = Some((0..8).map(|i| 1.0 + f64::from(i) / 8.0).collect::<Vec<_>>());
    let sections = [3, 2, 2, 1];
    vec![
        plain(RopeMode::Normal, 16, 0),
        plain(RopeMode::Neox, 16, 0),
        plain(RopeMode::Normal, 8, 0),
        plain(RopeMode::Neox, 8, 4),
        plain(RopeMode::Normal, 8, 8),
        plain(RopeMode::Mrope(sections), 16, 0),
        plain(RopeMode::Mrope([2, 1, 1, 0]), 16, 0),
        plain(RopeMode::Imrope([3, 3, 2, 0]), 16, 0),
        plain(RopeMode::Vision([4, 4, 0, 0]), 8, 0),
        Turn {
            factors: factors.clone(),
            ..plain(RopeMode::Neox, 16, 0)
        },
        Turn {
            freq_scale: 0.25,
            ..plain(RopeMode::Normal, 16, 0)
        },
        Turn {
            freq_scale: 0.25,
            ext_factor: 1.0,
            factors,
            ..plain(RopeMode::Normal, 16, 0)
        },
    ]
}

#[test]
fn pairs_are_turned_by_their_positions() {
    for turn in turns() {
        for dtype in [F32, F16] {
            check_rope(&turn, dtype);
        }
    }
}

fn check_rope(turn: &Turn, dtype: DType) {
    let count = if turn.sections().is_some() { 16 } else { 4 };
    let positions: Vec<i32> = (0..count).map(|i| (i * 7 + 3) % 23).collect();
    let given = || {
        let mut given = vec![
            Given::random(dtype, &ROPE_NE, 1, 1.0),
            Given::i32(&[count as usize], positions.clone()),
        ];
        given.extend(turn.factors.as_ref().map(|factors| {
            let factors: Vec<_> = factors.iter().map(|&x| x as f32).collect();
            Given::float(F32, &[factors.len()], factors)
        }));
        given
    };
    let values = given()[0].values();
    let case = |name: &str, back| Case {
        name: format!(
            "{name} {:?} of {dtype}, {} from {}, scale {}, ext {}",
            turn.mode, turn.dims, turn.offset, turn.freq_scale, turn.ext_factor
        ),
        given: given(),
        expected: turn.apply(&values, &positions, back),
        tolerance: if dtype == F16 { 2e-3 } else { 2e-5 },
        metal: true,
    };
    case("rope", false).check(|x| x[0].rope(x[1], turn.options(x)));
    case("rope_inplace", false).check(|x| x[0].rope_inplace(x[1], turn.options(x)));
    case("rope_back", true).check(|x| x[0].rope_back(x[1], turn.options(x)));
}
