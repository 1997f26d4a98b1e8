//! Copies of ELF objects whose symbols cannot meet those of other objects.
//!
//! A function that is a template or inline is compiled into every object that uses it, and the linker keeps one of them.
//! Between objects for different CPUs that is a trap: the copy kept may hold AVX-512, and a CPU without it runs into it
//! from code that was compiled for that CPU. Renaming names in the source cannot prevent it, because `std::vector<float>`
//! is the standard library's. So the symbols are renamed where the linker reads them. Two things change in a file: a
//! string table with the new names is appended, and the symbols' and the table's headers point to it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use object::{
    LittleEndian, elf, pod,
    read::elf::{FileHeader as _, SectionHeader as _, SectionTable, Sym as _},
};

use super::{error::Error, tree::write_bytes_if_changed};

const STEP: &str = "isolate";

/// So are x86-64 and aarch64, as this build accepts it.
const ENDIAN: LittleEndian = LittleEndian;

type Header = elf::FileHeader64<LittleEndian>;
type Section = elf::SectionHeader64<LittleEndian>;
type Symbol = elf::Sym64<LittleEndian>;

/// How a set of objects is kept among itself.
#[derive(Debug, Clone, Copy)]
pub struct Isolation<'a> {
    /// Put behind a dot at the end of names: `ggml_cpu_init.v3`. Names of files start with it.
    pub name: &'a str,
    /// Which strong symbols are renamed; those that the linker would merge always are.
    pub strong: Strong<'a>,
    /// Constructors of static objects go into a section of this name, for someone to call who has checked the CPU. (The
    /// linker defines `__start_` and `__stop_` symbols for it.)
    pub constructors: Option<&'a str>,
}

/// A choice of strong symbols.
#[derive(Debug, Clone, Copy)]
pub enum Strong<'a> {
    All,
    These(&'a [&'a str]),
}

impl Isolation<'_> {
    /// Writes a copy of each object to `dir` and returns the copies. A copy that is right already is not touched.
    pub fn apply(
        &self,
        objects: &[PathBuf],
        dir: &Path,
    ) -> std::result::Result<Vec<PathBuf>, Error> {
        let mut own = BTreeSet::new();
        for path in objects {
            let bytes = fs::read(path).map_err(Error::io(STEP, "read", path))?;
            own.extend(
                self.own_names(&bytes)
                    .map_err(|source| Error::object(path, &source))?,
            );
        }
        let copy = |path: &PathBuf| {
            let bytes = fs::read(path).map_err(Error::io(STEP, "read", path))?;
            let copy = self
                .rewrite(&bytes, &own)
                .map_err(|source| Error::object(path, &source))?;
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let target = dir.join(format!("{}-{file}", self.name));
            write_bytes_if_changed(&target, &copy)?;
            Ok(target)
        };
        objects.iter().map(copy).collect()
    }

    /// The names to rename that an object defines.
    fn own_names(&self, bytes: &[u8]) -> Result<BTreeSet<Vec<u8>>> {
        let symbols = sections(bytes)?.symbols(ENDIAN, bytes, elf::SHT_SYMTAB)?;
        let mut own = BTreeSet::new();
        for symbol in symbols.iter() {
            let name = symbols.symbol_name(ENDIAN, symbol)?;
            if name == b"__gnu_lto_slim" {
                return Err(Malformed(
                    "its code is left to link-time optimisation: take -flto out of CFLAGS and CXXFLAGS".to_owned(),
                ));
            }
            let chosen = match self.strong {
                Strong::All => true,
                Strong::These(names) => {
                    symbol.st_bind() != elf::STB_GLOBAL
                        || names.iter().any(|other| other.as_bytes() == name)
                }
            };
            if !symbol.is_local() && !symbol.is_undefined(ENDIAN) && chosen {
                own.insert(name.to_owned());
            }
        }
        Ok(own)
    }

    fn rewrite(&self, bytes: &[u8], own: &BTreeSet<Vec<u8>>) -> Result<Vec<u8>> {
        let renamed = rename(bytes, own, self.name)?;
        match self.constructors {
            Some(section) => move_constructors(&renamed, section),
            None => Ok(renamed),
        }
    }
}

fn sections(bytes: &[u8]) -> Result<SectionTable<'_, Header>> {
    Ok(Header::parse(bytes)?.sections(ENDIAN, bytes)?)
}

