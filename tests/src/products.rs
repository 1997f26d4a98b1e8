//! What a product of the CPU must keep whatever way it is cut up: every bit with any number of threads, and each infinity, NaN
//! and zero in its place.
//!
//! Operands hold small whole numbers, so that sums are exact: a result is right or wrong, and no tolerance hides a lane.

use anyhow::{Context, Result, ensure};
use ggml_rs::DType::{self, BF16, F16, F32, Q8_0};
use ggml_rs::{Device, Graph, Plan, PlanOptions};

/// m, n, k on both sides of panels of every level (8, 16 and 32; 4, 6 and 12), of blocks of k (384), of rows packed at a time
/// (256) and of tiles (1024 and 4096). The last three are large enough for a MUL_MAT to be packed at any level.
const SHAPES: [[usize; 3]; 23] = [
    [1, 1, 1],
    [1, 13, 40],
    [7, 5, 384],
    [8, 4, 385],
    [9, 6, 383],
    [15, 7, 768],
    [16, 11, 769],
    [17, 12, 33],
    [31, 13, 5],
    [32, 24, 384],
    [33, 25, 385],
    [47, 23, 1153],
    [3, 200, 77],
    [12, 257, 400],
    [64, 1, 500],
    [255, 19, 17],
    [257, 37, 390],
    [288, 1023, 3],
    [40, 1025, 9],
    [4097, 13, 2],
    [257, 257, 129],
    [97, 677, 385],
    [513, 129, 65],
];

const THREADS: [usize; 5] = [1, 2, 3, 5, 8];

/// How the operands lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Both as OUT_PROD takes them.
    Plain,
    /// `b` transposed.
    TransposedB,
    /// `b` with NaN between its rows.
    GapsInB,
    /// MUL_MAT, whose operands lie along k.
    MulMat,
}

const LAYOUTS: [Layout; 4] = [
    Layout::Plain,
    Layout::TransposedB,
    Layout::GapsInB,
    Layout::MulMat,
];

const GAP: usize = 3;

/// A matrix by row and step.
struct Matrix {
    rows: usize,
    steps: usize,
    values: Vec<f32>,
}

impl Matrix {
    fn new(rows: usize, steps: usize, factor: usize) -> Self {
        let value = |i: usize| ((i * factor) % 7) as f32 - 3.0;
        Self {
            rows,
            steps,
            values: (0..rows * steps).map(value).collect(),
        }
    }

    fn set(&mut self, row: usize, step: usize, value: f32) {
        self.values[row * self.steps + step] = value;
    }

    fn at(&self, row: usize, step: usize) -> f32 {
        self.values[row * self.steps + step]
    }

    /// Step after step, with gaps behind each.
    fn along_rows(&self, gap: usize) -> Vec<f32> {
        let step = |step| {
            let rows = (0..self.rows).map(move |row| self.at(row, step));
            rows.chain(std::iter::repeat_n(f32::NAN, gap))
        };
        (0..self.steps).flat_map(step).collect()
    }
}

/// Two matrices with values that are not finite: in the first and last rows, where a lane too many would take or leave them.
fn operands([m, n, k]: [usize; 3], finite: bool) -> [Matrix; 2] {
    let (mut a, mut b) = (Matrix::new(m, k, 3), Matrix::new(n, k, 5));
    if !finite {
        a.set(m - 1, k / 2, f32::INFINITY);
        b.set(n - 1, k - 1, f32::NEG_INFINITY);
        a.set(0, k - 1, 0.0);
        b.set(0, k / 2, 0.0);
        if m > 2 {
            a.set(m / 2, 0, f32::NAN);
        }
    }
    [a, b]
}

/// In the order of the result. Sums of NaN and infinities are the same in every order.
fn expected(a: &Matrix, b: &Matrix) -> Vec<f64> {
    let element = |i: usize, j: usize| -> f64 {
        let terms = (0..a.steps).map(|k| f64::from(a.at(i, k)) * f64::from(b.at(j, k)));
        terms.sum()
    };
    (0..b.rows)
        .flat_map(|j| (0..a.rows).map(move |i| (i, j)))
        .map(|(i, j)| element(i, j))
        .collect()
}

