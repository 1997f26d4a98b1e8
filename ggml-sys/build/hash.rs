//! The build's hash: one value that moves when the pin, a patch, ggml's patched sources or the simulator change.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Collects inputs. Names and lengths are hashed too, so that moving a line from one file to the next is seen.
#[derive(Default)]
pub struct BuildHash(Sha256);

impl BuildHash {
    /// Adds an input under a name that does not depend on where the checkout lies.
    pub fn add(&mut self, name: &str, content: &[u8]) {
        for part in [name.as_bytes(), content] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    /// The hash in lower-case hexadecimal.
    pub fn finish(self) -> String {
        self.0
            .finalize()
            .iter()
            .fold(String::new(), |mut hex, byte| {
                // Writing to a String cannot fail.
                let _ = write!(hex, "{byte:02x}");
                hex
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(inputs: &[(&str, &str)]) -> String {
        let mut hash = BuildHash::default();
        for (name, content) in inputs {
            hash.add(name, content.as_bytes());
        }
        hash.finish()
    }

    #[test]
    fn every_byte_and_every_name_counts() {
        let base = hash(&[("a.patch", "line 1\nline 2\n"), ("b.patch", "x")]);
        assert_eq!(base.len(), 64);
        assert_eq!(
            base,
            hash(&[("a.patch", "line 1\nline 2\n"), ("b.patch", "x")])
        );
        assert_ne!(
            base,
            hash(&[("a.patch", "line 1\nline 3\n"), ("b.patch", "x")])
        );
        assert_ne!(
            base,
            hash(&[("c.patch", "line 1\nline 2\n"), ("b.patch", "x")])
        );
        assert_ne!(
            base,
            hash(&[("a.patch", "line 1\nline 2\nx"), ("b.patch", "")])
        );
    }
}
