//! `DeviceCallback`: the functions that miniaudio calls from a device's own thread, without Python; and a clock that
//! calls in place of a device, for a sink without one.
//!
//! miniaudio's structures are known to Python only (its cffi module was compiled with them), so
//! Python passes the offset of `ma_device.pUserData`, sets `dataCallback`, `stopCallback` and `pUserData` in the
//! device's configuration to the addresses given here, and calls `free` after `ma_device_uninit`.
//!
//! The `unsafe` of this file rests on one invariant. **From `ma_device_init` until `ma_device_uninit` has
//! returned, `pUserData` of a device whose callbacks are these points to a [`Target`].** It holds because a
//! target is made before its address can be read, is freed by `free` alone, and a callback that is never freed
//! leaks its target: forgetting costs memory, not safety. miniaudio calls `dataCallback` from one thread, never
//! twice at once, and neither function after `ma_device_uninit`, which joins that thread.
//!
//! In the callbacks: no lock, no allocation, no panic, no Python. See the header of rust/core/playout.rs.

use std::ffi::c_void;
use std::num::NonZeroU32;
use std::slice::from_raw_parts_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use playhead_core::pipe::Wake;
use playhead_core::playout::{Output, next_call};
use pyo3::prelude::*;

use crate::error::{of_system, usage};
use crate::lock::lock;
use crate::pipe::Exception;
use crate::playout::{PyPlayout, duration, now};
use crate::wake::FdWake;

/// The object that `pUserData` points to.
struct Target {
    output: Output<FdWake, Exception>,
    wake: FdWake,
    frame_bytes: usize,
}

impl Target {
    fn fill(&self, out: &mut [u8]) {
        if self.output.call(out, now()) {
            self.wake.wake();
        }
    }
}

/// Offset of `pUserData` in `ma_device`: a constant of the installed miniaudio, so it is set once.
static USER_DATA_OFFSET: OnceLock<usize> = OnceLock::new();

/// The target of a device; `None` before there is one.
///
/// # Safety
/// `device` points to an `ma_device` under this file's invariant. The target lives until the device is
/// uninitialised.
unsafe fn target_of<'a>(device: *const c_void) -> Option<&'a Target> {
    let offset = *USER_DATA_OFFSET.get()?;
    // SAFETY: Python measured the offset of this pointer field in the very structure; `read_unaligned` asks for
    // no alignment.
    let target = unsafe {
        device
            .byte_add(offset)
            .cast::<*const Target>()
            .read_unaligned()
    };
    // SAFETY: null, or a target by the invariant.
    unsafe { target.as_ref() }
}

/// `ma_device_data_proc`.
unsafe extern "C" fn data_callback(
    device: *mut c_void,
    output: *mut c_void,
    _input: *const c_void,
    frame_count: u32,
) {
    // SAFETY: miniaudio passes its device, before `ma_device_uninit` returns.
    let Some(target) = (unsafe { target_of(device) }) else {
        return;
    };
    let len = (frame_count as usize).saturating_mul(target.frame_bytes);
    if output.is_null() || len == 0 {
        return;
    }
    // SAFETY: miniaudio lends `frame_count` frames of the format that the device was opened with, zeroed, for
    // the duration of this call; Python passes the size of that format's frames.
    let out = unsafe { from_raw_parts_mut(output.cast::<u8>(), len) };
    target.fill(out);
}

/// `ma_stop_proc`.
unsafe extern "C" fn stop_callback(device: *mut c_void) {
    // SAFETY: as in `data_callback`.
    if let Some(target) = unsafe { target_of(device) } {
        target.output.stop();
        target.wake.wake();
    }
}

/// Python's `DeviceCallback`: the target of one device's callbacks, or a clock in place of a device.
#[pyclass(name = "DeviceCallback", module = "playhead._core", frozen)]
pub struct PyDeviceCallback {
    target: Arc<Target>,
    /// The reference to `target` that the device holds; null once freed, and without a device.
    lent: AtomicPtr<Target>,
    is_stopped: Mutex<bool>,
    stopped: Condvar,
}

