//! Which cases and which devices a run is about, and what is said when there are none.

mod cases;
pub mod coverage;
mod devices;
mod error;
pub mod filter;
pub mod test_file;

pub use cases::{CaseFilter, route_applies, staging_applies};
pub use devices::{devices, require_tensor_api};
pub use error::Error;
