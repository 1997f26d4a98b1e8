//! The way from `patches/` to commits and back, on a small tree of our own; and the real series as it is in git.

use std::{
    fs,
    path::{Path, PathBuf},
};

use xtask::{
    git::Git,
    patches::{Change, edit, refresh, verify},
    pin::{Pin, checkout},
};

const A_C: &str = "int f() {\n    one();\n    two();\n}\n\nint g() {\n    one();\n    two();\n}\n";

const FIRST: &str = "--- a/src/a.c\n+++ b/src/a.c\n@@ -1,5 +1,5 @@\n int f() {\n     one();\n-    two();\n+    II();\n }\n \n";

fn entry(name: &str) -> String {
    format!(
        "[[patch]]\nname = \"{name}\"\nfixes = \"f\"\nproof = [\"gate\"]\nupstream = \"u\"\ndrop_when = \"d\"\n"
    )
}

const FINDING: &str =
    "[[patch.finding]]\nsection = \"cpu\"\nwhere = \"w\"\nwrong = \"x\"\nreproducer = \"r\"\n";

/// A pinned tree, a series of one patch and one whole file, and the working tree made from them.
struct Fixture {
    dir: tempfile::TempDir,
    pin: Pin,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pin = Pin {
            package: "upstream 1.0.0".to_owned(),
            version: "9.9.9".to_owned(),
            dir: dir.path().join("ggml"),
        };
        let fixture = Self { dir, pin };
        fixture.write("ggml/src/a.c", A_C);
        fixture.write("ggml/include/a.h", "int a;\n");
        fixture.write("patches/series.toml", &entry("0001-x"));
        fixture.write("patches/0001-x.patch", FIRST);
        fixture.write("patches/src/ours.cpp", "int ours;\n");
        edit(&fixture.pin, &fixture.patches(), &fixture.tree()).unwrap();
        fixture
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    fn patches(&self) -> PathBuf {
        self.path("patches")
    }

    fn tree(&self) -> PathBuf {
        self.path("work")
    }

    fn git(&self) -> Git {
        Git::at(&self.tree())
    }

    fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative)).unwrap()
    }

    fn refresh(&self) -> anyhow::Result<Vec<Change>> {
        refresh(&self.pin, &self.patches(), &self.tree())
    }

    /// The refusal, after which nothing below `patches` may have changed.
    fn refusal(&self) -> String {
        let before = patch_series::read_folder(&self.patches()).unwrap();
        let error = format!("{:#}", self.refresh().unwrap_err());
        assert_eq!(
            patch_series::read_folder(&self.patches()).unwrap(),
            before,
            "{error}"
        );
        error
    }
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn the_tree_holds_one_commit_per_patch_and_an_unchanged_one_refreshes_to_nothing() {
    let fixture = Fixture::new();
    let log = fixture.git().run(&["log", "--format=%s"]).unwrap();
    assert_eq!(log, "0001-x\noverlay\nggml 9.9.9 from upstream 1.0.0\n");
    assert_eq!(fixture.read("work/src/ours.cpp"), "int ours;\n");
    assert!(fixture.read("work/src/a.c").contains("II();"));
    assert_eq!(fixture.refresh().unwrap(), []);
}

#[test]
fn an_amended_patch_a_new_patch_and_new_whole_files_are_written_back() {
    let fixture = Fixture::new();
    let text = fixture.read("work/src/a.c").replace("II", "deux");
    fixture.write("work/src/a.c", &text);
    fixture.write("work/src/more/new.h", "int n;\n");
    fixture.git().run(&["add", "--all"]).unwrap();
    fixture
        .git()
        .run(&[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "commit",
            "--quiet",
            "--amend",
            "--no-edit",
        ])
        .unwrap();
    fixture.write("work/include/a.h", "long a;\n");
    fixture.git().commit_all("0002-y").unwrap();
    let unknown = fixture.refusal();
    assert_contains(
        &unknown,
        &["\"0002-y\" matches no patch", "series.toml has an entry"],
    );

    fixture.write("patches/series.toml", &(entry("0001-x") + &entry("0002-y")));
    let written = |path: &str| Change::Written(PathBuf::from(path));
    assert_eq!(
        fixture.refresh().unwrap(),
        [
            written("0001-x.patch"),
            written("0002-y.patch"),
            written("src/more/new.h")
        ]
    );
    assert_eq!(
        fixture.read("patches/0001-x.patch"),
        FIRST.replace("II", "deux")
    );
    assert_eq!(
        fixture.read("patches/0002-y.patch"),
        "--- a/include/a.h\n+++ b/include/a.h\n@@ -1 +1 @@\n-int a;\n+long a;\n"
    );
    // What was written is what the next tree is made from.
    edit(&fixture.pin, &fixture.patches(), &fixture.path("again")).unwrap();
    assert_eq!(fixture.read("again/src/a.c"), text);
    assert_eq!(fixture.refresh().unwrap(), []);
}

