//! Names for the folders below which paths are recorded, so that records survive a move of the tree.

use std::path::{Path, PathBuf};

/// Named folders. `/build/ggml/src/a.c` below a root `ggml` at `/build/ggml` is written `{ggml}/src/a.c`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roots(Vec<(String, PathBuf)>);

impl Roots {
    /// Adds a root. The deepest folder wins where one root lies inside another.
    pub(crate) fn add(&mut self, name: &str, dir: PathBuf) {
        self.0.push((format!("{{{name}}}"), dir));
        self.0
            .sort_by_key(|(_, dir)| std::cmp::Reverse(dir.as_os_str().len()));
    }

    /// `path` as it is recorded.
    pub(crate) fn name(&self, path: &Path) -> String {
        for (name, dir) in &self.0 {
            if let Ok(rest) = path.strip_prefix(dir) {
                return Path::new(name).join(rest).to_string_lossy().into_owned();
            }
        }
        path.to_string_lossy().into_owned()
    }

    /// The path that `recorded` stands for now.
    pub(crate) fn resolve(&self, recorded: &str) -> PathBuf {
        for (name, dir) in &self.0 {
            if let Ok(rest) = Path::new(recorded).strip_prefix(name) {
                return dir.join(rest);
            }
        }
        PathBuf::from(recorded)
    }

    /// A command line argument with every root's folder replaced by its name (`-I/build/ggml/src` -> `-I{ggml}/src`).
    pub(crate) fn name_in_argument(&self, argument: &str) -> String {
        self.0
            .iter()
            .fold(argument.to_owned(), |text, (name, dir)| {
                text.replace(&*dir.to_string_lossy(), name)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> Roots {
        let mut roots = Roots::default();
        roots.add("out", "/build".into());
        roots.add("ggml", "/build/ggml".into());
        roots
    }

    #[test]
    fn the_deepest_root_names_a_path_and_resolves_it_again() {
        let name = roots().name(Path::new("/build/ggml/src/a.c"));
        assert_eq!(name, "{ggml}/src/a.c");
        assert_eq!(roots().resolve(&name), Path::new("/build/ggml/src/a.c"));
    }

    #[test]
    fn paths_outside_stay_as_they_are() {
        assert_eq!(
            roots().name(Path::new("/usr/include/x.h")),
            "/usr/include/x.h"
        );
        assert_eq!(
            roots().resolve("/usr/include/x.h"),
            Path::new("/usr/include/x.h")
        );
    }

    #[test]
    fn roots_are_found_inside_arguments() {
        assert_eq!(
            roots().name_in_argument("-ffile-prefix-map=/build/ggml=ggml"),
            "-ffile-prefix-map={ggml}=ggml"
        );
    }
}
