//! Runs single ggml calls on the CPU backend and on the reference, from the same values.
//!
//! It calls ggml directly: the reference also defines ops that only a backward pass makes.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Mutex;

use ggml_sys as sys;

use super::super::machine::Machine;
use crate::check::{compare, nmse};
use crate::dtype::DType;
use crate::graph::Context;
use crate::layout::Layout;
use crate::quantize::{dequantize, quantize};
use crate::{Backend, Device, Shape};

pub type Raw = *mut sys::ggml_tensor;

/// Which ops, and which functions of those that have several, were part of a comparison that held.
static COMPARED: Mutex<BTreeSet<(sys::ggml_op, i32)>> = Mutex::new(BTreeSet::new());

pub fn compared() -> BTreeSet<(sys::ggml_op, i32)> {
    COMPARED.lock().unwrap().clone()
}

/// Tensors under construction and the values of those that are inputs.
pub struct Bench {
    context: Context,
    inputs: Vec<(Raw, Vec<u8>)>,
    seed: u64,
}

/// SplitMix64.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Bench {
    pub fn new(seed: u64) -> Self {
        crate::runtime::ready().unwrap();
        // SAFETY: functions of their arguments alone.
        let bytes = unsafe {
            256 * sys::ggml_tensor_overhead() + sys::ggml_graph_overhead_custom(256, false)
        };
        Self {
            context: Context::new(bytes).unwrap(),
            inputs: Vec::new(),
            seed,
        }
    }

    pub fn ctx(&self) -> *mut sys::ggml_context {
        self.context.as_ptr()
    }

    fn tensor(&mut self, dtype: DType, dims: &[usize], bytes: Vec<u8>) -> Raw {
        let ne = Shape::new(dims).unwrap().ne().map(|n| n as i64);
        // SAFETY: the context has room, and `ne` four entries.
        let tensor = unsafe { sys::ggml_new_tensor(self.ctx(), dtype.raw(), 4, ne.as_ptr()) };
        self.inputs.push((tensor, bytes));
        tensor
    }

    fn uniform(&mut self, count: usize, low: f32, high: f32) -> Vec<f32> {
        let unit = |seed: &mut u64| (next(seed) >> 40) as f32 / (1 << 24) as f32;
        (0..count)
            .map(|_| low + (high - low) * unit(&mut self.seed))
            .collect()
    }

    /// F32 values in a range.
    pub fn within(&mut self, dims: &[usize], low: f32, high: f32) -> Raw {
        let values = self.uniform(dims.iter().product(), low, high);
        self.given(dims, &values)
    }

    /// F32 values around zero.
    pub fn values(&mut self, dims: &[usize]) -> Raw {
        self.within(dims, -2.0, 2.0)
    }

    /// These F32 values.
    pub fn given(&mut self, dims: &[usize], values: &[f32]) -> Raw {
        self.tensor(DType::F32, dims, bytemuck::cast_slice(values).to_vec())
    }

    /// Values of another type.
    pub fn typed(&mut self, dtype: DType, dims: &[usize]) -> Raw {
        let values = self.uniform(dims.iter().product(), -1.0, 1.0);
        let bytes = quantize(dtype, &values, dims[0]).unwrap();
        self.tensor(dtype, dims, bytes)
    }

    /// Values of a type, each what `change` makes of its number and a value around zero.
    pub fn typed_by(
        &mut self,
        dtype: DType,
        dims: &[usize],
        change: impl Fn(usize, f32) -> f32,
    ) -> Raw {
        let values = self.uniform(dims.iter().product(), -1.0, 1.0);
        let values: Vec<f32> = (values.into_iter().enumerate())
            .map(|(i, value)| change(i, value))
            .collect();
        let bytes = quantize(dtype, &values, dims[0]).unwrap();
        self.tensor(dtype, dims, bytes)
    }

    /// Integers.
    pub fn ids(&mut self, dims: &[usize], values: &[i32]) -> Raw {
        self.tensor(DType::I32, dims, bytemuck::cast_slice(values).to_vec())
    }

    /// Integers below a number.
    pub fn ids_below(&mut self, dims: &[usize], limit: u64) -> Raw {
        let values: Vec<i32> = (0..dims.iter().product::<usize>())
            .map(|_| (next(&mut self.seed) % limit) as i32)
            .collect();
        self.ids(dims, &values)
    }

    /// Every tensor in the order of creation.
    fn tensors(&self) -> Vec<NonNull<sys::ggml_tensor>> {
        // SAFETY: the context is alive and holds tensors only.
        let first = unsafe { sys::ggml_get_first_tensor(self.ctx()) };
        let following = |tensor: &NonNull<sys::ggml_tensor>| {
            // SAFETY: as above.
            NonNull::new(unsafe { sys::ggml_get_next_tensor(self.ctx(), tensor.as_ptr()) })
        };
        std::iter::successors(NonNull::new(first), following).collect()
    }

    fn record(&self) {
        let mut compared = COMPARED.lock().unwrap();
        for tensor in self.tensors() {
            // SAFETY: the context keeps its tensors alive.
            let tensor = unsafe { tensor.as_ref() };
            let functions = [sys::GGML_OP_UNARY, sys::GGML_OP_GLU];
            let several = functions.contains(&tensor.op);
            compared.insert((tensor.op, if several { tensor.op_params[0] } else { 0 }));
        }
    }

    /// What ggml's CPU backend makes of some tensors.
    fn on_cpu(&self, wanted: &[Raw]) -> Vec<Vec<f32>> {
        let mut backend = Backend::new(Device::cpu().unwrap()).unwrap();
        // SAFETY: the context's tensors are not allocated yet; the buffer is freed after the last use.
        unsafe {
            let kind = backend.device().buffer_type();
            let buffer = sys::ggml_backend_alloc_ctx_tensors_from_buft(self.ctx(), kind);
            assert!(!buffer.is_null());
            sys::ggml_backend_buffer_clear(buffer, 0xff);
            for (tensor, bytes) in &self.inputs {
                sys::ggml_backend_tensor_set(*tensor, bytes.as_ptr().cast(), 0, bytes.len());
            }
            let graph = sys::ggml_new_graph_custom(self.ctx(), 256, false);
            for &tensor in wanted {
                sys::ggml_build_forward_expand(graph, tensor);
            }
            backend
                .compute(NonNull::new(graph).unwrap(), None, None)
                .unwrap();
            let read = wanted.iter().map(|&tensor| read(tensor)).collect();
            sys::ggml_backend_buffer_free(buffer);
            read
        }
    }

    /// What the reference makes of them.
    fn by_reference(&self, wanted: &[Raw]) -> Vec<Vec<f64>> {
        // SAFETY: the context keeps its tensors alive.
        let mut machine = unsafe { Machine::new(&self.tensors()) }.unwrap();
        for (tensor, bytes) in &self.inputs {
            let tensor = NonNull::new(*tensor).unwrap();
            // SAFETY: as above.
            let dtype = unsafe { Layout::of(tensor.as_ptr()) }.unwrap().dtype;
            machine.set(tensor, &widened(dtype, bytes)).unwrap();
        }
        machine.run(None).unwrap();
        let read = |&tensor: &Raw| machine.read(NonNull::new(tensor).unwrap()).unwrap();
        wanted.iter().map(read).collect()
    }
}

