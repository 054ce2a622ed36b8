//! `OggReader` and `OggPage`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use playhead_core::ogg::{Packets, Pages};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::with_bytes;

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

#[pymethods]
impl OggPage {
    fn __repr__(&self) -> String {
        format!(
            "<OggPage offset={} end={} serial={} number={} granule={:?}>",
            self.offset, self.end, self.serial, self.number, self.granule,
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

    fn next_page(&self, py: Python<'_>) -> Option<OggPage> {
        // Attached: a page has at most 64 KiB, and its checksum takes 150 µs.
        let mut reader = self.lock();
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
