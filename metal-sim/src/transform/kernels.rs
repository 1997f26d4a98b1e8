//! Kernel functions: their signatures lose the attributes, and every kernel that the host can ask for by name gets a
//! registration.
//!
//! Three forms occur: a plain definition, registered under its own name (or under `host_name`); a template, which
//! registers nothing; and an explicit instantiation `template [[host_name("x")]] kernel T f<...>;`, possibly inside a
//! macro. What each parameter is bound to is kept in an alias `KS_f` next to the definition, so that two variants of a
//! kernel in the branches of an `#if` may differ.

use std::collections::BTreeSet;

use super::attributes;
use crate::error::Error;
use crate::lex::Token;
use crate::tokens::{closing, closing_angle, next, opens_attribute, previous_is, text};

/// The translated tokens, and the number of registrations in the text (one inside a macro counts once).
pub(super) fn register(tokens: Vec<Token>) -> Result<(Vec<Token>, usize), Error> {
    let mut pass = Pass {
        tokens: &tokens,
        out: Vec::with_capacity(tokens.len()),
        registered: 0,
        templates: Vec::new(),
        instantiated: BTreeSet::new(),
        pending: Vec::new(),
    };
    pass.run()?;
    pass.check_templates()?;
    Ok((pass.out, pass.registered))
}

struct Pass<'a> {
    tokens: &'a [Token],
    out: Vec<Token>,
    registered: usize,
    /// Indices of the names of kernel templates.
    templates: Vec<usize>,
    /// Names of the templates that have an instantiation.
    instantiated: BTreeSet<String>,
    /// Code to put behind the closing braces of kernel bodies that are being copied: (index, code).
    pending: Vec<(usize, String)>,
}

