//! ggml-rs's public items and the names of ggml's that they say they stand for, read from the sources.
//!
//! The sources are followed from `lib.rs` along `mod`, as the compiler does, so that unit tests are left out and it is known by
//! which path an item can be used.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    iter::successors,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::{
    Attribute, Expr, Ident, ImplItem, Item, ItemImpl, ItemMod, Lit, LitStr, Meta, Token, TraitItem,
    Type, UseTree, Visibility, punctuated::Punctuated,
};

/// By name of ggml's: the Rust paths, `Tensor::mul_mat` or `quantize::quantize`.
pub type Aliases = BTreeMap<String, BTreeSet<String>>;

/// Every alias of the public items of the crate whose `lib.rs` lies in `src`.
///
/// # Errors
/// When a source cannot be read or parsed, and for an alias on something that no user of the crate can name.
pub fn aliases(src: &Path) -> Result<Aliases> {
    let mut reader = Reader::default();
    let root = Place {
        module: 0,
        folder: src.to_owned(),
    };
    reader.modules.push(Module::default());
    reader.file(&src.join("lib.rs"), &root)?;
    reader.resolve()
}

/// Reads files and remembers what they define.
#[derive(Default)]
struct Reader {
    /// The root first, each other one after its parent.
    modules: Vec<Module>,
    /// By name of an item: the modules that define one of this name.
    defined: BTreeMap<String, BTreeSet<usize>>,
    found: Vec<Found>,
}

#[derive(Default)]
struct Module {
    parent: Option<usize>,
    /// Empty for the root.
    name: String,
    /// Whether its parent lets others see it.
    public: bool,
    /// What it exports although a module in it defines it, and the name of that module.
    exports: BTreeSet<(String, String)>,
}

/// An alias, before it is known where the item can be reached.
struct Found {
    alias: String,
    /// The struct, enum, trait or function.
    item: String,
    /// A method, variant or field of it.
    member: Option<String>,
    /// Where the alias was read. Two modules may each have a `Builder`: the nearer one is meant.
    module: usize,
    /// Where it stands, for an error.
    file: PathBuf,
}

/// Where items are read.
#[derive(Clone)]
struct Place {
    module: usize,
    /// Where the files of its modules lie.
    folder: PathBuf,
}

impl Reader {
    fn file(&mut self, file: &Path, place: &Place) -> Result<()> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let parsed =
            syn::parse_file(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        parsed
            .items
            .iter()
            .try_for_each(|item| self.item(item, place, file))
    }

