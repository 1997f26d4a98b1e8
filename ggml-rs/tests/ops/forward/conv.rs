//! Convolutions and pooling against plain loops in f64, on the CPU and on the simulated Metal device.

use ggml_rs::DType::{self, BF16, F16, F32};
use ggml_rs::{Conv1d, Conv2d, Conv3d, Device, Error, Pool, Pool1d, Pool2d};

use crate::common::{Operand, PLACEMENTS, assert_close, devices, run, run_on};

/// A convolution in up to three dimensions: kernel [k.., c, oc] and image [w.., c, n].
struct Case {
    kernel: [usize; 3],
    image: [usize; 3],
    channels: usize,
    outputs: usize,
    batch: usize,
    options: Conv3d,
}

impl Case {
    fn size(&self) -> [usize; 3] {
        let of = |i: usize| {
            let Conv3d {
                stride,
                padding,
                dilation,
                ..
            } = self.options;
            (self.image[i] + 2 * padding[i] - dilation[i] * (self.kernel[i] - 1) - 1) / stride[i]
                + 1
        };
        [of(0), of(1), of(2)]
    }

    /// `out[.., o, n] = sum over kernel and channels`; `depthwise`: channel o alone, of a kernel with one.
    fn expected(&self, kernel: &[f32], image: &[f32], depthwise: bool) -> Vec<f64> {
        let [w, h, d] = self.size();
        let mut out = Vec::new();
        for n in 0..self.batch {
            for o in 0..self.outputs {
                for (z, y, x) in places([w, h, d]) {
                    out.push(self.one(kernel, image, depthwise, [x, y, z, o, n]));
                }
            }
        }
        out
    }

    fn one(
        &self,
        kernel: &[f32],
        image: &[f32],
        depthwise: bool,
        [x, y, z, o, n]: [usize; 5],
    ) -> f64 {
        let Conv3d {
            stride,
            padding,
            dilation,
            ..
        } = self.options;
        let ([kw, kh, kd], [w, h, d]) = (self.kernel, self.image);
        let mut sum = 0.0;
        let inputs = if depthwise {
            o..o + 1
        } else {
            0..self.channels
        };
        for c in inputs {
            let plane = if depthwise { o } else { o * self.channels + c };
            for (k, j, i) in places(self.kernel) {
                let at = |dim: usize, out: usize, k: usize| {
                    (out * stride[dim] + k * dilation[dim]).checked_sub(padding[dim])
                };
                let (Some(ix), Some(iy), Some(iz)) = (at(0, x, i), at(1, y, j), at(2, z, k)) else {
                    continue;
                };
                if ix < w && iy < h && iz < d {
                    let weight = kernel[((plane * kd + k) * kh + j) * kw + i];
                    let value = image[(((n * self.channels + c) * d + iz) * h + iy) * w + ix];
                    sum += f64::from(weight) * f64::from(value);
                }
            }
        }
        sum
    }
}

/// Depth, height and width.
fn places([w, h, d]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..d).flat_map(move |z| (0..h).flat_map(move |y| (0..w).map(move |x| (z, y, x))))
}

/// How exact a product of a kernel of this type is, of some hundred values below 1. Metal stages factors as f16.
fn tolerance(device: Device, kernel: DType) -> f64 {
    if kernel == F32 && device.name() == "CPU" {
        1e-5
    } else {
        2e-2
    }
}

const KERNELS: [DType; 3] = [F32, F16, BF16];