impl Pass<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let mut i = 0;
        while i < self.tokens.len() {
            i = self.step(i)?;
        }
        Ok(())
    }

    /// A template without an instantiation is either dead or instantiated in a way this pass has overlooked.
    fn check_templates(&self) -> Result<(), Error> {
        let mut names = self.templates.iter().map(|&i| &self.tokens[i]);
        match names.find(|name| !self.instantiated.contains(&name.text)) {
            None => Ok(()),
            Some(name) => Err(name.unsupported(
                format!("the kernel template {} without an instantiation", name.text),
                "instantiate it under a host_name, or remove it",
            )),
        }
    }

    /// Translates or copies what starts at `i`; returns where to go on.
    fn step(&mut self, i: usize) -> Result<usize, Error> {
        let token = &self.tokens[i];
        if opens_attribute(self.tokens, i) && self.tokens[i + 2].is("host_name") {
            let (host_name, after) = self.host_name(i)?;
            return self.kernel(i, after, Some(host_name));
        }
        if token.is("kernel") {
            return self.kernel(i, i, None);
        }
        self.out.push(token.clone());
        if let Some((_, code)) = self.pending.iter().find(|(end, _)| *end == i) {
            self.out.push(token.followed_by(code));
        }
        Ok(i + 1)
    }

    /// The argument of `[[host_name(...)]]`, which may be a concatenation, and the index of the `kernel` behind it.
    fn host_name(&self, i: usize) -> Result<(String, usize), Error> {
        let attribute = attributes::parse(self.tokens, i)?;
        let kernel = next(self.tokens, attribute.last).filter(|&j| self.tokens[j].is("kernel"));
        match (attribute.argument, kernel) {
            (Some(host_name), Some(kernel)) => Ok((host_name, kernel)),
            _ => Err(self.tokens[i].unsupported(
                "host_name without a kernel",
                "write `[[host_name(\"x\")]] kernel ...`",
            )),
        }
    }

    /// Translates the kernel whose keyword stands at `kernel`. `start` is where its text began.
    fn kernel(
        &mut self,
        start: usize,
        kernel: usize,
        host_name: Option<String>,
    ) -> Result<usize, Error> {
        let at = &self.tokens[kernel];
        let result = next(self.tokens, kernel).filter(|&j| self.tokens[j].is_word());
        let name = result
            .and_then(|j| next(self.tokens, j))
            .filter(|&j| self.tokens[j].is_word());
        let (Some(result), Some(name)) = (result, name) else {
            return Err(at.unsupported(
                "a kernel without return type or name",
                "write `kernel TYPE NAME`",
            ));
        };
        if self.out.last().is_some_and(|t| t.is("template")) {
            let Some(host_name) = host_name else {
                return Err(at.unsupported(
                    format!(
                        "an instantiation of {} without host_name",
                        self.tokens[name].text
                    ),
                    "give it a [[host_name(...)]]",
                ));
            };
            return self.instantiation(name, &host_name);
        }
        self.definition(start, result, name, host_name)
    }

    /// `template [[host_name("x")]] kernel T f<...>;` or with a parameter list before the semicolon.
    fn instantiation(&mut self, name: usize, host_name: &str) -> Result<usize, Error> {
        let at = &self.tokens[name];
        let malformed = || {
            at.unsupported(
                format!("this instantiation of {}", at.text),
                "write `template [[host_name(\"x\")]] kernel TYPE NAME<...>;`",
            )
        };
        let open = next(self.tokens, name)
            .filter(|&j| self.tokens[j].is("<"))
            .ok_or_else(malformed)?;
        let close = closing_angle(self.tokens, open)?;
        let mut end = next(self.tokens, close).ok_or_else(malformed)?;
        if self.tokens[end].is("(") {
            end = next(self.tokens, closing(self.tokens, end)?).ok_or_else(malformed)?;
        }
        if !self.tokens[end].is(";") {
            return Err(malformed());
        }
        self.instantiated.insert(at.text.clone());
        let function = format!("{}{}", at.text, text(&self.tokens[open..=close]));
        let registration = self.registration(host_name, &function, &at.text);
        // In place of the keyword `template`, which is in `out` already.
        if let Some(template) = self.out.last_mut() {
            *template = template.replaced_by(registration);
        }
        Ok(end + 1)
    }

    /// `kernel void f(...) { ... }`, possibly as a template or with a host name of its own.
    fn definition(
        &mut self,
        start: usize,
        result: usize,
        name: usize,
        host_name: Option<String>,
    ) -> Result<usize, Error> {
        let (open, close, body) = self.definition_brackets(result, name)?;
        self.out.push(Token {
            before: self.tokens[start].before.clone(),
            ..self.tokens[result].clone()
        });
        self.out.extend_from_slice(&self.tokens[name..=open]);
        let kinds = self.parameters(open, close)?.join(", ");
        self.out.push(self.tokens[close].clone());

        let at = &self.tokens[name];
        let mut code = format!("using KS_{} = ::metal_sim::kinds<{kinds}>;", at.text);
        if previous_is(self.tokens, start, ">") {
            if host_name.is_some() {
                return Err(at.unsupported(
                    format!("a host_name on the template {}", at.text),
                    "name its instantiations",
                ));
            }
            self.templates.push(name);
        } else {
            let host_name = host_name.unwrap_or_else(|| format!("\"{}\"", at.text));
            code.push(' ');
            code.push_str(&self.registration(&host_name, &at.text, &at.text));
        }
        self.pending.push((closing(self.tokens, body)?, code));
        Ok(close + 1)
    }

    /// The parentheses of a kernel's parameters and the opening brace of its body.
    fn definition_brackets(
        &self,
        result: usize,
        name: usize,
    ) -> Result<(usize, usize, usize), Error> {
        let at = &self.tokens[name];
        if !self.tokens[result].is("void") {
            return Err(at.unsupported(
                format!("the kernel {} with a result", at.text),
                "kernels return void",
            ));
        }
        let open = next(self.tokens, name).filter(|&j| self.tokens[j].is("("));
        let close = open.map(|j| closing(self.tokens, j)).transpose()?;
        let body = close
            .and_then(|j| next(self.tokens, j))
            .filter(|&j| self.tokens[j].is("{"));
        match (open, close, body) {
            (Some(open), Some(close), Some(body)) => Ok((open, close, body)),
            _ => Err(at.unsupported(
                format!("this declaration of the kernel {}", at.text),
                "write a definition with a body, or an instantiation with a host_name",
            )),
        }
    }

    fn registration(&mut self, host_name: &str, function: &str, kernel: &str) -> String {
        self.registered += 1;
        format!(
            "static ::metal_sim::kernel_registrar METAL_SIM_UNIQUE(registrar_)(unit_, {host_name}, \
             &::metal_sim::thunk<&{function}, KS_{kernel}>::call);"
        )
    }

    /// Copies the parameters between `open` and `close` without their attributes; returns their kinds.
    fn parameters(&mut self, open: usize, close: usize) -> Result<Vec<String>, Error> {
        let mut kinds = Vec::new();
        let mut first = open + 1;
        while let Some(start) =
            (first..close).find(|&i| self.tokens[i].directive == self.tokens[open].directive)
        {
            let end = parameter_end(self.tokens, start, close)?;
            kinds.push(self.parameter(start, end)?);
            if end < close {
                self.out.push(self.tokens[end].clone());
            }
            first = end + 1;
        }
        Ok(kinds)
    }

    /// Copies one parameter without its attribute; returns its kind.
    fn parameter(&mut self, start: usize, end: usize) -> Result<String, Error> {
        let mut kind = None;
        let mut i = start;
        while i < end {
            let at = &self.tokens[i];
            if !opens_attribute(self.tokens, i) {
                self.out.push(at.clone());
                i += 1;
                continue;
            }
            let attribute = attributes::parse(self.tokens, i)?;
            let bound = attribute
                .kind()
                .ok_or_else(|| attributes::unknown(at, &attribute))?;
            if kind.replace(bound).is_some() {
                return Err(at.unsupported("a parameter with two attributes", "keep one"));
            }
            i = attribute.last + 1;
        }
        kind.map_or_else(|| self.buffer(start, end), Ok)
    }

    /// A parameter without an attribute is bound to the next buffer, so it must be one.
    fn buffer(&self, start: usize, end: usize) -> Result<String, Error> {
        let parameter = &self.tokens[start..end];
        let in_device_memory = parameter.iter().any(|t| t.is("device") || t.is("constant"));
        match in_device_memory && parameter.iter().any(|t| t.is("*") || t.is("&")) {
            true => Ok("::metal_sim::K_buffer".to_owned()),
            false => Err(self.tokens[start].unsupported(
                format!("the kernel parameter `{}`", text(parameter)),
                "it needs an attribute that says what it is bound to, or must be a device or constant buffer",
            )),
        }
    }
}

