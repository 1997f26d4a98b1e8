//! The tensor API's flash attention on the simulated Metal device, against sums in f64. ggml-rs has no such op yet, so
//! this talks to ggml-sys. In a process of its own, because the tensor API is switched on by an environment
//! variable before the device exists. That `mul_mm`'s tensor variant runs and is right is asserted by the gate.
#![cfg(all(feature = "metal-sim", not(target_os = "macos")))]

use std::ffi::{CStr, c_char, c_void};

use ggml_rs::RegistryOptions;
use ggml_sys as sys;
use half::f16;

use crate::common;
use crate::common::child::in_a_child;

const HEAD: usize = 64;
const QUERIES: usize = 40; // not a multiple of the 32 that a threadgroup takes
const HEADS: usize = 64; // fewer, and ggml prefers the half8x8 kernel
const KEYS: usize = 128;
const KV_HEADS: usize = 32;
const SCALE: f32 = 0.125;

struct Attention {
    q: Vec<f32>,
    k: Vec<f16>,
    v: Vec<f16>,
    mask: Vec<f16>,
}

impl Attention {
    fn new() -> Self {
        let halves = |len, seed| -> Vec<f16> {
            let values = common::values(len, seed);
            values.into_iter().map(f16::from_f32).collect()
        };
        // Causal: query i sees the keys up to 88 + i, so whole blocks are masked for some.
        let visible = |i: usize| {
            if i % KEYS <= 88 + i / KEYS {
                0.0
            } else {
                f32::NEG_INFINITY
            }
        };
        Self {
            q: common::values(HEAD * QUERIES * HEADS, 1),
            k: halves(HEAD * KEYS * KV_HEADS, 2),
            v: halves(HEAD * KEYS * KV_HEADS, 3),
            mask: (0..KEYS * QUERIES)
                .map(|i| f16::from_f32(visible(i)))
                .collect(),
        }
    }