/// The object with `.suffix` behind every name in `own`, whether the symbol is defined or referred to.
fn rename(bytes: &[u8], own: &BTreeSet<Vec<u8>>, suffix: &str) -> Result<Vec<u8>> {
    let sections = sections(bytes)?;
    let symbols = sections.symbols(ENDIAN, bytes, elf::SHT_SYMTAB)?;
    let table = sections.section(symbols.section())?.sh_offset(ENDIAN) as usize;
    let strings = symbols.string_section();
    let mut names = sections.section(strings)?.data(ENDIAN, bytes)?.to_owned();
    let groups = group_signatures(&sections);
    let mut out = bytes.to_owned();
    let entries = pod::slice_from_bytes_mut::<Symbol>(&mut out[table..], symbols.len());
    let (entries, _) = entries.map_err(|()| malformed("symbols"))?;
    for (entry, (index, symbol)) in entries.iter_mut().zip(symbols.enumerate()) {
        let name = symbols.symbol_name(ENDIAN, symbol)?;
        if groups.contains(&index.0) || (!symbol.is_local() && own.contains(name)) {
            let name = [name, b".", suffix.as_bytes()].concat();
            entry.st_name.set(ENDIAN, append(&mut names, &name));
        }
    }
    replace_strings(out, strings.0, &names)
}

/// The symbols whose names stand for groups of sections, of which the linker keeps one: a function with its data, the
/// variants of a constructor. Such a symbol may well be local, and defined nowhere.
fn group_signatures(sections: &SectionTable<'_, Header>) -> BTreeSet<usize> {
    let groups = sections
        .iter()
        .filter(|section| section.sh_type(ENDIAN) == elf::SHT_GROUP);
    groups
        .map(|section| section.sh_info(ENDIAN) as usize)
        .collect()
}

/// The object without constructors that run at start-up: they become plain data, a table of functions.
fn move_constructors(bytes: &[u8], section: &str) -> Result<Vec<u8>> {
    let header = Header::parse(bytes)?;
    let strings = header.section_strings_index(ENDIAN, bytes)?;
    let mut names = sections(bytes)?
        .section(strings)?
        .data(ENDIAN, bytes)?
        .to_owned();
    let name = append(&mut names, section.as_bytes());
    let mut out = bytes.to_owned();
    for entry in section_headers_mut(&mut out)? {
        if entry.sh_type(ENDIAN) == elf::SHT_INIT_ARRAY {
            entry.sh_name.set(ENDIAN, name);
            entry.sh_type.set(ENDIAN, elf::SHT_PROGBITS);
            // Nothing in the program refers to a single table, so a linker would drop them.
            let flags = entry.sh_flags(ENDIAN) | elf::SHF_GNU_RETAIN;
            entry.sh_flags.set(ENDIAN, flags);
        }
    }
    let (header, _) = pod::from_bytes_mut::<Header>(&mut out).map_err(|()| malformed("header"))?;
    // The flag is GNU's.
    header.e_ident.os_abi = elf::ELFOSABI_GNU;
    replace_strings(out, strings.0, &names)
}

/// Adds a string to a string table and returns where it starts.
fn append(table: &mut Vec<u8>, name: &[u8]) -> u32 {
    let start = table.len() as u32;
    table.extend_from_slice(name);
    table.push(0);
    start
}

/// Puts `table` at the end of the file and makes it the content of a section.
fn replace_strings(mut out: Vec<u8>, section: usize, table: &[u8]) -> Result<Vec<u8>> {
    let start = out.len() as u64;
    let header = section_headers_mut(&mut out)?.get_mut(section);
    let header = header.ok_or_else(|| malformed("string table"))?;
    header.sh_offset.set(ENDIAN, start);
    header.sh_size.set(ENDIAN, table.len() as u64);
    out.extend_from_slice(table);
    Ok(out)
}

fn section_headers_mut(out: &mut [u8]) -> Result<&mut [Section]> {
    let header = Header::parse(&*out)?;
    let start = header.e_shoff(ENDIAN) as usize;
    let count = header.shnum(ENDIAN, &*out)? as usize;
    let (headers, _) = out
        .get_mut(start..)
        .and_then(|rest| pod::slice_from_bytes_mut(rest, count).ok())
        .ok_or_else(|| malformed("section headers"))?;
    Ok(headers)
}

/// Why an object cannot be read; the caller knows which one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Malformed(String);

type Result<T> = std::result::Result<T, Malformed>;

impl From<object::Error> for Malformed {
    fn from(error: object::Error) -> Self {
        Self(error.to_string())
    }
}

