//! Sources, flags, and the objects made from them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::SystemTime,
};

use crate::{
    Error,
    cache::Cache,
    depfile,
    record::{self, FileHashes},
    roots::Roots,
};

/// One set of sources that are compiled with one set of flags into one folder.
///
/// Two sets that compile the same file with different flags need different folders.
#[derive(Clone)]
pub struct UnitSet {
    build: cc::Build,
    out_dir: PathBuf,
    roots: Roots,
    files: Vec<PathBuf>,
}

/// A source with the files that belong to it.
struct Unit {
    source: PathBuf,
    object: PathBuf,
    record: PathBuf,
    depfile: PathBuf,
}

impl Unit {
    /// The same unit with files that no other process or thread writes.
    fn private(&self) -> Self {
        static UNITS: AtomicUsize = AtomicUsize::new(0);
        let number = UNITS.fetch_add(1, Ordering::Relaxed);
        let own = |path: &Path, extension: &str| {
            path.with_extension(format!("{}-{number}.{extension}", process::id()))
        };
        Self {
            source: self.source.clone(),
            object: own(&self.object, "o"),
            record: own(&self.record, "unit"),
            depfile: own(&self.depfile, "d"),
        }
    }
}

/// The compiler as every unit of a set calls it.
struct Driver {
    tool: cc::Tool,
    /// Hash of flags and compiler version: what a record must show besides the files' content.
    fingerprint: String,
}

impl UnitSet {
    /// An empty set. `build` carries the language standard, flags, defines and include folders; objects go to `out_dir`.
    pub fn new(build: cc::Build, out_dir: impl Into<PathBuf>) -> Self {
        Self {
            build,
            out_dir: out_dir.into(),
            roots: Roots::default(),
            files: Vec::new(),
        }
    }

