//! Images, windows and positions against formulas, on the CPU and on the simulated Metal device.

use ggml_rs::DType::{F16, F32};
use ggml_rs::{Device, Interpolation, Scale};

use crate::common::{Operand, assert_close, devices, run};

/// The weights of pixels along a dimension, for each pixel of the result.
fn weights(from: usize, to: usize, options: Interpolation) -> Vec<Vec<(usize, f64)>> {
    let (n, m) = (from as f64, to as f64);
    let aligned = options.align_corners && from > 1 && to > 1;
    let factor = if aligned {
        (m - 1.0) / (n - 1.0)
    } else {
        m / n
    };
    let offset = if options.align_corners { 0.0 } else { 0.5 };
    let clamp = |i: f64| i.clamp(0.0, n - 1.0) as usize;
    let one = |i: usize| -> Vec<(usize, f64)> {
        let at = (i as f64 + offset) / factor - offset;
        let cubic = |x: f64| {
            let (a, x) = (-0.75, x.abs());
            match x {
                x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
                x => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            }
        };
        match options.scale {
            Scale::Nearest => vec![(clamp((i as f64 / factor).floor()), 1.0)],
            Scale::Bilinear if options.antialias => {
                let reach = (1.0 / factor).max(1.0);
                let weight = |j: usize| (1.0 - (j as f64 - at).abs() / reach).max(0.0);
                let sum: f64 = (0..from).map(weight).sum();
                (0..from).map(|j| (j, weight(j) / sum)).collect()
            }
            Scale::Bilinear => {
                let (low, part) = (at.floor(), at - at.floor());
                vec![(clamp(low), 1.0 - part), (clamp(low + 1.0), part)]
            }
            Scale::Bicubic => {
                let low = at.floor();
                (-1..=2)
                    .map(|d| (clamp(low + f64::from(d)), cubic(at - low - f64::from(d))))
                    .collect()
            }
        }
    };
    (0..to).map(one).collect()
}

fn interpolated(a: &Operand, to: [usize; 4], options: Interpolation) -> Vec<f64> {
    let [w, h, c, n] = a.shape.ne();
    let (xs, ys) = (weights(w, to[0], options), weights(h, to[1], options));
    let repeated = |from, to| weights(from, to, Interpolation::new(Scale::Nearest));
    let (cs, ns) = (repeated(c, to[2]), repeated(n, to[3]));
    let mut out = Vec::new();
    for n in &ns {
        for plane in &cs {
            let plane = &a.values[(n[0].0 * c + plane[0].0) * w * h..][..w * h];
            for row in &ys {
                for column in &xs {
                    let sum = row.iter().flat_map(|&(y, wy)| {
                        column
                            .iter()
                            .map(move |&(x, wx)| f64::from(plane[y * w + x]) * wx * wy)
                    });
                    out.push(sum.sum());
                }
            }
        }
    }
    out
}

#[test]
fn images_change_their_size() {
    let new = Interpolation::new;
    for device in devices() {
        let a = Operand::new(F32, &[5, 4, 2, 3], 1);
        for to in [[9, 11, 2, 3], [3, 2, 2, 3], [5, 8, 4, 6], [1, 1, 2, 3]] {
            for options in [
                new(Scale::Nearest),
                new(Scale::Bilinear),
                new(Scale::Bilinear).align_corners(),
                new(Scale::Bilinear).antialias(),
                new(Scale::Bicubic),
                new(Scale::Bicubic).align_corners(),
            ] {
                let got = run(device, &[&a], |_, x| x[0].interpolate(to, options));
                let what = format!("{to:?} {options:?} on {}", device.name());
                assert_close(&got, &interpolated(&a, to, options), 1e-5, &what);
            }
            let got = run(device, &[&a], |_, x| x[0].upscale_ext(to, Scale::Bilinear));
            let expected = interpolated(&a, to, new(Scale::Bilinear));
            assert_close(&got, &expected, 1e-5, device.name());
        }
        let got = run(device, &[&a], |_, x| x[0].upscale(3, Scale::Nearest));
        let expected = interpolated(&a, [15, 12, 2, 3], new(Scale::Nearest));
        assert_close(&got, &expected, 0.0, device.name());
        // By strides: what is transposed before and after is the same.
        let got = run(device, &[&a], |_, x| {
            x[0].transpose()?
                .upscale(2, Scale::Bicubic)?
                .transpose()?
                .cont()
        });
        let expected = interpolated(&a, [10, 8, 2, 3], new(Scale::Bicubic));
        assert_close(&got, &expected, 1e-5, device.name());
    }
}

