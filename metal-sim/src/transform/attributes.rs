//! Attributes `[[...]]`: the ones that bind a kernel's parameter, and a check that none is left unread.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::lex::{Kind, Token};
use crate::tokens::{closing, opens_attribute, text};

/// `[[name]]` or `[[name(argument)]]`.
pub(super) struct Attribute {
    name: String,
    pub(super) argument: Option<String>,
    /// Its last token.
    pub(super) last: usize,
}

/// Attributes of kernel parameters that the runtime can bind. `K_` and the name is the runtime's tag type.
const POSITIONS: &[&str] = &[
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_threadgroup",
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
];

impl Attribute {
    /// The runtime's type for a parameter with this attribute.
    pub(super) fn kind(&self) -> Option<String> {
        match (self.name.as_str(), &self.argument) {
            ("threadgroup", Some(index)) if index.parse::<u32>().is_ok() => {
                Some(format!("::metal_sim::K_threadgroup<{index}>"))
            }
            (name, None) if POSITIONS.contains(&name) => Some(format!("::metal_sim::K_{name}")),
            _ => None,
        }
    }

    fn differs_between_lanes(&self) -> bool {
        matches!(
            self.name.as_str(),
            "thread_position_in_threadgroup"
                | "thread_index_in_threadgroup"
                | "thread_index_in_simdgroup"
        )
    }
}

/// The attribute that opens at `i`.
pub(super) fn parse(tokens: &[Token], i: usize) -> Result<Attribute, Error> {
    let last = closing(tokens, i)?;
    let inner = &tokens[i + 2..last - 1];
    let malformed = || {
        tokens[i].unsupported(
            format!("the attribute [[{}]]", text(inner)),
            "write [[name]] or [[name(argument)]]",
        )
    };
    let (name, rest) = inner.split_first().ok_or_else(malformed)?;
    let argument = match rest {
        [] => None,
        [open, argument @ .., close] if open.is("(") && close.is(")") => Some(text(argument)),
        _ => return Err(malformed()),
    };
    match name.kind {
        Kind::Word => Ok(Attribute {
            name: name.text.clone(),
            argument,
            last,
        }),
        _ => Err(malformed()),
    }
}

pub(super) fn unknown(at: &Token, attribute: &Attribute) -> Error {
    let argument = attribute
        .argument
        .as_ref()
        .map(|a| format!("({a})"))
        .unwrap_or_default();
    at.unsupported(
        format!("the attribute [[{}{argument}]]", attribute.name),
        "teach it to metal-sim/src/transform/attributes.rs and to metal-sim/cpp/runtime",
    )
}

/// The names of parameters that differ between the lanes of a simdgroup.
pub(super) fn lane_parameters(tokens: &[Token]) -> Result<BTreeSet<String>, Error> {
    let mut lanes = BTreeSet::new();
    for i in (1..tokens.len()).filter(|&i| opens_attribute(tokens, i)) {
        if parse(tokens, i)?.differs_between_lanes() {
            lanes.insert(tokens[i - 1].text.clone());
        }
    }
    Ok(lanes)
}

/// Strips the binding attributes that remain once the kernels have been registered: on parameters of typedefs and of
/// ordinary functions they bind nothing. Any other attribute is an error.
pub(super) fn strip(tokens: Vec<Token>) -> Result<Vec<Token>, Error> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut i = 0;
    while i < tokens.len() {
        if !opens_attribute(&tokens, i) {
            out.push(tokens[i].clone());
            i += 1;
            continue;
        }
        let attribute = parse(&tokens, i)?;
        if attribute.kind().is_none() {
            return Err(unknown(&tokens[i], &attribute));
        }
        i = attribute.last + 1;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;

    fn stripped(source: &str) -> Result<String, Error> {
        Ok(text(&strip(lex("t.metal", source)?)?))
    }

    #[test]
    fn typedefs_and_ordinary_functions_lose_their_binding_attributes() {
        let source = "typedef void (f_t)(threadgroup int * s [[threadgroup(0)]]); void f(uint3 g[[threadgroup_position_in_grid]]);";
        assert_eq!(
            stripped(source).unwrap(),
            "typedef void (f_t)(threadgroup int * s); void f(uint3 g);"
        );
    }

    #[test]
    fn any_other_attribute_is_an_error() {
        for source in [
            "\nvoid f(uint i [[sample_id]]);",
            "\n[[unroll]] for",
            "\nint i [[threadgroup]];",
        ] {
            let error = stripped(source).unwrap_err().to_string();
            assert!(
                error.starts_with("t.metal:2: metal-sim cannot translate the attribute [["),
                "{error}"
            );
        }
    }

    #[test]
    fn lane_parameters_are_told_from_uniform_ones() {
        let source = "f(ushort3 tpitg[[thread_position_in_threadgroup]], uint3 g[[threadgroup_position_in_grid]], \
                      ushort sgitg[[simdgroup_index_in_threadgroup]], ushort tiisg [[thread_index_in_simdgroup]])";
        let lanes = lane_parameters(&lex("t.metal", source).unwrap()).unwrap();
        assert_eq!(lanes.into_iter().collect::<Vec<_>>(), ["tiisg", "tpitg"]);
    }

    #[test]
    fn nested_subscripts_are_no_attributes() {
        assert_eq!(stripped("x[ids[0]];").unwrap(), "x[ids[0]];");
    }
}
