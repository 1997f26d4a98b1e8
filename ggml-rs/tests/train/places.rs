//! Where checkpoints go: what is there is kept, or replaced as a whole.
#![cfg(unix)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;

use ggml_rs::Error;
use ggml_rs::train::{Arrays, TrainError, TrainOptions, Trainer};

use crate::subject::{bits, cpu, data, refused, trainer, weights};

/// A trainer after its first step.
fn stepped() -> Trainer<Arrays> {
    let (device, mut backend) = cpu();
    let options = TrainOptions::default();
    let mut trainer = trainer(&backend, data(8, 1), &weights(device, 5), options);
    trainer.step(&mut backend).unwrap();
    trainer
}

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// A rename would put a file in its place: of `/dev/null`, for one who may do that.
#[test]
fn what_is_no_file_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("pipe");
    pipe(&place);
    let error = refused(stepped().save(&place));
    assert!(
        matches!(&error, TrainError::Checkpoint { detail, .. } if detail == "not a regular file"),
        "{error}"
    );
    assert!(fs::metadata(&place).unwrap().file_type().is_fifo());
    let error = refused(stepped().save(folder.path()));
    assert!(matches!(error, TrainError::Checkpoint { .. }), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_link_stays_one() {
    let [near, far] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let file = far.path().join("run.gguf");
    let link = near.path().join("latest.gguf");
    fs::write(&file, "old").unwrap();
    symlink(&file, &link).unwrap();
    let saved = stepped();
    saved.save(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(!fs::symlink_metadata(&file).unwrap().is_symlink());
    let mut other = stepped();
    other.restore(&file).unwrap();
    assert_eq!(other.progress(), saved.progress());
    for folder in [near, far] {
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_name_need_not_be_text() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join(OsStr::from_bytes(b"run \xff.gguf"));
    let mut trainer = stepped();
    trainer.save(&place).unwrap();
    trainer.save(&place).unwrap();
    trainer.restore(&place).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    fs::write(&place, "no checkpoint").unwrap();
    let error = trainer.restore(&place).unwrap_err();
    assert!(
        matches!(&error, Error::File(error) if error.path.as_ref() == Some(&place)),
        "{error}"
    );
}

/// Every byte of it: the error comes with the last flush at the latest.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let to = std::io::BufWriter::with_capacity(1 << 20, full.unwrap());
    let error = stepped().write_to(to).unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
}

/// What is saved is what was there, although the file is being read.
#[test]
fn a_file_that_is_read_is_replaced_beside_its_reader() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("run.gguf");
    let (device, mut backend) = cpu();
    let params = weights(device, 5);
    let mut trainer = trainer(&backend, data(8, 1), &params, TrainOptions::default());
    trainer.save(&place).unwrap();
    let before = bits(&params);
    let mut reader = ggml_rs::files::gguf::Gguf::open(&place).unwrap();
    trainer.step(&mut backend).unwrap();
    trainer.save(&place).unwrap();
    let read = weights(device, 6);
    reader.load_into(&read).unwrap();
    assert!(bits(&read) == before && bits(&params) != before);
}
