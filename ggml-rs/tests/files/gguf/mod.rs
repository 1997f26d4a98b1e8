//! GGUF files: malformed ones are refused for what is wrong with them, whole ones survive the round trip, and ggml's own reader and writer
//! agree.

mod ggml;
mod limits;
mod malformed;
mod memory;
mod params;
mod raw;
mod round_trip;
mod sources;
mod writing;