/// The product with so many threads.
fn product(
    layout: Layout,
    types: [DType; 2],
    [a, b]: &[Matrix; 2],
    threads: usize,
) -> Result<Vec<f32>> {
    let (m, n, k) = (a.rows, b.rows, a.steps);
    let gap = if layout == Layout::GapsInB { GAP } else { 0 };
    let along_k = |matrix: &Matrix| matrix.values.clone();
    let (a_data, a_ne) = match layout {
        Layout::MulMat => (along_k(a), [k, m]),
        _ => (a.along_rows(0), [m, k]),
    };
    let (b_data, b_ne) = match layout {
        Layout::TransposedB | Layout::MulMat => (along_k(b), [k, n]),
        _ => (b.along_rows(gap), [n + gap, k]),
    };
    let (graph, (a_in, b_in, out)) = Graph::build(|g| {
        let (a, a_in) = g.input("a", types[0], a_ne)?;
        let (b, b_in) = g.input("b", types[1], b_ne)?;
        let out = match layout {
            Layout::Plain => a.out_prod(b)?,
            Layout::TransposedB => a.out_prod(b.transpose()?)?,
            Layout::GapsInB => {
                let [_, nb1, nb2, nb3] = b.strides();
                a.out_prod(b.view([n, k, 1, 1], [nb1, nb2, nb3], 0)?)?
            }
            Layout::MulMat => a.mul_mat(b)?,
        };
        Ok((a_in, b_in, g.output("out", out)?))
    })?;
    let mut backend = Device::cpu()?.open()?;
    backend.set_threads(threads)?;
    let mut plan = Plan::new(graph, &backend, PlanOptions::default())?;
    plan.set_f32(&a_in, &a_data)?;
    plan.set_f32(&b_in, &b_data)?;
    plan.run(&mut backend)?;
    Ok(plan.read_f32(&out)?)
}

/// Every element is what it must be: to the bit, or a NaN, or that infinity.
fn every_element(layout: Layout, types: [DType; 2], shape: [usize; 3], finite: bool) -> Result<()> {
    let operands = operands(shape, finite);
    let expected = expected(&operands[0], &operands[1]);
    for threads in [1, 3] {
        let found = product(layout, types, &operands, threads)?;
        let wrong = (0..found.len()).find(|&i| {
            let (wanted, found) = (expected[i] as f32, found[i]);
            wanted != found && !(wanted.is_nan() && found.is_nan())
        });
        if let Some(i) = wrong {
            let [m, ..] = shape;
            anyhow::bail!(
                "{layout:?} {types:?} {shape:?} with {threads} threads: [{}, {}] is {} and not {}",
                i % m,
                i / m,
                found[i],
                expected[i]
            );
        }
    }
    Ok(())
}

/// The same bits with every number of threads. The values are rounded here, so that another order of additions shows.
fn every_bit(layout: Layout, types: [DType; 2], shape: [usize; 3]) -> Result<()> {
    let mut operands = operands(shape, true);
    for matrix in &mut operands {
        for value in &mut matrix.values {
            *value /= 3.0;
        }
    }
    let bits = |threads| -> Result<Vec<u32>> {
        let found = product(layout, types, &operands, threads)?;
        Ok(found.into_iter().map(f32::to_bits).collect())
    };
    let one = bits(THREADS[0])?;
    for threads in &THREADS[1..] {
        ensure!(
            bits(*threads)? == one,
            "{layout:?} {types:?} {shape:?}: {threads} threads give other bits than one"
        );
    }
    Ok(())
}

/// Checks the products of the CPU at the level that this process computes at.
///
/// # Errors
/// Names the first product that is wrong.
pub fn check() -> Result<()> {
    for shape in SHAPES {
        for layout in LAYOUTS {
            let context = || format!("{layout:?} {shape:?}");
            for finite in [true, false] {
                every_element(layout, [F32, F32], shape, finite).with_context(context)?;
            }
            every_bit(layout, [F32, F32], shape).with_context(context)?;
            if layout != Layout::MulMat {
                every_element(layout, [BF16, F16], shape, false).with_context(context)?;
                every_bit(layout, [F16, BF16], shape).with_context(context)?;
            }
        }
    }
    for shape in [[32, 13, 40], [288, 25, 385], [4128, 7, 3]] {
        for layout in [Layout::Plain, Layout::TransposedB, Layout::GapsInB] {
            every_bit(layout, [Q8_0, F32], shape)?;
        }
    }
    Ok(())
}
