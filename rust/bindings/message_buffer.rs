//! Python's `MessageBuffer`, which collects a long message without a final copy.

use std::mem;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::{GrowingBytes, with_bytes};

/// A buffer grows only as needed up to this capacity, so that the allocator can reuse the memory of the previous
/// message if the sizes are alike.
const SMALL_BYTES: usize = 4 << 20;
/// A larger buffer takes at least this capacity at once: the longest message by default, and one more read. Memory
/// that is never written to costs nothing, and a later move would lose the large pages.
const LARGE_BYTES: usize = 66 << 20;

/// The bytes of one message that is still arriving.
#[pyclass(module = "playhead._core")]
pub struct MessageBuffer {
    bytes: GrowingBytes,
}

#[pymethods]
impl MessageBuffer {
    /// Takes memory for `expected_bytes`.
    #[new]
    #[pyo3(signature = (expected_bytes = 0, /))]
    fn new(py: Python<'_>, expected_bytes: usize) -> PyResult<Self> {
        let bytes = GrowingBytes::with_capacity(py, expected_bytes)?;
        Ok(Self { bytes })
    }

    /// Appends `chunk`.
    #[pyo3(signature = (chunk, /))]
    fn write(&mut self, chunk: &Bound<'_, PyAny>) -> PyResult<()> {
        with_bytes(chunk, |chunk_bytes| {
            let rest = self.bytes.extend(chunk_bytes);
            if !rest.is_empty() {
                self.grow(chunk.py(), rest.len())?;
                self.bytes.extend(rest);
            }
            Ok(())
        })?
    }

    /// Returns the number of bytes so far.
    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    /// Copies the last `n_bytes`, or fewer.
    #[pyo3(signature = (n_bytes, /))]
    fn tail<'py>(&self, py: Python<'py>, n_bytes: usize) -> Bound<'py, PyBytes> {
        let filled = self.bytes.filled();
        let start = filled.len().saturating_sub(n_bytes);
        PyBytes::new(py, filled.get(start..).unwrap_or_default())
    }

    /// Returns all bytes, without a copy, and empties the buffer.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.replaced(py)?.finish(py)
    }
}

impl MessageBuffer {
    /// Returns the bytes, and leaves an empty buffer.
    fn replaced(&mut self, py: Python<'_>) -> PyResult<GrowingBytes> {
        Ok(mem::replace(
            &mut self.bytes,
            GrowingBytes::with_capacity(py, 0)?,
        ))
    }

    /// Makes room for `more` bytes past the capacity.
    fn grow(&mut self, py: Python<'_>, more: usize) -> PyResult<()> {
        let capacity = self.bytes.capacity();
        let needed = capacity
            .checked_add(more)
            .ok_or_else(|| PyMemoryError::new_err("expected a message that fits into memory"))?;
        self.bytes = if needed <= SMALL_BYTES {
            self.replaced(py)?
                .resize(py, needed.max(capacity + capacity / 8))?
        } else {
            let next = needed.max(capacity.saturating_mul(2)).max(LARGE_BYTES);
            let mut grown = GrowingBytes::with_capacity(py, next)?;
            grown.extend(self.bytes.filled());
            grown
        };
        Ok(())
    }
}
