//! The functions of the simulated device, as `metal-sim/cpp/device/metal_sim.h` declares them.

use std::ffi::{c_char, c_void};

use crate::device::Device;

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub pc: u64,
    pub access: u32,
    pub lane: u32,
    pub threadgroup: [u32; 3],
    _reserved: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Finding {
    pub detector: u32,
    pub same_value: u32,
    pub kernel: [c_char; 128],
    pub other_kernel: [c_char; 128],
    pub at: Place,
    pub other: Place,
    pub space: u32,
    pub block: i32,
    pub name: [c_char; 64],
    pub offset: i64,
    pub block_size: u64,
    pub bytes: u64,
    pub count: u64,
    pub file: [c_char; 64],
    pub line: u32,
    _reserved: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Barrier {
    pub file: [c_char; 64],
    pub line: u32,
    pub is_simdgroup: u32,
    pub count: u64,
}

type Take = unsafe extern "C" fn(*mut Finding, usize) -> usize;
type Module = unsafe extern "C" fn() -> *const c_char;
type SetStrict = unsafe extern "C" fn(bool);
type SetOrder = unsafe extern "C" fn(u32, u64);
type Barriers = unsafe extern "C" fn(*mut Barrier, usize) -> usize;
type Action = unsafe extern "C" fn();
type RemoveBarrier = unsafe extern "C" fn(*const c_char, u32);
type LastWriter = unsafe extern "C" fn(*const c_void, *mut c_char, usize, *mut Place) -> bool;

#[derive(Debug, Clone, Copy)]
pub(super) struct Functions {
    take: Take,
    pub module: Module,
    pub set_strict: SetStrict,
    pub set_order: SetOrder,
    barriers: Barriers,
    pub barriers_reset: Action,
    pub remove_barrier: RemoveBarrier,
    pub restore_barriers: Action,
    last_writer: LastWriter,
}

impl Functions {
    pub(super) fn of(device: Device) -> Option<Self> {
        // SAFETY: the names and signatures of the simulated device's own functions.
        unsafe {
            Some(Self {
                take: device.function::<Take>(c"metal_sim_verifier_take")?,
                module: device.function::<Module>(c"metal_sim_verifier_module")?,
                set_strict: device.function::<SetStrict>(c"metal_sim_verifier_set_strict")?,
                set_order: device.function::<SetOrder>(c"metal_sim_verifier_set_order")?,
                barriers: device.function::<Barriers>(c"metal_sim_verifier_barriers")?,
                barriers_reset: device.function::<Action>(c"metal_sim_verifier_barriers_reset")?,
                remove_barrier: device
                    .function::<RemoveBarrier>(c"metal_sim_verifier_remove_barrier")?,
                restore_barriers: device
                    .function::<Action>(c"metal_sim_verifier_restore_barriers")?,
                last_writer: device.function::<LastWriter>(c"metal_sim_verifier_last_writer")?,
            })
        }
    }

    pub(super) fn take_findings(&self) -> Vec<Finding> {
        const AT_ONCE: usize = 64;
        let mut all = Vec::new();
        loop {
            // SAFETY: the room is for as many findings as the call may write, and it says how many it wrote.
            let taken = unsafe { (self.take)(reserve(&mut all, AT_ONCE), AT_ONCE) };
            // SAFETY: they lie behind those that were there before.
            unsafe { all.set_len(all.len() + taken) };
            if taken < AT_ONCE {
                return all;
            }
        }
    }

    pub(super) fn barriers(&self) -> Vec<Barrier> {
        let mut all = Vec::new();
        // SAFETY: a null pointer is not written to where the capacity is zero.
        let mut room = unsafe { (self.barriers)(std::ptr::null_mut(), 0) };
        loop {
            // SAFETY: the room is for as many barriers as the call may write.
            let there = unsafe { (self.barriers)(reserve(&mut all, room), room) };
            if there <= room {
                // SAFETY: so many were written.
                unsafe { all.set_len(there) };
                return all;
            }
            room = there;
        }
    }

    pub(super) fn last_writer(&self, address: *const c_void) -> Option<(String, Place)> {
        let mut kernel = [0; 128];
        let mut place = Place::default();
        // SAFETY: the address is only looked up; the text and the place have the size and the layout that are expected.
        let known = unsafe {
            (self.last_writer)(address, kernel.as_mut_ptr(), kernel.len(), &raw mut place)
        };
        known.then(|| (text(&kernel), place))
    }
}

/// Where the next `count` elements go.
fn reserve<T>(all: &mut Vec<T>, count: usize) -> *mut T {
    all.reserve(count);
    all.spare_capacity_mut().as_mut_ptr().cast()
}

/// The text in an array, up to its NUL.
pub(super) fn text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array
        .iter()
        .map(|&byte| byte as u8)
        .take_while(|&byte| byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
