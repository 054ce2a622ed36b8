//! Python's `OggReader` and `OggPage`: the core's pages and packets, read together.

use std::sync::Mutex;

use playhead_core::ogg::{Packets, Pages};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::with_bytes;
use crate::lock::lock;

/// One page, and the packets that end on it.
#[pyclass(frozen, get_all, module = "playhead._core")]
pub struct OggPage {
    offset: u64,
    end: u64,
    is_continued: bool,
    is_first: bool,
    is_last: bool,
    is_open: bool,
    granule: Option<i64>,
    serial: u32,
    number: u32,
    packets: Vec<Py<PyBytes>>,
}

struct Reader {
    pages: Pages,
    packets: Packets,
    serial: Option<u32>,
}

/// A parser of pages and packets, behind a lock.
#[pyclass(frozen, module = "playhead._core")]
pub struct OggReader(Mutex<Reader>);

#[pymethods]
impl OggReader {
    /// Starts at `offset`; without a serial number, the first page chooses the logical stream.
    #[new]
    #[pyo3(signature = (*, offset=0, serial=None))]
    fn new(offset: u64, serial: Option<u32>) -> Self {
        Self(Mutex::new(Reader {
            pages: Pages::new(offset),
            packets: Packets::default(),
            serial,
        }))
    }

    /// The offset of the first byte that is neither parsed nor skipped.
    #[getter]
    fn offset(&self) -> u64 {
        lock(&self.0).pages.offset()
    }

    /// Appends the next bytes.
    #[pyo3(signature = (data, /))]
    fn feed(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        with_bytes(data, |bytes| lock(&self.0).pages.push(bytes))
    }

    /// Records that no more bytes follow.
    fn finish(&self) {
        lock(&self.0).pages.finish();
    }

    /// Returns the next page, or None until more bytes are fed.
    fn next_page(&self, py: Python<'_>) -> Option<OggPage> {
        // Attached: a page has at most 64 KiB, and its checksum takes 150 µs.
        let mut reader = lock(&self.0);
        let page = reader.pages.next_page()?;
        let serial = *reader.serial.get_or_insert(page.serial);
        let packets = if page.serial == serial {
            reader.packets.push(&page)
        } else {
            Vec::new()
        };
        Some(OggPage {
            offset: page.offset,
            end: page.end(),
            is_continued: page.is_continued,
            is_first: page.is_first,
            is_last: page.is_last,
            is_open: page.parts().last().is_some_and(|(_, ends)| !ends),
            granule: page.granule,
            serial: page.serial,
            number: page.number,
            packets: packets
                .iter()
                .map(|packet| PyBytes::new(py, packet).unbind())
                .collect(),
        })
    }
}
