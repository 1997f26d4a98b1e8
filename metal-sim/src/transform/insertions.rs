//! Text inserted around existing tokens, collected first and applied once.

use std::collections::BTreeMap;

use crate::lex::Token;

/// Generated code to put before and after tokens, by index.
#[derive(Default)]
pub(super) struct Insertions {
    before: BTreeMap<usize, String>,
    after: BTreeMap<usize, String>,
}

impl Insertions {
    /// Puts `text` in front of token `i`, behind what was put there earlier.
    pub(super) fn before(&mut self, i: usize, text: &str) {
        self.before.entry(i).or_default().push_str(text);
    }

    /// Puts `text` behind token `i`, behind what was put there earlier.
    pub(super) fn after(&mut self, i: usize, text: &str) {
        self.after.entry(i).or_default().push_str(text);
    }

    pub(super) fn apply(self, tokens: Vec<Token>) -> Vec<Token> {
        let mut out = Vec::with_capacity(tokens.len() + self.before.len() + self.after.len());
        for (i, mut token) in tokens.into_iter().enumerate() {
            if let Some(text) = self.before.get(&i) {
                let mut inserted = token.replaced_by(text);
                // `%:` and `<:` are digraphs: an operator and `::` must not touch.
                if inserted.before.is_empty() {
                    inserted.before.push(' ');
                }
                out.push(inserted);
                token.before.clear();
            }
            let after = self.after.get(&i).map(|text| Token {
                before: String::new(),
                ..token.replaced_by(text)
            });
            out.push(token);
            out.extend(after);
        }
        out
    }
}
