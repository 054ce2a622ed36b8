//! Python's `Frame`: the envelope and the blob spans of one JSON-RPC message, found by a scan without parsing it.

use playhead_core::frame::{self, Field, Id, Kind};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySlice};

use crate::buffer::with_bytes;

/// A message of at least this length is scanned detached from the interpreter. The scan of a shorter one takes less
/// time (about 100 µs) than attaching again may take.
const DETACH_BYTES: usize = 2 << 20;

/// A scanned message. It keeps `data` alive, because its spans point into it.
#[pyclass(module = "playhead._core", frozen)]
pub struct Frame {
    frame: frame::Frame,
    data: Py<PyAny>,
}

#[pymethods]
impl Frame {
    /// Scans `data`.
    #[new]
    #[pyo3(signature = (data, /))]
    fn new(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let frame = with_bytes_detached(data, frame::Frame::scan)?;
        Ok(Self {
            frame,
            data: data.clone().unbind(),
        })
    }

    /// The kind of the message, judged by its keys.
    #[getter]
    fn kind(&self) -> Option<&'static str> {
        self.frame.kind.map(|kind| match kind {
            Kind::Request => "request",
            Kind::Notification => "notification",
            Kind::Result => "result",
            Kind::Error => "error",
        })
    }

    /// The id, if it is a plain integer or string.
    #[getter]
    fn id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match &self.frame.id {
            None => Ok(None),
            Some(Id::Integer(number)) => Ok(Some(number.into_pyobject(py)?.into_any())),
            Some(Id::Text(span)) => {
                let text = with_bytes(self.data.bind(py), |bytes| {
                    let text = bytes.get(span.clone()).unwrap_or_default();
                    String::from_utf8_lossy(text).into_pyobject(py)
                })??;
                Ok(Some(text.into_any()))
            }
        }
    }

    /// The deepest nesting of objects and lists.
    #[getter]
    fn depth(&self) -> usize {
        self.frame.depth
    }

    /// The number of values.
    #[getter]
    fn values(&self) -> usize {
        self.frame.values
    }

    /// Returns the memory that the decoded text may take.
    fn text_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        with_bytes_detached(self.data.bind(py), |data| self.frame.text_bytes(data))
    }

    /// Returns the message with an empty string in place of each blob.
    fn envelope<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        with_bytes(self.data.bind(py), |bytes| {
            PyBytes::new(py, &self.frame.envelope(bytes))
        })
    }

    /// Returns the field, the index and a view of the text of each long blob.
    fn blobs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let blobs = PyList::empty(py);
        if self.frame.blobs.is_empty() {
            return Ok(blobs);
        }
        let view = PyMemoryView::from(self.data.bind(py))?;
        for blob in &self.frame.blobs {
            let field = match blob.field {
                Field::ContentsBlob => "contents.blob",
                Field::ContentData => "content.data",
                Field::ResourceBlob => "content.resource.blob",
            };
            let span = PySlice::new(
                py,
                blob.span.start.try_into()?,
                blob.span.end.try_into()?,
                1,
            );
            blobs.append((field, blob.item, view.get_item(span)?))?;
        }
        Ok(blobs)
    }

    fn __repr__(&self) -> String {
        format!(
            "<Frame kind={} depth={} values={} blobs={}>",
            self.kind().unwrap_or("None"),
            self.frame.depth,
            self.frame.values,
            self.frame.blobs.len(),
        )
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.data)
    }
}

/// Runs `work` on the bytes of `data`; detached, if they are many.
fn with_bytes_detached<R: Send>(
    data: &Bound<'_, PyAny>,
    work: impl FnOnce(&[u8]) -> R + Send,
) -> PyResult<R> {
    with_bytes(data, |bytes| {
        if bytes.len() >= DETACH_BYTES {
            data.py().detach(|| work(bytes))
        } else {
            work(bytes)
        }
    })
}
