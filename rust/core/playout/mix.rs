//! The overlay: a playout whose audio is added to another's, in the callback that plays the other.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

use super::{Filled, Phase, Playout};
use crate::gain::add;
use crate::pipe::Wake;
use crate::sync::{Mutex, lock};

/// The bytes that are added at once, on the stack of a callback.
const BLOCK_BYTES: usize = 2048;

/// The overlay of a playout, if any. A callback never waits for this lock: while another thread holds it, for a few
/// instructions, nothing is mixed.
pub(super) struct Mixed<W, E>(Mutex<Option<Arc<Playout<W, E>>>>);

impl<W, E> Default for Mixed<W, E> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<W: Wake, E> Mixed<W, E> {
    /// Runs `work` while the lock is held.
    pub(super) fn with_lock<R>(&self, work: impl FnOnce() -> R) -> R {
        let _held = lock(&self.0);
        work()
    }
}

impl<W: Wake, E> Playout<W, E> {
    /// Replaces the overlay, from the next callback on; `None` mixes nothing in. The playout that follows this one
    /// continues the overlay. Returns false, and changes nothing, if `overlay` has another format.
    pub fn mix(&self, overlay: Option<Arc<Self>>) -> bool {
        if let Some(overlay) = &overlay {
            let (own, other) = (self.settings, overlay.settings);
            if (own.sample, own.frame_bytes, own.rate_hz)
                != (other.sample, other.frame_bytes, other.rate_hz)
            {
                return false;
            }
            overlay.heard.set_delay(self.heard.delay());
        }
        let before = std::mem::replace(&mut *lock(&self.overlay.0), overlay);
        drop(before); // outside of the lock
        true
    }

    /// Adds the overlay to `out`, a part of a period that begins at the time `now`. Once this playout is closed, the
    /// overlay fades out and pauses, until another playout mixes it in.
    pub(super) fn add_mixed(&self, out: &mut [u8], now: Duration) -> Filled {
        let slot = match self.overlay.0.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => PoisonError::into_inner(slot),
            Err(TryLockError::WouldBlock) => return Filled::default(),
        };
        let Some(mut overlay) = slot.as_deref() else {
            return Filled::default();
        };
        let is_held = self.phase() == Phase::Closed;
        let frame_bytes = self.settings.frame_bytes.get() as usize;
        let mut block = [0; BLOCK_BYTES];
        let mut mixed = Filled::default();
        while let Some(rest) = out.get_mut(mixed.audio_bytes..)
            && !rest.is_empty()
        {
            let wanted = (BLOCK_BYTES / frame_bytes * frame_bytes).min(rest.len());
            let Some(room) = block.get_mut(..wanted) else {
                break;
            };
            let sounded = overlay.sounding.load(Relaxed);
            let at = now + self.seconds(mixed.audio_bytes);
            let filled = overlay.fill_alone(room, at, is_held);
            let audio = room.get(..filled.audio_bytes).unwrap_or_default();
            add(rest, audio, self.settings.sample);
            mixed.audio_bytes += filled.audio_bytes;
            mixed.moved |= filled.moved;
            if overlay.is_passable()
                && let Some(next) = overlay.next.get()
            {
                mixed.moved |= overlay.pass_to(next, sounded || filled.audio_bytes > 0);
                overlay = next;
            } else if filled.audio_bytes < wanted {
                break;
            }
        }
        mixed
    }

    /// Continues this playout's gains and overlay in `next`, once. `sounded` says whether this one was audible until
    /// then. Returns false if that was done before.
    pub(super) fn pass_to(&self, next: &Arc<Self>, sounded: bool) -> bool {
        if self.followed.swap(true, Relaxed) {
            return false;
        }
        next.level.continue_from(&self.level);
        next.sounding
            .store(self.phase() == Phase::Ended && sounded, Relaxed);
        // A playout is not its own overlay. A swap, because the owner of this playout must free what `next` had.
        if let (Ok(mut own), Ok(mut following)) =
            (self.overlay.0.try_lock(), next.overlay.0.try_lock())
            && own
                .as_ref()
                .is_some_and(|overlay| !Arc::ptr_eq(overlay, next))
        {
            std::mem::swap(&mut *own, &mut *following);
        }
        true
    }
}