/// The comma that ends the parameter at `start`, or `close`.
fn parameter_end(tokens: &[Token], start: usize, close: usize) -> Result<usize, Error> {
    let mut i = start;
    while i < close && !tokens[i].is(",") {
        i = match tokens[i].text.as_str() {
            "(" | "[" | "{" => closing(tokens, i)?,
            "<" => closing_angle(tokens, i)?,
            _ => i,
        } + 1;
    }
    Ok(i)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;

    fn registered(source: &str) -> Result<(String, usize), Error> {
        let (tokens, registered) = register(lex("t.metal", source)?)?;
        Ok((text(&tokens), registered))
    }

    fn error(source: &str) -> String {
        registered(source)
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default()
    }

    const BUFFER: &str = "::metal_sim::K_buffer";

    fn registrar(host_name: &str, function: &str, kernel: &str) -> String {
        format!(
            "static ::metal_sim::kernel_registrar METAL_SIM_UNIQUE(registrar_)(unit_, {host_name}, \
             &::metal_sim::thunk<&{function}, KS_{kernel}>::call);"
        )
    }

    #[test]
    fn a_plain_kernel_is_registered_under_its_own_name() {
        let (code, count) = registered("kernel void f(device float * x) { a; }").unwrap();
        let expected = format!(
            "void f(device float * x) {{ a; }} using KS_f = ::metal_sim::kinds<{BUFFER}>; {}",
            registrar("\"f\"", "f", "f")
        );
        assert_eq!((code, count), (expected, 1));
    }

    #[test]
    fn a_host_name_replaces_it() {
        let (code, _) =
            registered("[[host_name(\"g\")]] kernel void f(device float * x) { }").unwrap();
        assert!(code.ends_with(&registrar("\"g\"", "f", "f")), "{code}");
    }

    #[test]
    fn a_template_registers_only_its_instantiations() {
        let source = "template<typename T> kernel void f(device T * x) { } \
                      template [[host_name(\"f_a\")]] kernel f_t f<a, g<b>>;";
        let (code, count) = registered(source).unwrap();
        let expected = format!(
            "template<typename T> void f(device T * x) {{ }} using KS_f = ::metal_sim::kinds<{BUFFER}>; {}",
            registrar("\"f_a\"", "f<a, g<b>>", "f")
        );
        assert_eq!((code, count), (expected, 1));
    }

    #[test]
    fn a_template_that_nobody_instantiates_is_an_error() {
        let text = error("\ntemplate<typename T>\nkernel void f(device T * x) { }");
        assert!(
            text.starts_with("t.metal:3: ") && text.contains("the kernel template f without"),
            "{text}"
        );
    }

    #[test]
    fn an_instantiation_may_repeat_the_parameters_over_several_lines() {
        let source = "template [[host_name(\"f_a\")]]\nkernel void f<a>(\n    device a * x [[buffer(0)]],\n    uint i);\nint y;";
        assert_eq!(
            registered(source).unwrap().0,
            format!("{} int y;", registrar("\"f_a\"", "f<a>", "f"))
        );
    }

    #[test]
    fn a_host_name_may_be_put_together_inside_a_macro() {
        let source = "#define GEN(n, t) \\\n template [[host_name(\"f_\" n \"_x\")]] kernel f_t f<t>; \\\n g;\n";
        let (code, count) = registered(source).unwrap();
        assert_eq!(
            code,
            format!(
                "#define GEN(n, t) {} g;",
                registrar("\"f_\" n \"_x\"", "f<t>", "f")
            )
        );
        assert_eq!(count, 1);
    }

    #[test]
    fn attributes_become_kinds() {
        let source = "kernel void f(threadgroup char * shmem [[threadgroup(2)]], uint3 tgpig[[threadgroup_position_in_grid]], \
                      ushort tiisg[[thread_index_in_simdgroup]]) { }";
        let (code, _) = registered(source).unwrap();
        assert!(
            code.starts_with("void f(threadgroup char * shmem, uint3 tgpig, ushort tiisg) { }"),
            "{code}"
        );
        assert!(code.contains(
            "kinds<::metal_sim::K_threadgroup<2>, ::metal_sim::K_threadgroup_position_in_grid, ::metal_sim::K_thread_index_in_simdgroup>"
        ));
    }

    #[test]
    fn variants_in_the_branches_of_an_if_keep_their_own_kinds() {
        let source = "#ifdef T\nkernel void f(device int * a) { }\n#else\nkernel void f(device int * a, device int * b) { }\n#endif\n";
        let (code, count) = registered(source).unwrap();
        assert!(
            code.contains(&format!("kinds<{BUFFER}>;"))
                && code.contains(&format!("kinds<{BUFFER}, {BUFFER}>;"))
        );
        assert_eq!(count, 2);
    }

    #[test]
    fn what_is_not_recognised_is_refused_with_its_place() {
        let unknown = error("\n\nkernel void f(uint x [[thread_execution_width]]) { }");
        assert!(
            unknown.starts_with("t.metal:3: ") && unknown.contains("[[thread_execution_width]]"),
            "{unknown}"
        );
        assert!(error("kernel void f(device int * x [[buffer(1)]]) { }").contains("[[buffer(1)]]"));
        assert!(error("kernel void f(uint x) { }").contains("kernel parameter `uint x`"));
        assert!(error("kernel void f(device int * x);").contains("declaration of the kernel f"));
        assert!(error("kernel int f(device int * x) { }").contains("with a result"));
        assert!(error("template kernel f_t f<int>;").contains("without host_name"));
        assert!(
            error("template [[host_name(\"a\")]] kernel f_t f;")
                .contains("this instantiation of f")
        );
        assert!(
            error("template [[host_name(\"a\")]] void f<int>;")
                .contains("host_name without a kernel")
        );
        assert!(error("kernel void f(device int * x) { ( }").contains("unmatched"));
    }
}
