//! Everything of a file but the tensors' values.

use std::collections::HashMap;

use crate::error::Result;
use crate::files::error::{Fault, FileError};
use crate::files::gguf::metadata::Metadata;
use crate::files::info::TensorInfo;
use crate::files::load::Index;

/// Everything of a file but the tensors' values.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    pub(super) version: u32,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) places: HashMap<String, usize>,
    pub(super) data: u64,
}

impl Header {
    /// The version of the format.
    #[doc(alias = "gguf_get_version")]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The keys and their values.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors, in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when there is none.
    #[doc(alias = "gguf_find_tensor")]
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        match self.places.get(name) {
            Some(&place) => Ok(&self.tensors[place]),
            None => Err(FileError::tensor(name, Fault::Missing)),
        }
    }

    /// Where the tensors' values begin in the file: their offsets count from here.
    #[doc(alias = "gguf_get_data_offset")]
    pub fn data_offset(&self) -> u64 {
        self.data
    }
}

impl Index for Header {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn tensor(&self, name: &str) -> Result<&TensorInfo> {
        self.tensor(name)
    }

    fn data(&self) -> u64 {
        self.data
    }
}
