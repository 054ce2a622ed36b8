//! Python's `Playout`, and the clock that all playouts share.

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

/// The time zero of all playouts, set when the first one is made.
static EPOCH: OnceLock<Instant> = OnceLock::new();

/// The time since `EPOCH`. It takes no lock, so a callback may call it.
pub fn now() -> Duration {
    EPOCH.get().map_or(Duration::ZERO, Instant::elapsed)
}

/// Converts an argument in seconds.
pub fn duration(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| usage(py, format!("seconds: expected 0.0 or more, got {seconds}")))
}

/// Python's `Playout`.
#[pyclass(name = "Playout", module = "playhead._core", frozen)]
pub struct PyPlayout {
    pub playout: Arc<Playout<FdWake, Exception>>,
}

#[pymethods]
impl PyPlayout {
    /// Creates a playout of the audio in `pipe`.
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

    /// The phase's name.
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

    /// True while the gate holds the audio back.
    #[getter]
    fn held(&self) -> bool {
        self.playout.phase().is_held()
    }

    /// True while the listener has paused.
    #[getter]
    fn paused(&self) -> bool {
        self.playout.paused()
    }

    /// The frames that the sink has taken.
    #[getter]
    fn frames(&self) -> u64 {
        self.playout.frames()
    }

    /// The number of the next frame to take.
    #[getter]
    fn position_frames(&self) -> u64 {
        self.playout.position()
    }

    /// The frames that have left the device by now.
    #[getter]
    fn heard_frames(&self) -> u64 {
        self.playout.heard(now())
    }

    /// The bytes that the sink will take.
    #[getter]
    fn buffered_bytes(&self) -> u64 {
        self.playout.buffered_bytes()
    }

    /// True once a device plays the playout after this one.
    #[getter]
    fn followed(&self) -> bool {
        self.playout.is_followed()
    }

    /// The times that the audio ran dry and continued.
    #[getter]
    fn underruns(&self) -> u64 {
        self.playout.underruns()
    }

    /// The calls that came after the device had run dry.
    #[getter]
    fn device_underruns(&self) -> u64 {
        self.playout.device_underruns()
    }

    /// The seconds since the sink took the first frame.
    #[getter]
    fn first_audio_age_seconds(&self) -> Option<f64> {
        let first_audio = self.playout.first_audio()?;
        Some(now().saturating_sub(first_audio).as_secs_f64())
    }

    /// Fills `buffer` in real time. Returns the bytes of audio, and whether the phase changed.
    fn fill(&self, buffer: &Bound<'_, PyAny>) -> PyResult<(usize, bool)> {
        // Attached: filling a period takes less time than detaching.
        let filled = with_bytes_mut(buffer, |out| self.playout.fill(out, now()))?;
        Ok((filled.audio_bytes, filled.moved))
    }

    /// Blocks until there is audio, and takes it; None after an interrupt.
    fn take(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        with_bytes_mut(buffer, |out| py.detach(|| self.playout.take(out, now)))?
            .map_err(|error| to_python(py, error, 0))
    }

    /// Blocks the decoder until `room_bytes` fit. Returns whether they do.
    fn wait_room(&self, py: Python<'_>, room_bytes: u64) -> PyResult<bool> {
        py.detach(|| self.playout.wait_room(room_bytes))
            .map_err(|error| to_python(py, error, 0))
    }

    /// Opens the gate. Returns whether the phase changed.
    fn release(&self) -> bool {
        self.playout.release()
    }

    /// Pauses or resumes.
    #[pyo3(signature = (paused, /))]
    fn set_paused(&self, paused: bool) {
        self.playout.set_paused(paused);
    }

    /// Ramps the volume to `gain`.
    #[pyo3(signature = (gain, *, ramp_frames))]
    fn set_gain(&self, gain: f32, ramp_frames: u32) {
        self.playout.set_gain(gain, ramp_frames);
    }

    /// Ramps the second gain, which ducks the audio.
    #[pyo3(signature = (gain, *, ramp_frames))]
    fn set_duck(&self, gain: f32, ramp_frames: u32) {
        self.playout.set_duck(gain, ramp_frames);
    }

    /// Sets how much audio the device and its successors hold after a call.
    fn set_delay(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        self.playout.set_delay(duration(py, seconds)?);
        Ok(())
    }

    /// Voids the written audio: the next bytes begin with `frame`. Returns whether it could.
    fn seek(&self, frame: u64) -> bool {
        self.playout.seek(frame)
    }

    /// Makes one `wait_room` return false.
    fn interrupt(&self) {
        self.playout.interrupt();
    }

    /// Makes one `take` return None.
    fn interrupt_take(&self, py: Python<'_>) {
        py.detach(|| self.playout.interrupt_take());
    }

    /// Copies audio that the sink has taken. Returns its length, and the offset to go on at.
    fn copy_taken(&self, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<(usize, u64)> {
        with_bytes_mut(buffer, |out| self.playout.copy_taken(offset, out))
    }

    /// Sets the playout that follows without a gap. Returns false if another one follows.
    fn follow_with(&self, next: &Self) -> bool {
        self.playout.follow_with(Arc::clone(&next.playout))
    }

    /// Sets the audio to add to this one, or none. Returns false if its format differs.
    #[pyo3(signature = (over, /))]
    fn mix(&self, over: Option<&Self>) -> bool {
        self.playout.mix(over.map(|over| Arc::clone(&over.playout)))
    }

    /// Fades out and closes.
    #[pyo3(signature = (*, fade_frames))]
    fn stop(&self, fade_frames: u32) {
        self.playout.stop(fade_frames);
    }

    /// Closes the playout before its turn.
    fn withdraw(&self) {
        self.playout.withdraw();
    }

    /// Silences the playout and closes its pipe. Returns whether the phase changed.
    fn close(&self) -> bool {
        self.playout.close()
    }
}
