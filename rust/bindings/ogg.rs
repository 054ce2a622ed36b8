//! `OggReader` and `OggPage`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use playhead_core::ogg::{Packets, Page, Pages};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::with_bytes;

#[pyclass(frozen, module = "playhead._core")]
pub struct OggPage {
    page: Page,
    packets: Vec<Vec<u8>>,
}

#[pymethods]
impl OggPage {
    #[getter]
    fn offset(&self) -> u64 {
        self.page.offset
    }

    #[getter]
    fn end(&self) -> u64 {
        self.page.end()
    }

    #[getter]
    fn is_continued(&self) -> bool {
        self.page.is_continued
    }

    #[getter]
    fn is_first(&self) -> bool {
        self.page.is_first
    }

    #[getter]
    fn is_last(&self) -> bool {
        self.page.is_last
    }

    #[getter]
    fn is_open(&self) -> bool {
        self.page.parts().last().is_some_and(|(_, ends)| !ends)
    }

    #[getter]
    fn granule(&self) -> Option<i64> {
        self.page.granule
    }

    #[getter]
    fn serial(&self) -> u32 {
        self.page.serial
    }

    #[getter]
    fn number(&self) -> u32 {
        self.page.number
    }

    #[getter]
    fn packets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(
            py,
            self.packets.iter().map(|packet| PyBytes::new(py, packet)),
        )
    }

    fn __repr__(&self) -> String {
        format!(
            "<OggPage offset={} end={} serial={} number={} granule={:?}>",
            self.page.offset,
            self.page.end(),
            self.page.serial,
            self.page.number,
            self.page.granule,
        )
    }
}

struct Reader {
    pages: Pages,
    packets: Packets,
    serial: Option<u32>,
}

#[pyclass(frozen, module = "playhead._core")]
pub struct OggReader(Mutex<Reader>);

impl OggReader {
    fn lock(&self) -> MutexGuard<'_, Reader> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl OggReader {
    #[new]
    #[pyo3(signature = (*, offset=0, serial=None))]
    fn new(offset: u64, serial: Option<u32>) -> Self {
        Self(Mutex::new(Reader {
            pages: Pages::new(offset),
            packets: Packets::default(),
            serial,
        }))
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.lock().pages.offset()
    }

    #[pyo3(signature = (data, /))]
    fn feed(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        with_bytes(data, |bytes| self.lock().pages.push(bytes))
    }

    fn finish(&self) {
        self.lock().pages.finish();
    }

    fn next_page(&self) -> Option<OggPage> {
        // Attached: a page has at most 64 KiB, and its checksum takes 150 µs.
        let mut reader = self.lock();
        let page = reader.pages.next_page()?;
        let serial = *reader.serial.get_or_insert(page.serial);
        let packets = if page.serial == serial {
            reader.packets.push(&page)
        } else {
            Vec::new()
        };
        Some(OggPage { page, packets })
    }
}
