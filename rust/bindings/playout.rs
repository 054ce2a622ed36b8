//! `Playout`.

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use playhead_core::gain::Sample;
use playhead_core::playout::{Phase, Playout, PlayoutSettings};
use pyo3::prelude::*;

use crate::buffer::with_bytes_mut;
use crate::error::{to_python, usage};
use crate::pipe::{Exception, PyPipe};
use crate::wake::FdWake;

/// The zero of the times that a playout is given; set before there is one.
static EPOCH: OnceLock<Instant> = OnceLock::new();

/// The time now, for a playout. Takes no lock.
pub fn now() -> Duration {
    EPOCH.get().map_or(Duration::ZERO, Instant::elapsed)
}

/// `seconds` of an argument.
pub fn duration(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| usage(py, format!("seconds: expected 0.0 or more, got {seconds}")))
}

#[pyclass(name = "Playout", module = "playhead._core", frozen)]
pub struct PyPlayout {
    pub playout: Arc<Playout<FdWake, Exception>>,
}

#[pymethods]
impl PyPlayout {
    #[new]
    #[pyo3(signature = (pipe, *, sample, channels, rate_hz, gain = 1.0, fade_frames = 0, seek_fade_frames = 0, spare_bytes = 0))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        pipe: &PyPipe,
        sample: &str,
        channels: u16,
        rate_hz: u32,
        gain: f32,
        fade_frames: u32,
        seek_fade_frames: u32,
        spare_bytes: u64,
    ) -> PyResult<Self> {
        EPOCH.get_or_init(Instant::now);
        let (sample, sample_bytes) = match sample {
            "s16" => (Sample::S16, 2),
            "f32" => (Sample::F32, 4),
            _ => {
                return Err(usage(
                    py,
                    format!("sample: expected 's16' or 'f32', got '{sample}'"),
                ));
            }
        };
        let one_or_more = |name: &str, value: u32| {
            NonZeroU32::new(value)
                .ok_or_else(|| usage(py, format!("{name}: expected 1 or more, got 0")))
        };
        let settings = PlayoutSettings {
            sample,
            frame_bytes: one_or_more("channels", sample_bytes * u32::from(channels))?,
            rate_hz: one_or_more("rate_hz", rate_hz)?,
            gain,
            fade_frames,
            seek_fade_frames,
            spare_bytes,
        };
        Ok(Self {
            playout: Arc::new(Playout::new(Arc::clone(&pipe.pipe), settings)),
        })
    }

    #[getter]
    fn phase(&self) -> &'static str {
        match self.playout.phase() {
            Phase::Filling => "filling",
            Phase::Ready => "ready",
            Phase::Playing => "playing",
            Phase::Draining => "draining",
            Phase::Dry => "dry",
            Phase::Ended => "ended",
            Phase::Closed => "closed",
        }
    }

    #[getter]
    fn held(&self) -> bool {
        self.playout.phase().is_held()
    }

    #[getter]
    fn paused(&self) -> bool {
        self.playout.paused()
    }

    #[getter]
    fn frames(&self) -> u64 {
        self.playout.frames()
    }

    #[getter]
    fn position_frames(&self) -> u64 {
        self.playout.position()
    }

    #[getter]
    fn heard_frames(&self) -> u64 {
        self.playout.heard(now())
    }

    #[getter]
    fn buffered_bytes(&self) -> u64 {
        self.playout.buffered_bytes()
    }

    #[getter]
    fn followed(&self) -> bool {
        self.playout.is_followed()
    }

    #[getter]
    fn underruns(&self) -> u64 {
        self.playout.underruns()
    }

    #[getter]
    fn device_underruns(&self) -> u64 {
        self.playout.device_underruns()
    }

    #[getter]
    fn first_audio_age_seconds(&self) -> Option<f64> {
        let first_audio = self.playout.first_audio()?;
        Some(now().saturating_sub(first_audio).as_secs_f64())
    }

    fn fill(&self, buffer: &Bound<'_, PyAny>) -> PyResult<(usize, bool)> {
        // Attached: filling a period takes less time than detaching.
        let filled = with_bytes_mut(buffer, |out| self.playout.fill(out, now()))?;
        Ok((filled.audio_bytes, filled.moved))
    }

    fn take(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        with_bytes_mut(buffer, |out| py.detach(|| self.playout.take(out, now)))?
            .map_err(|error| to_python(py, error, 0))
    }

    fn wait_room(&self, py: Python<'_>, room_bytes: u64) -> PyResult<bool> {
        py.detach(|| self.playout.wait_room(room_bytes))
            .map_err(|error| to_python(py, error, 0))
    }

    fn release(&self) -> bool {
        self.playout.release()
    }

    #[pyo3(signature = (paused, /))]
    fn set_paused(&self, paused: bool) {
        self.playout.set_paused(paused);
    }

    #[pyo3(signature = (gain, *, ramp_frames))]
    fn set_gain(&self, gain: f32, ramp_frames: u32) {
        self.playout.set_gain(gain, ramp_frames);
    }

    #[pyo3(signature = (gain, *, ramp_frames))]
    fn set_duck(&self, gain: f32, ramp_frames: u32) {
        self.playout.set_duck(gain, ramp_frames);
    }

    fn set_delay(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        self.playout.set_delay(duration(py, seconds)?);
        Ok(())
    }

    fn seek(&self, frame: u64) -> bool {
        self.playout.seek(frame)
    }

    fn interrupt(&self) {
        self.playout.interrupt();
    }

    fn interrupt_take(&self, py: Python<'_>) {
        py.detach(|| self.playout.interrupt_take());
    }

    fn copy_taken(&self, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<(usize, u64)> {
        with_bytes_mut(buffer, |out| self.playout.copy_taken(offset, out))
    }

    fn follow_with(&self, next: &Self) -> bool {
        self.playout.follow_with(Arc::clone(&next.playout))
    }

    #[pyo3(signature = (over, /))]
    fn mix(&self, over: Option<&Self>) -> bool {
        self.playout.mix(over.map(|over| Arc::clone(&over.playout)))
    }

    #[pyo3(signature = (*, fade_frames))]
    fn stop(&self, fade_frames: u32) {
        self.playout.stop(fade_frames);
    }

    fn withdraw(&self) {
        self.playout.withdraw();
    }

    fn close(&self) -> bool {
        self.playout.close()
    }
}