fn widened(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    if dtype == DType::I32 {
        return bytemuck::cast_slice(bytes)
            .iter()
            .map(|&id: &i32| id.into())
            .collect();
    }
    dequantize(dtype, bytes)
        .unwrap()
        .into_iter()
        .map(f64::from)
        .collect()
}

/// # Safety
/// The tensor must be alive and allocated.
unsafe fn read(tensor: Raw) -> Vec<f32> {
    // SAFETY: the caller vouches for the tensor.
    let layout = unsafe { Layout::of(tensor) }.unwrap();
    assert!(layout.is_contiguous(), "cont() what is compared");
    let mut bytes = vec![0; layout.extent().unwrap()];
    // SAFETY: as above; the tensor has this many bytes.
    unsafe { sys::ggml_backend_tensor_get(tensor, bytes.as_mut_ptr().cast(), 0, bytes.len()) };
    match layout.dtype {
        DType::I32 => bytemuck::cast_slice(&bytes)
            .iter()
            .map(|&id: &i32| id as f32)
            .collect(),
        DType::I64 => bytemuck::pod_collect_to_vec::<u8, i64>(&bytes)
            .into_iter()
            .map(|number| number as f32)
            .collect(),
        dtype => dequantize(dtype, &bytes).unwrap(),
    }
}

/// Compares several tensors: each within `limit` of the reference, as a relative root mean square.
pub fn check_all(what: &str, limit: f64, build: impl Fn(&mut Bench) -> Vec<Raw>) {
    check_as(what, limit, |values| values, build);
}

/// Compares one tensor of integers, the order of which within rows of `len` is not defined.
pub fn check_sets(what: &str, len: usize, build: impl Fn(&mut Bench) -> Raw) {
    let sorted = |mut values: Vec<f64>| {
        let rows = values.chunks_mut(len);
        rows.for_each(|row| row.sort_by(f64::total_cmp));
        values
    };
    check_as(what, 0.0, sorted, |bench| vec![build(bench)]);
}

/// Compares what `view` makes of the values.
fn check_as(
    what: &str,
    limit: f64,
    view: impl Fn(Vec<f64>) -> Vec<f64>,
    build: impl Fn(&mut Bench) -> Vec<Raw>,
) {
    for seed in 1..=3 {
        let mut bench = Bench::new(seed);
        let wanted = build(&mut bench);
        let reference = bench.by_reference(&wanted).into_iter().map(&view);
        let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect();
        let results = bench
            .on_cpu(&wanted)
            .into_iter()
            .map(|values| view(wide(values)));
        for (reference, result) in reference.zip(results) {
            let result: Vec<f32> = result.into_iter().map(|value| value as f32).collect();
            let (reference, result) = (&reference, &result);
            let found = compare(reference, result).unwrap();
            let error = nmse(reference, result).sqrt();
            assert!(
                found.mismatch.is_none() && (error <= limit || all_infinite(reference)),
                "{what}, seed {seed}: error {error:e} beyond {limit:e}; {found:?}"
            );
        }
        bench.record();
    }
}

fn all_infinite(values: &[f64]) -> bool {
    values.iter().all(|value| value.is_infinite())
}

/// Rounding of f32, over chains of a few operations and sums of up to some hundred terms.
pub const F32: f64 = 2e-6;

/// Compares one tensor within [`F32`].
pub fn check(what: &str, build: impl Fn(&mut Bench) -> Raw) {
    check_all(what, F32, |bench| vec![build(bench)]);
}