#[test]
fn signals_are_convolved() {
    let options = [
        Conv1d::default(),
        Conv1d::default().stride([2]).padding([2]).dilation([2]),
    ];
    for device in devices() {
        for dtype in KERNELS {
            for options in options {
                for batch in [1, 3] {
                    let [stride, padding, dilation] =
                        [options.stride, options.padding, options.dilation].map(|[x]| x);
                    let case = Case {
                        kernel: [3, 1, 1],
                        image: [11, 1, 1],
                        channels: 4,
                        outputs: 5,
                        batch,
                        options: Conv3d::default()
                            .stride([stride, 1, 1])
                            .padding([padding, 0, 0])
                            .dilation([dilation, 1, 1]),
                    };
                    let (kernel, signal) = (
                        Operand::new(dtype, &[3, 4, 5], 1),
                        Operand::new(F32, &[11, 4, batch], 2),
                    );
                    let got = run(device, &[&kernel, &signal], |_, x| {
                        x[0].conv_1d(x[1], options)
                    });
                    let expected = case.expected(&kernel.rounded(), &signal.values, false);
                    let what = format!("{dtype} {options:?} of {batch} on {}", device.name());
                    assert_close(&got, &expected, tolerance(device, dtype), &what);
                }
            }
        }
        let (kernel, signal) = (
            Operand::new(F32, &[3, 1, 4], 1),
            Operand::new(F32, &[11, 4], 2),
        );
        let got = run(device, &[&kernel, &signal], |_, x| {
            x[0].conv_1d_dw_ph(x[1], 1, 1)
        });
        let case = Case {
            kernel: [3, 1, 1],
            image: [11, 1, 1],
            channels: 4,
            outputs: 4,
            batch: 1,
            options: Conv3d::default().padding([1, 0, 0]),
        };
        let expected = case.expected(&kernel.values, &signal.values, true);
        assert_close(&got, &expected, tolerance(device, F32), device.name());
        let got = run(device, &[&kernel, &signal], |_, x| {
            let kernel = x[0].reshape([3, 4, 1])?;
            kernel.conv_1d_ph(x[1], 1, 1)
        });
        let case = Case { outputs: 1, ..case };
        let expected = case.expected(&kernel.values, &signal.values, false);
        assert_close(&got, &expected, tolerance(device, F32), device.name());
    }
}

#[test]
fn images_are_convolved_by_every_op() {
    let options = [
        Conv2d::default(),
        Conv2d::default()
            .stride([2, 1])
            .padding([1, 2])
            .dilation([1, 2]),
    ];
    for device in devices() {
        for dtype in KERNELS {
            for options in options {
                for batch in [1, 2] {
                    check_image(device, dtype, options, batch);
                }
            }
        }
    }
}

fn check_image(device: Device, dtype: DType, options: Conv2d, batch: usize) {
    let Conv2d {
        stride,
        padding,
        dilation,
        ..
    } = options;
    let case = Case {
        kernel: [3, 2, 1],
        image: [9, 7, 1],
        channels: 4,
        outputs: 5,
        batch,
        options: Conv3d::default()
            .stride([stride[0], stride[1], 1])
            .padding([padding[0], padding[1], 0])
            .dilation([dilation[0], dilation[1], 1]),
    };
    let what = format!("{dtype} {options:?} of {batch} on {}", device.name());
    let tolerance = tolerance(device, dtype);
    let (kernel, image) = (
        Operand::new(dtype, &[3, 2, 4, 5], 1),
        Operand::new(F32, &[9, 7, 4, batch], 2),
    );
    let expected = case.expected(&kernel.rounded(), &image.values, false);
    let got = run(device, &[&kernel, &image], |_, x| {
        x[0].conv_2d(x[1], options)
    });
    assert_close(&got, &expected, tolerance, &what);
    if dtype != BF16 {
        let got = run(device, &[&kernel, &image], |_, x| {
            x[0].conv_2d_direct(x[1], options)
        });
        assert_close(&got, &expected, tolerance, &format!("direct {what}"));
    }

    let case = Case { outputs: 4, ..case };
    let kernel = Operand::new(dtype, &[3, 2, 1, 4], 3);
    let expected = case.expected(&kernel.rounded(), &image.values, true);
    let got = run(device, &[&kernel, &image], |_, x| {
        x[0].conv_2d_dw(x[1], options)
    });
    assert_close(&got, &expected, tolerance, &format!("depthwise {what}"));
    if dtype != BF16 {
        let got = run(device, &[&kernel, &image], |_, x| {
            x[0].conv_2d_dw_direct(x[1], options)
        });
        assert_close(
            &got,
            &expected,
            tolerance,
            &format!("direct depthwise {what}"),
        );
        // The same with channels next to each other.
        let got = run(device, &[&kernel, &image], |_, x| {
            let kernel = x[0].permute([2, 3, 0, 1])?.cont()?.permute([2, 3, 0, 1])?;
            let image = x[1].permute([1, 2, 0, 3])?.cont()?.permute([2, 0, 1, 3])?;
            kernel.conv_2d_dw_direct(image, options)?.cont()
        });
        assert_close(&got, &expected, tolerance, &format!("by channel {what}"));
    }
}

