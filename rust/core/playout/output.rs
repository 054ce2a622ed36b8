//! The output of one device: its own thread takes audio from a playout, and then from the playouts that follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool as Flag, AtomicU64 as Counter, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_utils::atomic::AtomicCell;

use super::Playout;
use crate::pipe::Wake;

/// The periods that a device buffers: miniaudio's default.
const PERIODS: u32 = 3;

/// The time of the next call of a clock that replaces a device. The call that was due at `due` was made by `now`.
///
/// The schedule does not drift: it makes up for late calls, as many as a device buffers periods. If more are late, a
/// device has played all it had and pauses, so the schedule shifts.
#[must_use]
pub fn next_call(due: Duration, now: Duration, period: Duration) -> Duration {
    (due + period).max(now.saturating_sub(period * (PERIODS - 1)))
}

/// An estimate of the audio in a device, in nanoseconds, from the times of its calls. Only its thread writes it.
#[derive(Default)]
struct Held {
    /// The most that it holds after a call.
    depth: Counter,
    /// The estimate after the last call; 0 before the second one.
    level: Counter,
    /// 0 before the first call.
    called_at: Counter,
}

impl Held {
    /// Counts a call at `now` for `period`. Returns whether the device had played everything before it.
    ///
    /// At a PulseAudio null sink, where the player or the server was stopped for 20 to 90 ms, these were the waits with
    /// a gap in its recording, to 3 ms. It does not see a gap that a sound server makes of audio that it has.
    fn ran_dry(&self, period: Duration, now: Duration) -> bool {
        let depth = self.depth.load(Relaxed);
        let called_at = self.called_at.swap(nanos(now).max(1), Relaxed);
        if called_at == 0 {
            return false; // a device that is filled starts when it likes: PulseAudio's after more than a second
        }
        let passed = nanos(now).saturating_sub(called_at);
        let before = match self.level.load(Relaxed) {
            0 => {
                self.level.store(depth, Relaxed);
                return false;
            }
            level => level,
        };
        let left = before.saturating_sub(passed);
        let level = left.saturating_add(nanos(period)).min(depth);
        // Clocks differ, so the estimate approaches the depth: a device that asks for no more is full.
        self.level.store(level + (depth - level) / 8, Relaxed);
        passed > before
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The output of one device, called by its thread. When a playout is over, the one that follows it
/// ([`Playout::follow_with`]) continues with the very next frame of the same period.
pub struct Output<W, E> {
    /// The callback takes it out and puts it back. A cell of one pointer has no lock.
    current: AtomicCell<Option<Arc<Playout<W, E>>>>,
    /// A playout that is over, for the owner to drop: a callback must not free memory. One is enough, since each
    /// playout keeps those that follow it alive.
    passed: AtomicCell<Option<Arc<Playout<W, E>>>>,
    is_fed: Flag,
    calls: Counter,
    held: Held,
    /// Calls since the last frame was taken, and the nanoseconds that they took.
    calls_after_end: Counter,
    nanos_after_end: Counter,
    stopped: Flag,
}

impl<W: Wake, E> Default for Output<W, E> {
    fn default() -> Self {
        Self {
            current: AtomicCell::new(None),
            passed: AtomicCell::new(None),
            is_fed: Flag::new(false),
            calls: Counter::new(0),
            held: Held::default(),
            calls_after_end: Counter::new(0),
            nanos_after_end: Counter::new(0),
            stopped: Flag::new(false),
        }
    }
}

impl<W: Wake, E> Output<W, E> {
    /// Feeds the device from `playout`. Returns false if it is fed already.
    pub fn play(&self, playout: Arc<Playout<W, E>>) -> bool {
        if self.is_fed.swap(true, Relaxed) {
            return false;
        }
        self.current.store(Some(playout));
        true
    }

    /// Fills one period, in the device's thread. Returns whether the owner has to look: the phase changed, another
    /// playout is played, or the device has played the last frame. Takes no lock, allocates nothing, never blocks.
    pub fn call(&self, out: &mut [u8], now: Duration) -> bool {
        self.calls.fetch_add(1, Relaxed);
        let Some(mut playout) = self.current.take() else {
            out.fill(0);
            return false;
        };
        let is_dry = self.held.ran_dry(playout.seconds(out.len()), now);
        let mut is_news = is_dry && playout.sounding.load(Relaxed);
        if is_news {
            playout.device_underruns.fetch_add(1, Relaxed);
        }
        let mut at = 0;
        while let Some(rest) = out.get_mut(at..) {
            let sounded = playout.sounding.load(Relaxed);
            let filled = playout.fill_alone(rest, now + playout.seconds(at), false);
            is_news |= filled.moved;
            at += filled.audio_bytes;
            if !playout.is_passable() {
                break;
            }
            let Some(next) = playout.next.get().cloned() else {
                break;
            };
            playout.pass_to(&next, sounded || filled.audio_bytes > 0);
            self.pass(std::mem::replace(&mut playout, next));
            self.calls_after_end.store(0, Relaxed);
            self.nanos_after_end.store(0, Relaxed);
            is_news = true;
        }
        // Added to the whole period: the overlay continues across the end of a playout, and after the last one.
        is_news |= playout.add_mixed(out, now).moved;
        if playout.phase().is_over() {
            let was_over = self.is_over();
            self.calls_after_end.fetch_add(1, Relaxed);
            self.nanos_after_end
                .fetch_add(nanos(playout.seconds(out.len())), Relaxed);
            is_news |= self.is_over() && !was_over;
        }
        self.current.store(Some(playout));
        is_news
    }

    fn pass(&self, playout: Arc<Playout<W, E>>) {
        match self.passed.take() {
            // Its chain leads to `playout`, so this drops a count and frees nothing.
            Some(earlier) => {
                drop(playout);
                self.passed.store(Some(earlier));
            }
            None => self.passed.store(Some(playout)),
        }
    }

    /// Frees playouts that are over. For the owner, after each [`Self::call`] with news.
    pub fn collect(&self) {
        drop(self.passed.take());
    }

    /// Audio that the device holds after a call: a call that is later than this is a drop-out of the device, which the
    /// playout counts. Nothing counts without it.
    pub fn set_depth(&self, depth: Duration) {
        self.held.depth.store(nanos(depth), Relaxed);
    }

    /// The device stopped, by itself or because its owner stopped it.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Calls of the device. A device that is lost stops calling, and not every backend reports it.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Returns whether the device has stopped ([`Self::stop`]).
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// The device has played the last frame, or stopped.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_played = self.calls_after_end.load(Relaxed) > u64::from(PERIODS)
            && self.nanos_after_end.load(Relaxed) > self.held.depth.load(Relaxed);
        self.stopped.load(Relaxed) || is_played
    }
}