    /// Adds a source file.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Adds source files.
    #[must_use]
    pub fn files(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.files.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Names a folder. Paths below it are recorded relative to it, so that a moved tree keeps its objects.
    #[must_use]
    pub fn root(mut self, name: &str, dir: impl Into<PathBuf>) -> Self {
        self.roots.add(name, dir.into());
        self
    }

    /// Compiles what is stale, in parallel, and returns all objects in the order of the sources.
    ///
    /// # Errors
    /// No usable compiler, a source that does not compile, or a file that cannot be read or written.
    pub fn compile(&self) -> Result<Vec<PathBuf>, Error> {
        fs::create_dir_all(&self.out_dir).map_err(Error::io("create", &self.out_dir))?;
        let driver = self.driver()?;
        let units = self.units();
        let stale = self.stale_among(&driver, &units);
        run_in_parallel(longest_first(stale), |unit| {
            self.compile_unit(&driver, unit)
        })?;
        Ok(units.into_iter().map(|unit| unit.object).collect())
    }

    /// The sources that [`compile`](Self::compile) would compile now.
    ///
    /// # Errors
    /// No usable compiler.
    pub fn stale(&self) -> Result<Vec<PathBuf>, Error> {
        let driver = self.driver()?;
        let units = self.units();
        Ok(self
            .stale_among(&driver, &units)
            .into_iter()
            .map(|unit| unit.source.clone())
            .collect())
    }

    fn units(&self) -> Vec<Unit> {
        self.files.iter().map(|source| self.unit(source)).collect()
    }

    /// Objects are named after the source and, since names repeat between folders, after a hash of its recorded path.
    fn unit(&self, source: &Path) -> Unit {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        let hash = record::hex_digest(self.roots.name(source).as_bytes());
        let path = |extension: &str| {
            self.out_dir
                .join(format!("{stem}-{}.{extension}", &hash[..8]))
        };
        Unit {
            source: source.to_owned(),
            object: path("o"),
            record: path("unit"),
            depfile: path("d"),
        }
    }

    fn driver(&self) -> Result<Driver, Error> {
        let tool = self.build.try_get_compiler()?;
        let program = tool.path().display().to_string();
        if tool.is_like_msvc() {
            return Err(Error::Unsupported { program });
        }
        let version = Command::new(tool.path())
            .arg("--version")
            .output()
            .map_err(|source| Error::NoCompiler { program, source })?;
        let mut command = String::from_utf8_lossy(&version.stdout).into_owned();
        for argument in tool.args() {
            command.push('\n');
            command.push_str(&self.roots.name_in_argument(&argument.to_string_lossy()));
        }
        Ok(Driver {
            tool,
            fingerprint: record::hex_digest(command.as_bytes()),
        })
    }

    fn stale_among<'u>(&self, driver: &Driver, units: &'u [Unit]) -> Vec<&'u Unit> {
        let mut hashes = FileHashes::default();
        let fresh = |unit: &&Unit, hashes: &mut FileHashes| {
            unit.object.is_file()
                && record::holds(&unit.record, &driver.fingerprint, &self.roots, hashes)
        };
        units
            .iter()
            .filter(|unit| !fresh(unit, &mut hashes))
            .collect()
    }

    fn compile_unit(&self, driver: &Driver, unit: &Unit) -> Result<(), Error> {
        // First of all, so that an interrupted compilation leaves no record.
        remove_if_present(&unit.record)?;
        let cache = Cache::from_environment();
        let (source, command) = (&unit.source, &driver.fingerprint);
        if let Some(cache) = &cache
            && cache.fetch(source, command, &self.roots, &unit.object, &unit.record)
        {
            return Ok(());
        }
        // Under names of its own until it is whole: another process may compile the same unit of another state into the same
        // folder, and its object must not come under this one's record.
        let mine = unit.private();
        self.run_compiler(driver, &mine)?;
        if let Some(cache) = &cache {
            cache.store(source, command, &self.roots, &mine.object, &mine.record);
        }
        move_file(&mine.object, &unit.object)?;
        match mine.record.is_file() {
            true => move_file(&mine.record, &unit.record),
            false => Ok(()),
        }
    }

    /// Compiles the unit. It has a record then, unless a file was saved meanwhile.
    fn run_compiler(&self, driver: &Driver, unit: &Unit) -> Result<(), Error> {
        let started = SystemTime::now();
        let output = driver
            .tool
            .to_command()
            .arg("-MMD")
            .arg("-MF")
            .arg(&unit.depfile)
            .arg("-c")
            .arg(&unit.source)
            .arg("-o")
            .arg(&unit.object)
            .output()
            .map_err(|source| Error::NoCompiler {
                program: driver.tool.path().display().to_string(),
                source,
            })?;
        if !output.status.success() {
            return Err(Error::compile(
                &unit.source,
                &String::from_utf8_lossy(&output.stderr),
            ));
        }
        let files = self.files_read(unit)?;
        // The compiler may have read an earlier state of a file that was saved meanwhile: compile again next time.
        if files.iter().any(|file| modified_after(file, started)) {
            return Ok(());
        }
        record::write(
            &unit.record,
            &driver.fingerprint,
            &files,
            &self.roots,
            &mut FileHashes::default(),
        )
    }

    /// The files that went into the object. Assembly without a preprocessor leaves no dependency file.
    fn files_read(&self, unit: &Unit) -> Result<Vec<PathBuf>, Error> {
        if !unit.depfile.is_file() {
            return Ok(vec![unit.source.clone()]);
        }
        let text = fs::read_to_string(&unit.depfile).map_err(Error::io("read", &unit.depfile))?;
        remove_if_present(&unit.depfile)?;
        Ok(depfile::parse(&text))
    }
}

fn remove_if_present(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

fn move_file(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(Error::io("write", to))
}

fn modified_after(path: &Path, time: SystemTime) -> bool {
    fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|modified| modified > time)
}

/// A long unit that starts last leaves the other cores idle; its source's size is a good enough guess.
fn longest_first(mut units: Vec<&Unit>) -> Vec<&Unit> {
    units.sort_by_key(|unit| {
        std::cmp::Reverse(fs::metadata(&unit.source).map_or(0, |metadata| metadata.len()))
    });
    units
}

/// Runs `work` on every item on as many threads as cargo allows; the first error stops the rest and is returned.
fn run_in_parallel<T: Sync>(
    items: Vec<T>,
    work: impl Fn(&T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let worker = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(item) {
                next.store(items.len(), Ordering::Relaxed);
                failure
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs().min(items.len()) {
            scope.spawn(worker);
        }
    });
    failure
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .map_or(Ok(()), Err)
}

/// `NUM_JOBS` is what cargo tells build scripts; elsewhere, one job per core.
fn jobs() -> usize {
    let from_cargo = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok());
    from_cargo
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
        .max(1)
}
