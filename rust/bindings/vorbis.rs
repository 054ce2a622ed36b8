//! Python's `VorbisStream`: the core's Vorbis decoder behind a lock.

use std::sync::Mutex;

use playhead_core::vorbis::Vorbis;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::with_bytes;
use crate::error::vorbis_to_python;
use crate::lock::lock;

/// A decoder of one Ogg Vorbis stream, behind a lock.
#[pyclass(frozen, module = "playhead._core")]
pub struct VorbisStream(Mutex<Vorbis>);

#[pymethods]
impl VorbisStream {
    /// Starts at the headers.
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Vorbis::default()))
    }

    /// The sample rate; None before the headers.
    #[getter]
    fn rate_hz(&self) -> Option<u32> {
        lock(&self.0).format().map(|format| format.rate_hz)
    }

    /// The number of channels; None before the headers.
    #[getter]
    fn channels(&self) -> Option<u8> {
        lock(&self.0).format().map(|format| format.channels)
    }

    /// The nominal rate of the headers; None before them.
    #[getter]
    fn nominal_bytes_per_second(&self) -> Option<u32> {
        let format = lock(&self.0).format();
        format.map(|format| format.nominal_bytes_per_second)
    }

    /// The offset of the first page of audio; None before the headers.
    #[getter]
    fn audio_offset(&self) -> Option<u64> {
        lock(&self.0).audio().map(|(offset, _)| offset)
    }

    /// The logical stream; None before the headers.
    #[getter]
    fn serial(&self) -> Option<u32> {
        lock(&self.0).audio().map(|(_, serial)| serial)
    }

    /// The time of the first frame since the beginning or the last restart.
    #[getter]
    fn start(&self) -> Option<i64> {
        lock(&self.0).start()
    }

    /// The bytes of the decoded packets, and their frames.
    #[getter]
    fn decoded(&self) -> (u64, u64) {
        lock(&self.0).decoded()
    }

    /// The frames of missing pages.
    #[getter]
    fn lost_frames(&self) -> u64 {
        lock(&self.0).lost_frames()
    }

    /// True after the last page of the newest logical stream.
    #[getter]
    fn has_ended(&self) -> bool {
        lock(&self.0).has_ended()
    }

    /// The size of the newest page.
    #[getter]
    fn page_bytes(&self) -> usize {
        lock(&self.0).page_bytes()
    }

    /// Appends the next bytes.
    #[pyo3(signature = (data, /))]
    fn feed(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        with_bytes(data, |bytes| lock(&self.0).push(bytes))
    }

    /// Records that no more bytes follow.
    fn finish(&self) {
        lock(&self.0).finish();
    }

    /// Decodes up to `frames`; empty at the end, None until more bytes are fed.
    fn decode<'py>(&self, py: Python<'py>, frames: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let pcm = py
            .detach(|| lock(&self.0).decode(frames))
            .map_err(|fault| vorbis_to_python(py, &fault))?;
        pcm.map(|pcm| {
            PyBytes::new_with(py, pcm.len() * 2, |out| {
                for (place, sample) in out.chunks_exact_mut(2).zip(pcm) {
                    place.copy_from_slice(&sample.to_ne_bytes());
                }
                Ok(())
            })
        })
        .transpose()
    }

    /// Continues at the page at `offset`.
    fn restart(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        py.detach(|| lock(&self.0).restart(offset))
            .map_err(|fault| vorbis_to_python(py, &fault))
    }
}
