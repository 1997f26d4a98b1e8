//! Divisors that may be zero. Integer division by zero gives an unspecified value on a GPU but traps on x86, and
//! kernels do compute such values without using them (flash attention without a mask takes `iq2 % 0`).
//!
//! Every divisor that is not a literal goes through `nonzero`, which leaves floating point values alone.

use super::insertions::Insertions;
use crate::error::Error;
use crate::lex::{Kind, Token};
use crate::tokens::{closing, next, previous_is};

pub(super) fn guard(tokens: Vec<Token>) -> Result<Vec<Token>, Error> {
    let mut insertions = Insertions::default();
    for (i, token) in tokens.iter().enumerate() {
        let operand: fn(&[Token], usize) -> Result<_, Error> = match token.text.as_str() {
            "/" | "%" => divisor,
            "/=" | "%=" => assigned,
            _ => continue,
        };
        if token.kind != Kind::Punct || !is_code(&tokens, i) || previous_is(&tokens, i, "operator")
        {
            continue;
        }
        if let Some((first, last)) = operand(&tokens, i)? {
            insertions.before(first, "::metal_sim::nonzero(");
            insertions.after(last, ")");
        }
    }
    Ok(insertions.apply(tokens))
}

/// Code, or the body of a macro; other directives are for the preprocessor alone.
fn is_code(tokens: &[Token], i: usize) -> bool {
    let same = |t: &&Token| t.directive == tokens[i].directive;
    tokens[i].directive == 0
        || tokens[..i]
            .iter()
            .rev()
            .take_while(same)
            .any(|t| t.is("define"))
}

/// First and last token of the operand behind the `/` or `%` at `i`; none if it is a literal.
fn divisor(tokens: &[Token], i: usize) -> Result<Option<(usize, usize)>, Error> {
    let missing =
        || tokens[i].unsupported("a division without a divisor", "complete the expression");
    let first = next(tokens, i).ok_or_else(missing)?;
    let mut primary = first;
    loop {
        let prefix = ["-", "+", "~", "*", "&"]
            .iter()
            .any(|op| tokens[primary].is(op));
        if prefix {
            primary = next(tokens, primary).ok_or_else(missing)?;
        } else if let Some(operand) = cast_operand(tokens, primary)? {
            primary = operand;
        } else {
            break;
        }
    }
    let last = postfix_end(tokens, primary)?;
    let literal = tokens[primary].kind == Kind::Number || tokens[primary].is("sizeof");
    Ok((!literal).then_some((first, last)))
}

/// If a cast stands at `i`, what it applies to: nothing else puts an operand right behind a closing parenthesis.
fn cast_operand(tokens: &[Token], i: usize) -> Result<Option<usize>, Error> {
    if !tokens[i].is("(") {
        return Ok(None);
    }
    let operand = next(tokens, closing(tokens, i)?);
    Ok(operand
        .filter(|&j| matches!(tokens[j].kind, Kind::Word | Kind::Number) || tokens[j].is("(")))
}

/// The last token of a primary expression with its calls, subscripts and members.
fn postfix_end(tokens: &[Token], primary: usize) -> Result<usize, Error> {
    let mut last = if tokens[primary].is("(") {
        closing(tokens, primary)?
    } else {
        primary
    };
    while let Some(i) = next(tokens, last) {
        last = match tokens[i].text.as_str() {
            "(" | "[" => closing(tokens, i)?,
            "." | "->" | "::" => next(tokens, i).unwrap_or(i),
            _ => break,
        };
    }
    Ok(last)
}

/// First and last token of the expression behind the `/=` or `%=` at `i`; none if it is a literal.
fn assigned(tokens: &[Token], i: usize) -> Result<Option<(usize, usize)>, Error> {
    let ends = |t: &Token| [";", ",", ")", "]", "}"].iter().any(|mark| t.is(mark));
    let Some(first) = next(tokens, i).filter(|&j| !ends(&tokens[j])) else {
        return Err(
            tokens[i].unsupported("a division without a divisor", "complete the expression")
        );
    };
    let mut last = first;
    loop {
        if tokens[last].is("(") || tokens[last].is("[") {
            last = closing(tokens, last)?;
        }
        match next(tokens, last) {
            Some(j) if !ends(&tokens[j]) => last = j,
            _ => break,
        }
    }
    let literal = first == last && tokens[first].kind == Kind::Number;
    Ok((!literal).then_some((first, last)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;
    use crate::tokens::text;

    fn guarded(source: &str) -> String {
        text(&guard(lex("t.metal", source).unwrap()).unwrap())
    }

    #[test]
    fn divisors_go_through_nonzero_with_their_members_calls_and_casts() {
        for (source, expected) in [
            ("a % args.ne1;", "a % ::metal_sim::nonzero(args.ne1);"),
            ("a/FC_x*b;", "a/ ::metal_sim::nonzero(FC_x)*b;"),
            (
                "a / (short) b[i].c + d;",
                "a / ::metal_sim::nonzero((short) b[i].c) + d;",
            ),
            (
                "a / f(x, y)[0] / c;",
                "a / ::metal_sim::nonzero(f(x, y)[0]) / ::metal_sim::nonzero(c);",
            ),
            (
                "tmp /= args.ow - 1;",
                "tmp /= ::metal_sim::nonzero(args.ow - 1);",
            ),
            ("f(c %= n, 2);", "f(c %= ::metal_sim::nonzero(n), 2);"),
        ] {
            assert_eq!(guarded(source), expected);
        }
    }

    #[test]
    fn a_divisor_may_itself_divide() {
        assert_eq!(
            guarded("a/(b/c);"),
            "a/ ::metal_sim::nonzero((b/ ::metal_sim::nonzero(c)));"
        );
    }

    #[test]
    fn literals_and_sizes_stay() {
        for source in [
            "a/32;",
            "a / sizeof(int);",
            "a /= 2;",
            "a / -8;",
            "a / (float) 2;",
        ] {
            assert_eq!(guarded(source), source);
        }
    }

    #[test]
    fn macro_bodies_are_code_but_conditions_of_the_preprocessor_are_not() {
        assert_eq!(
            guarded("#define D(n) (x/n)\n"),
            "#define D(n) (x/ ::metal_sim::nonzero(n))"
        );
        assert_eq!(guarded("#if A / B\n#endif\n"), "#if A / B #endif");
    }
}