fn malformed(what: &str) -> Malformed {
    Malformed(format!("its {what} cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles a text for this machine; the tests of this module need the compiler that the build needs.
    fn object(dir: &Path, name: &str, text: &str) -> PathBuf {
        let source = dir.join(format!("{name}.cpp"));
        fs::write(&source, text).unwrap();
        let object = dir.join(format!("{name}.o"));
        let status = std::process::Command::new("c++")
            .args(["-O1", "-c", "-o"])
            .args([&object, &source])
            .status();
        assert!(status.expect("c++ runs").success());
        object
    }

    /// Type and name of each symbol, as `nm` prints them.
    fn symbols(object: &Path) -> BTreeSet<String> {
        let nm = std::process::Command::new("nm").arg(object).output();
        let text = String::from_utf8(nm.expect("nm runs").stdout).unwrap();
        text.lines().map(|line| line[17..].to_owned()).collect()
    }

    /// The constructor's variants share a group that is named after neither.
    const USER: &str = "int other();\nint elsewhere();\n\
                        struct object { __attribute__((noinline)) object(); int x; };\n\
                        inline object::object() : x(elsewhere()) {}\n\
                        __attribute__((noinline)) inline int shared() { return object().x; }\n\
                        int user() { return shared() + other(); }\n";
    const OTHER: &str = "int other() { return 2; }\n";
    const CONSTRUCTOR: &str = "int start();\nint value = start();\n";

    #[test]
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux")),
        ignore = "needs ELF for x86-64"
    )]
    fn what_the_set_defines_is_renamed_wherever_it_is_used_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let set = [
            object(dir.path(), "user", USER),
            object(dir.path(), "other", OTHER),
        ];
        let all = Isolation {
            name: "v3",
            strong: Strong::All,
            constructors: None,
        };
        let copies = all.apply(&set, dir.path()).unwrap();
        let user = symbols(&copies[0]);
        for symbol in [
            "T _Z4userv.v3",
            "W _Z6sharedv.v3",
            "U _Z5otherv.v3",
            "U _Z9elsewherev",
        ] {
            assert!(user.contains(symbol), "{symbol} in {user:?}");
        }
        assert!(symbols(&copies[1]).contains("T _Z5otherv.v3"));
        let groups = std::process::Command::new("readelf")
            .args(["-g", "--wide"])
            .arg(&copies[0])
            .output();
        let groups = String::from_utf8(groups.expect("readelf runs").stdout).unwrap();
        assert!(groups.contains("[_ZN6objectC5Ev.v3]"), "{groups}");
        let bare = groups
            .lines()
            .filter(|line| line.contains("group section") && !line.contains(".v3]"));
        assert_eq!(bare.count(), 0, "{groups}");

        let weak = Isolation {
            name: "sim",
            strong: Strong::These(&["_Z5otherv"]),
            constructors: None,
        };
        let user = symbols(&weak.apply(&set, dir.path()).unwrap()[0]);
        for symbol in ["T _Z4userv", "W _Z6sharedv.sim", "U _Z5otherv.sim"] {
            assert!(user.contains(symbol), "{symbol} in {user:?}");
        }
    }

    #[test]
    #[cfg_attr(
        not(all(target_arch = "x86_64", target_os = "linux")),
        ignore = "needs ELF for x86-64"
    )]
    fn constructors_become_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let set = [object(dir.path(), "constructor", CONSTRUCTOR)];
        let moved = Isolation {
            name: "sim",
            strong: Strong::These(&[]),
            constructors: Some("own_constructors"),
        };
        let bytes = fs::read(&moved.apply(&set, dir.path()).unwrap()[0]).unwrap();
        let header = Header::parse(&*bytes).unwrap();
        let sections = header.sections(ENDIAN, &*bytes).unwrap();
        let name = |section: &Section| sections.section_name(ENDIAN, section).unwrap().to_owned();
        let named: Vec<_> = sections.iter().map(name).collect();
        assert!(named.contains(&b"own_constructors".to_vec()));
        assert!(
            !sections
                .iter()
                .any(|section| section.sh_type(ENDIAN) == elf::SHT_INIT_ARRAY)
        );
    }

    #[test]
    fn what_is_no_object_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text.o");
        fs::write(&file, "no object").unwrap();
        let all = Isolation {
            name: "v3",
            strong: Strong::All,
            constructors: None,
        };
        let error = all.apply(&[file], dir.path()).unwrap_err().to_string();
        assert!(error.contains("text.o"), "{error}");
    }
}
