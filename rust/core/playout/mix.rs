//! Audio of one playout over another's, summed in the callback that plays the other.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

use super::{Filled, Phase, Playout};
use crate::gain::add;
use crate::pipe::Wake;
use crate::sync::{Mutex, lock};

/// Summed at once, on the stack of a callback.
const BLOCK_BYTES: usize = 2048;

/// The playout that is mixed into another one, if any. A callback never waits for this lock: while it is held, for a
/// few instructions of whoever changes the playout, nothing is mixed.
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
    /// Mixes `over` in from the next callback on, instead of what was mixed in before; `None` mixes nothing. A playout
    /// that follows this one goes on with it. Returns false, and changes nothing, if `over` has another format.
    pub fn mix(&self, over: Option<Arc<Self>>) -> bool {
        if let Some(over) = &over {
            let (own, other) = (self.settings, over.settings);
            if (own.sample, own.frame_bytes, own.rate_hz)
                != (other.sample, other.frame_bytes, other.rate_hz)
            {
                return false;
            }
            over.heard.set_delay(self.heard.delay());
        }
        let before = std::mem::replace(&mut *lock(&self.over.0), over);
        drop(before); // outside of the lock
        true
    }

    /// Adds what is mixed in to `out`, a part of a period that begins at the time `now`. Once this playout is closed,
    /// that fades out, and goes on with its next frame wherever it is played next.
    pub(super) fn add_mixed(&self, out: &mut [u8], now: Duration) -> Filled {
        let slot = match self.over.0.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => PoisonError::into_inner(slot),
            Err(TryLockError::WouldBlock) => return Filled::default(),
        };
        let Some(mut over) = slot.as_deref() else {
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
            let sounded = over.sounding.load(Relaxed);
            let at = now + self.seconds(mixed.audio_bytes);
            let filled = over.fill_alone(room, at, is_held);
            let audio = room.get(..filled.audio_bytes).unwrap_or_default();
            add(rest, audio, self.settings.sample);
            mixed.audio_bytes += filled.audio_bytes;
            mixed.moved |= filled.moved;
            if over.is_passable()
                && let Some(next) = over.next.get()
            {
                mixed.moved |= over.pass_to(next, sounded || filled.audio_bytes > 0);
                over = next;
            } else if filled.audio_bytes < wanted {
                break;
            }
        }
        mixed
    }

    /// Lets `next` go on where this one ended, once; `sounded` until then. Returns whether it did.
    pub(super) fn pass_to(&self, next: &Arc<Self>, sounded: bool) -> bool {
        if self.followed.swap(true, Relaxed) {
            return false;
        }
        next.level.adopt(&self.level);
        next.sounding
            .store(self.phase() == Phase::Ended && sounded, Relaxed);
        // A playout is not mixed into itself. Freed by the owner of this one, not here.
        if let (Ok(mut own), Ok(mut following)) = (self.over.0.try_lock(), next.over.0.try_lock())
            && own.as_ref().is_some_and(|over| !Arc::ptr_eq(over, next))
        {
            std::mem::swap(&mut *own, &mut *following);
        }
        true
    }
}
