//! Python's `check_base64` and `decode_base64`: strict base64 of a string or a buffer.

use playhead_core::base64::{check, decode, decoded_len};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::with_text;
use crate::error::to_python;

/// Text of at least this length is decoded detached. Shorter text takes 8 µs, while a busy thread may delay attaching
/// again by 5 ms (`sys.getswitchinterval`).
pub const DETACH_BYTES: usize = 64 * 1024;

/// Checks base64 without storing the result.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub fn check_base64(py: Python<'_>, text: &Bound<'_, PyAny>) -> PyResult<()> {
    with_text(text, |bytes| {
        if bytes.len() >= DETACH_BYTES {
            py.detach(|| check(bytes))
        } else {
            check(bytes)
        }
        .map_err(|error| to_python(py, playhead_core::error::Error::Base64(error), 0))
    })?
}

/// Decodes base64 to `bytes`.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub fn decode_base64<'py>(
    py: Python<'py>,
    text: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    with_text(text, |bytes| {
        let fail = |error| to_python(py, playhead_core::error::Error::Base64(error), 0);
        let len = decoded_len(bytes).map_err(fail)?;
        PyBytes::new_with(py, len, |out| {
            if bytes.len() >= DETACH_BYTES {
                py.detach(|| decode(bytes, out))
            } else {
                decode(bytes, out)
            }
            .map_err(fail)
        })
    })?
}
