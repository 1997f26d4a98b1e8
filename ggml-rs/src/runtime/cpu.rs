//! Is this a CPU that ggml was compiled for? Illegal instructions would end the process, so ask first.

use ggml_sys::cpu as compiled;

use crate::error::{Error, Result};

/// Checks what ggml was compiled for against the CPU that is there.
///
/// # Errors
/// [`Error::Device`], naming what the CPU lacks, or what is wrong with `GGML_RS_CPU_LEVEL`.
pub fn check() -> Result<()> {
    let missing = missing(compiled::needs(), present);
    if !missing.is_empty() {
        let detail = format!(
            "it lacks {}, for which ggml is compiled: run on a CPU that has it, or build for this one (feature \
             `native`; the default on x86-64 Linux needs x86-64-v2, CPUs from 2009 or later)",
            missing.join(", ")
        );
        return Err(Error::device("check the CPU", detail));
    }
    match compiled::level_error() {
        None => Ok(()),
        Some(error) => Err(Error::device("check the CPU", error)),
    }
}

/// The features in `needs` that are not there. One that nobody here knows counts as missing.
fn missing(needs: &str, present: impl Fn(&str) -> Option<bool>) -> Vec<&str> {
    needs
        .split_whitespace()
        .filter(|name| present(name) != Some(true))
        .collect()
}

/// Whether the CPU, and the operating system with it, has a feature; `None` for a name that is not known.
///
/// The names are those in `needs.c` of ggml-sys.
#[cfg(target_arch = "x86_64")]
fn present(name: &str) -> Option<bool> {
    macro_rules! known {
        ($($feature:tt)*) => {
            match name {
                $($feature => Some(std::arch::is_x86_feature_detected!($feature)),)*
                _ => unstable(name),
            }
        };
    }
    known!(
        "sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "cmpxchg16b" "lzcnt" "movbe" "bmi1" "bmi2" "avx" "avx2" "fma" "f16c"
        "avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl" "avx512ifma" "avx512vbmi" "avx512vbmi2" "avx512vnni"
        "avx512bitalg" "avx512vpopcntdq" "avx512bf16" "gfni"
    )
}

/// Features that the oldest supported Rust cannot detect, by their bits of cpuid's leaf 7. They need the registers that
/// AVX or AVX-512 need, which `needs` then names too.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "the intrinsics are safe since Rust 1.94")]
fn unstable(name: &str) -> Option<bool> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    // SAFETY: every x86-64 CPU has the instruction; a leaf is asked for only if it exists.
    let leaf_7 = |subleaf| unsafe { (__cpuid(0).eax >= 7).then(|| __cpuid_count(7, subleaf)) };
    let has =
        |register: Option<u32>, bit: u32| Some(register.is_some_and(|bits| bits >> bit & 1 == 1));
    match name {
        "avxvnni" => has(leaf_7(1).map(|leaf| leaf.eax), 4),
        "avxvnniint8" => has(leaf_7(1).map(|leaf| leaf.edx), 4),
        "avx512fp16" => has(leaf_7(0).map(|leaf| leaf.edx), 23),
        // ggml asks the operating system for the tiles itself and does without if it refuses.
        "amx-int8" => has(leaf_7(0).map(|leaf| leaf.edx), 25),
        _ => None,
    }
}

#[cfg(target_arch = "aarch64")]
fn present(name: &str) -> Option<bool> {
    macro_rules! known {
        ($($feature:tt)*) => {
            match name {
                $($feature => Some(std::arch::is_aarch64_feature_detected!($feature)),)*
                _ => None,
            }
        };
    }
    known!("dotprod" "fp16" "i8mm" "bf16" "sve" "sve2" "lse")
}

/// Other targets get their baseline, whatever the compiler makes of it.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn present(_: &str) -> Option<bool> {
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        let present = |name: &str| match name {
            "sse3" => Some(true),
            "avx2" => Some(false),
            _ => None,
        };
        assert_eq!(missing(" sse3 avx2 novelty", present), ["avx2", "novelty"]);
        assert!(missing("", present).is_empty());
    }

    /// A name that `needs.c` can produce and that nothing here knows would refuse every CPU.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn every_name_that_the_build_can_need_is_known() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../patches/src/ggml-cpu/needs.c"
        );
        let text = std::fs::read_to_string(file).unwrap();
        let (x86_64, aarch64) = text.split_once("__ARM_FEATURE").unwrap();
        let name = |line: &'_ str| {
            Some(
                line.trim()
                    .strip_prefix("\" ")?
                    .strip_suffix('"')?
                    .to_owned(),
            )
        };
        let names: Vec<String> = x86_64.lines().filter_map(name).collect();
        assert!(names.len() > 20, "{names:?}");
        for name in &names {
            assert!(present(name).is_some(), "{name}");
        }
        assert!(aarch64.contains("i8mm"));
        assert_eq!(present("novelty"), None);
    }

    #[test]
    fn this_machine_passes() {
        check().unwrap();
    }
}
