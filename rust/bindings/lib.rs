//! `playhead._core`: conversions between Python and the core crate, and no decisions.
#![allow(
    missing_docs,
    reason = "the Python stub `_core.pyi` documents this module"
)]

use pyo3::prelude::*;

mod planner;

#[pymodule(gil_used = false)]
mod _core {
    use super::*;

    #[pymodule_export]
    use crate::planner::{Planner, PlannerStatistics, Request};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
