//! A second opinion on the number of kernels, so that one written in a form that `kernels` overlooks is noticed here
//! and not when a pipeline cannot be found.

use crate::error::Error;
use crate::lex::Token;

/// Kernels that the source names: every `host_name`, and every `kernel` keyword that follows neither an attribute nor
/// a template head.
pub(super) fn kernels(tokens: &[Token]) -> usize {
    let host_names = tokens.iter().filter(|t| t.is("host_name")).count();
    let plain = (0..tokens.len())
        .filter(|&i| tokens[i].is("kernel"))
        .filter(|&i| i == 0 || !(tokens[i - 1].is("]") || tokens[i - 1].is(">")))
        .count();
    host_names + plain
}

pub(super) fn check(unit: &str, registered: usize, named: usize) -> Result<(), Error> {
    match registered == named {
        true => Ok(()),
        false => Err(Error::KernelCount {
            unit: unit.to_owned(),
            registered,
            named,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;

    #[test]
    fn host_names_and_plain_kernels_count_and_templates_do_not() {
        let source = "kernel void a() { } template<typename T> kernel void b() { } \
                      template [[host_name(\"b_i\")]] kernel b_t b<int>; [[host_name(\"c\")]] kernel void d() { }";
        assert_eq!(kernels(&lex("t.metal", source).unwrap()), 3);
    }

    #[test]
    fn a_difference_names_the_unit_and_both_counts() {
        let error = check("misc", 3, 4).unwrap_err().to_string();
        assert!(
            error.starts_with("unit misc: 3 kernels were registered, but the source names 4"),
            "{error}"
        );
    }
}