/// The CPU multiplies patches in the work buffer, with a product that is as large here as those that MUL_MAT packs there.
#[test]
fn patches_survive_their_product() {
    let case = Case {
        kernel: [3, 3, 1],
        image: [9, 7, 1],
        channels: 5,
        outputs: 20,
        batch: 2,
        options: Conv3d::default(),
    };
    for device in devices() {
        for dtype in [F32, F16] {
            let kernel = Operand::new(dtype, &[3, 3, 5, 20], 1);
            let image = Operand::new(F32, &[9, 7, 5, 2], 2);
            let expected = case.expected(&kernel.rounded(), &image.values, false);
            let what = format!("{dtype} on {}", device.name());
            let flat = run(device, &[&kernel, &image], |_, x| {
                x[0].conv_2d_direct(x[1], Conv2d::default())
            });
            assert_close(&flat, &expected, tolerance(device, dtype), &what);
            let deep = run(device, &[&kernel, &image], |_, x| {
                let (kernel, image) = (x[0].reshape([3, 3, 1, 100])?, x[1].reshape([9, 7, 1, 10])?);
                kernel.conv_3d_direct(image, 5, case.options)
            });
            assert_close(&deep, &expected, tolerance(device, dtype), &what);
        }
    }
}

#[test]
fn a_float_convolution_does_not_overflow_half() {
    let (kernel, mut image) = (
        Operand::new(F32, &[2, 2, 1, 1], 1),
        Operand::new(F32, &[4, 4, 1], 2),
    );
    image.values.iter_mut().for_each(|x| *x *= 1e6);
    let got = run(Device::cpu().unwrap(), &[&kernel, &image], |_, x| {
        x[0].conv_2d(x[1], Conv2d::default())
    });
    assert!(got.iter().all(|y| y.is_finite()), "{got:?}");
}

#[test]
fn images_are_cut_into_tiles_or_keep_their_size() {
    for device in devices() {
        let (kernel, image) = (
            Operand::new(F32, &[3, 3, 2, 2], 1),
            Operand::new(F32, &[9, 6, 2], 2),
        );
        let case = Case {
            kernel: [3, 3, 1],
            image: [9, 6, 1],
            channels: 2,
            outputs: 2,
            batch: 1,
            options: Conv3d::default().stride([3, 3, 1]),
        };
        let got = run(device, &[&kernel, &image], |_, x| x[0].conv_2d_sk_p0(x[1]));
        let expected = case.expected(&kernel.values, &image.values, false);
        assert_close(&got, &expected, tolerance(device, F32), device.name());
        let case = Case {
            options: Conv3d::default().padding([1, 1, 0]),
            ..case
        };
        let got = run(device, &[&kernel, &image], |_, x| x[0].conv_2d_s1_ph(x[1]));
        let expected = case.expected(&kernel.values, &image.values, false);
        assert_close(&got, &expected, tolerance(device, F32), device.name());
    }
}

#[test]
fn volumes_are_convolved() {
    let options = Conv3d::default()
        .stride([1, 2, 1])
        .padding([1, 0, 1])
        .dilation([1, 1, 2]);
    for device in devices() {
        for dtype in KERNELS {
            let case = Case {
                kernel: [3, 2, 2],
                image: [5, 6, 4],
                channels: 3,
                outputs: 2,
                batch: 2,
                options,
            };
            let (kernel, image) = (
                Operand::new(dtype, &[3, 2, 2, 6], 1),
                Operand::new(F32, &[5, 6, 4, 6], 2),
            );
            let expected = case.expected(&kernel.rounded(), &image.values, false);
            let what = format!("{dtype} on {}", device.name());
            // Metal cuts no volumes into patches.
            if device.name() == "CPU" {
                let got = run(device, &[&kernel, &image], |_, x| {
                    x[0].conv_3d(x[1], 3, options)
                });
                assert_close(&got, &expected, tolerance(device, dtype), &what);
            }
            if dtype != BF16 {
                let got = run(device, &[&kernel, &image], |_, x| {
                    x[0].conv_3d_direct(x[1], 3, options)
                });
                assert_close(
                    &got,
                    &expected,
                    tolerance(device, dtype),
                    &format!("direct {what}"),
                );
            }
        }
    }
}

