//! The memory of Python objects as slices, for the duration of one call, and `bytes` that grow before Python code sees
//! them. All `unsafe` of the bindings is here, in device_callback.rs and in interpreter.rs.
//!
//! PyO3's `PyBuffer` boxes its view; an audio callback must not allocate, so the view lives on the stack.

use std::slice::{from_raw_parts, from_raw_parts_mut};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};
use pyo3::{PyErr, ffi};

/// A view that is released when it goes out of scope, while attached. It must not move once it is open: exporters may
/// point into it. Its methods are not inlined into the many that lend bytes.
struct View {
    raw: ffi::Py_buffer,
    copy: Option<Py<PyBytes>>,
}

impl View {
    fn new() -> Self {
        Self {
            raw: ffi::Py_buffer::new(),
            copy: None,
        }
    }

    fn open(&mut self, object: &Bound<'_, PyAny>, flags: i32) -> PyResult<(*mut u8, usize)> {
        // SAFETY: `object` proves that this thread is attached; `raw` is a zeroed view, as an exporter
        // expects it.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut self.raw, flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        let len = usize::try_from(self.raw.len).unwrap_or(0);
        if len == 0 {
            // An empty view may have no address; a slice must have one.
            return Ok((std::ptr::NonNull::dangling().as_ptr(), 0));
        }
        Ok((self.raw.buf.cast(), len))
    }

    #[inline(never)]
    fn bytes<'a>(&'a mut self, object: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
        let (start, len) = self.open(object, ffi::PyBUF_SIMPLE)?;
        if is_immutable(object) {
            // SAFETY: a simple view is contiguous, and its exporter keeps it in place until it is released. It is
            // `bytes`, which nobody writes to.
            return Ok(unsafe { from_raw_parts(start, len) });
        }
        // SAFETY: as above, but for the writers. The copy is the interpreter's own, as `bytes(object)` is; no slice of
        // memory that changes is made. A null result has set an exception.
        let copy = unsafe {
            let len = ffi::Py_ssize_t::try_from(len)?;
            let copy = ffi::PyBytes_FromStringAndSize(start.cast(), len);
            Bound::from_owned_ptr_or_err(object.py(), copy)?.cast_into_unchecked::<PyBytes>()
        };
        self.release(); // so that the owner of the memory may be resized while `work` is detached
        Ok(self.copy.insert(copy.unbind()).as_bytes(object.py()))
    }

    #[inline(never)]
    fn bytes_mut<'a>(&'a mut self, object: &'a Bound<'_, PyAny>) -> PyResult<&'a mut [u8]> {
        let (start, len) = self.open(object, ffi::PyBUF_WRITABLE)?;
        // SAFETY: as in `bytes`, and writable. The caller lends its buffer for the duration of the
        // call, as it does with `socket.recv_into` and `io.RawIOBase.readinto`, which also fill it detached.
        Ok(unsafe { from_raw_parts_mut(start, len) })
    }

    fn release(&mut self) {
        // SAFETY: releases what `open` filled, or a zeroed view, as it is after a release: that is left alone. The
        // functions below run attached, and `detach` attaches again before it returns or unwinds.
        unsafe { ffi::PyBuffer_Release(&raw mut self.raw) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.release();
    }
}

/// Lends the bytes of any object with a contiguous buffer to `work`, which may detach. No Python code can change them:
/// those of an object that can change are copied first, as other threads may write to it even while this one is
/// attached (in a free-threaded interpreter).
pub fn with_bytes<R>(object: &Bound<'_, PyAny>, work: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    let mut view = View::new();
    Ok(work(view.bytes(object)?))
}

/// Returns true for `bytes`, and for a view of them. The `readonly` flag of a view does not suffice, because a
/// read-only view of a bytearray changes with the bytearray.
fn is_immutable(object: &Bound<'_, PyAny>) -> bool {
    let is_bytes = |object: &Bound<'_, PyAny>| object.is_exact_instance_of::<PyBytes>();
    let is_view = object.is_exact_instance_of::<PyMemoryView>();
    // `obj` is the owner of the memory, however many views lie between. The view keeps it alive, and cannot be released
    // while its own buffer is lent.
    is_bytes(object) || (is_view && object.getattr("obj").is_ok_and(|owner| is_bytes(&owner)))
}

/// Lends the bytes of any object with a contiguous, writable buffer to `work`.
pub fn with_bytes_mut<R>(
    object: &Bound<'_, PyAny>,
    work: impl FnOnce(&mut [u8]) -> R,
) -> PyResult<R> {
    let mut view = View::new();
    Ok(work(view.bytes_mut(object)?))
}

