//! Checkpoints survive their writer: children write one after the other and are killed at random moments.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, iter};

use ggml_rs::DType::F32;
use ggml_rs::train::{Arrays, Forward, TrainOptions, Trainer};
use ggml_rs::{Params, Result};

use crate::common::Random;
use crate::subject::{cpu, descent};

const KILLS: usize = 120;
/// How long a child writes, at most. A checkpoint takes a few milliseconds.
const LONGEST: Duration = Duration::from_millis(40);
/// Floats in each of two weights: files of 2 MB.
const FLOATS: usize = 1 << 18;
/// Names the file to a child, and how it writes.
const FILE: &str = "GGML_RS_KILL_FILE";
const PLAIN: &str = "GGML_RS_KILL_PLAIN";

/// Two large weights, which every checkpoint has filled with one number.
struct Subject {
    params: Params,
    trainer: Trainer<Arrays>,
}

impl Subject {
    fn new() -> Result<Self> {
        let (device, backend) = cpu();
        let params = Params::builder()
            .tensor("first", F32, [1, FLOATS])?
            .tensor("last", F32, [1, FLOATS])?
            .allocate(device)?;
        params.zero()?;
        let [first, last] = ["first", "last"].map(|name| params.get(name).unwrap());
        let data = Arrays::new(&[1], vec![1.0], &[1], vec![0.0])?;
        let options = TrainOptions {
            optimizer: descent(0.0),
            ..TrainOptions::default()
        };
        let trainer = Trainer::new(&backend, data, &params, options, move |g, batch| {
            let sum = g.param(&first)?.add(g.param(&last)?)?;
            let outputs = sum.mul_mat(batch.features)?.mean()?;
            Ok(Forward {
                loss: outputs,
                outputs,
            })
        })?;
        Ok(Self { params, trainer })
    }

    fn fill(&self, number: f32) -> Result<()> {
        self.params
            .iter()
            .try_for_each(|param| param.set_f32(&vec![number; FLOATS]))
    }

    /// The number of a checkpoint.
    ///
    /// # Panics
    /// Where it holds several.
    fn number(&mut self, path: &Path) -> Result<f32> {
        self.trainer.restore(path)?;
        let values: Vec<_> = self
            .params
            .iter()
            .map(|param| param.read_f32())
            .collect::<Result<_>>()?;
        let number = values[0][0];
        assert!(
            values.concat().iter().all(|&value| value == number),
            "parts of two checkpoints"
        );
        Ok(number)
    }
}

/// What the children run.
#[test]
#[ignore = "started by the tests below, and killed"]
fn child() {
    let path = PathBuf::from(env::var_os(FILE).expect("started by a test"));
    let plain = env::var_os(PLAIN).is_some();
    let mut subject = Subject::new().unwrap();
    let begin = match path.exists() {
        true if !plain => subject.number(&path).unwrap(),
        _ => 0.0,
    };
    for number in iter::successors(Some(begin + 1.0), |number| Some(number + 1.0)) {
        subject.fill(number).unwrap();
        match plain {
            true => {
                let file = BufWriter::new(File::create(&path).unwrap());
                subject.trainer.write_to(file).unwrap();
            }
            false => subject.trainer.save(&path).unwrap(),
        }
        fs::write(path.with_extension("begun"), []).unwrap();
    }
}

/// Kills that many children, and says after each what was found.
fn kill(path: &Path, plain: bool, mut found: impl FnMut(usize)) {
    let mut random = Random::new(1);
    let begun = path.with_extension("begun");
    for round in 0..KILLS {
        let _ = fs::remove_file(&begun);
        let mut child = start(path, plain);
        let patience = Instant::now() + Duration::from_secs(60);
        while !begun.exists() {
            assert!(
                child.try_wait().unwrap().is_none(),
                "the child ended by itself"
            );
            assert!(Instant::now() < patience, "no checkpoint within a minute");
            sleep(Duration::from_millis(1));
        }
        sleep(LONGEST.mul_f32(random.unit()));
        // SIGKILL: the child has no say in it.
        child.kill().unwrap();
        child.wait().unwrap();
        found(round);
    }
}

fn start(path: &Path, plain: bool) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "kill::child", "--ignored", "--quiet"]);
    command
        .env(FILE, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if plain {
        command.env(PLAIN, "1");
    }
    command.spawn().unwrap()
}

#[test]
fn checkpoints_are_whole_whenever_their_writer_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.gguf");
    let mut subject = Subject::new().unwrap();
    let (mut last, mut cut_off) = (0.0, 0);
    kill(&path, false, |round| {
        let number = subject
            .number(&path)
            .unwrap_or_else(|error| panic!("kill {round}: {error}"));
        // Each child begins where the one before was, and its first checkpoint was there before it was killed.
        assert!(number > last, "kill {round}: {number} after {last}");
        last = number;
        cut_off += partial_files(folder.path());
    });
    println!("{KILLS} kills, {cut_off} in the middle of a file, {last} checkpoints");
    // Otherwise nothing was tested.
    assert!(
        cut_off > KILLS / 10,
        "{cut_off} of {KILLS} kills came while a file was written"
    );
}

/// Removes what writers left behind, and counts it.
fn partial_files(folder: &Path) -> usize {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let partial = files.filter(|path| path.extension().is_some_and(|end| end == "partial"));
    partial.map(|path| fs::remove_file(path).unwrap()).count()
}

/// The same, with a file that is written in place: the test above tells the difference.
#[test]
fn files_written_in_place_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.gguf");
    let mut subject = Subject::new().unwrap();
    let mut broken = 0;
    kill(&path, true, |_| {
        broken += usize::from(subject.number(&path).is_err())
    });
    println!("{broken} of {KILLS} files are broken");
    assert!(broken > KILLS / 10, "{broken} of {KILLS} files are broken");
}
