//! rustc's target features as options of the C compiler.

use super::env::{Arch, Os, Target};

/// x86-64: rustc's name and the C compiler's option. Only what generated code or ggml's intrinsics use.
const X86_64: [(&str, &str); 28] = [
    ("cmpxchg16b", "-mcx16"),
    ("sse3", "-msse3"),
    ("ssse3", "-mssse3"),
    ("sse4.1", "-msse4.1"),
    ("sse4.2", "-msse4.2"),
    ("popcnt", "-mpopcnt"),
    ("lzcnt", "-mlzcnt"),
    ("movbe", "-mmovbe"),
    ("bmi1", "-mbmi"),
    ("bmi2", "-mbmi2"),
    ("avx", "-mavx"),
    ("avx2", "-mavx2"),
    ("fma", "-mfma"),
    ("f16c", "-mf16c"),
    ("avx512f", "-mavx512f"),
    ("avx512bw", "-mavx512bw"),
    ("avx512cd", "-mavx512cd"),
    ("avx512dq", "-mavx512dq"),
    ("avx512vl", "-mavx512vl"),
    ("avx512ifma", "-mavx512ifma"),
    ("avx512vbmi", "-mavx512vbmi"),
    ("avx512vbmi2", "-mavx512vbmi2"),
    ("avx512vnni", "-mavx512vnni"),
    ("avx512bitalg", "-mavx512bitalg"),
    ("avx512vpopcntdq", "-mavx512vpopcntdq"),
    ("avx512bf16", "-mavx512bf16"),
    ("avxvnni", "-mavxvnni"),
    ("gfni", "-mgfni"),
];

/// What an x86-64 target of some operating system has without anyone asking (Macs never lacked these).
const X86_64_BASELINE: [&str; 4] = ["cmpxchg16b", "sse3", "ssse3", "sse4.1"];

/// aarch64: rustc's name and the name behind `-march`. SME is left out: GCC 12 does not know it.
const AARCH64: [(&str, &str); 7] = [
    ("dotprod", "dotprod"),
    ("fp16", "fp16"),
    ("fhm", "fp16fml"),
    ("i8mm", "i8mm"),
    ("bf16", "bf16"),
    ("sve", "sve"),
    ("sve2", "sve2"),
];

/// What every Mac has; the compiler knows it without an option.
const MAC_BASELINE: [&str; 3] = ["dotprod", "fp16", "fhm"];

/// Options for the features in `list` (comma-separated). None if the list holds nothing beyond the target's baseline.
pub fn flags(target: &Target, list: &str) -> Vec<String> {
    let has = |name: &str| list.split(',').any(|feature| feature == name);
    match target.arch {
        Arch::X86_64 => {
            let asked = X86_64.iter().filter(|(name, _)| has(name));
            if asked
                .clone()
                .all(|(name, _)| X86_64_BASELINE.contains(name))
            {
                return Vec::new();
            }
            asked.map(|&(_, flag)| flag.to_owned()).collect()
        }
        Arch::Aarch64 => {
            let baseline: &[&str] = if target.os == Os::Mac {
                &MAC_BASELINE
            } else {
                &[]
            };
            let asked = AARCH64.iter().filter(|(name, _)| has(name));
            if asked.clone().all(|(name, _)| baseline.contains(name)) {
                return Vec::new();
            }
            // The first version of the architecture that has every one of these as an option.
            let names: String = asked.map(|(_, name)| format!("+{name}")).collect();
            vec![format!("-march=armv8.2-a{names}")]
        }
        Arch::Other => Vec::new(),
    }
}

/// Whether the features ask for AVX-512, all of it that cl.exe then uses.
pub fn wants_avx512(list: &str) -> bool {
    ["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]
        .iter()
        .all(|name| list.split(',').any(|feature| feature == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(os: Os, arch: Arch) -> Target {
        Target {
            os,
            arch,
            msvc: false,
        }
    }

    #[test]
    fn a_baseline_asks_for_nothing() {
        let linux = target(Os::Linux, Arch::X86_64);
        assert!(flags(&linux, "fxsr,sse,sse2,x87").is_empty());
        let mac = target(Os::Mac, Arch::X86_64);
        assert!(flags(&mac, "cmpxchg16b,fxsr,sse,sse2,sse3,sse4.1,ssse3").is_empty());
        let silicon = target(Os::Mac, Arch::Aarch64);
        assert!(flags(&silicon, "aes,dotprod,fhm,fp16,lse,neon,sha3").is_empty());
    }

    #[test]
    fn everything_asked_for_is_passed_on() {
        let linux = target(Os::Linux, Arch::X86_64);
        assert_eq!(
            flags(&linux, "sse3,avx,avx2,bmi1,unheard-of"),
            ["-msse3", "-mbmi", "-mavx", "-mavx2"]
        );
        let silicon = target(Os::Mac, Arch::Aarch64);
        assert_eq!(
            flags(&silicon, "dotprod,fp16,i8mm,bf16"),
            ["-march=armv8.2-a+dotprod+fp16+i8mm+bf16"]
        );
    }

    #[test]
    fn avx512_is_wanted_only_as_a_whole() {
        assert!(!wants_avx512("avx2,avx512f"));
        assert!(wants_avx512("avx512f,avx512bw,avx512cd,avx512dq,avx512vl"));
    }
}
