//! From tokens back to text, with `#line` wherever the text would otherwise drift from its source.

use crate::lex::Token;
use crate::tokens::opens_directive;

/// The text of `tokens`. Compiler messages and debuggers see the Metal file's own lines.
pub(crate) fn emit(tokens: &[Token]) -> String {
    let mut emitter = Emitter::default();
    for (i, token) in tokens.iter().enumerate() {
        let opens_directive = opens_directive(tokens, i);
        emitter.write(&token.before);
        if opens_directive {
            emitter.start_line();
        }
        if token.directive == 0 || opens_directive {
            emitter.synchronise(token);
        }
        emitter.write(&token.text);
    }
    emitter.start_line();
    emitter.out
}

#[derive(Default)]
struct Emitter<'a> {
    out: String,
    /// The file and the line that the compiler believes the output has reached.
    position: Option<(&'a str, u32)>,
}

impl<'a> Emitter<'a> {
    fn write(&mut self, text: &str) {
        self.out.push_str(text);
        if let Some((_, line)) = &mut self.position {
            *line += text.matches('\n').count() as u32;
        }
    }

    /// A directive must open a line, whatever a pass has removed before it.
    fn start_line(&mut self) {
        if !self.current_line().trim().is_empty() {
            self.write("\n");
        }
    }

    /// At the start of a line, tells the compiler where `token` stands if it would think otherwise.
    fn synchronise(&mut self, token: &'a Token) {
        let here = (&*token.file, token.line);
        if self.position == Some(here) || !self.current_line().trim().is_empty() {
            return;
        }
        let indent = self.current_line().to_owned();
        self.out.truncate(self.out.len() - indent.len());
        let directive = format!("#line {} \"{}\"\n{indent}", token.line, token.file);
        self.out.push_str(&directive);
        self.position = Some(here);
    }

    fn current_line(&self) -> &str {
        self.out.rsplit('\n').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::lex;

    #[test]
    fn unchanged_text_needs_one_line_directive() {
        let source = "int a;\n#define X \\\n  1\n\nint b; // gone\n";
        let text = emit(&lex("f.metal", source).unwrap());
        assert_eq!(
            text,
            "#line 1 \"f.metal\"\nint a;\n#define X \\\n  1\n\nint b;\n"
        );
    }

    #[test]
    fn a_removed_line_is_made_up_for() {
        let mut tokens = lex("f.metal", "int a;\n#pragma unroll\n  int b;\n").unwrap();
        tokens.retain(|t| t.directive == 0);
        assert_eq!(
            emit(&tokens),
            "#line 1 \"f.metal\"\nint a;\n#line 3 \"f.metal\"\n  int b;\n"
        );
    }

    #[test]
    fn no_line_directive_is_put_inside_a_macro() {
        let mut tokens = lex("f.metal", "#define X \\\n a; \\\n b;\nint c;").unwrap();
        tokens.drain(3..5);
        assert_eq!(
            emit(&tokens),
            "#line 1 \"f.metal\"\n#define X \\\n b;\n#line 4 \"f.metal\"\nint c;\n"
        );
    }
}