#[pymethods]
impl PyDeviceCallback {
    /// Makes a target; without an offset, there is no device that points to it.
    #[new]
    #[pyo3(signature = (*, frame_bytes, user_data_offset=None))]
    fn new(py: Python<'_>, frame_bytes: usize, user_data_offset: Option<usize>) -> PyResult<Self> {
        if let Some(user_data_offset) = user_data_offset
            && let offset = *USER_DATA_OFFSET.get_or_init(|| user_data_offset)
            && offset != user_data_offset
        {
            return Err(usage(
                py,
                format!(
                    "user_data_offset: expected {offset} as before, got {user_data_offset}; a process has one miniaudio"
                ),
            ));
        }
        let target = Arc::new(Target {
            output: Output::default(),
            wake: FdWake::new().map_err(|error| of_system(py, error))?,
            frame_bytes,
        });
        let lent = match user_data_offset {
            Some(_) => Arc::into_raw(Arc::clone(&target)).cast_mut(),
            None => std::ptr::null_mut(),
        };
        Ok(Self {
            target,
            lent: AtomicPtr::new(lent),
            is_stopped: Mutex::new(false),
            stopped: Condvar::new(),
        })
    }

    /// The address of an `ma_device_data_proc`.
    #[getter]
    fn data_callback(&self) -> usize {
        data_callback as *const () as usize
    }

    /// The address of an `ma_stop_proc`.
    #[getter]
    fn stop_callback(&self) -> usize {
        stop_callback as *const () as usize
    }

    /// The address for `pUserData`; 0 once freed.
    #[getter]
    fn user_data(&self) -> usize {
        self.lent.load(Ordering::Acquire) as usize
    }

    /// Feeds the device from `playout`.
    fn play(&self, py: Python<'_>, playout: &PyPlayout) -> PyResult<()> {
        if self.target.output.play(Arc::clone(&playout.playout)) {
            return Ok(());
        }
        Err(usage(
            py,
            "play: expected a new DeviceCallback, got one that plays; make one per device"
                .to_owned(),
        ))
    }

    /// Sets how much audio the device holds after a call.
    fn set_depth(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        self.target.output.set_depth(duration(py, seconds)?);
        Ok(())
    }

    /// Takes a period of audio on schedule, in place of a device, until `stop`.
    #[pyo3(signature = (*, period_frames, rate_hz))]
    fn run(&self, py: Python<'_>, period_frames: NonZeroU32, rate_hz: NonZeroU32) {
        let period = Duration::from_secs(period_frames.get().into()) / rate_hz.get();
        let mut out = vec![0; period_frames.get() as usize * self.target.frame_bytes];
        py.detach(|| {
            let began = Instant::now();
            let mut due = Duration::ZERO;
            let mut is_stopped = lock(&self.is_stopped);
            while !*is_stopped {
                let left = due.saturating_sub(began.elapsed());
                if left.is_zero() {
                    self.target.fill(&mut out);
                    due = next_call(due, began.elapsed(), period);
                } else {
                    is_stopped = self
                        .stopped
                        .wait_timeout(is_stopped, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                }
            }
        });
    }

    /// Ends `run`.
    fn stop(&self) {
        *lock(&self.is_stopped) = true;
        self.stopped.notify_all();
    }

    /// The number of calls so far.
    #[getter]
    fn calls(&self) -> u64 {
        self.target.output.calls()
    }

    /// True once the device has played the last frame, or stopped.
    #[getter]
    fn over(&self) -> bool {
        self.target.output.is_over()
    }

    /// True once the device stopped.
    #[getter]
    fn stopped(&self) -> bool {
        self.target.output.is_stopped()
    }

    /// Returns the descriptor that is readable after a wake.
    fn fileno(&self) -> i32 {
        self.target.wake.raw()
    }

    /// Takes the pending wakes, and frees the playouts that are over.
    fn clear_wake(&self) {
        self.target.wake.clear();
        self.target.output.collect();
    }

    /// Frees the device's reference to the target.
    fn free(&self) {
        let lent = self.lent.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !lent.is_null() {
            // SAFETY: from `into_raw` in `new`, and taken out of the field, so it is freed once. By the
            // invariant no callback runs any more.
            drop(unsafe { Arc::from_raw(lent) });
        }
    }
}
