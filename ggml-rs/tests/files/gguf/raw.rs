//! Files byte by byte, so that they can be wrong.

/// The bytes of a file.
#[derive(Clone, Default)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    /// A header of version 3.
    pub fn new(tensors: u64, keys: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(tensors).u64(keys)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub fn text(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).bytes(text)
    }

    /// A key and the number of its value's type.
    pub fn key(self, key: &str, value_type: u32) -> Self {
        self.text(key.as_bytes()).u32(value_type)
    }

    /// A tensor's description.
    pub fn tensor(self, name: &str, dims: &[u64], dtype: u32, offset: u64) -> Self {
        let raw = self.text(name.as_bytes()).u32(dims.len() as u32);
        let raw = dims.iter().fold(raw, |raw, &dim| raw.u64(dim));
        raw.u32(dtype).u64(offset)
    }

    /// Up to a multiple of the default alignment, then this many bytes of data.
    pub fn data(mut self, bytes: usize) -> Self {
        let data = self.0.len().next_multiple_of(32);
        self.0.resize(data + bytes, 0);
        self
    }

    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }
}
