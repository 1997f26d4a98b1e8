//! A lexer for C-like sources that keeps what a translation needs: tokens with their position, the white space
//! before each, and whether they belong to a preprocessor directive.
//!
//! Comments become white space here, so that no later pass can mistake their contents for code.

use std::rc::Rc;

use crate::error::{Error, Location};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Identifier or keyword.
    Word,
    /// Numeric literal with its suffix.
    Number,
    /// String or character literal with its quotes.
    Text,
    /// Operator or punctuation, longest match first.
    Punct,
    /// C++ that a pass of the translation has produced; later passes leave it alone.
    Generated,
}

/// A token and its surroundings.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// White space between the previous token and this one (comments included, as blanks).
    pub(crate) before: String,
    pub(crate) file: Rc<str>,
    pub(crate) line: u32,
    /// 0 for code; otherwise the number of the preprocessor directive this token belongs to.
    pub(crate) directive: u32,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text && matches!(self.kind, Kind::Word | Kind::Punct)
    }

    pub(crate) fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }

    pub(crate) fn location(&self) -> Location {
        Location {
            file: self.file.to_string(),
            line: self.line,
        }
    }

    /// Generated code that takes this token's place in the text.
    pub(crate) fn replaced_by(&self, text: impl Into<String>) -> Token {
        Token {
            kind: Kind::Generated,
            text: text.into(),
            ..self.clone()
        }
    }

    /// Generated code that follows this token after a single blank.
    pub(crate) fn followed_by(&self, text: impl Into<String>) -> Token {
        Token {
            before: " ".to_owned(),
            ..self.replaced_by(text)
        }
    }

    pub(crate) fn unsupported(
        &self,
        construct: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Error {
        Error::Unsupported {
            at: self.location(),
            construct: construct.into(),
            remedy: remedy.into(),
        }
    }
}

/// Operators of more than one character, longest first. `>>` is left as two tokens: it closes template lists.
const OPERATORS: &[&str] = &[
    "...", "<<=", "->*", "::", "->", "++", "--", "<<", "<=", ">=", "==", "!=", "&&", "||", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "##",
];

/// Splits `source` into tokens. `file` names it in diagnostics.
pub(crate) fn lex(file: &str, source: &str) -> Result<Vec<Token>, Error> {
    Lexer::new(file, source).run()
}

struct Lexer<'a> {
    file: Rc<str>,
    rest: &'a str,
    line: u32,
    /// The directive being read, 0 between directives.
    directive: u32,
    directives: u32,
    at_line_start: bool,
    before: String,
    tokens: Vec<Token>,
}

