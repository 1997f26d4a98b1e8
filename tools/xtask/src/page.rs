//! A committed text that a command makes: written, or compared with what the sources make.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::pin::checkout;

/// What the sources make of one committed file.
#[derive(Debug)]
pub struct Page {
    /// Below the checkout's root.
    path: &'static str,
    /// Who writes it.
    command: &'static str,
    text: String,
}

impl Page {
    /// The file at `path` below the checkout's root, which `command` writes.
    pub const fn new(path: &'static str, command: &'static str, text: String) -> Self {
        Self {
            path,
            command,
            text,
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self) -> Result<()> {
        let file = self.file();
        fs::write(&file, &self.text).with_context(|| format!("cannot write {}", file.display()))?;
        println!("wrote {}", file.display());
        Ok(())
    }

    /// Whether the committed file is what the sources make; prints what differs.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn check(&self) -> Result<bool> {
        let difference = self.difference()?;
        match &difference {
            None => println!("{} holds", self.file().display()),
            Some(difference) => println!("{difference}"),
        }
        Ok(difference.is_none())
    }

    /// The lines in which the committed file and what the sources make differ.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn difference(&self) -> Result<Option<String>> {
        let file = self.file();
        let committed =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(self.difference_to(&committed))
    }

    fn difference_to(&self, committed: &str) -> Option<String> {
        if committed == self.text {
            return None;
        }
        let only = |lines: &str, others: &str, sign| -> String {
            lines
                .lines()
                .filter(|line| !others.lines().any(|other| other == *line))
                .map(|line| format!("\n{sign} {line}"))
                .collect()
        };
        Some(format!(
            "{} is not what the sources say. Run `{}`.{}{}",
            self.path,
            self.command,
            only(committed, &self.text, '-'),
            only(&self.text, committed, '+')
        ))
    }

    fn file(&self) -> PathBuf {
        checkout().join(self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_both_sides() {
        let page = Page::new("a.md", "make a", "a\nc\n".to_owned());
        assert_eq!(page.difference_to("a\nc\n"), None);
        let text = page.difference_to("a\nb\n").unwrap();
        assert_eq!(
            text,
            "a.md is not what the sources say. Run `make a`.\n- b\n+ c"
        );
    }
}
