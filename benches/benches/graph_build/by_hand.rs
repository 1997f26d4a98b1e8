//! The same graph through ggml's own functions, as a C program would: a context sized in advance, nothing checked.

use std::ffi::CStr;
use std::ptr;

use ggml_sys as sys;

use super::{EPS, HEAD, HEADS, LAYERS, OPS, SCALE, TOKENS, WEIGHTS, WIDTH, values};

type Tensor = *mut sys::ggml_tensor;

/// A context, and the graph in it.
pub struct Built {
    context: *mut sys::ggml_context,
    graph: *mut sys::ggml_cgraph,
    inputs: Vec<Tensor>,
    output: Tensor,
}

impl Built {
    pub fn new() -> Self {
        let tensors = OPS + 1 + LAYERS * WEIGHTS.len();
        // SAFETY: the context has room for every tensor made and for the graph; each tensor is used while it is alive, in
        // shapes that fit, which the comparison with the safe API's graph confirms.
        unsafe {
            let context = sys::ggml_init(sys::ggml_init_params {
                mem_size: tensors * sys::ggml_tensor_overhead()
                    + sys::ggml_graph_overhead_custom(tensors, false),
                mem_buffer: ptr::null_mut(),
                no_alloc: true,
            });
            assert!(!context.is_null());
            let mut made = Self {
                context,
                graph: ptr::null_mut(),
                inputs: Vec::with_capacity(1 + LAYERS * WEIGHTS.len()),
                output: ptr::null_mut(),
            };
            let mut x = made.input(c"x", [WIDTH, TOKENS]);
            for _ in 0..LAYERS {
                x = made.layer(x);
            }
            made.output = sys::ggml_scale(context, x, 0.5);
            sys::ggml_set_name(made.output, c"y".as_ptr());
            sys::ggml_set_output(made.output);
            made.graph = sys::ggml_new_graph_custom(context, tensors, false);
            sys::ggml_build_forward_expand(made.graph, made.output);
            made
        }
    }

    pub fn nodes(&self) -> usize {
        // SAFETY: the graph is alive.
        unsafe { sys::ggml_graph_n_nodes(self.graph) as usize }
    }

    /// # Safety
    /// The context must have room.
    unsafe fn input(&mut self, name: &CStr, shape: [usize; 2]) -> Tensor {
        // SAFETY: the caller vouches for the room.
        unsafe {
            let [n0, n1] = shape.map(|n| n as i64);
            let tensor = sys::ggml_new_tensor_2d(self.context, sys::GGML_TYPE_F32, n0, n1);
            sys::ggml_set_name(tensor, name.as_ptr());
            sys::ggml_set_input(tensor);
            // An input keeps its values only where it is an output as well: the safe API does the same.
            sys::ggml_set_output(tensor);
            self.inputs.push(tensor);
            tensor
        }
    }

    /// # Safety
    /// The context must have room, and `x` must be [WIDTH, TOKENS].
    unsafe fn layer(&mut self, x: Tensor) -> Tensor {
        // SAFETY: the caller vouches for room and shape.
        unsafe {
            let c = self.context;
            let weights = WEIGHTS.map(|(name, shape)| self.input(name, shape));
            let heads = |projected, axes: [i32; 4]| {
                let [head, heads, tokens] = [HEAD, HEADS, TOKENS].map(|n| n as i64);
                let split = sys::ggml_reshape_3d(c, projected, head, heads, tokens);
                sys::ggml_permute(c, split, axes[0], axes[1], axes[2], axes[3])
            };
            let h = sys::ggml_mul(c, sys::ggml_rms_norm(c, x, EPS), weights[0]);
            let q = heads(sys::ggml_mul_mat(c, weights[1], h), [0, 2, 1, 3]);
            let k = heads(sys::ggml_mul_mat(c, weights[2], h), [0, 2, 1, 3]);
            let v = heads(sys::ggml_mul_mat(c, weights[3], h), [1, 2, 0, 3]);
            let scores = sys::ggml_mul_mat(c, k, q);
            let scores = sys::ggml_soft_max_ext(c, scores, ptr::null_mut(), SCALE, 0.0);
            let mixed = sys::ggml_mul_mat(c, sys::ggml_cont(c, v), scores);
            let mixed = sys::ggml_cont(c, sys::ggml_permute(c, mixed, 0, 2, 1, 3));
            let mixed = sys::ggml_reshape_2d(c, mixed, WIDTH as i64, TOKENS as i64);
            let x = sys::ggml_add(c, sys::ggml_mul_mat(c, weights[4], mixed), x);
            let h = sys::ggml_mul(c, sys::ggml_rms_norm(c, x, EPS), weights[5]);
            let gate = sys::ggml_mul_mat(c, weights[6], h);
            let up = sys::ggml_mul_mat(c, weights[7], h);
            let gated = sys::ggml_swiglu_split(c, gate, up);
            sys::ggml_add(c, sys::ggml_mul_mat(c, weights[8], gated), x)
        }
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        // SAFETY: the context is ours and freed once; it owns the tensors and the graph.
        unsafe { sys::ggml_free(self.context) };
    }
}

/// The graph with memory and values, on one thread of the CPU.
pub struct Ready {
    built: Built,
    backend: sys::ggml_backend_t,
    allocator: sys::ggml_gallocr_t,
}

impl Ready {
    pub fn new() -> Self {
        let built = Built::new();
        // SAFETY: the CPU was checked by the caller; handles are used while they are alive, and each input is set to as many
        // bytes as it has.
        unsafe {
            let backend =
                sys::ggml_backend_init_by_type(sys::GGML_BACKEND_DEVICE_TYPE_CPU, ptr::null());
            assert!(!backend.is_null());
            sys::ggml_backend_cpu_set_n_threads(backend, 1);
            let kind = sys::ggml_backend_get_default_buffer_type(backend);
            let allocator = sys::ggml_gallocr_new(kind);
            assert!(sys::ggml_gallocr_alloc_graph(allocator, built.graph));
            for (index, &input) in built.inputs.iter().enumerate() {
                let values = values(index, sys::ggml_nelements(input) as usize);
                let bytes = size_of_val(values.as_slice());
                sys::ggml_backend_tensor_set(input, values.as_ptr().cast(), 0, bytes);
            }
            Self {
                built,
                backend,
                allocator,
            }
        }
    }

    pub fn run(&mut self) -> Vec<f32> {
        let mut values = vec![0.0; WIDTH * TOKENS];
        // SAFETY: everything is alive and allocated, and the output has as many values.
        unsafe {
            let status = sys::ggml_backend_graph_compute(self.backend, self.built.graph);
            assert_eq!(status, sys::GGML_STATUS_SUCCESS);
            let bytes = size_of_val(values.as_slice());
            let output = self.built.output;
            sys::ggml_backend_tensor_get(output, values.as_mut_ptr().cast(), 0, bytes);
        }
        values
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // SAFETY: both are ours and freed once; the tensors in the buffer are not used any more.
        unsafe {
            sys::ggml_gallocr_free(self.allocator);
            sys::ggml_backend_free(self.backend);
        }
    }
}
