//! GNU range designators, `T x[N] = { [0 ... N-1] = v };`, which g++ does not have: a loop that fills the array.

use crate::error::Error;
use crate::lex::{Kind, Token};
use crate::tokens::{closing, next, next_is, previous, text};

pub(super) fn expand(tokens: Vec<Token>) -> Result<Vec<Token>, Error> {
    let mut out: Vec<Token> = Vec::with_capacity(tokens.len());
    let mut i = 0;
    while i < tokens.len() {
        if tokens[i].is("=")
            && next_is(&tokens, i, "{")
            && let Some((fill, end)) = fill(&tokens, i)?
        {
            out.extend(fill);
            i = end + 1;
            continue;
        }
        out.push(tokens[i].clone());
        i += 1;
    }
    Ok(out)
}

/// If the initialiser behind the `=` at `assign` is a range designator: its replacement, and its last token.
fn fill(tokens: &[Token], assign: usize) -> Result<Option<(Vec<Token>, usize)>, Error> {
    let inside = |j: usize| next(tokens, j);
    let Some(bracket) = inside(assign)
        .and_then(inside)
        .filter(|&j| tokens[j].is("["))
    else {
        return Ok(None);
    };
    let brace = closing(tokens, assign + 1)?;
    let range_end = closing(tokens, bracket)?;
    let unsupported = || {
        tokens[assign].unsupported(
            format!("the initialiser {}", text(&tokens[assign + 1..=brace])),
            "write `T x[N] = { [0 ... N-1] = v };`: one range that covers the whole array",
        )
    };
    let (name, size) = declared_array(tokens, assign).ok_or_else(unsupported)?;
    let covers_all =
        text_without_blanks(&tokens[bracket + 1..range_end]) == format!("0...{size}-1");
    let value = next(tokens, range_end)
        .filter(|&j| tokens[j].is("="))
        .ok_or_else(unsupported)?;
    let value = &tokens[value + 1..brace];
    let end = next(tokens, brace)
        .filter(|&j| tokens[j].is(";"))
        .ok_or_else(unsupported)?;
    if !covers_all || value.iter().any(|t| t.is(",") || t.is("{")) {
        return Err(unsupported());
    }
    let mut fill = vec![Token {
        before: String::new(),
        ..tokens[assign].replaced_by(format!("; for (auto & element_ : {name}) element_ ="))
    }];
    fill.extend_from_slice(value);
    fill.push(Token {
        before: String::new(),
        ..tokens[end].clone()
    });
    Ok(Some((fill, end)))
}

/// The name and the size of the array declared before the `=`.
fn declared_array(tokens: &[Token], assign: usize) -> Option<(String, String)> {
    let close = previous(tokens, assign).filter(|&j| tokens[j].is("]"))?;
    let open = (0..close).rev().find(|&j| tokens[j].is("["))?;
    let name = previous(tokens, open).filter(|&j| tokens[j].kind == Kind::Word)?;
    Some((
        tokens[name].text.clone(),
        text_without_blanks(&tokens[open + 1..close]),
    ))
}

fn text_without_blanks(tokens: &[Token]) -> String {
    tokens.iter().map(|t| t.text.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;

    fn expanded(source: &str) -> Result<String, Error> {
        Ok(text(&expand(lex("t.metal", source)?)?))
    }

    #[test]
    fn a_range_over_the_whole_array_becomes_a_loop() {
        assert_eq!(
            expanded("float M[NQ] = { [ 0 ... NQ - 1 ] = -FLT_MAX/2 };").unwrap(),
            "float M[NQ]; for (auto & element_ : M) element_ = -FLT_MAX/2;"
        );
    }

    #[test]
    fn other_initialisers_stay() {
        let source = "float a[2] = { 1, 2 }; x = y; int b[N] = { };";
        assert_eq!(expanded(source).unwrap(), source);
    }

    #[test]
    fn other_designators_are_refused() {
        for source in [
            "int a[N] = { [1 ... N-1] = 0 };",
            "int a[N] = { [0] = 1 };",
            "int a[N] = { [0 ... M-1] = 1 };",
        ] {
            assert!(
                expanded(source)
                    .unwrap_err()
                    .to_string()
                    .contains("the initialiser {")
            );
        }
        assert!(expanded("int a[4] = { [0 ... 4-1] = 1, [2] = 3 };").is_err());
    }
}
