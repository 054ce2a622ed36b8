//! The table from the core's errors to `playhead.errors`.

use std::io;

use playhead_core::error::Error;
use playhead_core::vorbis::Fault;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use rustix::io::Errno;

/// A class of `playhead.errors`, imported when it is first needed.
struct Class {
    name: &'static str,
    cell: PyOnceLock<Py<PyType>>,
}

impl Class {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            cell: PyOnceLock::new(),
        }
    }

    /// An error of this class with `message`.
    fn with(&self, py: Python<'_>, message: String) -> PyErr {
        self.make(py, message, &PyDict::new(py))
            .unwrap_or_else(|failure| failure)
    }

    fn make(
        &self,
        py: Python<'_>,
        message: String,
        attributes: &Bound<'_, PyDict>,
    ) -> PyResult<PyErr> {
        let class = self.cell.import(py, "playhead.errors", self.name)?;
        Ok(PyErr::from_value(class.call((message,), Some(attributes))?))
    }
}

static USAGE: Class = Class::new("UsageError");
static CLOSED: Class = Class::new("ClosedError");
static BUSY: Class = Class::new("BusyError");
static WINDOW: Class = Class::new("WindowError");
static BASE64: Class = Class::new("Base64Error");
static DESCRIPTORS: Class = Class::new("DescriptorLimitError");
static CONTRADICTION: Class = Class::new("ContradictionError");
static DECODE: Class = Class::new("DecodeError");
static UNSUPPORTED: Class = Class::new("UnsupportedFormatError");

/// The Python exception for `error`. `offset` is the start of the page in its resource, or 0.
pub fn to_python(py: Python<'_>, error: Error, offset: u64) -> PyErr {
    table(py, error, offset).unwrap_or_else(|failure| failure)
}

fn table(py: Python<'_>, error: Error, offset: u64) -> PyResult<PyErr> {
    let message = error.to_string();
    let attributes = PyDict::new(py);
    let class = match error {
        Error::Base64(fault) => {
            attributes.set_item("kind", fault.kind.name())?;
            attributes.set_item("index", fault.index)?;
            attributes.set_item("offset", offset)?;
            &BASE64
        }
        Error::Window {
            start,
            end,
            low,
            high,
        } => {
            for (name, value) in [("start", start), ("end", end), ("low", low), ("high", high)] {
                attributes.set_item(name, value)?;
            }
            &WINDOW
        }
        Error::Contradiction { offset } => {
            attributes.set_item("offset", offset)?;
            &CONTRADICTION
        }
        Error::Closed => &CLOSED,
        Error::Busy => &BUSY,
        Error::Capacity { .. }
        | Error::Behind { .. }
        | Error::Offset { .. }
        | Error::Room { .. } => &USAGE,
        Error::Memory { .. } => return Ok(PyMemoryError::new_err(message)),
    };
    class.make(py, message, &attributes)
}

/// The Python exception for an error of the system without a file, such as "no file descriptor is free".
pub fn of_system(py: Python<'_>, error: io::Error) -> PyErr {
    match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE) => no_descriptor(py).unwrap_or_else(|failure| failure),
        _ => error.into(),
    }
}

fn no_descriptor(py: Python<'_>) -> PyResult<PyErr> {
    let message = py.import("playhead.errors")?.getattr("NO_DESCRIPTOR")?;
    Ok(DESCRIPTORS.with(py, message.extract()?))
}

/// The Python exception for an invalid argument.
pub fn usage(py: Python<'_>, message: String) -> PyErr {
    USAGE.with(py, message)
}

/// The Python exception for a fault of Ogg Vorbis: a header beyond a limit, or damaged bytes.
pub fn vorbis_to_python(py: Python<'_>, fault: &Fault) -> PyErr {
    let class = match fault {
        Fault::Limit { .. } | Fault::Format { .. } => &UNSUPPORTED,
        Fault::Header(_) | Fault::Packet { .. } | Fault::Links(_) => &DECODE,
    };
    class.with(py, fault.to_string())
}
