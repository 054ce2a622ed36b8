//! The memory of Python objects as slices, for the duration of one call. All `unsafe` of the bindings is here.
//!
//! PyO3's `PyBuffer` boxes its view; an audio callback must not allocate, so the view lives on the stack.

use std::slice::{from_raw_parts, from_raw_parts_mut};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use pyo3::{PyErr, ffi};

/// Bytes lent by Python.
pub struct Lent<'a> {
    pub bytes: &'a [u8],
    /// No Python code can change them, so they may be read while other threads run.
    pub is_immutable: bool,
}

/// A view that is released when it goes out of scope, while attached.
struct View {
    raw: ffi::Py_buffer,
}

impl View {
    /// Fills `self`, which must not move until it is dropped: exporters may point into it.
    fn open(&mut self, object: &Bound<'_, PyAny>, flags: i32) -> PyResult<()> {
        // SAFETY: `object` proves that this thread is attached; `raw` is a zeroed view, as an exporter
        // expects it.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut self.raw, flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(())
    }

    fn start_and_len(&self) -> (*mut u8, usize) {
        let len = usize::try_from(self.raw.len).unwrap_or(0);
        if len == 0 {
            // An empty view may have no address; a slice must have one.
            return (std::ptr::NonNull::dangling().as_ptr(), 0);
        }
        (self.raw.buf.cast(), len)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: releases what `open` filled, or a zeroed view, which is left alone. The functions below
        // run attached, and `detach` attaches again before it returns or unwinds.
        unsafe { ffi::PyBuffer_Release(&raw mut self.raw) }
    }
}

/// Lends the bytes of any object with a contiguous buffer to `work`.
pub fn with_bytes<R>(object: &Bound<'_, PyAny>, work: impl FnOnce(Lent<'_>) -> R) -> PyResult<R> {
    let mut view = View {
        raw: ffi::Py_buffer::new(),
    };
    view.open(object, ffi::PyBUF_SIMPLE)?;
    let (start, len) = view.start_and_len();
    // SAFETY: a simple view is contiguous, and its exporter keeps it in place until it is released. It may
    // be changed by Python code in other threads: who detaches must check `is_immutable` first.
    let bytes = unsafe { from_raw_parts(start, len) };
    Ok(work(Lent {
        bytes,
        // Not the `readonly` of the view: a read-only view of a bytearray changes with it.
        is_immutable: object.is_exact_instance_of::<PyBytes>(),
    }))
}

/// Lends the bytes of any object with a contiguous, writable buffer to `work`.
pub fn with_bytes_mut<R>(
    object: &Bound<'_, PyAny>,
    work: impl FnOnce(&mut [u8]) -> R,
) -> PyResult<R> {
    let mut view = View {
        raw: ffi::Py_buffer::new(),
    };
    view.open(object, ffi::PyBUF_WRITABLE)?;
    let (start, len) = view.start_and_len();
    // SAFETY: as in `with_bytes`, and writable. The caller lends its buffer for the duration of the
    // call, as it does with `socket.recv_into` and `io.RawIOBase.readinto`, which also fill it detached.
    Ok(work(unsafe { from_raw_parts_mut(start, len) }))
}

/// Lends the characters of a `str` as UTF-8 without a copy if they are ASCII, or the bytes of a buffer.
pub fn with_text<R>(object: &Bound<'_, PyAny>, work: impl FnOnce(Lent<'_>) -> R) -> PyResult<R> {
    let Ok(text) = object.cast::<PyString>() else {
        return with_bytes(object, work);
    };
    if let Ok(text) = text.to_str() {
        return Ok(work(Lent {
            bytes: text.as_bytes(),
            is_immutable: true,
        }));
    }
    // A lone surrogate has no UTF-8. Encoded anyway it is a byte outside the alphabet, at the right
    // index, because every character before the first fault is ASCII.
    let encoded = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
    with_bytes(&encoded, work)
}
