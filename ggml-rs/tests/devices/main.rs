//! What devices are and say: found, named, traced, and what they do without. What holds from before there are devices (the
//! tensor API, a backend library, kernels that are withheld) is set in a child process (`common::child`).

#[path = "../common/mod.rs"]
mod common;

mod backend_lib;
mod mul_mat_fallback;
mod out_prod_without_kernel;
mod simulated_metal;
mod tensor_api;
mod tensor_flash_attention;
