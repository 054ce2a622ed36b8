//! Python's `Dither`: floats of one stream to 16-bit samples.

use std::sync::Mutex;

use playhead_core::dither;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::with_bytes;
use crate::error::usage;
use crate::lock::lock;

/// Python's `Dither`: the noise generator of one stream, behind a lock.
#[pyclass(name = "Dither", module = "playhead._core", frozen)]
pub struct PyDither {
    dither: Mutex<dither::Dither>,
}

#[pymethods]
impl PyDither {
    /// Starts at the fixed seed.
    #[new]
    fn new() -> Self {
        Self {
            dither: Mutex::new(dither::Dither::default()),
        }
    }

    /// Converts 32-bit floats to 16-bit integers.
    #[pyo3(signature = (floats, /))]
    fn convert<'py>(
        &self,
        py: Python<'py>,
        floats: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        with_bytes(floats, |floats| {
            if floats.len() % 4 != 0 {
                return Err(usage(
                    py,
                    format!(
                        "floats: expected whole 32-bit samples, got {} bytes",
                        floats.len()
                    ),
                ));
            }
            // Attached: a piece of 4096 frames takes some 20 µs.
            PyBytes::new_with(py, floats.len() / 2, |out| {
                lock(&self.dither).convert(floats, out);
                Ok(())
            })
        })?
    }
}
