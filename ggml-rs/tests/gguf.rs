//! GGUF files: malformed ones are refused for what is wrong with them, whole ones survive the round trip, and ggml's own reader and writer
//! agree.

mod common;

#[path = "gguf/ggml.rs"]
mod ggml;
#[path = "gguf/limits.rs"]
mod limits;
#[path = "gguf/malformed.rs"]
mod malformed;
#[path = "gguf/memory.rs"]
mod memory;
#[path = "gguf/params.rs"]
mod params;
#[path = "gguf/raw.rs"]
mod raw;
#[path = "gguf/round_trip.rs"]
mod round_trip;
#[path = "gguf/sources.rs"]
mod sources;
#[path = "gguf/writing.rs"]
mod writing;
