//! Errors name the line that the user wrote: of every public function that can fail, a refusal is asked for here, and its file and
//! line compared with those of the call.
//!
//! Which functions there are is read from the sources, so a new one fails here until it has a refusal, or a reason for having
//! none. The sources are also read for how they take places: only a function that is `#[track_caller]` may, and at its start.

mod calls;
mod expected;
mod sources;

use std::collections::BTreeSet;

use ggml_rs::{Error, Result};

/// What was asked for a refusal, and what was wrong with the answer.
#[derive(Default)]
pub struct Asked {
    names: BTreeSet<&'static str>,
    wrong: Vec<String>,
}

impl Asked {
    /// Compares the place of a refusal with the line of its call, in the file of the calls.
    pub fn answer<T>(&mut self, name: &'static str, line: u32, answer: Result<T>) {
        self.names.insert(name);
        let wrong = match answer.map(drop) {
            Ok(()) => "is not refused".to_owned(),
            Err(error) => match place(&error) {
                Some((file, at)) if file.ends_with("places/calls.rs") && at == line => return,
                Some((file, at)) => format!("line {line} is called {file}:{at}: {error}"),
                None => format!("no place: {error}"),
            },
        };
        self.wrong.push(format!("{name}: {wrong}"));
    }
}

/// The file and line that an error names.
fn place(error: &Error) -> Option<(&'static str, u32)> {
    match error {
        Error::Shape(why) | Error::DType(why) | Error::Layout(why) | Error::Param(why) => {
            Some((why.at.file(), why.at.line()))
        }
        Error::NotDifferentiable(why) => Some((why.at.file(), why.at.line())),
        _ => None,
    }
}

#[test]
fn a_refusal_of_every_function_names_the_line_of_its_call() {
    let mut asked = Asked::default();
    calls::all(&mut asked);
    assert!(
        asked.wrong.is_empty(),
        "{} of {}:\n{}",
        asked.wrong.len(),
        asked.names.len(),
        asked.wrong.join("\n")
    );
    let found: BTreeSet<String> = sources::fallible().into_iter().collect();
    assert!(found.len() > 300, "{} functions found", found.len());
    let without = expected::without_a_place();
    let missing: Vec<_> = found
        .iter()
        .filter(|name| !asked.names.contains(name.as_str()) && !without.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "no refusal is asked of {missing:#?}");
    let unknown: Vec<_> = without
        .iter()
        .filter(|name| !found.contains(**name) || asked.names.contains(*name))
        .collect();
    assert!(unknown.is_empty(), "not without a place: {unknown:?}");
}

#[test]
fn places_are_taken_by_the_callers_functions_alone() {
    let (taken, wrong) = sources::places();
    assert!(taken > 200, "{taken} places found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_forgotten_attribute_and_a_closure_are_found() {
    for (text, wrong) in [
        (
            "    #[track_caller]\n    pub fn f(self) -> Result<()> {\n        let at = here();\n",
            false,
        ),
        (
            "    pub fn f(self) -> Result<()> {\n        let at = here();\n",
            true,
        ),
        (
            "    #[track_caller]\n    fn f() {}\n\n    fn g() {\n        let call = Call::new(\"g\");\n",
            true,
        ),
        (
            "#[track_caller]\nfn f() {\n    let g = || check(here());\n",
            true,
        ),
    ] {
        assert_eq!(
            !sources::places_in("f.rs", text).1.is_empty(),
            wrong,
            "{text}"
        );
    }
}

#[test]
fn public_functions_are_found() {
    let text = "
impl<'g> Tensor<'g> {
    pub fn add(self, b: [usize; 3]) -> Result<Self> {
    }
    pub fn ne(self) -> usize {
    }
    pub(super) fn hidden(self) -> Result<Self> {
    }
}
impl fmt::Debug for Tensor<'_> {
    fn fmt(&self) -> Result<()> {
    }
}
pub fn free<T>(
    t: T,
) -> Result<T> {
}
#[cfg(test)]
mod tests {
    pub fn none() -> Result<()> {
    }
}
";
    assert_eq!(sources::fallible_in("x", text), ["Tensor::add", "x::free"]);
}
