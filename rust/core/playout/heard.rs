//! The number of taken frames that have left the device at a given time.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64 as Counter, Ordering};
use std::time::Duration;

/// `origin`: no callback took audio yet.
const NEVER: u64 = u64::MAX;
const NANOS: i128 = 1_000_000_000;

/// A device plays what it took at an even rate, a delay later. So two numbers describe everything that a callback has
/// taken: the time at which frame 0 would have been taken if the audio had been continuous, and the frames that were
/// heard before its last discontinuity. Both are written by the sink only.
pub(super) struct Heard {
    rate_hz: NonZeroU32,
    /// The time at which frame 0 would have been taken, in nanoseconds as an `i64`: it may be negative.
    origin: Counter,
    /// Frames that were certainly heard: during a pause the device plays all that it holds.
    least: Counter,
    delay_nanos: Counter,
}

impl Heard {
    pub(super) const fn new(rate_hz: NonZeroU32) -> Self {
        Self {
            rate_hz,
            origin: Counter::new(NEVER),
            least: Counter::new(0),
            delay_nanos: Counter::new(0),
        }
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.delay_nanos.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_nanos.load(Ordering::Relaxed))
    }

    /// Records that a callback takes audio at `now`, after `frames` before.
    pub(super) fn note(&self, now: Duration, frames: u64) {
        let origin = now.as_nanos() as i128 - i128::from(frames) * NANOS / self.rate();
        // In this order: a reader that sees the new origin also sees `least`.
        self.least.store(self.at(now, frames), Ordering::Relaxed);
        self.origin
            .store((origin as i64).cast_unsigned(), Ordering::Release);
    }

    /// The number of the `frames` taken that were heard at `now`.
    pub(super) fn at(&self, now: Duration, frames: u64) -> u64 {
        let origin = self.origin.load(Ordering::Acquire);
        if origin == NEVER {
            return frames;
        }
        let age = now.as_nanos() as i128
            - i128::from(origin.cast_signed())
            - i128::from(self.delay_nanos.load(Ordering::Relaxed));
        let played = u64::try_from(age * self.rate() / NANOS).unwrap_or(0);
        played.max(self.least.load(Ordering::Relaxed)).min(frames)
    }

    fn rate(&self) -> i128 {
        i128::from(self.rate_hz.get())
    }
}