#[test]
fn windows_are_cut_and_put_together() {
    let [c, w, h, size] = [3, 7, 5, 4];
    let cpu = Device::cpu().unwrap();
    let a = Operand::new(F32, &[c, w, h], 1);
    let got = run(cpu, &[&a], |_, x| x[0].win_part(size));
    let mut expected = Vec::new();
    for window in 0..4 {
        for i in 0..size * size {
            let (x, y) = (window % 2 * size + i % size, window / 2 * size + i / size);
            let pixel = |k: usize| {
                if x < w && y < h {
                    a.values[(y * w + x) * c + k]
                } else {
                    0.0
                }
            };
            expected.extend((0..c).map(pixel));
        }
    }
    assert_eq!(got, expected);
    let got = run(cpu, &[&a], |_, x| x[0].win_part(size)?.win_unpart(w, h));
    assert_eq!(got, a.values);
}

#[test]
fn ranges_and_steps_are_placed() {
    for device in devices() {
        let zero = Operand::new(F32, &[1], 1);
        let got = run(device, &[&zero], |g, x| {
            g.arange(-1.5, 40.0, 0.7)?.add(x[0].scale(0.0)?)
        });
        let expected: Vec<f64> = (0..60).map(|i| -1.5 + 0.7 * f64::from(i)).collect();
        assert_close(&got, &expected, 1e-4, device.name());

        let mut steps = Operand::new(F32, &[3], 1);
        steps.values = vec![0.0, 1.0, 12.5];
        for dim in [1, 6, 7] {
            let got = run(device, &[&steps], |_, x| x[0].timestep_embedding(dim, 100));
            let half = dim / 2;
            let mut expected = Vec::new();
            for &t in &steps.values {
                let arg = |j: usize| f64::from(t) * 100_f64.powf(-(j as f64) / half as f64);
                expected.extend((0..half).map(|j| arg(j).cos()));
                expected.extend((0..half).map(|j| arg(j).sin()));
                expected.extend((dim % 2 == 1).then_some(0.0));
            }
            assert_close(
                &got,
                &expected,
                1e-4,
                &format!("{dim} on {}", device.name()),
            );
        }
    }
}

#[test]
fn relative_positions_are_those_of_pairs() {
    let cpu = Device::cpu().unwrap();
    let (c, n) = (3, 4);
    let a = Operand::new(F16, &[c, 2 * n - 1], 1);
    let got = run(cpu, &[&a], |_, x| x[0].get_rel_pos());
    let values = a.rounded();
    let pairs = (0..n).flat_map(|j| (0..n).map(move |i| (i, j)));
    let expected: Vec<f32> = pairs
        .flat_map(|(i, j)| values[(n - 1 - i + j) * c..][..c].to_vec())
        .collect();
    assert_eq!(got, expected);

    let [n, q1, q2, b] = [3, 4, 2, 5];
    let scores = Operand::new(F32, &[n * n, q1 * q2, b], 1);
    let (w, h) = (
        Operand::new(F32, &[n, q1, q2, b], 2),
        Operand::new(F32, &[n, q1, q2, b], 3),
    );
    let expected: Vec<f64> = scores
        .values
        .iter()
        .enumerate()
        .map(|(at, &score)| {
            let (row, i, j) = (at / (n * n), at % n, at / n % n);
            f64::from(score) + f64::from(w.values[row * n + i]) + f64::from(h.values[row * n + j])
        })
        .collect();
    let got = run(cpu, &[&scores, &w, &h], |_, x| x[0].add_rel_pos(x[1], x[2]));
    assert_close(&got, &expected, 1e-6, "add_rel_pos");
    // A copy first, so that a second placement starts from the same values.
    let got = run(cpu, &[&scores, &w, &h], |_, x| {
        x[0].scale(1.0)?.add_rel_pos_inplace(x[1], x[2])
    });
    assert_close(&got, &expected, 1e-6, "add_rel_pos_inplace");
}
