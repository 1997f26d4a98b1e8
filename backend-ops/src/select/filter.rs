//! Which cases to run: upstream's `-o` (op names or case strings) and `-p` (a regular expression on parameters).
//!
//! A case string that no case has selects the cases that have all of its fields: one from an older report, which lacks newer fields,
//! finds its case, and a few fields find all cases that share them. So does the beginning of a case string, cut anywhere.
//!
//! ```
//! use backend_ops::filter::OpFilter;
//!
//! let filter = OpFilter::parse("ADD,MUL_MAT(m=16,n=1)")?;
//! assert!(filter.matches("ADD", "ne=[10,5,4,3]"));
//! assert!(filter.matches("MUL_MAT", "m=16,n=1"));
//! assert!(!filter.matches("MUL_MAT", "m=16,n=2"));
//! # Ok::<(), backend_ops::filter::Error>(())
//! ```

use regex::Regex;

/// What can be wrong with a filter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A `)` without its `(`, or something behind a case string.
    #[error(
        "-o: unbalanced parentheses in \"{0}\"; pass OP, OP,OP or a whole case string such as 'ADD(type=f32,...)' in quotes"
    )]
    Unbalanced(String),
    /// Nothing between two commas, or an empty argument.
    #[error("-o: empty operation name in \"{0}\"; pass OP or OP,OP (--list-ops prints the names)")]
    Empty(String),
    /// The regular expression does not parse.
    #[error(
        "-p: bad regular expression \"{pattern}\": {reason}; escape ( ) [ ] . with a backslash to match them literally"
    )]
    Regex {
        /// What was passed.
        pattern: String,
        /// The parser's own reason, on one line.
        reason: String,
    },
}

/// One item of an `-o` list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OpItem {
    op: String,
    /// `None` selects every case of the op.
    params: Option<String>,
    /// Whether the parameters are the beginning of a case's: nothing closes them.
    begun: bool,
}

impl OpItem {
    fn selects(&self, params: &str) -> bool {
        match self.params.as_deref() {
            None => true,
            Some(begin) if self.begun => params.starts_with(begin),
            Some(whole) => params == whole,
        }
    }
}

/// The `-o` argument: op names and whole case strings, separated by commas.
#[derive(Clone, Debug, Default)]
pub struct OpFilter {
    items: Vec<OpItem>,
}

impl OpFilter {
    /// Parses an `-o` argument. Commas inside parentheses belong to a case string.
    ///
    /// # Errors
    /// On unbalanced parentheses and on an empty item.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let items = split_outside_parentheses(text)?
            .into_iter()
            .map(|item| parse_item(item.trim(), text))
            .collect::<Result<_, _>>()?;
        Ok(Self { items })
    }

    /// Whether the filter selects a case. A filter without items selects all of them.
    #[must_use]
    pub fn matches(&self, op: &str, params: &str) -> bool {
        self.items.is_empty()
            || self
                .items
                .iter()
                .any(|item| item.op == op && item.selects(params))
    }

    /// Whether a case has every field of one of these case strings, in any order.
    #[must_use]
    pub fn fields_match(case_strings: &[(&str, &str)], op: &str, params: &str) -> bool {
        let has = |wanted: &str| fields(params).any(|field| field == wanted);
        let mut strings = case_strings.iter();
        strings.any(|(named, given)| *named == op && fields(given).all(has))
    }

    /// The closed case strings among the items, as op and parameters.
    pub fn case_strings(&self) -> impl Iterator<Item = (&str, &str)> {
        let items = self.items.iter();
        items
            .filter(|item| !item.begun)
            .filter_map(|item| Some((item.op.as_str(), item.params.as_deref()?)))
    }

    /// The op names the filter mentions, for checking them against those that exist.
    pub fn ops(&self) -> impl Iterator<Item = &str> {
        self.items.iter().map(|item| item.op.as_str())
    }
}

/// The fields of a case's parameters: `ne=[10,5,4,3]`, `nf=16`. Commas inside brackets belong to a field.
fn fields(params: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    params.split(move |c| {
        depth += match c {
            '[' | '(' | '{' => 1,
            ']' | ')' | '}' => -1,
            _ => 0,
        };
        c == ',' && depth == 0
    })
}