#[test]
fn findings_are_kept() {
    let fixture = Fixture::new();
    let text = fixture.read("work/include/a.h").replace("int", "long");
    fixture.write("work/include/a.h", &text);
    fixture.git().commit_all("0002-y").unwrap();
    let toml = [
        &entry("0001-x"),
        FINDING,
        FINDING,
        &entry("0002-y"),
        FINDING,
    ]
    .concat();
    fixture.write("patches/series.toml", &toml);
    let written = Change::Written(PathBuf::from("0002-y.patch"));
    assert_eq!(fixture.refresh().unwrap(), [written]);
    edit(&fixture.pin, &fixture.patches(), &fixture.path("again")).unwrap();
    assert_eq!(fixture.read("patches/series.toml"), toml);
    let report = verify(&fixture.pin, &fixture.patches(), &checkout()).unwrap();
    assert_eq!(report.wrong, [] as [&str; 0]);
    let holds = report.holds.join("\n");
    assert_contains(&holds, &["2 patches", "3 findings are whole"]);
}

#[test]
fn settings_of_git_do_not_change_a_diff() {
    let fixture = Fixture::new();
    // Patience and the default find different lines of it unchanged.
    let text = "int f() {\n    one();\n    II();\n}\n\n    one();\n}\n    two();\n";
    fixture.write("work/src/a.c", text);
    fixture.write("patches/series.toml", &(entry("0001-x") + &entry("0002-y")));
    fixture.git().commit_all("0002-y").unwrap();
    fixture.refresh().unwrap();
    for setting in [
        ["diff.interHunkContext", "9"],
        ["diff.algorithm", "patience"],
    ] {
        let set = [&["config"], &setting[..]].concat();
        fixture.git().run(&set).unwrap();
        assert_eq!(fixture.refresh().unwrap(), [], "{setting:?}");
    }
}

#[test]
fn a_whole_file_that_is_gone_is_removed() {
    let fixture = Fixture::new();
    fs::remove_file(fixture.path("work/src/ours.cpp")).unwrap();
    fixture.git().run(&["add", "--all"]).unwrap();
    fixture
        .git()
        .run(&[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "commit",
            "--quiet",
            "--amend",
            "--no-edit",
        ])
        .unwrap();
    assert_eq!(
        fixture.refresh().unwrap(),
        [Change::Removed("src/ours.cpp".into())]
    );
}

#[test]
fn what_would_be_lost_is_refused() {
    let fixture = Fixture::new();
    fixture.write("work/src/a.c", "changed\n");
    assert_contains(&fixture.refusal(), &["not committed", "src/a.c", "--fixup"]);

    let fixture = Fixture::new();
    fixture.write("work/src/stray.c", "");
    assert_contains(&fixture.refusal(), &["not committed", "src/stray.c"]);

    let fixture = Fixture::new();
    fixture.write(
        "patches/0001-x.patch",
        &FIRST.replace("II", "edited by hand"),
    );
    assert_contains(
        &fixture.refusal(),
        &["changed in", "0001-x.patch", "cherry-pick"],
    );

    let fixture = Fixture::new();
    fixture
        .git()
        .run(&["reset", "--quiet", "--hard", "HEAD~1"])
        .unwrap();
    assert_contains(
        &fixture.refusal(),
        &["lists 0001-x, but no commit is called so", "drop a patch"],
    );

    let fixture = Fixture::new();
    fixture.git().commit_all("0001-x").unwrap();
    assert_contains(
        &fixture.refusal(),
        &["two commits are called \"0001-x\"", "squash"],
    );

    let fixture = Fixture::new();
    fixture.write("patches/series.toml", &(entry("0001-x") + &entry("0002-y")));
    fs::remove_file(fixture.path("work/include/a.h")).unwrap();
    fixture.git().commit_all("0002-y").unwrap();
    assert_contains(&fixture.refusal(), &["0002-y deletes ggml's include/a.h"]);

    let fixture = Fixture::new();
    fixture.write("work/new-at-the-root.c", "");
    fixture.git().commit_all("overlay2").unwrap();
    assert_contains(&fixture.refusal(), &["overlay2", "matches no patch"]);
}

