//! `playhead._core`: conversions between Python and the core crate, and no decisions.
#![allow(
    missing_docs,
    reason = "the Python stub `_core.pyi` documents this module"
)]

mod base64;
mod buffer;
mod error;
mod gain;
mod pipe;
mod planner;
mod wake;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::base64::decode_base64;
    #[pymodule_export]
    use super::gain::scale_pcm16;
    #[pymodule_export]
    use super::pipe::PyPipe;
    #[pymodule_export]
    use super::pipe::PyPipeStatistics;
    #[pymodule_export]
    use crate::planner::{Planner, PlannerStatistics, Request};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
