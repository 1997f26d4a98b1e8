//! Upgrading, as far as it can be tried without another release: to the version that is pinned.

use std::fs;

use xtask::{pin::checkout, upgrade::upgrade};

fn vendor_files() -> Vec<Vec<u8>> {
    ["Cargo.toml", "Cargo.lock"]
        .map(|file| fs::read(checkout().join("vendor").join(file)).unwrap())
        .into()
}

/// The version in `vendor/Cargo.toml`.
fn pinned() -> String {
    let manifest = fs::read_to_string(checkout().join("vendor/Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("version = \"=").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn upgrading_to_the_pinned_version_changes_nothing_and_finds_nothing() {
    let before = vendor_files();
    let outcome = upgrade(&checkout(), &pinned(), false).unwrap();
    assert!(
        outcome.is_same() && outcome.applies() && !outcome.written,
        "{outcome:?}"
    );
    assert_eq!(outcome.reading, []);
    assert_eq!(vendor_files(), before);
}

#[test]
fn a_version_that_does_not_exist_changes_nothing() {
    let before = vendor_files();
    let error = format!(
        "{:#}",
        upgrade(&checkout(), "0.0.0-none", false).unwrap_err()
    );
    assert!(error.contains("cargo finds no such version"), "{error}");
    assert_eq!(vendor_files(), before);
}
