//! `constant` becomes a macro for `const` in C++, where a second `const` beside it would be an error.

use crate::lex::Token;

pub(super) fn merge(tokens: Vec<Token>) -> Vec<Token> {
    let redundant: Vec<bool> = (0..tokens.len())
        .map(|i| {
            let beside = |j: Option<usize>| {
                j.and_then(|j| tokens.get(j))
                    .is_some_and(|t| t.is("constant"))
            };
            tokens[i].is("const") && (beside(i.checked_sub(1)) || beside(i.checked_add(1)))
        })
        .collect();
    let kept = tokens
        .into_iter()
        .zip(redundant)
        .filter(|(_, redundant)| !redundant);
    kept.map(|(token, _)| token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;
    use crate::tokens::text;

    #[test]
    fn only_a_const_beside_constant_goes() {
        let tokens = merge(
            lex(
                "t.metal",
                "const constant int * a; constant const int * b; const int c;",
            )
            .unwrap(),
        );
        assert_eq!(
            text(&tokens),
            "constant int * a; constant int * b; const int c;"
        );
    }
}