/// The gradient of patches is the transposed map: `<im2col(x), y> = <x, im2col_back(y)>`.
#[test]
fn gradients_of_patches_are_the_transposed_map() {
    let device = Device::cpu().unwrap();
    let options = Conv2d::default()
        .stride([2, 1])
        .padding([1, 2])
        .dilation([1, 2]);
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(&a, &b)| f64::from(a) * f64::from(b))
            .sum()
    };
    let (kernel, image) = (
        Operand::new(F32, &[3, 2, 4, 5], 1),
        Operand::new(F32, &[9, 7, 4, 2], 2),
    );
    let patches = run(device, &[&kernel, &image], |_, x| {
        x[0].im2col(x[1], options, F32)
    });
    let y = Operand::new(F32, &[24, 5, 9, 2], 3);
    assert_eq!(patches.len(), y.values.len());
    let back = run(device, &[&y, &kernel], |_, x| {
        x[0].im2col_back(x[1], [9, 7, 4, 2], options)
    });
    let (left, right) = (dot(&patches, &y.values), dot(&image.values, &back));
    assert!(
        (left - right).abs() < 1e-4 && left.abs() > 1e-2,
        "{left} and {right}"
    );

    let options = Conv1d::default().stride([2]).padding([1]).dilation([2]);
    let (kernel, signal) = (
        Operand::new(F16, &[3, 4, 5], 1),
        Operand::new(F32, &[11, 4, 2], 2),
    );
    let patches = run(device, &[&kernel, &signal], |_, x| {
        x[0].im2col_1d(x[1], options, F32)
    });
    let y = Operand::new(F32, &[12, 5, 2], 3);
    assert_eq!(patches.len(), y.values.len());
    let back = run(device, &[&y, &kernel], |_, x| {
        x[0].im2col_1d_back(x[1], [11, 4, 2], options)
    });
    let (left, right) = (dot(&patches, &y.values), dot(&signal.values, &back));
    assert!(
        (left - right).abs() < 1e-4 && left.abs() > 1e-2,
        "{left} and {right}"
    );
}

#[test]
fn columns_add_up_to_a_signal() {
    for device in devices() {
        for dtype in KERNELS {
            for (stride, padding) in [(2, 0), (3, 1), (5, 2)] {
                let (k, channels, t) = (4, 3, 6);
                let a = Operand::new(dtype, &[k * channels, t], 1);
                let got = run(device, &[&a], |_, x| {
                    x[0].col2im_1d(stride, channels, padding)
                });
                let length = (t - 1) * stride + k - 2 * padding;
                let mut expected = vec![0.0; length * channels];
                let values = a.rounded();
                for (i, &value) in values.iter().enumerate() {
                    let (s, c, j) = (i / (k * channels), i / k % channels, i % k);
                    if let Some(at) = (s * stride + j)
                        .checked_sub(padding)
                        .filter(|&at| at < length)
                    {
                        expected[c * length + at] += f64::from(value);
                    }
                }
                let tolerance = if dtype == F32 { 1e-6 } else { 2e-2 };
                assert_close(
                    &got,
                    &expected,
                    tolerance,
                    &format!("{dtype} {stride} on {}", device.name()),
                );
            }
        }
    }
}

