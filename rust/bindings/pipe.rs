//! Python's `Pipe` and `PipeStatistics`: the core's pipe, with Python exceptions as its errors.

use std::sync::Arc;
use std::time::Duration;

use playhead_core::error::Error;
use playhead_core::payload::Payload;
use playhead_core::pipe::{Outcome, Pipe, PipeStatistics, State};
use pyo3::exceptions::{PyBaseException, PyTimeoutError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::base64::DETACH_BYTES;
use crate::buffer::{with_bytes, with_bytes_mut, with_text};
use crate::error::{of_system, to_python, usage};
use crate::wake::FdWake;

pub type Exception = Py<PyBaseException>;

/// Python's `Pipe`, whose wake is a file descriptor.
#[pyclass(name = "Pipe", module = "playhead._core", frozen)]
pub struct PyPipe {
    pub pipe: Arc<Pipe<FdWake, Exception>>,
}

#[pymethods]
impl PyPipe {
    /// Opens an empty pipe.
    #[new]
    #[pyo3(signature = (capacity_bytes, *, start = 0, behind_bytes = 0))]
    fn new(py: Python<'_>, capacity_bytes: u64, start: u64, behind_bytes: u64) -> PyResult<Self> {
        let wake = FdWake::new().map_err(|error| of_system(py, error))?;
        let pipe = Pipe::new(capacity_bytes, start, behind_bytes, wake)
            .map_err(|error| to_python(py, error, 0))?;
        Ok(Self {
            pipe: Arc::new(pipe),
        })
    }

    /// The capacity, a power of two.
    #[getter]
    fn capacity_bytes(&self) -> u64 {
        self.pipe.capacity()
    }

    /// The bytes that fit ahead of the reader.
    #[getter]
    fn ahead_bytes(&self) -> u64 {
        self.pipe.ahead()
    }

    /// The offset of the oldest byte that is kept.
    #[getter]
    fn kept_from(&self) -> u64 {
        self.pipe.kept_from()
    }

    /// The offset of the next byte to read.
    #[getter]
    fn head(&self) -> u64 {
        self.pipe.head()
    }

    /// The end of the readable bytes.
    #[getter]
    fn tail(&self) -> u64 {
        self.pipe.tail()
    }

    /// True after `close` or `abort`.
    #[getter]
    fn closed(&self) -> bool {
        self.pipe.state() != State::Open
    }

    /// Decodes a page to its place. Returns its decoded length.
    fn write_base64(&self, py: Python<'_>, offset: u64, text: &Bound<'_, PyAny>) -> PyResult<u64> {
        with_text(text, |text| self.store(py, offset, Payload::Text(text)))?
    }

    /// Copies bytes to their place. Returns their number.
    fn write(&self, py: Python<'_>, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        with_bytes(data, |data| self.store(py, offset, Payload::Bytes(data)))?
    }

    /// Blocks the writer until `room_bytes` fit. Returns whether they do.
    #[pyo3(signature = (room_bytes, timeout = None))]
    fn wait_room(&self, py: Python<'_>, room_bytes: u64, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = to_duration(py, timeout)?;
        py.detach(|| self.pipe.wait_room(room_bytes, timeout))
            .map_err(|error| to_python(py, error, 0))
    }

    /// Requests a wake once at most `low_bytes` are readable. Returns true if that is already so.
    fn arm(&self, low_bytes: u64) -> bool {
        self.pipe.arm(low_bytes)
    }

    /// Returns the descriptor that is readable after a wake.
    fn fileno(&self) -> i32 {
        self.pipe.wake().raw()
    }

    /// Takes the pending wakes.
    fn clear_wake(&self) {
        self.pipe.wake().clear();
    }

    /// Blocks until there are bytes, and reads them.
    #[pyo3(signature = (buffer, timeout = None))]
    fn readinto(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<usize> {
        let limit = to_duration(py, timeout)?;
        let outcome = with_bytes_mut(buffer, |out| py.detach(|| self.pipe.read(out, limit)))?;
        read_result(py, outcome)?.ok_or_else(|| {
            PyTimeoutError::new_err(format!(
                "no byte arrived within {} s at offset {}; the stream continues, so read again or abort it",
                timeout.unwrap_or_default(),
                self.pipe.head(),
            ))
        })
    }

    /// Reads what is available; None if nothing is.
    fn readinto_nowait(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Option<usize>> {
        // Attached: the copy takes less time than detaching.
        read_result(
            py,
            with_bytes_mut(buffer, |out| self.pipe.read_nowait(out))?,
        )
    }

    /// Copies bytes that the reader has passed.
    fn readinto_behind(&self, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        with_bytes_mut(buffer, |out| self.pipe.copy_behind(offset, out))
    }

    /// Moves the reader to `offset`.
    fn seek(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        self.pipe
            .seek(offset)
            .map_err(|error| to_python(py, error, 0))
    }

    /// Makes one blocking `readinto` raise `TimeoutError`.
    fn interrupt(&self) {
        self.pipe.interrupt();
    }

    /// Ends the stream at the tail.
    fn close(&self) {
        self.pipe.close();
    }

    /// Breaks the stream at the tail with `error`.
    fn abort(&self, error: Exception) {
        self.pipe.abort(error);
    }

    /// Takes a snapshot.
    fn statistics(&self) -> PyPipeStatistics {
        self.pipe.statistics().into()
    }

    fn __repr__(&self) -> String {
        format!(
            "<Pipe {:?} head={} tail={} capacity_bytes={}>",
            self.pipe.state(),
            self.pipe.head(),
            self.pipe.tail(),
            self.pipe.capacity(),
        )
    }

    /// The error's traceback may lead back to this pipe. The garbage collector breaks such a cycle at the traceback.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.pipe.error().map_or(Ok(()), |error| visit.call(error))
    }
}

impl PyPipe {
    /// Writes a page; detached, if it is long.
    fn store(&self, py: Python<'_>, offset: u64, payload: Payload<'_>) -> PyResult<u64> {
        let (Payload::Text(bytes) | Payload::Bytes(bytes)) = payload;
        let written = if bytes.len() >= DETACH_BYTES {
            py.detach(|| self.pipe.write(offset, payload))
        } else {
            self.pipe.write(offset, payload)
        };
        written.map_err(|error| to_python(py, error, offset))
    }
}

/// Converts the outcome of a read; `None` is "not yet".
fn read_result(
    py: Python<'_>,
    read: Result<Outcome<'_, Exception>, Error>,
) -> PyResult<Option<usize>> {
    match read {
        Ok(Outcome::Bytes(len)) => Ok(Some(len)),
        Ok(Outcome::NotYet) => Ok(None),
        Ok(Outcome::End) => Ok(Some(0)),
        Ok(Outcome::Broken(error)) => Err(PyErr::from_value(error.bind(py).as_any().clone())),
        Err(error) => Err(to_python(py, error, 0)),
    }
}

/// Converts a timeout in seconds. One that is too long for the clock means no limit.
fn to_duration(py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Duration>> {
    match timeout {
        Some(timeout) if timeout.is_nan() || timeout < 0.0 => Err(usage(
            py,
            format!("timeout: expected 0 or more seconds, or None for no limit, got {timeout}"),
        )),
        Some(timeout) => Ok(Duration::try_from_secs_f64(timeout).ok()),
        None => Ok(None),
    }
}

/// A snapshot of a pipe's counters.
#[pyclass(
    name = "PipeStatistics",
    module = "playhead._core",
    frozen,
    get_all,
    eq,
    hash
)]
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct PyPipeStatistics {
    bytes_read: u64,
    reader_waits: u64,
}

#[pymethods]
impl PyPipeStatistics {
    fn __repr__(&self) -> String {
        let text = format!("{self:?}");
        text.trim_start_matches("Py")
            .replace(": ", "=")
            .replace(" { ", "(")
            .replace(" }", ")")
    }
}

impl From<PipeStatistics> for PyPipeStatistics {
    fn from(figures: PipeStatistics) -> Self {
        Self {
            bytes_read: figures.bytes_read,
            reader_waits: figures.reader_waits,
        }
    }
}
