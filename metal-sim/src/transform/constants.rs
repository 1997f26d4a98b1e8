//! Function constants: values that Metal bakes into a pipeline become variables that the runtime sets before it
//! runs one, found by index and checked by type.

use crate::error::Error;
use crate::lex::Token;
use crate::tokens::{closing, next, opens_attribute, text};

const REMEDY: &str = "write `constant TYPE NAME [[function_constant(INDEX)]];`";

pub(super) fn register(tokens: Vec<Token>) -> Result<Vec<Token>, Error> {
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

/// If a function constant is declared at `i`: what replaces the declaration, and its last token.
fn declaration(tokens: &[Token], i: usize) -> Result<Option<(String, usize)>, Error> {
    if !tokens[i].is("constant") {
        return Ok(None);
    }
    let words: Vec<usize> = std::iter::successors(next(tokens, i), |&j| next(tokens, j))
        .take_while(|&j| tokens[j].is_word())
        .collect();
    let (Some((&name, types)), Some(open)) = (
        words.split_last(),
        words.last().and_then(|&j| next(tokens, j)),
    ) else {
        return Ok(None);
    };
    if !opens_attribute(tokens, open) || !tokens[open + 2].is("function_constant") {
        return Ok(None);
    }
    let close = closing(tokens, open)?;
    let index = text(&tokens[open + 3..close - 1]);
    let end = next(tokens, close).filter(|&j| tokens[j].is(";"));
    let (Some(end), false, true) = (
        end,
        types.is_empty(),
        index.starts_with('(') && index.ends_with(')'),
    ) else {
        return Err(tokens[i].unsupported(text(&tokens[i..=close]), REMEDY));
    };
    let types: Vec<&str> = types.iter().map(|&j| tokens[j].text.as_str()).collect();
    let (kind, name) = (types.join(" "), &tokens[name].text);
    let declared = format!(
        "static {kind} {name}; \
         static ::metal_sim::function_constant_registrar {name}_registrar(unit_, \"{name}\", {index}, &{name});"
    );
    Ok(Some((declared, end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;

    fn registered(source: &str) -> Result<String, Error> {
        Ok(text(&register(lex("t.metal", source)?)?))
    }

    #[test]
    fn a_declaration_becomes_a_variable_and_a_registrar() {
        assert_eq!(
            registered("constant int32_t FC_n  [[function_constant(FC_X + 2)]]; int a;").unwrap(),
            "static int32_t FC_n; static ::metal_sim::function_constant_registrar \
             FC_n_registrar(unit_, \"FC_n\", (FC_X + 2), &FC_n); int a;"
        );
    }

    #[test]
    fn other_uses_of_the_constant_address_space_stay() {
        let source = "constant float A = 1.0f; void f(constant args_t & args);";
        assert_eq!(registered(source).unwrap(), source);
    }

    #[test]
    fn several_declarators_are_refused() {
        let error =
            registered("\nconstant int a [[function_constant(1)]], b [[function_constant(2)]];")
                .unwrap_err();
        assert!(error.to_string().starts_with("t.metal:2: "), "{error}");
    }
}
