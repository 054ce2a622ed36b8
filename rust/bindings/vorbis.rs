//! `VorbisStream`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use playhead_core::vorbis::{Progress, Vorbis};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::with_bytes;
use crate::error::vorbis_to_python;

#[pyclass(frozen, module = "playhead._core")]
pub struct VorbisStream(Mutex<Vorbis>);

impl VorbisStream {
    fn lock(&self) -> MutexGuard<'_, Vorbis> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl VorbisStream {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Vorbis::default()))
    }

    #[getter]
    fn rate_hz(&self) -> Option<u32> {
        self.lock().format().map(|format| format.rate_hz)
    }

    #[getter]
    fn channels(&self) -> Option<u8> {
        self.lock().format().map(|format| format.channels)
    }

    #[getter]
    fn nominal_bytes_per_second(&self) -> Option<u32> {
        let format = self.lock().format();
        format.map(|format| format.nominal_bytes_per_second)
    }

    #[getter]
    fn audio_offset(&self) -> Option<u64> {
        self.lock().audio().map(|(offset, _)| offset)
    }

    #[getter]
    fn serial(&self) -> Option<u32> {
        self.lock().audio().map(|(_, serial)| serial)
    }

    #[getter]
    fn start(&self) -> Option<i64> {
        self.lock().start()
    }

    #[getter]
    fn decoded(&self) -> (u64, u64) {
        self.lock().decoded()
    }

    #[getter]
    fn page_bytes(&self) -> usize {
        self.lock().page_bytes()
    }

    #[pyo3(signature = (data, /))]
    fn feed(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        with_bytes(data, |bytes| self.lock().push(bytes))
    }

    fn finish(&self) {
        self.lock().finish();
    }

    fn decode<'py>(&self, py: Python<'py>, frames: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let progress = py.detach(|| self.lock().decode(frames));
        let stream = match progress {
            Ok(Progress::NotYet) => return Ok(None),
            Ok(Progress::Audio | Progress::End) => self.lock(),
            Err(fault) => return Err(vorbis_to_python(py, &fault)),
        };
        let pcm = stream.pcm();
        let bytes = PyBytes::new_with(py, pcm.len() * 2, |out| {
            for (place, sample) in out.chunks_exact_mut(2).zip(pcm) {
                place.copy_from_slice(&sample.to_ne_bytes());
            }
            Ok(())
        })?;
        Ok(Some(bytes))
    }

    fn restart(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        py.detach(|| self.lock().restart(offset))
            .map_err(|fault| vorbis_to_python(py, &fault))
    }
}