    fn item(&mut self, item: &Item, place: &Place, file: &Path) -> Result<()> {
        match item {
            Item::Mod(module) if !is_test(&module.attrs)? => {
                return self.module(module, place, file);
            }
            Item::Use(item) if is_public(&item.vis) => {
                exported(&item.tree, None, &mut self.modules[place.module].exports);
            }
            Item::Fn(item) if is_public(&item.vis) => {
                self.define(place, file, &item.sig.ident, &item.attrs)?;
            }
            Item::Const(item) if is_public(&item.vis) => {
                self.define(place, file, &item.ident, &item.attrs)?;
            }
            Item::Type(item) if is_public(&item.vis) => {
                self.define(place, file, &item.ident, &item.attrs)?;
            }
            Item::Struct(item) if is_public(&item.vis) => {
                self.define(place, file, &item.ident, &item.attrs)?;
                for field in item.fields.iter().filter(|field| is_public(&field.vis)) {
                    self.member(place, file, &item.ident, field.ident.as_ref(), &field.attrs)?;
                }
            }
            Item::Enum(item) if is_public(&item.vis) => {
                self.define(place, file, &item.ident, &item.attrs)?;
                for variant in &item.variants {
                    let name = Some(&variant.ident);
                    self.member(place, file, &item.ident, name, &variant.attrs)?;
                }
            }
            Item::Trait(item) if is_public(&item.vis) => {
                self.define(place, file, &item.ident, &item.attrs)?;
                for method in &item.items {
                    if let TraitItem::Fn(method) = method {
                        let name = Some(&method.sig.ident);
                        self.member(place, file, &item.ident, name, &method.attrs)?;
                    }
                }
            }
            Item::Impl(item) if item.trait_.is_none() => return self.methods(item, place, file),
            Item::Macro(item) => {
                let mut walk = Walk::default();
                walk.tokens(item.mac.tokens.clone())
                    .with_context(|| format!("{}: attributes in a macro", file.display()))?;
                for (alias, item, member) in walk.found {
                    self.remember(place, file, alias, item, Some(member));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn module(&mut self, item: &ItemMod, place: &Place, file: &Path) -> Result<()> {
        let name = item.ident.to_string();
        let folder = place.folder.join(&name);
        let inner = Place {
            module: self.modules.len(),
            folder: folder.clone(),
        };
        self.modules.push(Module {
            parent: Some(place.module),
            name: name.clone(),
            public: is_public(&item.vis),
            exports: BTreeSet::new(),
        });
        if let Some((_, items)) = &item.content {
            return items
                .iter()
                .try_for_each(|item| self.item(item, &inner, file));
        }
        let beside = place.folder.join(format!("{name}.rs"));
        let within = folder.join("mod.rs");
        self.file(if beside.exists() { &beside } else { &within }, &inner)
    }

    fn methods(&mut self, item: &ItemImpl, place: &Place, file: &Path) -> Result<()> {
        let Type::Path(of) = &*item.self_ty else {
            return Ok(());
        };
        let Some(name) = of.path.segments.last().map(|segment| &segment.ident) else {
            return Ok(());
        };
        for method in &item.items {
            match method {
                ImplItem::Fn(method) if is_public(&method.vis) => {
                    self.member(place, file, name, Some(&method.sig.ident), &method.attrs)?;
                }
                ImplItem::Const(constant) if is_public(&constant.vis) => {
                    self.member(place, file, name, Some(&constant.ident), &constant.attrs)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn define(
        &mut self,
        place: &Place,
        file: &Path,
        name: &Ident,
        attributes: &[Attribute],
    ) -> Result<()> {
        let modules = self.defined.entry(name.to_string()).or_default();
        modules.insert(place.module);
        self.member(place, file, name, None, attributes)
    }

    fn member(
        &mut self,
        place: &Place,
        file: &Path,
        item: &Ident,
        member: Option<&Ident>,
        attributes: &[Attribute],
    ) -> Result<()> {
        let aliases = attributes
            .iter()
            .map(|attribute| aliases_of(&attribute.meta))
            .collect::<syn::Result<Vec<_>>>()
            .with_context(|| format!("{}: attributes of {item}", file.display()))?;
        for alias in aliases.into_iter().flatten() {
            let member = member.map(ToString::to_string);
            self.remember(place, file, alias, item.to_string(), member);
        }
        Ok(())
    }

    fn remember(
        &mut self,
        place: &Place,
        file: &Path,
        alias: String,
        item: String,
        member: Option<String>,
    ) {
        self.found.push(Found {
            alias,
            item,
            member,
            module: place.module,
            file: file.to_owned(),
        });
    }

    /// The paths of everything that was found.
    fn resolve(self) -> Result<Aliases> {
        let mut aliases = Aliases::new();
        for found in &self.found {
            let mut paths = self.nearest(found).into_iter();
            let (Some(item), None) = (paths.next(), paths.next()) else {
                bail!(
                    "{}: {} carries the alias {}, and the crate has not exactly one public item of that name",
                    found.file.display(),
                    found.item,
                    found.alias
                );
            };
            let path = match &found.member {
                Some(member) => format!("{item}::{member}"),
                None => item,
            };
            aliases.entry(found.alias.clone()).or_default().insert(path);
        }
        Ok(aliases)
    }

    /// The paths of the items of a name that lie nearest to where the alias was read.
    fn nearest(&self, found: &Found) -> BTreeSet<String> {
        let here = self.above(found.module);
        let shared = |module| self.above(module).intersection(&here).count();
        let public: Vec<_> = self
            .defined
            .get(&found.item)
            .into_iter()
            .flatten()
            .filter_map(|&module| Some((shared(module), self.path(module, &found.item)?)))
            .collect();
        let most = public.iter().map(|(shared, _)| *shared).max();
        let nearest = public
            .into_iter()
            .filter(|(shared, _)| Some(*shared) == most);
        nearest.map(|(_, path)| path).collect()
    }

    /// A module and those that it lies in. Each has a greater number than those.
    fn above(&self, module: usize) -> BTreeSet<usize> {
        let parent = |&module: &usize| self.modules[module].parent;
        successors(Some(module), parent).collect()
    }

    /// The shortest path by which others can use an item of a module: where a public module above it exports it, or its own.
    fn path(&self, module: usize, item: &str) -> Option<String> {
        let mut path = String::new();
        let chain: Vec<_> = self.above(module).into_iter().collect();
        for (depth, &at) in chain.iter().enumerate() {
            let Module {
                name,
                public,
                exports,
                parent,
            } = &self.modules[at];
            if parent.is_some() {
                if !public {
                    return None;
                }
                path.push_str(name);
                path.push_str("::");
            }
            let exported = chain.get(depth + 1).is_some_and(|&within| {
                exports.contains(&(item.to_owned(), self.modules[within].name.clone()))
            });
            if at == module || exported {
                return Some(path + item);
            }
        }
        None
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Whether only unit tests see it.
fn is_test(attributes: &[Attribute]) -> Result<bool> {
    for attribute in attributes.iter().filter(|a| a.path().is_ident("cfg")) {
        if attribute
            .parse_args::<syn::Path>()
            .is_ok_and(|path| path.is_ident("test"))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The names that a `pub use` exports, each with the first module of its path.
fn exported(tree: &UseTree, from: Option<&Ident>, names: &mut BTreeSet<(String, String)>) {
    match tree {
        UseTree::Path(path) if path.ident == "self" => exported(&path.tree, from, names),
        UseTree::Path(path) => exported(&path.tree, from.or(Some(&path.ident)), names),
        UseTree::Name(name) => {
            names.extend(from.map(|from| (name.ident.to_string(), from.to_string())));
        }
        UseTree::Group(group) => {
            group
                .items
                .iter()
                .for_each(|tree| exported(tree, from, names));
        }
        // Under another name than its own, or all at once: nothing of ggml-rs's is.
        _ => {}
    }
}

/// What `doc(alias = "..")` and `doc(alias("..", ".."))` say, without the `#[]` around them.
fn aliases_of(attribute: &Meta) -> syn::Result<Vec<String>> {
    let mut aliases = Vec::new();
    // `doc = ".."` is what comments are.
    let Meta::List(list) = attribute else {
        return Ok(aliases);
    };
    if !list.path.is_ident("doc") {
        return Ok(aliases);
    }
    for meta in list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)? {
        match meta {
            Meta::NameValue(alias) if alias.path.is_ident("alias") => {
                if let Expr::Lit(value) = alias.value
                    && let Lit::Str(text) = value.lit
                {
                    aliases.push(text.value());
                }
            }
            Meta::List(several) if several.path.is_ident("alias") => {
                let list = Punctuated::<LitStr, Token![,]>::parse_terminated;
                let texts = several.parse_args_with(list)?;
                aliases.extend(texts.iter().map(LitStr::value));
            }
            _ => {}
        }
    }
    Ok(aliases)
}

/// Finds methods with aliases in the tokens of a macro, which are no items before the macro is used.
#[derive(Default)]
struct Walk {
    /// The type whose `impl` it is in.
    item: Option<String>,
    /// Of the next method.
    aliases: Vec<String>,
    /// Alias, type and method.
    found: Vec<(String, String, String)>,
}

impl Walk {
    fn tokens(&mut self, tokens: TokenStream) -> syn::Result<()> {
        let mut word = String::new();
        for token in tokens {
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                    if let Ok(attribute) = syn::parse2::<Meta>(group.stream()) {
                        self.aliases.extend(aliases_of(&attribute)?);
                    }
                }
                TokenTree::Group(group) => self.tokens(group.stream())?,
                TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    match word.as_str() {
                        "impl" => self.item = Some(name.clone()),
                        "fn" => self.method(&name),
                        _ => {}
                    }
                    word = name;
                }
                _ => word.clear(),
            }
        }
        Ok(())
    }

    fn method(&mut self, name: &str) {
        let aliases = std::mem::take(&mut self.aliases);
        if let Some(item) = &self.item {
            let of = |alias| (alias, item.clone(), name.to_owned());
            self.found.extend(aliases.into_iter().map(of));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aliases and paths of a crate of these files.
    fn read(files: &[(&str, &str)]) -> Result<Vec<String>> {
        let folder = tempfile::tempdir()?;
        for (path, text) in files {
            let file = folder.path().join(path);
            fs::create_dir_all(file.parent().unwrap())?;
            fs::write(file, text)?;
        }
        let of = |(alias, paths): (String, BTreeSet<String>)| {
            let paths: Vec<_> = paths.into_iter().collect();
            format!("{alias}: {}", paths.join(" "))
        };
        Ok(aliases(folder.path())?.into_iter().map(of).collect())
    }

    #[test]
    fn items_are_named_by_the_path_that_users_write() {
        let found = read(&[
            (
                "lib.rs",
                "mod graph; pub mod quantize; pub use graph::{Tensor, Mode};",
            ),
            ("graph/mod.rs", "mod ops; pub use ops::Mode; pub struct Tensor;"),
            (
                "graph/ops.rs",
                "use super::Tensor;
                 impl Tensor {
                     #[doc(alias = \"c_add\")] #[doc(alias(\"c_plus\", \"c_sum\"))] #[must_use] pub fn add(self) {}
                     #[doc(alias = \"c_hidden\")] fn hidden(self) {}
                 }
                 /// A mode.
                 pub enum Mode { #[doc(alias = \"C_NEOX\")] Neox }
                 #[cfg(test)] mod tests { #[doc(alias = \"c_test\")] pub fn test() {} }",
            ),
            (
                "quantize.rs",
                "#[doc(alias = \"c_quantize\")] pub fn quantize() {} #[doc(alias = \"c_add\")] pub struct Rows;",
            ),
        ]);
        assert_eq!(
            found.unwrap(),
            [
                "C_NEOX: Mode::Neox",
                "c_add: Tensor::add quantize::Rows",
                "c_plus: Tensor::add",
                "c_quantize: quantize::quantize",
                "c_sum: Tensor::add",
            ]
        );
    }

    #[test]
    fn of_two_items_of_a_name_the_nearer_one_is_meant() {
        let found = read(&[
            (
                "lib.rs",
                "mod graph; pub mod files; pub use graph::Builder;",
            ),
            ("graph/mod.rs", "mod ops; pub struct Builder;"),
            (
                "graph/ops.rs",
                "impl super::Builder { #[doc(alias = \"c_node\")] pub fn node() {} }",
            ),
            (
                "files.rs",
                "pub struct Builder; impl Builder { #[doc(alias = \"c_key\")] pub fn key() {} }",
            ),
        ]);
        let wanted = ["c_key: files::Builder::key", "c_node: Builder::node"];
        assert_eq!(found.unwrap(), wanted);
    }

    #[test]
    fn methods_in_a_macro_are_found() {
        let found = read(&[(
            "lib.rs",
            "pub struct Value;
             macro_rules! kinds { ($($name:ident),*) => {
                 impl Value {
                     /// Its kind.
                     #[doc(alias = \"c_kind\")]
                     pub fn kind(&self) -> u8 { match self { $(Self::$name => 1),* } }
                     pub fn other(&self) {}
                 }
             } }",
        )]);
        assert_eq!(found.unwrap(), ["c_kind: Value::kind"]);
    }

    #[test]
    fn an_alias_on_what_nobody_can_name_is_an_error() {
        let error = read(&[
            ("lib.rs", "mod inner;"),
            ("inner.rs", "#[doc(alias = \"c_add\")] pub fn add() {}"),
        ]);
        let error = format!("{:#}", error.unwrap_err());
        assert!(
            error.contains("c_add") && error.contains("inner.rs"),
            "{error}"
        );
    }

    #[test]
    fn a_module_without_a_file_is_an_error() {
        let error = format!("{:#}", read(&[("lib.rs", "mod gone;")]).unwrap_err());
        assert!(error.contains("gone"), "{error}");
    }
}
