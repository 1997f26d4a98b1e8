//! Which units are compiled again after which change. Needs a C compiler, as everything here does.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use cc_units::{Error, UnitSet};

/// Three sources: `a.c` and `b.c` include `shared.h`, `b.c` also `only_b.h`, `c.c` neither.
struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let project = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        project.write("src/shared.h", "#define SHARED 1\n");
        project.write("src/only_b.h", "#define ONLY_B 1\n");
        project.write(
            "src/a.c",
            "#include \"shared.h\"\nint a(void) { return SHARED; }\n",
        );
        project.write(
            "src/b.c",
            "#include \"shared.h\"\n#include \"only_b.h\"\nint b(void) { return ONLY_B; }\n",
        );
        project.write("src/c.c", "int c(void) { return 0; }\n");
        project
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn set(&self) -> UnitSet {
        self.set_of("src", compiler())
    }

    /// The sources in the folder `src`, compiled into the one folder for objects.
    fn set_of(&self, src: &str, build: cc::Build) -> UnitSet {
        let files = ["a.c", "b.c", "c.c"].map(|file| self.path(src).join(file));
        UnitSet::new(build, self.path("objects"))
            .root("src", self.path(src))
            .files(files)
    }
}

/// The host's compiler; outside a build script `cc` must be told what cargo would tell it.
fn compiler() -> cc::Build {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap()
        .to_owned();
    let mut build = cc::Build::new();
    build
        .cargo_metadata(false)
        .target(&host)
        .host(&host)
        .opt_level(0)
        .debug(false);
    build
}

/// Names of the sources that compiling `set` compiled, told from the objects that it wrote anew.
fn compiled(set: &UnitSet) -> Vec<String> {
    let announced = names(&set.stale().unwrap());
    let started = SystemTime::now();
    let objects = set.compile().unwrap();
    let is_new = |object: &&PathBuf| {
        fs::metadata(object).unwrap().modified().unwrap() >= started - GRANULARITY
    };
    let written: Vec<_> = objects
        .iter()
        .filter(is_new)
        .map(|object| source_of(object))
        .collect();
    assert_eq!(written, announced, "stale() and compile() must agree");
    written
}

/// File systems stamp files with a clock that ticks more coarsely than the one that `SystemTime` reads.
const GRANULARITY: std::time::Duration = std::time::Duration::from_millis(10);

/// Lets time pass, so that what was written before cannot be taken for new.
fn settle() {
    std::thread::sleep(3 * GRANULARITY);
}

fn names(paths: &[PathBuf]) -> Vec<String> {
    paths
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect()
}

/// `objects/a-0123abcd.o` was made from `a.c`.
fn source_of(object: &Path) -> String {
    let stem = object.file_stem().unwrap().to_string_lossy();
    format!("{}.c", stem.split_once('-').unwrap().0)
}

/// A project that is compiled already.
fn compiled_project() -> Project {
    let project = Project::new();
    assert_eq!(compiled(&project.set()), ["a.c", "b.c", "c.c"]);
    settle();
    project
}

#[test]
fn an_unchanged_set_compiles_nothing() {
    let project = compiled_project();
    assert!(compiled(&project.set()).is_empty());
}

#[test]
fn a_header_recompiles_its_dependants_and_only_those() {
    let project = compiled_project();
    project.write("src/only_b.h", "#define ONLY_B 2\n");
    assert_eq!(compiled(&project.set()), ["b.c"]);
    settle();
    project.write("src/shared.h", "#define SHARED 2\n");
    assert_eq!(compiled(&project.set()), ["a.c", "b.c"]);
}

#[test]
fn a_source_recompiles_itself() {
    let project = compiled_project();
    project.write("src/c.c", "int c(void) { return 1; }\n");
    assert_eq!(compiled(&project.set()), ["c.c"]);
}

#[test]
fn the_same_bytes_written_again_recompile_nothing() {
    let project = compiled_project();
    let text = fs::read_to_string(project.path("src/shared.h")).unwrap();
    project.write("src/shared.h", &text);
    assert!(compiled(&project.set()).is_empty());
}

#[test]
fn another_flag_recompiles_everything_and_so_does_its_return() {
    let project = compiled_project();
    let mut build = compiler();
    build.define("EXTRA", "1");
    assert_eq!(compiled(&project.set_of("src", build)).len(), 3);
    settle();
    assert_eq!(compiled(&project.set()).len(), 3);
}

#[test]
fn a_moved_tree_keeps_its_objects() {
    let project = compiled_project();
    fs::rename(project.path("src"), project.path("moved")).unwrap();
    assert!(compiled(&project.set_of("moved", compiler())).is_empty());
    project.write("moved/only_b.h", "#define ONLY_B 3\n");
    assert_eq!(compiled(&project.set_of("moved", compiler())), ["b.c"]);
}

#[test]
fn a_lost_object_is_made_again() {
    let project = compiled_project();
    let objects = project.set().compile().unwrap();
    fs::remove_file(&objects[1]).unwrap();
    assert_eq!(compiled(&project.set()), ["b.c"]);
}

#[test]
fn a_source_that_does_not_compile_is_named_and_leaves_the_others_alone() {
    let project = compiled_project();
    project.write("src/b.c", "int b(void) { return undeclared; }\n");
    let error = project.set().compile().unwrap_err();
    assert!(
        matches!(&error, Error::Compile { file, .. } if file.ends_with("b.c")),
        "{error}"
    );
    assert!(error.to_string().contains("undeclared"), "{error}");
    assert_eq!(names(&project.set().stale().unwrap()), ["b.c"]);

    settle();
    project.write("src/b.c", "int b(void) { return 2; }\n");
    assert_eq!(compiled(&project.set()), ["b.c"]);
}

#[test]
fn a_header_that_is_gone_makes_its_dependants_stale() {
    let project = compiled_project();
    fs::remove_file(project.path("src/only_b.h")).unwrap();
    assert_eq!(names(&project.set().stale().unwrap()), ["b.c"]);
    assert!(project.set().compile().is_err());
}

#[test]
fn files_of_one_name_in_two_folders_get_two_objects() {
    let project = Project::new();
    project.write("src/sub/a.c", "int sub_a(void) { return 0; }\n");
    let objects = project
        .set()
        .file(project.path("src/sub/a.c"))
        .compile()
        .unwrap();
    assert_eq!(objects.len(), 4);
    assert_ne!(objects[0], objects[3]);
    assert!(objects.iter().all(|object| object.is_file()));
}

#[test]
fn this_host_s_compiler_is_new_enough() {
    cc_units::check_compiler(&compiler()).unwrap();
}
