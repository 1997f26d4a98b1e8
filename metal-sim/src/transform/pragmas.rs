//! Drops the pragmas that only tune the Metal compiler. An unknown one may change meaning, so it is an error.

use crate::error::Error;
use crate::lex::Token;
use crate::tokens::{closing, directive_end, next, opens_directive, text};

/// Pragmas without an effect on results here: each file is inlined once anyway, unrolling is the host compiler's
/// affair, and `METAL fp math_mode(safe)` asks for what the C++ flags give everywhere.
const HARMLESS: &[&str] = &["once", "unroll", "METAL fp math_mode", "clang loop unroll"];

pub(super) fn drop(tokens: Vec<Token>) -> Result<Vec<Token>, Error> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut i = 0;
    while i < tokens.len() {
        if opens_directive(&tokens, i) && tokens.get(i + 1).is_some_and(|t| t.is("pragma")) {
            let end = directive_end(&tokens, i);
            check(&tokens[i], &text(&tokens[i + 2..end]))?;
            i = end;
        } else if tokens[i].is("_Pragma") {
            let (end, pragma) = operator(&tokens, i)?;
            check(&tokens[i], &pragma)?;
            i = end + 1;
        } else {
            out.push(tokens[i].clone());
            i += 1;
        }
    }
    Ok(out)
}

/// The last token of `_Pragma("...")` and the pragma's text.
fn operator(tokens: &[Token], i: usize) -> Result<(usize, String), Error> {
    match next(tokens, i) {
        Some(open) if tokens[open].is("(") => {
            let close = closing(tokens, open)?;
            Ok((
                close,
                text(&tokens[open + 1..close]).trim_matches('"').to_owned(),
            ))
        }
        _ => Err(tokens[i].unsupported("_Pragma without an argument", "write _Pragma(\"...\")")),
    }
}

fn check(at: &Token, pragma: &str) -> Result<(), Error> {
    match HARMLESS.iter().any(|known| pragma.starts_with(known)) {
        true => Ok(()),
        false => Err(at.unsupported(
            format!("#pragma {pragma}"),
            "if it cannot change results, list it in metal-sim/src/transform/pragmas.rs",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;

    fn dropped(source: &str) -> Result<String, Error> {
        Ok(text(&drop(lex("t.metal", source)?)?))
    }

    #[test]
    fn known_pragmas_vanish_in_both_spellings() {
        let source = "a\n#pragma unroll(4)\nb\n#define U(x) _Pragma(\"clang loop unroll(full)\") for (x)\n#pragma METAL fp math_mode(safe)";
        assert_eq!(dropped(source).unwrap(), "a b #define U(x) for (x)");
    }

    #[test]
    fn an_unknown_pragma_is_an_error() {
        let error = dropped("a\n#pragma unroll\n#pragma fast_math")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("t.metal:3: ") && error.contains("fast_math"),
            "{error}"
        );
        assert!(dropped("_Pragma(\"omp parallel\")").is_err());
    }
}
