//! Scaling of images, embeddings of time steps.

use ggml_sys as sys;

use super::call::{Call, Operand};
use super::memory::places;
use crate::error::Result;

/// How one dimension is scaled.
#[derive(Clone, Copy)]
struct Scale {
    inputs: usize,
    factor: f64,
    /// Where the middle of a pixel lies.
    middle: f64,
}

/// Pixels and their weights.
type Taps = Vec<(usize, f64)>;

impl Scale {
    fn new(inputs: usize, outputs: usize, align_corners: bool) -> Self {
        let ratio = |outputs: usize, inputs: usize| outputs as f64 / inputs as f64;
        let (factor, middle) = match align_corners {
            true if inputs > 1 && outputs > 1 => (ratio(outputs - 1, inputs - 1), 0.0),
            true => (ratio(outputs, inputs), 0.0),
            false => (ratio(outputs, inputs), 0.5),
        };
        Self {
            inputs,
            factor,
            middle,
        }
    }

    /// The place between the inputs' pixels that an output's pixel shows.
    fn place(&self, output: usize) -> f64 {
        (output as f64 + self.middle) / self.factor - self.middle
    }

    fn inside(&self, at: f64) -> usize {
        at.clamp(0.0, (self.inputs - 1) as f64) as usize
    }

    /// The quotient is rounded to f32 before its fraction is dropped: which pixel it is depends on that.
    fn nearest(&self, output: usize) -> Taps {
        vec![((output as f32 / self.factor as f32) as usize, 1.0)]
    }

    fn linear(&self, output: usize) -> Taps {
        let place = self.place(output);
        let first = self.inside(place.floor());
        let share = (place - first as f64).clamp(0.0, 1.0);
        let second = self.inside(place.floor() + 1.0);
        vec![(first, 1.0 - share), (second, share)]
    }

    /// Cubic convolution with the parameter -3/4, pixels at the edge repeated.
    fn cubic(&self, output: usize) -> Taps {
        const A: f64 = -0.75;
        let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
        let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
        let place = self.place(output);
        let (first, x) = (place.floor(), place - place.floor());
        let weights = [far(x + 1.0), near(x), near(1.0 - x), far(2.0 - x)];
        let taps = weights.into_iter().enumerate();
        taps.map(|(i, weight)| (self.inside(first + i as f64 - 1.0), weight))
            .collect()
    }

    /// A triangle over every pixel that an output's pixel covers.
    fn triangle(&self, output: usize) -> Taps {
        let reach = (1.0 / self.factor).max(1.0);
        let place = self.place(output);
        let weight = |input: usize| 1.0 - ((input as f64 - place) / reach).abs();
        let taps = (0..self.inputs).map(|input| (input, weight(input)));
        taps.filter(|&(_, weight)| weight > 0.0).collect()
    }
}

/// UPSCALE: parameter 0 holds the mode and flags.
pub fn upscale(call: &Call<'_>) -> Result<Vec<f64>> {
    let (a, ne, params) = (call.src(0)?, call.ne(), call.int(0) as sys::ggml_scale_mode);
    let flag = |flag| params & flag != 0;
    let corners = flag(sys::GGML_SCALE_FLAG_ALIGN_CORNERS);
    let taps: fn(&Scale, usize) -> Taps = match params & 0xff {
        sys::GGML_SCALE_MODE_BICUBIC => Scale::cubic,
        sys::GGML_SCALE_MODE_BILINEAR if flag(sys::GGML_SCALE_FLAG_ANTIALIAS) => Scale::triangle,
        sys::GGML_SCALE_MODE_BILINEAR => Scale::linear,
        _ => Scale::nearest,
    };
    let along = |d: usize, taps: fn(&Scale, usize) -> Taps, corners: bool| -> Vec<Taps> {
        let scale = Scale::new(a.ne[d], ne[d], corners);
        (0..ne[d]).map(|output| taps(&scale, output)).collect()
    };
    // Channels and batch are only ever repeated.
    let (x, y) = (along(0, taps, corners), along(1, taps, corners));
    let (z, batch) = (
        along(2, Scale::nearest, false),
        along(3, Scale::nearest, false),
    );
    let value =
        |[i0, i1, i2, i3]: [usize; 4]| weighted(&a, &x[i0], &y[i1], [z[i2][0].0, batch[i3][0].0]);
    Ok(places(ne).map(value).collect())
}

/// The mean of pixels of one channel.
fn weighted(a: &Operand<'_>, x: &Taps, y: &Taps, [i2, i3]: [usize; 2]) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for &(i1, y_weight) in y {
        for &(i0, x_weight) in x {
            sum += a.at([i0, i1, i2, i3]) * x_weight * y_weight;
            weights += x_weight * y_weight;
        }
    }
    sum / weights
}

/// TIMESTEP_EMBEDDING: cosines, then sines, of the time step at frequencies from 1 down; an odd length ends with 0.
pub fn timestep_embedding(call: &Call<'_>) -> Result<Vec<f64>> {
    let (steps, ne) = (call.src(0)?, call.ne());
    let (half, period) = (call.int(0) as usize / 2, call.int(1) as f64);
    let angle =
        |step: usize, i: usize| steps.values[step] * (-period.ln() * i as f64 / half as f64).exp();
    let value = |[i, step, ..]: [usize; 4]| match i {
        i if i < half => angle(step, i).cos(),
        i if i < 2 * half => angle(step, i - half).sin(),
        _ => 0.0,
    };
    Ok(places(ne).map(value).collect())
}
