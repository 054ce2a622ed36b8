//! `MessageBuffer`.

use std::mem;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::{GrowingBytes, with_bytes};

/// The capacity up to which a buffer grows only as needed: the allocator can reuse the memory of the previous message
/// if the sizes are alike.
const SMALL_BYTES: usize = 4 << 20;
/// The next capacity: the longest message by default, and one more read. Memory that is never written to costs
/// nothing, and a later move would lose the large pages.
const LARGE_BYTES: usize = 66 << 20;

#[pyclass(module = "playhead._core")]
pub struct MessageBuffer {
    bytes: GrowingBytes,
}

#[pymethods]
impl MessageBuffer {
    #[new]
    #[pyo3(signature = (expected_bytes = 0, /))]
    fn new(py: Python<'_>, expected_bytes: usize) -> PyResult<Self> {
        let bytes = GrowingBytes::with_capacity(py, expected_bytes)?;
        Ok(Self { bytes })
    }

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

    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    #[pyo3(signature = (n_bytes, /))]
    fn tail<'py>(&self, py: Python<'py>, n_bytes: usize) -> Bound<'py, PyBytes> {
        let filled = self.bytes.filled();
        let start = filled.len().saturating_sub(n_bytes);
        PyBytes::new(py, filled.get(start..).unwrap_or_default())
    }

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
