//! What the fuzz targets share: a limit on memory, and seeds.
#![deny(missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
pub struct Counting;

fn grow(bytes: usize) {
    let now = NOW.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(now, Relaxed);
}

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        // SAFETY: as above.
        let new = unsafe { System.realloc(pointer, layout, size) };
        NOW.fetch_sub(layout.size(), Relaxed);
        new
    }
}

/// Calls `work`, which may hold `most` bytes at once beyond what is held already.
///
/// # Panics
/// When it held more.
pub fn within<T>(most: usize, work: impl FnOnce() -> T) -> T {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    let held = PEAK.load(Relaxed).saturating_sub(before);
    assert!(held <= most, "{held} bytes were held at once, {most} are allowed");
    result
}

/// Where the environment asks for seeds, writes them there and ends the process. Called before fuzzing.
///
/// # Panics
/// When they cannot be written.
pub fn seeds(make: impl FnOnce() -> Vec<Vec<u8>>) {
    let Some(folder) = std::env::var_os("GGML_RS_FUZZ_SEEDS").map(PathBuf::from) else {
        return;
    };
    std::fs::create_dir_all(&folder).expect("the folder of the seeds");
    for (index, seed) in make().into_iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{index}")), seed).expect("a seed");
    }
    std::process::exit(0);
}
