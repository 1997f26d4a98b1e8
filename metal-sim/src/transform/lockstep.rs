//! Lockstep points around leader-only blocks.
//!
//! The lanes of a simdgroup execute together on a GPU: when one of them alone enters `if (tiisg == 0) { ... }`, the
//! others have already read what it overwrites, and they wait until it is done. Kernels rely on that without a barrier.
//! Lanes of the simulator run one after the other, so they have to meet before AND after such a block.

use std::collections::BTreeSet;

use super::insertions::Insertions;
use crate::error::Error;
use crate::lex::{Kind, Token};
use crate::tokens::{closing, next, next_is, previous};

/// `lanes` are the names of parameters that differ between the lanes of a simdgroup.
pub(super) fn insert(tokens: Vec<Token>, lanes: BTreeSet<String>) -> Result<Vec<Token>, Error> {
    let lanes = with_derived(&tokens, lanes);
    let mut insertions = Insertions::default();
    for i in 0..tokens.len() {
        if !tokens[i].is("if") || !next_is(&tokens, i, "(") {
            continue;
        }
        let open = i + 1;
        let close = closing(&tokens, open)?;
        if !selects_one_lane(&tokens[open + 1..close], &lanes) {
            continue;
        }
        if tokens[i].directive != 0 {
            return Err(tokens[i].unsupported("a leader-only block inside a macro", "write it out"));
        }
        insertions.before(i, "{ ::metal_sim::lockstep(); ");
        insertions.after(statement_end(&tokens, i)?, " ::metal_sim::lockstep(); }");
    }
    Ok(insertions.apply(tokens))
}

/// Adds the variables that hold nothing but a lane's index, reduced: `const short tx = tiisg%NL;`.
fn with_derived(tokens: &[Token], mut lanes: BTreeSet<String>) -> BTreeSet<String> {
    for i in 0..tokens.len() {
        if let Some(name) = declared_variable(tokens, i)
            && holds_a_lane_index(tokens, i, &lanes)
        {
            lanes.insert(name.to_owned());
        }
    }
    lanes
}

/// The name in `TYPE NAME = ...`, given the index of the `=`.
fn declared_variable(tokens: &[Token], assign: usize) -> Option<&str> {
    let name = previous(tokens, assign).filter(|_| tokens[assign].is("="))?;
    let kind = previous(tokens, name)?;
    (tokens[name].is_word() && tokens[kind].is_word()).then_some(tokens[name].text.as_str())
}

/// Whether the initialiser behind the `=` at `assign` only reduces the index of a lane.
fn holds_a_lane_index(tokens: &[Token], assign: usize, lanes: &BTreeSet<String>) -> bool {
    let mut found = false;
    let mut at = next(tokens, assign);
    while let Some(i) = at {
        let token = &tokens[i];
        match token.kind {
            Kind::Word => found |= lanes.contains(&token.text),
            Kind::Number => {}
            Kind::Punct if token.is(";") => return found,
            Kind::Punct
                if [".", "%", "/", "&", "(", ")", ">"]
                    .iter()
                    .any(|p| token.is(p)) => {}
            _ => return false,
        }
        at = next(tokens, i);
    }
    false
}

/// Whether a condition compares a lane's index for equality, or tests that it is zero.
fn selects_one_lane(condition: &[Token], lanes: &BTreeSet<String>) -> bool {
    (0..condition.len()).any(|i| {
        if !lanes.contains(&condition[i].text) {
            return false;
        }
        let after = &condition[index_end(condition, i) + 1..];
        let compared = |t: Option<&Token>| t.is_some_and(|t| t.is("=="));
        let before = i.checked_sub(1).map(|j| &condition[j]);
        compared(after.first()) || compared(before) || before.is_some_and(|t| t.is("!"))
    })
}

/// The last token of `tpitg`, `tpitg.x` or `tpitg[0]`.
fn index_end(condition: &[Token], i: usize) -> usize {
    match condition.get(i + 1) {
        Some(t) if t.is(".") => i + 2,
        Some(t) if t.is("[") => closing(condition, i + 1).unwrap_or(i),
        _ => i,
    }
}