impl<'a> Lexer<'a> {
    fn new(file: &str, source: &'a str) -> Self {
        Lexer {
            file: file.into(),
            rest: source,
            line: 1,
            directive: 0,
            directives: 0,
            at_line_start: true,
            before: String::new(),
            tokens: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Vec<Token>, Error> {
        while let Some(c) = self.rest.chars().next() {
            if self.skip_blank(c)? {
                continue;
            }
            if c == '#' && self.at_line_start {
                self.directives += 1;
                self.directive = self.directives;
            }
            self.at_line_start = false;
            let (kind, length) = self.measure(c)?;
            self.push(kind, length);
        }
        Ok(self.tokens)
    }

    /// Moves white space, line continuations and comments into `before`.
    fn skip_blank(&mut self, c: char) -> Result<bool, Error> {
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.rest = &self.rest[end..];
        } else if self.rest.starts_with("/*") {
            let Some(end) = self.rest.find("*/") else {
                return Err(self.unterminated("/*", "close the comment"));
            };
            self.skip_comment(end + 2);
        } else if self.rest.starts_with("\\\n") {
            self.blank("\\\n");
        } else if c == '\n' {
            self.blank("\n");
            self.directive = 0;
            self.at_line_start = true;
        } else if c.is_whitespace() {
            self.before.push(c);
            self.rest = &self.rest[c.len_utf8()..];
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn blank(&mut self, text: &str) {
        self.before.push_str(text);
        self.rest = &self.rest[text.len()..];
        self.line += 1;
    }

    fn skip_comment(&mut self, length: usize) {
        let lines = self.rest[..length].matches('\n').count();
        self.line += lines as u32;
        self.before.push(' ');
        if self.directive == 0 {
            self.before.push_str(&"\n".repeat(lines));
        }
        self.rest = &self.rest[length..];
    }

    /// The kind and the length of the token that starts with `c`.
    fn measure(&self, c: char) -> Result<(Kind, usize), Error> {
        if c.is_alphabetic() || c == '_' {
            return Ok((Kind::Word, self.span(|c| c.is_alphanumeric() || c == '_')));
        }
        let second_is_digit = self.rest[1..].starts_with(|d: char| d.is_ascii_digit());
        if c.is_ascii_digit() || (c == '.' && second_is_digit) {
            return Ok((Kind::Number, self.number()));
        }
        if c == '"' || c == '\'' {
            return Ok((Kind::Text, self.literal(c)?));
        }
        let operator = OPERATORS.iter().find(|op| self.rest.starts_with(**op));
        Ok((Kind::Punct, operator.map_or(c.len_utf8(), |op| op.len())))
    }

    fn span(&self, belongs: impl Fn(char) -> bool) -> usize {
        self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len())
    }

    /// A preprocessing number: digits, letters, dots, and a sign after an exponent.
    fn number(&self) -> usize {
        let hexadecimal = self.rest.starts_with("0x") || self.rest.starts_with("0X");
        let mut previous = '0';
        for (i, c) in self.rest.char_indices() {
            let exponent = if hexadecimal { 'p' } else { 'e' };
            let sign = (c == '+' || c == '-') && previous.to_ascii_lowercase() == exponent;
            // `0...15` is a range of integers, not a number with three dots.
            let dot = c == '.' && !self.rest[i..].starts_with("...");
            if !(c.is_ascii_alphanumeric() || c == '_' || dot || sign) {
                return i;
            }
            previous = c;
        }
        self.rest.len()
    }

    fn literal(&self, quote: char) -> Result<usize, Error> {
        let mut escaped = false;
        for (i, c) in self.rest.char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == quote => return Ok(i + 1),
                _ => {}
            }
        }
        Err(self.unterminated(&quote.to_string(), "close the literal on its line"))
    }

    fn unterminated(&self, construct: &str, remedy: &str) -> Error {
        Error::Unsupported {
            at: Location {
                file: self.file.to_string(),
                line: self.line,
            },
            construct: format!("an unterminated `{construct}`"),
            remedy: remedy.to_owned(),
        }
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.tokens.push(Token {
            kind,
            text: text.to_owned(),
            before: std::mem::take(&mut self.before),
            file: Rc::clone(&self.file),
            line: self.line,
            directive: self.directive,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        lex("t.metal", source)
            .unwrap()
            .into_iter()
            .map(|t| t.text)
            .collect()
    }

    #[test]
    fn comments_vanish_but_strings_that_look_like_them_stay() {
        assert_eq!(
            texts("a /* b */ \"/* c */\" // d\ne"),
            ["a", "\"/* c */\"", "e"]
        );
    }

    #[test]
    fn numbers_keep_exponents_and_suffixes_and_stop_before_a_range() {
        assert_eq!(
            texts("1e-3f 0x1p+2 .5h 0...15 1-e"),
            ["1e-3f", "0x1p+2", ".5h", "0", "...", "15", "1", "-", "e"]
        );
    }

    #[test]
    fn lines_are_counted_through_comments_and_continuations() {
        let tokens = lex("t.metal", "/* 1\n2 */ a\n#define X \\\n  b\nc").unwrap();
        let find = |text: &str| tokens.iter().find(|t| t.text == text).unwrap();
        assert_eq!((find("a").line, find("b").line, find("c").line), (2, 4, 5));
    }

    #[test]
    fn directive_tokens_are_marked_up_to_the_end_of_the_continued_line() {
        let tokens = lex("t.metal", "a\n#define X \\\n  b\nc # d\n#if 1\n").unwrap();
        let directive = |text: &str| tokens.iter().find(|t| t.text == text).unwrap().directive;
        assert_eq!(
            (
                directive("a"),
                directive("b"),
                directive("d"),
                directive("if")
            ),
            (0, 1, 0, 2)
        );
    }

    #[test]
    fn an_open_literal_or_comment_names_its_line() {
        let error = lex("t.metal", "\n\"abc\n").unwrap_err().to_string();
        assert!(error.starts_with("t.metal:2: "), "{error}");
        assert!(lex("t.metal", "/* abc").is_err());
    }
}
