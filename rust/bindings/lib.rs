//! `playhead._core`: conversions between Python and the core crate, and no decisions.
#![allow(
    missing_docs,
    reason = "the Python stub `_core.pyi` documents this module"
)]

mod base64;
mod buffer;
mod device_callback;
mod dither;
mod error;
mod frame;
mod interpreter;
mod lock;
mod message_buffer;
mod ogg;
mod pipe;
mod planner;
mod playout;
mod vorbis;
mod wake;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::base64::{check_base64, decode_base64};
    #[pymodule_export]
    use super::device_callback::PyDeviceCallback;
    #[pymodule_export]
    use super::dither::PyDither;
    #[pymodule_export]
    use super::frame::Frame;
    #[pymodule_export]
    use super::message_buffer::MessageBuffer;
    #[pymodule_export]
    use super::ogg::{OggPage, OggReader};
    #[pymodule_export]
    use super::pipe::{PyPipe, PyPipeStatistics};
    #[pymodule_export]
    use super::planner::{Planner, PlannerStatistics, Request};
    #[pymodule_export]
    use super::playout::PyPlayout;
    #[pymodule_export]
    use super::vorbis::VorbisStream;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        interpreter::require_main(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
