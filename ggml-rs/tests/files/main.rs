//! Files: GGUF and safetensors.

#[path = "../common/mod.rs"]
mod common;

mod gguf;
mod safetensors;