#[test]
fn commits_in_another_order_are_refused() {
    let fixture = Fixture::new();
    fixture.write("work/include/a.h", "long a;\n");
    fixture.git().commit_all("0002-y").unwrap();
    fixture.write("patches/series.toml", &(entry("0002-y") + &entry("0001-x")));
    assert_contains(&fixture.refusal(), &["another order"]);
}

#[test]
fn folders_that_are_not_ours_are_refused() {
    let fixture = Fixture::new();
    let full = edit(&fixture.pin, &fixture.patches(), &fixture.tree()).unwrap_err();
    assert_contains(&format!("{full:#}"), &["is not empty"]);

    let mut other = fixture.pin.clone();
    other.version = "9.9.10".to_owned();
    let error = refresh(&other, &fixture.patches(), &fixture.tree()).unwrap_err();
    assert_contains(
        &format!("{error:#}"),
        &["holds ggml 9.9.9", "the pin is ggml 9.9.10"],
    );

    let foreign = fixture.path("foreign");
    fs::create_dir_all(&foreign).unwrap();
    Git::at(&foreign).run(&["init", "--quiet"]).unwrap();
    let error = refresh(&fixture.pin, &fixture.patches(), &foreign).unwrap_err();
    assert_contains(
        &format!("{error:#}"),
        &["was not made by `cargo xtask patches edit`"],
    );
}

fn verify_wrong(fixture: &Fixture) -> Vec<String> {
    verify(&fixture.pin, &fixture.patches(), &checkout())
        .unwrap()
        .wrong
}

#[test]
fn verify_names_what_is_wrong() {
    let fixture = Fixture::new();
    assert_eq!(verify_wrong(&fixture), [] as [&str; 0]);

    let toml = entry("0001-x")
        .replace("\"gate\"", "\"mutants: nobody\"")
        .replace("\"d\"", "\"\"");
    fixture.write("patches/series.toml", &toml);
    let wrong = verify_wrong(&fixture);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert_contains(&wrong.concat(), &["drop_when is empty", "no mutant nobody"]);

    let unknown = FINDING.replace("cpu", "gpu");
    fixture.write("patches/series.toml", &(entry("0001-x") + &unknown));
    assert_contains(
        &verify_wrong(&fixture).concat(),
        &["0001-x: a finding's section is \"gpu\""],
    );

    fixture.write("patches/series.toml", &entry("0001-x"));
    // One line less of context fits at both places.
    fixture.write(
        "patches/0001-x.patch",
        "--- a/src/a.c\n+++ b/src/a.c\n@@ -2,3 +2,3 @@ int f() {\n     one();\n-    two();\n+    II();\n }\n",
    );
    assert_contains(
        &verify_wrong(&fixture).concat(),
        &["0001-x.patch", "patches refresh"],
    );

    fixture.write("patches/0001-x.patch", &FIRST.replace("two", "three"));
    assert_contains(
        &verify_wrong(&fixture).concat(),
        &["does not apply to src/a.c"],
    );

    fixture.write("patches/0001-x.patch", FIRST);
    fixture.write("patches/0002-unlisted.patch", FIRST);
    assert_contains(&verify_wrong(&fixture).concat(), &["does not list it"]);
}

#[test]
fn the_series_in_git_is_as_it_should_be() {
    let root = checkout();
    let pin = Pin::resolve(&root.join("vendor")).unwrap();
    let report = verify(&pin, &root.join("patches"), &root).unwrap();
    assert_eq!(report.wrong, [] as [&str; 0], "{:?}", report.holds);
    assert_eq!(report.holds.len(), 5);
    assert!(Path::new(&pin.dir).join("include/ggml.h").is_file());
}