/// Lends the characters of a `str` as UTF-8 without a copy if they are ASCII, or the bytes of a buffer.
pub fn with_text<R>(object: &Bound<'_, PyAny>, work: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    let Ok(text) = object.cast::<PyString>() else {
        return with_bytes(object, work);
    };
    if let Ok(text) = text.to_str() {
        return Ok(work(text.as_bytes()));
    }
    // A lone surrogate has no UTF-8. With "surrogatepass" it becomes bytes outside the alphabet, at the right index,
    // because every character before the first fault is ASCII.
    let encoded = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
    with_bytes(&encoded, work)
}

unsafe extern "C" {
    /// Part of the stable ABI since 3.2, and missing in `pyo3::ffi`.
    fn _PyBytes_Resize(object: *mut *mut ffi::PyObject, len: ffi::Py_ssize_t) -> std::ffi::c_int;
}

/// A `bytes` object that nobody else has yet, and how much of it is filled.
pub struct GrowingBytes {
    object: Py<PyBytes>,
    capacity: usize,
    len: usize,
}

impl GrowingBytes {
    pub fn with_capacity(py: Python<'_>, capacity: usize) -> PyResult<Self> {
        let len = ffi::Py_ssize_t::try_from(capacity)?;
        // SAFETY: without a source the object's bytes are not initialized; `filled` gives only those that
        // `extend` wrote. A null result has set an exception.
        let object = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), len))?
                .cast_into_unchecked()
                .unbind()
        };
        let bytes = Self {
            object,
            capacity,
            len: 0,
        };
        bytes.prefer_large_pages();
        Ok(bytes)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn filled(&self) -> &[u8] {
        // SAFETY: `extend` has written this much, and nothing moves it while `self` is borrowed.
        unsafe { from_raw_parts(self.start(), self.len) }
    }

    /// Appends `more`, of which as much is taken as fits. Returns the rest.
    pub fn extend<'a>(&mut self, more: &'a [u8]) -> &'a [u8] {
        let (fits, rest) = more.split_at(more.len().min(self.capacity - self.len));
        // SAFETY: the capacity ends behind these bytes. They can't overlap: nobody else has the object.
        unsafe {
            std::ptr::copy_nonoverlapping(fits.as_ptr(), self.start().add(self.len), fits.len());
        }
        self.len += fits.len();
        rest
    }

    /// Changes the capacity, in place if the allocator can; bytes that no longer fit are lost.
    pub fn resize(self, py: Python<'_>, capacity: usize) -> PyResult<Self> {
        let len = ffi::Py_ssize_t::try_from(capacity)?;
        let mut object = self.object.into_ptr();
        // SAFETY: this is the only reference to the object, or it is the shared empty one, which the call
        // replaces. On failure it frees the object, leaves null, and sets an exception.
        let object = unsafe {
            _PyBytes_Resize(&raw mut object, len);
            Bound::from_owned_ptr_or_err(py, object)?
                .cast_into_unchecked()
                .unbind()
        };
        Ok(Self {
            object,
            capacity,
            len: self.len.min(capacity),
        })
    }

    /// Gives up the object, cut to what is filled.
    pub fn finish(self, py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
        let len = self.len;
        Ok(self.resize(py, len)?.object.into_bound(py))
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the object is alive, and `bytes`. Writing to it is allowed as long as nobody else has it.
        unsafe { ffi::PyBytes_AsString(self.object.as_ptr()).cast() }
    }

    /// Asks for pages of 2 MiB, because the first write to each page of memory is slow: 63 MiB take 40 ms in pages of
    /// 4 KiB and 12 ms in pages of 2 MiB. If Linux refuses, nothing changes.
    fn prefer_large_pages(&self) {
        #[cfg(target_os = "linux")]
        {
            const LARGE: usize = 2 << 20;
            /// The size up to which glibc's allocator may use its heap, where other objects lie beside it.
            const HEAP_MAX: usize = 32 << 20;
            if self.capacity <= HEAP_MAX {
                return;
            }
            let start = self.start();
            let before = start.align_offset(LARGE);
            if let Some(whole) = self
                .capacity
                .checked_sub(before)
                .map(|rest| rest - rest % LARGE)
            {
                // SAFETY: the range lies inside the object, and the advice does not change what it holds.
                let _ = unsafe {
                    rustix::mm::madvise(
                        start.add(before).cast(),
                        whole,
                        rustix::mm::Advice::LinuxHugepage,
                    )
                };
            }
        }
    }
}