#[test]
fn transposed_convolutions_add_up_kernels() {
    for device in devices() {
        for dtype in [F32, F16] {
            for stride in [1, 2, 4] {
                let what = format!("{dtype} {stride} on {}", device.name());
                let tolerance = if dtype == F32 { 1e-5 } else { 5e-3 };
                let (k, oc, c, l) = (3, 2, 4, 5);
                let (kernel, b) = (
                    Operand::new(dtype, &[k, oc, c], 1),
                    Operand::new(F32, &[l, c], 2),
                );
                let length = (l - 1) * stride + k;
                let mut expected = vec![0.0; length * oc];
                let weights = kernel.rounded();
                for (i, &w) in weights.iter().enumerate() {
                    let (j, o, c) = (i % k, i / k % oc, i / (k * oc));
                    for s in 0..l {
                        expected[o * length + s * stride + j] +=
                            f64::from(w) * f64::from(b.values[c * l + s]);
                    }
                }
                let got = run(device, &[&kernel, &b], |_, x| {
                    x[0].conv_transpose_1d(x[1], stride)
                });
                assert_close(&got, &expected, tolerance, &what);
                check_transposed_2d(device, dtype, stride, tolerance);
            }
        }
    }
}

fn check_transposed_2d(device: Device, dtype: DType, stride: usize, tolerance: f64) {
    let ([kw, kh, oc, c], [w, h, n]) = ([3, 2, 2, 4], [5, 4, 2]);
    let (kernel, b) = (
        Operand::new(dtype, &[kw, kh, oc, c], 1),
        Operand::new(F32, &[w, h, c, n], 2),
    );
    let (ow, oh) = ((w - 1) * stride + kw, (h - 1) * stride + kh);
    let mut expected = vec![0.0; ow * oh * oc * n];
    for (i, &weight) in kernel.rounded().iter().enumerate() {
        let (x, y, o, ic) = (i % kw, i / kw % kh, i / (kw * kh) % oc, i / (kw * kh * oc));
        for batch in 0..n {
            for (_, sy, sx) in places([w, h, 1]) {
                let value = b.values[((batch * c + ic) * h + sy) * w + sx];
                let at = ((batch * oc + o) * oh + sy * stride + y) * ow + sx * stride + x;
                expected[at] += f64::from(weight) * f64::from(value);
            }
        }
    }
    let got = run(device, &[&kernel, &b], |_, x| {
        x[0].conv_transpose_2d_p0(x[1], stride)
    });
    assert_close(
        &got,
        &expected,
        tolerance,
        &format!("{dtype} {stride} on {}", device.name()),
    );
}

/// The elements of the window `out` along a dimension.
fn window(
    out: usize,
    size: usize,
    stride: usize,
    padding: usize,
    n: usize,
) -> impl Iterator<Item = usize> + Clone {
    (0..size).filter_map(move |k| (out * stride + k).checked_sub(padding).filter(|&i| i < n))
}

#[test]
fn windows_are_pooled() {
    let [w, h] = [9, 7];
    for device in devices() {
        for pool in [Pool::Max, Pool::Average] {
            for (size, stride, padding) in [([3, 2], [3, 2], [0, 0]), ([3, 2], [1, 2], [2, 1])] {
                let a = Operand::new(F32, &[w, h, 2, 3], 1);
                let options = Pool2d::new(pool, size).stride(stride).padding(padding);
                let got = run(device, &[&a], |_, x| x[0].pool_2d(options));
                let outputs =
                    |dim: usize, n: usize| (n + 2 * padding[dim] - size[dim]) / stride[dim] + 1;
                let mut expected = Vec::new();
                for plane in a.values.chunks(w * h) {
                    for (_, y, x) in places([outputs(0, w), outputs(1, h), 1]) {
                        let xs = window(x, size[0], stride[0], padding[0], w);
                        let values = window(y, size[1], stride[1], padding[1], h)
                            .flat_map(|y| xs.clone().map(move |x| f64::from(plane[y * w + x])));
                        expected.push(match pool {
                            Pool::Max => values.fold(f64::NEG_INFINITY, f64::max),
                            Pool::Average => values.sum::<f64>() / (size[0] * size[1]) as f64,
                        });
                    }
                }
                assert_close(
                    &got,
                    &expected,
                    1e-6,
                    &format!("{options:?} on {}", device.name()),
                );
                check_pool_1d(device, pool, size[0], stride[0], padding[0]);
            }
        }
    }
}

