//! Moving through a token list: neighbours, matching brackets, template lists, attributes.
//!
//! Code and preprocessor directives are separate worlds here. From a code token one steps to the next code token,
//! over any directive in between; inside a `#define` one stays inside it. So an unbalanced brace in a macro body
//! cannot upset the matching of the code around it.

use crate::error::Error;
use crate::lex::{Kind, Token};

/// The index after `i` in the same world, if any.
pub(crate) fn next(tokens: &[Token], i: usize) -> Option<usize> {
    (i + 1..tokens.len()).find(|&j| tokens[j].directive == tokens[i].directive)
}

/// The index before `i` in the same world, if any.
pub(crate) fn previous(tokens: &[Token], i: usize) -> Option<usize> {
    (0..i)
        .rev()
        .find(|&j| tokens[j].directive == tokens[i].directive)
}

/// Whether the token after `i` in the same world is `text`.
pub(crate) fn next_is(tokens: &[Token], i: usize, text: &str) -> bool {
    next(tokens, i).is_some_and(|j| tokens[j].is(text))
}

/// Whether the token before `i` in the same world is `text`.
pub(crate) fn previous_is(tokens: &[Token], i: usize, text: &str) -> bool {
    previous(tokens, i).is_some_and(|j| tokens[j].is(text))
}

/// Whether `i` is the first token of a preprocessor directive.
pub(crate) fn opens_directive(tokens: &[Token], i: usize) -> bool {
    tokens[i].directive != 0 && (i == 0 || tokens[i - 1].directive != tokens[i].directive)
}

/// The index one past the directive that starts at `i`.
pub(crate) fn directive_end(tokens: &[Token], i: usize) -> usize {
    (i..tokens.len())
        .find(|&j| tokens[j].directive != tokens[i].directive)
        .unwrap_or(tokens.len())
}

/// The bracket that closes the `(`, `[` or `{` at `open`.
pub(crate) fn closing(tokens: &[Token], open: usize) -> Result<usize, Error> {
    let mut expected = Vec::new();
    let mut at = Some(open);
    while let Some(i) = at {
        if tokens[i].kind == Kind::Punct {
            match tokens[i].text.as_str() {
                "(" => expected.push(")"),
                "[" => expected.push("]"),
                "{" => expected.push("}"),
                close @ (")" | "]" | "}") => {
                    if expected.pop() != Some(close) {
                        return Err(
                            tokens[i].unsupported(format!("an unmatched `{close}`"), BALANCE)
                        );
                    }
                    if expected.is_empty() {
                        return Ok(i);
                    }
                }
                _ => {}
            }
        }
        at = next(tokens, i);
    }
    Err(tokens[open].unsupported(format!("an unmatched `{}`", tokens[open].text), BALANCE))
}

const BALANCE: &str = "balance the brackets within each branch of an #if";

/// The `>` that closes the template list opened by the `<` at `open`.
pub(crate) fn closing_angle(tokens: &[Token], open: usize) -> Result<usize, Error> {
    let mut depth = 0;
    let mut at = Some(open);
    while let Some(i) = at {
        let token = &tokens[i];
        if token.is("<") {
            depth += 1;
        } else if token.is(">") {
            depth -= 1;
            if depth == 0 {
                return Ok(i);
            }
        } else if token.is("(") || token.is("[") {
            at = next(tokens, closing(tokens, i)?);
            continue;
        } else if token.is(";") || token.is("{") {
            break;
        }
        at = next(tokens, i);
    }
    Err(tokens[open].unsupported(
        "an unmatched `<`",
        "write the template list with balanced brackets",
    ))
}

/// Whether an attribute `[[...]]` starts at `i`.
pub(crate) fn opens_attribute(tokens: &[Token], i: usize) -> bool {
    tokens[i].is("[")
        && tokens
            .get(i + 1)
            .is_some_and(|t| t.is("[") && t.before.is_empty())
}

/// The text of `tokens` on one line.
pub(crate) fn text(tokens: &[Token]) -> String {
    let mut line = String::new();
    for token in tokens {
        if !token.before.is_empty() && !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&token.text);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;

    fn index(tokens: &[Token], text: &str) -> usize {
        tokens.iter().position(|t| t.text == text).unwrap()
    }

    #[test]
    fn brackets_in_a_macro_body_do_not_count_for_the_code_around_it() {
        let tokens = lex("t.metal", "f(\n#define OPEN (((\na)").unwrap();
        let close = closing(&tokens, index(&tokens, "(")).unwrap();
        assert_eq!(close, tokens.len() - 1);
    }

    #[test]
    fn an_unmatched_bracket_names_its_line() {
        let tokens = lex("t.metal", "\n{ ( }").unwrap();
        let error = closing(&tokens, 0).unwrap_err().to_string();
        assert!(
            error.contains("t.metal:2") && error.contains("unmatched `}`"),
            "{error}"
        );
    }

    #[test]
    fn template_lists_may_hold_comparisons_in_parentheses() {
        let tokens = lex("t.metal", "f<(a > b), g<c>>;").unwrap();
        let close = closing_angle(&tokens, index(&tokens, "<")).unwrap();
        assert_eq!(text(&tokens[..=close]), "f<(a > b), g<c>>");
    }

    #[test]
    fn an_attribute_is_two_brackets_without_a_blank() {
        let tokens = lex("t.metal", "[[a]] x[b[0]]").unwrap();
        let found: Vec<usize> = (0..tokens.len())
            .filter(|&i| opens_attribute(&tokens, i))
            .collect();
        assert_eq!(found, [0]);
    }
}
