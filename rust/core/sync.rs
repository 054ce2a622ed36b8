//! Synchronisation primitives of ring.rs, pipe.rs and playout.rs: the standard ones, or loom's under `--cfg loom`, so that
//! the model checker runs the shipped code and not a copy of it.
//!
//! loom has no clock, so under it a timeout never fires. `tests/pipe_vs_model.rs` tests timeouts with real threads.

use std::sync::PoisonError;
use std::time::Duration;

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

/// Locks. A panic elsewhere does not matter: nothing that panics runs between two writes to the ledger.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks until `waiting` returns false, or for at most `timeout`. `waiting` is called under the lock, before the
/// first wait and after every wake-up, spurious ones included.
#[cfg(not(loom))]
pub(crate) fn wait_while<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Option<Duration>,
    waiting: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    match timeout {
        None => condvar
            .wait_while(guard, waiting)
            .unwrap_or_else(PoisonError::into_inner),
        Some(timeout) => {
            condvar
                .wait_timeout_while(guard, timeout, waiting)
                .unwrap_or_else(PoisonError::into_inner)
                .0
        }
    }
}

#[cfg(loom)]
pub(crate) fn wait_while<'a, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'a, T>,
    _timeout: Option<Duration>,
    mut waiting: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    while waiting(&mut guard) {
        guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    guard
}