fn split_outside_parentheses(text: &str) -> Result<Vec<&str>, Error> {
    let mut depth = 0_usize;
    let mut start = 0;
    let mut items = Vec::new();
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth = depth
                    .checked_sub(1)
                    .ok_or_else(|| Error::Unbalanced(text.to_owned()))?
            }
            ',' if depth == 0 => {
                items.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    // What is open at the end is the beginning of a case string.
    items.push(&text[start..]);
    Ok(items)
}

fn parse_item(item: &str, whole: &str) -> Result<OpItem, Error> {
    let unbalanced = || Error::Unbalanced(whole.to_owned());
    let (op, params, begun) = match (item.split_once('('), split_case(item)) {
        (None, _) => (item, None, false),
        (_, Some((op, params))) => (op, Some(params), false),
        (Some((op, begin)), None) if is_open(begin) => (op, Some(begin), true),
        _ => return Err(unbalanced()),
    };
    if op.is_empty() {
        return Err(Error::Empty(whole.to_owned()));
    }
    Ok(OpItem {
        op: op.to_owned(),
        params: params.map(str::to_owned),
        begun,
    })
}

/// Whether nothing closes the parenthesis before this text.
fn is_open(text: &str) -> bool {
    text.matches('(').count() >= text.matches(')').count()
}

/// A case string as op and parameters.
pub(crate) fn split_case(name: &str) -> Option<(&str, &str)> {
    let (op, rest) = name.split_once('(')?;
    Some((op, rest.strip_suffix(')')?))
}

/// Parses a `-p` argument.
///
/// # Errors
/// When it is not a regular expression; the message is one line.
pub fn params_regex(pattern: &str) -> Result<Regex, Error> {
    Regex::new(pattern).map_err(|error| Error::Regex {
        pattern: pattern.to_owned(),
        reason: last_line(&error),
    })
}

/// regex prints a drawing with carets over several lines; its last line says what is wrong.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default().trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_case_strings_mix() {
        let filter = OpFilter::parse("OUT_PROD(m=1,bs=[1,1]),ADD").expect("parses");
        assert_eq!(filter.ops().collect::<Vec<_>>(), ["OUT_PROD", "ADD"]);
        assert!(filter.matches("OUT_PROD", "m=1,bs=[1,1]"));
        assert!(!filter.matches("OUT_PROD", "m=1,bs=[1,3]"));
        assert!(filter.matches("ADD", "anything"));
        assert!(!filter.matches("MUL_MAT", "m=1,bs=[1,1]"));
    }

    #[test]
    fn fields_may_be_left_out_and_stand_in_any_order() {
        let matches = |given| OpFilter::fields_match(&[("A", given)], "A", "m=16,ne=[1,2],v=0");
        for given in ["m=16,ne=[1,2]", "v=0,m=16", "ne=[1,2]", "v=0"] {
            assert!(matches(given), "{given}");
        }
        for given in ["m=1", "m=16,k=2", "ne=[1,3]", "2]", ""] {
            assert!(!matches(given), "{given}");
        }
        assert!(!OpFilter::fields_match(&[("A", "m=16")], "B", "m=16"));
        assert!(!OpFilter::fields_match(&[], "A", "m=16"));
    }

    #[test]
    fn no_filter_selects_everything() {
        assert!(OpFilter::default().matches("ADD", ""));
    }

    #[test]
    fn a_case_string_may_be_cut_anywhere() {
        let filter =
            OpFilter::parse("SUB,ADD(m=16,ne=[1,").expect("the beginning of a case string");
        assert!(filter.matches("ADD", "m=16,ne=[1,2],v=0"));
        assert!(filter.matches("SUB", "m=1"));
        assert!(!filter.matches("ADD", "m=16,ne=[2,1],v=0"));
        assert_eq!(filter.case_strings().count(), 0);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(matches!(OpFilter::parse("ADD)"), Err(Error::Unbalanced(_))));
        assert!(matches!(
            OpFilter::parse("ADD(m=1)x"),
            Err(Error::Unbalanced(_))
        ));
        assert!(matches!(OpFilter::parse("ADD,,SUB"), Err(Error::Empty(_))));
        assert!(matches!(OpFilter::parse(""), Err(Error::Empty(_))));
    }

    #[test]
    fn a_bad_regex_is_one_line() {
        let message = params_regex("m=[").expect_err("unclosed").to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("unclosed character class"), "{message}");
    }
}
