//! `playhead._core`: conversions between Python and the core crate, and no decisions.
#![allow(
    missing_docs,
    reason = "the Python stub `_core.pyi` documents this module"
)]

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