fn check_pool_1d(device: Device, pool: Pool, size: usize, stride: usize, padding: usize) {
    let n = 11;
    let a = Operand::new(F32, &[n, 3], 1);
    let options = Pool1d::new(pool, [size])
        .stride([stride])
        .padding([padding]);
    let got = run(device, &[&a], |_, x| x[0].pool_1d(options));
    let outputs = (n + 2 * padding - size) / stride + 1;
    let mut expected = Vec::new();
    for row in a.values.chunks(n) {
        for x in 0..outputs {
            let values: Vec<f64> = window(x, size, stride, padding, n)
                .map(|i| f64::from(row[i]))
                .collect();
            expected.push(match pool {
                Pool::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                Pool::Average => values.iter().sum::<f64>() / values.len() as f64,
            });
        }
    }
    assert_close(
        &got,
        &expected,
        1e-6,
        &format!("{options:?} on {}", device.name()),
    );
}

#[test]
fn gradients_of_pools_go_where_values_came_from() {
    let device = Device::cpu().unwrap();
    let [w, h] = [7, 6];
    for pool in [Pool::Max, Pool::Average] {
        for (size, stride, padding) in [([2, 3], [2, 3], [0, 0]), ([3, 2], [1, 2], [1, 1])] {
            let image = Operand::new(F32, &[w, h, 2], 1);
            let options = Pool2d::new(pool, size).stride(stride).padding(padding);
            let outputs =
                |dim: usize, n: usize| (n + 2 * padding[dim] - size[dim]) / stride[dim] + 1;
            let (ow, oh) = (outputs(0, w), outputs(1, h));
            let a = Operand::new(F32, &[ow, oh, 2], 2);
            let mut expected = vec![0.0; w * h * 2];
            for (i, &gradient) in a.values.iter().enumerate() {
                let (x, y, plane) = (i % ow, i / ow % oh, i / (ow * oh));
                let xs = window(x, size[0], stride[0], padding[0], w);
                let places: Vec<usize> = window(y, size[1], stride[1], padding[1], h)
                    .flat_map(|y| xs.clone().map(move |x| (plane * h + y) * w + x))
                    .collect();
                let largest = places
                    .iter()
                    .copied()
                    .max_by(|&a, &b| image.values[a].total_cmp(&image.values[b]));
                match pool {
                    Pool::Max => expected[largest.unwrap()] += f64::from(gradient),
                    Pool::Average => {
                        for place in places {
                            expected[place] += f64::from(gradient) / (size[0] * size[1]) as f64;
                        }
                    }
                }
            }
            let got = run(device, &[&a, &image], |_, x| {
                x[0].pool_2d_back(x[1], options)
            });
            assert_close(&got, &expected, 1e-5, &format!("{options:?}"));
        }
    }
}

#[test]
fn a_device_refuses_layouts_that_its_kernel_ignores() {
    let (kernel, image) = (
        Operand::new(F32, &[3, 3, 4, 2], 1),
        Operand::new(F32, &[8, 8, 4], 2),
    );
    let pool = Pool2d::new(Pool::Max, [2, 2]);
    for device in devices() {
        let outcome = run_on(device, &[&image], PLACEMENTS[0], |_, x| {
            x[0].transpose()?.pool_2d(pool)
        });
        assert!(
            matches!(outcome, Err(Error::Unsupported(_))),
            "on {}",
            device.name()
        );
        let outcome = run_on(device, &[&kernel, &image], PLACEMENTS[0], |_, x| {
            x[0].im2col(x[1].transpose()?, Conv2d::default(), F32)
        });
        assert!(
            matches!(outcome, Err(Error::Unsupported(_))),
            "on {}",
            device.name()
        );
    }
}

#[test]
fn maxima_keep_nan_and_infinities() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let mut a = Operand::new(F32, &[2, 8], 1);
    // A window of 2 x 2 for each line.
    a.values = vec![
        -inf, -inf, -inf, -inf, //
        nan, 1.0, 2.0, 3.0, //
        1.0, 2.0, nan, 3.0, //
        inf, 1.0, -inf, 3.0,
    ];
    for device in devices() {
        let got = run(device, &[&a], |_, x| {
            x[0].pool_2d(Pool2d::new(Pool::Max, [2, 2]))
        });
        assert!(
            got[0] == -inf && got[1].is_nan() && got[2].is_nan() && got[3] == inf,
            "{got:?} on {}",
            device.name()
        );
    }
}
