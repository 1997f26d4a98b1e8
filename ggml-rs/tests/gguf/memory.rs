//! How much memory a call takes at once, counted on its own thread, and how much a process may take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(change: isize) {
    // Threads that are being torn down are not measured.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that are asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new may exist at once.
        count(size as isize);
        // SAFETY: as above.
        let new = unsafe { System.realloc(pointer, layout, size) };
        count(-(layout.size() as isize));
        new
    }
}

/// The most that `work` held at once beyond what was held before, in bytes.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.get();
    PEAK.set(before);
    let result = work();
    (result, (PEAK.get() - before).max(0) as usize)
}

/// Lets this process have `more` bytes of address space beyond what it has.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub fn limit_address_space(more: u64) {
    const RLIMIT_AS: i32 = 9;
    const PAGE: u64 = 4096;
    unsafe extern "C" {
        fn setrlimit(resource: i32, limits: *const [u64; 2]) -> i32;
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
    let limit = pages * PAGE + more;
    // SAFETY: the C library's function, with a `struct rlimit` of two 64-bit numbers, as it is on 64-bit Linux.
    assert_eq!(unsafe { setrlimit(RLIMIT_AS, &[limit, limit]) }, 0);
}

#[test]
fn what_is_freed_counts_as_well() {
    let (_, bytes) = peak(|| drop(vec![1_u8; 1_000_000]));
    assert!((1_000_000..1_100_000).contains(&bytes), "{bytes}");
    let (_, bytes) = peak(|| ());
    assert_eq!(bytes, 0);
}
