//! Swizzles: `v.xy` reads two components of a vector. The shim's vectors have a function for each one in use.

use crate::error::Error;
use crate::lex::Token;
use crate::tokens::{next, previous_is};

/// The swizzles that metal-sim/cpp/shim provides.
const PROVIDED: &[&str] = &["xy", "zw"];

pub(super) fn call(tokens: Vec<Token>) -> Result<Vec<Token>, Error> {
    let mut out = Vec::with_capacity(tokens.len());
    for i in 0..tokens.len() {
        let token = &tokens[i];
        out.push(token.clone());
        if !is_swizzle(token) || !previous_is(&tokens, i, ".") {
            continue;
        }
        let written =
            next(&tokens, i).is_some_and(|j| tokens[j].text.ends_with('=') && !tokens[j].is("=="));
        if written || !PROVIDED.contains(&token.text.as_str()) {
            return Err(token.unsupported(
                format!("the swizzle .{}{}", token.text, if written { " on the left of an assignment" } else { "" }),
                "provide it in metal-sim/cpp/shim and list it in metal-sim/src/transform/swizzles.rs",
            ));
        }
        out.push(Token {
            before: String::new(),
            ..token.replaced_by("()")
        });
    }
    Ok(out)
}

fn is_swizzle(token: &Token) -> bool {
    token.is_word()
        && (2..=4).contains(&token.text.len())
        && token.text.chars().all(|c| "xyzw".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;
    use crate::tokens::text;

    fn called(source: &str) -> Result<String, Error> {
        Ok(text(&call(lex("t.metal", source)?)?))
    }

    #[test]
    fn swizzles_become_calls_and_single_components_stay() {
        assert_eq!(
            called("a = q.xy + q.zw + q.x + xy;").unwrap(),
            "a = q.xy() + q.zw() + q.x + xy;"
        );
        assert_eq!(called("q.xy == r.xy").unwrap(), "q.xy() == r.xy()");
    }

    #[test]
    fn unknown_and_written_swizzles_are_refused() {
        assert!(
            called("\nq.xyz")
                .unwrap_err()
                .to_string()
                .starts_with("t.metal:2: metal-sim cannot translate the swizzle .xyz")
        );
        assert!(
            called("q.xy = r")
                .unwrap_err()
                .to_string()
                .contains("left of an assignment")
        );
    }
}
