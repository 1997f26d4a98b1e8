//! Keeps computes of Metal devices apart where they would share state.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::device::Device;

/// What a thread holds while a Metal device computes. The recorder of dispatches, and everything that the simulated device
/// reports about a compute, belong to the process.
///
/// Nobody else's code runs meanwhile: closures are the CPU's, and loggers wait (`logging::hold`). So whoever waits for a turn
/// waits for a kernel's end and no more, also inside of a run.
pub(super) enum Turn {
    Shared {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

static COMPUTES: RwLock<()> = RwLock::new(());

impl Turn {
    /// Waits for a turn of the device; `None` where it takes none. Taken after the locks of parameters and pools, always.
    pub fn of(device: Device, recorded: bool) -> Option<Self> {
        if !device.is_metal() {
            return None;
        }
        // The lock protects no data, so a panic under it leaves nothing behind.
        Some(if recorded || device.is_simulated() {
            Self::Alone {
                _guard: COMPUTES.write().unwrap_or_else(PoisonError::into_inner),
            }
        } else {
            Self::Shared {
                _guard: COMPUTES.read().unwrap_or_else(PoisonError::into_inner),
            }
        })
    }
}
