//! `threadgroup T x[N];` in a kernel body: one array for the whole threadgroup, from memory that the runtime poisons
//! and counts.

use crate::error::Error;
use crate::lex::Token;
use crate::tokens::{closing, next, previous, text};

pub(super) fn declare(tokens: Vec<Token>) -> Result<Vec<Token>, Error> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut i = 0;
    while i < tokens.len() {
        match declaration(&tokens, i)? {
            Some((declared, end)) => {
                out.push(tokens[i].replaced_by(declared));
                i = end + 1;
            }
            None => {
                out.push(tokens[i].clone());
                i += 1;
            }
        }
    }
    Ok(out)
}

/// If a threadgroup variable is declared at `i`: what replaces the declaration, and its last token.
fn declaration(tokens: &[Token], i: usize) -> Result<Option<(String, usize)>, Error> {
    if !tokens[i].is("threadgroup") || !opens_statement(tokens, i) {
        return Ok(None);
    }
    let end = statement_end(tokens, i)?;
    let open = (i..end).find(|&j| tokens[j].is("["));
    let declarator = &tokens[i + 1..open.unwrap_or(end)];
    // A pointer to threadgroup memory is an ordinary variable; a function that returns one is no variable.
    if declarator
        .iter()
        .any(|t| t.is("*") || t.is("&") || t.is("("))
    {
        return Ok(None);
    }
    let unsupported = || {
        tokens[i].unsupported(
            format!("`{}`", text(&tokens[i..=end])),
            "write one array per declaration: `threadgroup TYPE NAME[N];`, without commas",
        )
    };
    let open = open.ok_or_else(unsupported)?;
    let [element @ .., name] = declarator else {
        return Err(unsupported());
    };
    let dimensions = &tokens[open..end];
    let has_comma = tokens[i..end].iter().any(|t| t.is(","));
    if element.is_empty() || has_comma || !tokens[end].is(";") || !tokens[end - 1].is("]") {
        return Err(unsupported());
    }
    let declared = format!(
        "METAL_SIM_THREADGROUP_ARRAY({}, {}, {});",
        text(element),
        name.text,
        text(dimensions)
    );
    Ok(Some((declared, end)))
}

fn opens_statement(tokens: &[Token], i: usize) -> bool {
    previous(tokens, i).is_some_and(|j| [";", "{", "}"].iter().any(|mark| tokens[j].is(mark)))
}

/// The `;` that ends the statement at `i`, or the `{` that turns it into something else.
fn statement_end(tokens: &[Token], i: usize) -> Result<usize, Error> {
    let mut at = Some(i);
    while let Some(j) = at {
        if tokens[j].is(";") || tokens[j].is("{") {
            return Ok(j);
        }
        let last = if tokens[j].is("(") || tokens[j].is("[") {
            closing(tokens, j)?
        } else {
            j
        };
        at = next(tokens, last);
    }
    Err(tokens[i].unsupported("a statement without an end", "end it with `;`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;

    fn declared(source: &str) -> Result<String, Error> {
        Ok(text(&declare(lex("t.metal", source)?)?))
    }

    #[test]
    fn arrays_of_any_dimension_are_declared_through_the_runtime() {
        assert_eq!(
            declared("{ threadgroup half4   sq[N*D4]; threadgroup float m[4][(A+1)*2]; }").unwrap(),
            "{ METAL_SIM_THREADGROUP_ARRAY(half4, sq, [N*D4]); METAL_SIM_THREADGROUP_ARRAY(float, m, [4][(A+1)*2]); }"
        );
    }

    #[test]
    fn pointers_casts_and_parameters_stay() {
        let source =
            "{ threadgroup float * p = (threadgroup float *) s; } void f(threadgroup int * q);";
        assert_eq!(declared(source).unwrap(), source);
        let source = "; threadgroup float * p[2]; threadgroup int * f(int a) { }";
        assert_eq!(declared(source).unwrap(), source);
    }

    #[test]
    fn other_threadgroup_variables_are_refused() {
        for source in [
            "{\nthreadgroup int x;",
            "{\nthreadgroup int a[2], b[2];",
            "{\nthreadgroup vec<float, 4> v[2];",
        ] {
            let error = declared(source).unwrap_err().to_string();
            assert!(error.starts_with("t.metal:2: "), "{error}");
        }
    }
}
