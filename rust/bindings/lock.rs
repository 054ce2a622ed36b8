//! The lock of a class whose methods any thread may call.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. What it holds is never left half changed, so a poisoned lock holds a valid value.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
