//! Objects shared between builds, when two builds of different sources write to one folder at the same time.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use cc_units::UnitSet;

const SOURCES: &str = "CC_UNITS_TEST_SOURCES";
const OBJECTS: &str = "CC_UNITS_TEST_OBJECTS";

/// Compiles what the environment names; without it, as one of the tests, it has nothing to do.
#[test]
fn compile_in_a_process_of_its_own() {
    let (Some(sources), Some(objects)) = (env::var_os(SOURCES), env::var_os(OBJECTS)) else {
        return;
    };
    let sources = PathBuf::from(sources);
    let host = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let mut build = cc::Build::new();
    build.target(&host).host(&host).opt_level(0).debug(false);
    build.cargo_metadata(false).warnings(false);
    UnitSet::new(build, objects)
        .root("src", &sources)
        .file(sources.join("a.c"))
        .compile()
        .unwrap();
}

fn compile(sources: &Path, objects: &Path, cache: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "compile_in_a_process_of_its_own"])
        .env(SOURCES, sources)
        .env(OBJECTS, objects)
        .env("GGML_RS_OBJECT_CACHE", cache)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

fn object(folder: &Path) -> Vec<u8> {
    let mut files = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path());
    let object = files.find(|path| path.extension().is_some_and(|e| e == "o"));
    fs::read(object.unwrap()).unwrap()
}

/// Without names of their own for what is being compiled, a record lies beside the other build's object in some rounds.
#[cfg(target_os = "linux")]
#[test]
fn two_builds_in_one_folder_never_share_an_object_of_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: String| dir.path().join(name);
    let sources = [1, 2].map(|value| {
        let folder = path(format!("src{value}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.c"), format!("int a = {value};\n")).unwrap();
        folder
    });
    let alone = [0, 1].map(|i| {
        let (objects, cache) = (path(format!("alone{i}")), path(format!("cache-alone{i}")));
        assert!(
            compile(&sources[i], &objects, &cache)
                .wait()
                .unwrap()
                .success()
        );
        object(&objects)
    });
    assert_ne!(alone[0], alone[1]);
    for round in 0..30 {
        let (objects, cache) = (path(format!("both{round}")), path(format!("cache{round}")));
        let both = [0, 1].map(|i| compile(&sources[i], &objects, &cache));
        for mut child in both {
            assert!(child.wait().unwrap().success());
        }
        for i in [0, 1] {
            let fetched = path(format!("fetched{round}-{i}"));
            assert!(
                compile(&sources[i], &fetched, &cache)
                    .wait()
                    .unwrap()
                    .success()
            );
            assert_eq!(object(&fetched), alone[i], "round {round}");
        }
    }
}
