//! The functions of ggml-sys's bindings, which bindgen writes in one form.

/// One function of ggml.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    /// An op's constructor: takes a context, returns a tensor.
    pub makes_a_tensor: bool,
}

/// Every `pub fn` of the bindings.
pub fn functions(bindings: &str) -> Vec<Function> {
    let declarations = bindings.split("pub fn ").skip(1);
    declarations
        .filter_map(|rest| {
            let declaration = rest.split(';').next()?;
            let (name, signature) = declaration.split_once('(')?;
            let (arguments, result) = signature.rsplit_once(')')?;
            Some(Function {
                name: name.trim().to_owned(),
                makes_a_tensor: result.trim() == "-> *mut ggml_tensor"
                    && arguments.contains("*mut ggml_context"),
            })
        })
        .collect()
}
