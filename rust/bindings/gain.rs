//! `scale_pcm16`.

use playhead_core::gain;
use pyo3::prelude::*;

use crate::buffer::with_bytes_mut;

#[pyfunction]
#[pyo3(signature = (pcm, start_gain, end_gain, /))]
pub fn scale_pcm16(pcm: &Bound<'_, PyAny>, start_gain: f64, end_gain: f64) -> PyResult<()> {
    // Attached: scaling a period of audio takes less time than detaching.
    with_bytes_mut(pcm, |bytes| gain::scale_pcm16(bytes, start_gain, end_gain))
}
