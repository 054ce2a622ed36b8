//! The interpreter that may import this module: the main one of the process.
//!
//! The classes are made once per process, with the first import. In a second interpreter they would be objects of the
//! first, which CPython forbids, and which it checks only if that interpreter has a GIL of its own (3.12 and later).

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::{PyErr, ffi};

/// The id of a process's main interpreter.
const MAIN: i64 = 0;

/// Refuses every other interpreter than the main one with `ImportError`.
pub fn require_main(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the token proves that this thread is attached, so it has a current interpreter.
    let id = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match id {
        MAIN => Ok(()),
        -1 => Err(PyErr::fetch(py)),
        other => Err(PyImportError::new_err(format!(
            "playhead: expected the main interpreter of the process, got subinterpreter {other}; import it in the main \
             interpreter, or run it in a process of its own"
        ))),
    }
}
