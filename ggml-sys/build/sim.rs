//! The simulated Metal device: handing the patched tree to metal-sim.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{
    env::{Parts, Target},
    error::Error,
};

/// Ours: checks the CPU before it lets anyone into the simulated device.
pub const START: &str = "src/simulator-start.cpp";

/// Files of metal-sim's that the result depends on; none without the feature.
pub fn inputs() -> Vec<PathBuf> {
    #[cfg(feature = "metal-sim")]
    return metal_sim::Build::inputs();
    #[cfg(not(feature = "metal-sim"))]
    return Vec::new();
}

/// Makes cargo watch metal-sim's files, and their folders, so that a new file is seen as well.
pub fn watch(inputs: &[PathBuf]) {
    let folders: BTreeSet<&Path> = inputs.iter().filter_map(|path| path.parent()).collect();
    for path in folders
        .into_iter()
        .chain(inputs.iter().map(PathBuf::as_path))
    {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// Compiles kernels, runtime, device and ggml's Metal host files.
#[cfg(feature = "metal-sim")]
pub fn compile(target: &Target, parts: Parts, out_dir: &Path) -> Result<Vec<PathBuf>, Error> {
    use super::{
        cpu,
        isolate::{Isolation, Strong},
        prefix,
    };

    let generated = out_dir.join("gen");
    let build = metal_sim::Build::new(out_dir.join("ggml"), out_dir.join("metal-sim"))
        .forced_include(generated.join(prefix::HEADER))
        .include(generated)
        .verified(cfg!(feature = "verifier"));
    let build = cpu::defines(target, parts)
        .into_iter()
        .fold(build, |build, (name, value)| build.define(name, value));
    let objects: Vec<_> = build
        .compile()?
        .into_iter()
        .map(|object| object.path)
        .collect();
    // These objects are for a later CPU than the rest. Neither may the linker take their copy of an inline function for
    // the core, nor may their static constructors run before the CPU is checked: `simulator-start.cpp` does both.
    let entry = format!("{}ggml_backend_metal_reg", prefix::PREFIX);
    let isolation = Isolation {
        name: "sim",
        strong: Strong::These(&[&entry]),
        constructors: Some("ggmlrs_sim_constructors"),
    };
    isolation.apply(&objects, &out_dir.join("objects/sim"))
}

/// Without the feature there is nothing to compile.
#[cfg(not(feature = "metal-sim"))]
pub fn compile(_: &Target, _: Parts, _: &Path) -> Result<Vec<PathBuf>, Error> {
    Ok(Vec::new())
}