/// The last token of the statement that starts at `i`.
fn statement_end(tokens: &[Token], i: usize) -> Result<usize, Error> {
    let missing = || tokens[i].unsupported("a statement without an end", "end it with `;` or `}`");
    let token = &tokens[i];
    if token.is("{") {
        return closing(tokens, i);
    }
    if ["if", "for", "while", "switch"]
        .iter()
        .any(|word| token.is(word))
    {
        let head = next(tokens, i).ok_or_else(missing)?;
        let open = if tokens[head].is("constexpr") {
            next(tokens, head).ok_or_else(missing)?
        } else {
            head
        };
        let body = next(tokens, closing(tokens, open)?).ok_or_else(missing)?;
        let end = statement_end(tokens, body)?;
        return match next(tokens, end) {
            Some(other) if token.is("if") && tokens[other].is("else") => {
                statement_end(tokens, next(tokens, other).ok_or_else(missing)?)
            }
            _ => Ok(end),
        };
    }
    let mut at = Some(i);
    while let Some(j) = at {
        if tokens[j].is(";") {
            return Ok(j);
        }
        if tokens[j].is("{") {
            // The body of a macro that loops, such as `FOR_UNROLL (...) { ... }`.
            return closing(tokens, j);
        }
        let last = if tokens[j].is("(") || tokens[j].is("[") {
            closing(tokens, j)?
        } else {
            j
        };
        at = next(tokens, last);
    }
    Err(missing())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;
    use crate::tokens::text;

    fn inserted(source: &str) -> Result<String, Error> {
        let lanes = ["tiisg", "tpitg"].map(str::to_owned).into();
        Ok(text(&insert(lex("t.metal", source)?, lanes)?))
    }

    const BEFORE: &str = "{ ::metal_sim::lockstep(); ";
    const AFTER: &str = " ::metal_sim::lockstep(); }";

    fn wrapped(statement: &str) -> String {
        format!("{BEFORE}{statement}{AFTER}")
    }

    #[test]
    fn a_leader_only_block_is_wrapped_with_its_else() {
        for block in [
            "if (tiisg == 0) { a; }",
            "if (tiisg == 0) a;",
            "if (0 == tiisg) { a; } else if (x) { b; } else c;",
            "if (x && tpitg.x == ntg.x - 1) for (;;) { a; }",
            "if (tpitg[0] == 0) { a; }",
            "if (!tiisg) FOR_UNROLL (x) { a; }",
        ] {
            assert_eq!(
                inserted(&format!("{block} d;")).unwrap(),
                format!("{} d;", wrapped(block))
            );
        }
    }

    #[test]
    fn a_block_that_is_itself_a_statement_stays_one() {
        let source = "if (x) if (tiisg == 0) a; else b;";
        assert_eq!(
            inserted(source).unwrap(),
            format!("if (x) {}", wrapped("if (tiisg == 0) a; else b;"))
        );
    }

    #[test]
    fn a_variable_that_holds_a_reduced_index_counts_as_one() {
        let code = inserted(
            "const short tx = tiisg%NL; const short ty = (short) tx/4; if (ty == 0) { a; }",
        )
        .unwrap();
        assert!(code.ends_with(&wrapped("if (ty == 0) { a; }")), "{code}");
        let source = "const int i = ids[tiisg]; if (i == 0) { a; }";
        assert_eq!(inserted(source).unwrap(), source);
    }

    #[test]
    fn uniform_and_range_conditions_stay() {
        for source in [
            "if (sgitg == 0) { a; }",
            "if (tiisg < n) { a; }",
            "if constexpr (tiisg == 0) { a; }",
        ] {
            assert_eq!(inserted(source).unwrap(), source);
        }
    }

    #[test]
    fn conditional_compilation_inside_a_block_does_not_end_it() {
        let source = "if (tiisg == 0) {\n#ifdef X\na;\n#endif\n}\nb;";
        let code = inserted(source).unwrap();
        assert!(code.ends_with(&format!("}}{AFTER} b;")), "{code}");
    }

    #[test]
    fn a_leader_only_block_in_a_macro_is_refused() {
        assert!(
            inserted("#define X if (tiisg == 0) a;")
                .unwrap_err()
                .to_string()
                .contains("inside a macro")
        );
    }
}
