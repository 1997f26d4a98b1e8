//! Keeps runs apart where they would share state.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::device::Device;

/// The recorder of dispatches, and everything that the simulated device reports about a run, belong to the process.
pub(super) enum Running {
    Shared {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

static RUNS: RwLock<()> = RwLock::new(());

impl Running {
    /// Taken before the locks of parameters, always.
    pub fn enter(devices: &[Device]) -> Self {
        if devices.iter().any(|device| device.is_simulated()) {
            return Self::alone();
        }
        // The lock protects no data, so a panic under it leaves nothing behind.
        Self::Shared {
            _guard: RUNS.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    pub fn alone() -> Self {
        Self::Alone {
            _guard: RUNS.write().unwrap_or_else(PoisonError::into_inner),
        }
    }
}
