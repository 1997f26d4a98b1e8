//! Attention in one op, and the ops of DeepSeek's sparse attention and hyper-connections.

mod flash;
mod hyper;
mod indexer;

pub use flash::FlashAttn;