    /// One row of the result.
    fn row(&self, query: usize, head: usize) -> Vec<f64> {
        let kv = |key: usize| (head / (HEADS / KV_HEADS) * KEYS + key) * HEAD;
        let q = &self.q[(head * QUERIES + query) * HEAD..][..HEAD];
        let score = |key: usize| -> f64 {
            let k = &self.k[kv(key)..][..HEAD];
            let dot: f64 = q
                .iter()
                .zip(k)
                .map(|(q, k)| f64::from(*q) * k.to_f64())
                .sum();
            dot * f64::from(SCALE) + self.mask[query * KEYS + key].to_f64()
        };
        let weights: Vec<f64> = (0..KEYS).map(|key| score(key).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let value = |i: usize| -> f64 {
            let terms = weights
                .iter()
                .enumerate()
                .map(|(key, w)| w * self.v[kv(key) + i].to_f64());
            terms.sum::<f64>() / sum
        };
        (0..HEAD).map(value).collect()
    }

    fn expected(&self) -> Vec<f64> {
        let rows = (0..QUERIES).flat_map(|query| (0..HEADS).map(move |head| (query, head)));
        rows.flat_map(|(query, head)| self.row(query, head))
            .collect()
    }
}

fn bytes<T>(values: &[T]) -> (*const c_void, usize) {
    (values.as_ptr().cast(), size_of_val(values))
}

/// Looks up one of the Metal backend's own functions.
///
/// # Safety
/// `F` is the type of that function.
unsafe fn function<F: Copy>(device: sys::ggml_backend_dev_t, name: &CStr) -> F {
    // SAFETY: the device is registered; the caller vouches for the type of what is found.
    unsafe {
        let registry = sys::ggml_backend_dev_backend_reg(device);
        let found = sys::ggml_backend_reg_get_proc_address(registry, name.as_ptr());
        assert!(!found.is_null(), "{name:?}");
        std::mem::transmute_copy(&found)
    }
}

/// The result, and the pipelines that were dispatched.
///
/// # Safety
/// The registry is installed, and no other thread uses ggml.
unsafe fn compute(a: &Attention) -> (Vec<f32>, Vec<String>) {
    // SAFETY: every pointer comes from ggml a few lines above its use and is freed at the end; sizes are those of the
    // tensors; the names and types of the trace functions are those that our patch gives the Metal backend.
    unsafe {
        let device = sys::ggml_backend_dev_by_name(c"MTL0".as_ptr());
        let backend = sys::ggml_backend_dev_init(device, std::ptr::null());
        let ctx = sys::ggml_init(sys::ggml_init_params {
            mem_size: 16 * sys::ggml_tensor_overhead() + sys::ggml_graph_overhead(),
            mem_buffer: std::ptr::null_mut(),
            no_alloc: true,
        });
        assert!(!device.is_null() && !backend.is_null() && !ctx.is_null());
        let tensor = |kind, ne: [usize; 3]| {
            let [ne0, ne1, ne2] = ne.map(|n| n as i64);
            sys::ggml_new_tensor_4d(ctx, kind, ne0, ne1, ne2, 1)
        };
        let q = tensor(sys::GGML_TYPE_F32, [HEAD, QUERIES, HEADS]);
        let k = tensor(sys::GGML_TYPE_F16, [HEAD, KEYS, KV_HEADS]);
        let v = tensor(sys::GGML_TYPE_F16, [HEAD, KEYS, KV_HEADS]);
        let mask = tensor(sys::GGML_TYPE_F16, [KEYS, QUERIES, 1]);
        let out = sys::ggml_flash_attn_ext(ctx, q, k, v, mask, SCALE, 0.0, 0.0);
        assert!(sys::ggml_backend_dev_supports_op(device, out));
        let graph = sys::ggml_new_graph(ctx);
        sys::ggml_build_forward_expand(graph, out);
        let buffer = sys::ggml_backend_alloc_ctx_tensors(ctx, backend);
        assert!(!buffer.is_null());
        for (tensor, (data, size)) in [
            (q, bytes(&a.q)),
            (k, bytes(&a.k)),
            (v, bytes(&a.v)),
            (mask, bytes(&a.mask)),
        ] {
            sys::ggml_backend_tensor_set(tensor, data, 0, size);
        }

        function::<unsafe extern "C" fn()>(device, c"ggml_metal_trace_start")();
        let status = sys::ggml_backend_graph_compute(backend, graph);
        function::<unsafe extern "C" fn()>(device, c"ggml_metal_trace_stop")();
        assert_eq!(status, sys::GGML_STATUS_SUCCESS);

        type Get = unsafe extern "C" fn(usize, *mut c_char, usize, *mut usize) -> bool;
        let get = function::<Get>(device, c"ggml_metal_trace_get");
        let name = |index| {
            let mut name = [0; 256];
            let found = get(index, name.as_mut_ptr(), name.len(), &mut 0);
            found.then(|| CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        };
        let pipelines = (0..).map_while(name).collect();

        let mut result = vec![0.0f32; HEAD * HEADS * QUERIES];
        let size = size_of_val(&result[..]);
        sys::ggml_backend_tensor_get(out, result.as_mut_ptr().cast(), 0, size);
        sys::ggml_backend_buffer_free(buffer);
        sys::ggml_free(ctx);
        sys::ggml_backend_free(backend);
        (result, pipelines)
    }
}

#[test]
fn the_tensor_kernel_runs_and_is_right() {
    in_a_child(
        "tensor_flash_attention::the_tensor_kernel_runs_and_is_right",
        || {
            let mut options = RegistryOptions::default();
            options.tensor_api = Some(true);
            // SAFETY: this process has one test, and no other thread uses the environment.
            unsafe { options.install() }.unwrap();

            let attention = Attention::new();
            // SAFETY: installed above, and this is the only thread.
            let (got, pipelines) = unsafe { compute(&attention) };
            let ran =
                |p: &String| p.starts_with("kernel_flash_attn_ext_tensor_f16_dk64_dv64_mask=1");
            assert!(pipelines.iter().any(ran), "{pipelines:?}");

            let found = ggml_rs::check::compare(&attention.expected(), &got).unwrap();
            // Queries and probabilities are kept in half: its rounding, squared, and nothing more.
            assert!(found.within(1e-6), "{found:?}");
        },
    );
}
