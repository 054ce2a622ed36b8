//! Cuts. A cut is a seek that the decoder's thread reports to the sink: the audio before a place in the pipe is void.
//!
//! The decoder's thread writes and the sink reads, which may be an audio callback: so a sequence lock, whose reader
//! never waits. A sink that looks while a first cut is written plays on, and finds the cut in its next period.
//!
//! The sink loads the pipe's tail *before* it looks for a cut, and takes nothing beyond that tail. A cut lies at the
//! tail of its time or later, so audio behind a cut that the sink has not seen is never taken with the audio before.

use std::sync::atomic::{AtomicU32 as Word, AtomicU64 as Counter, Ordering, fence};

#[derive(Clone, Copy)]
pub(super) struct Cut {
    serial: u32,
    /// The end of the contiguous old audio, which can be faded out.
    pub(super) old_end: u64,
    /// The beginning of the new audio. Both are offsets in the pipe.
    pub(super) at: u64,
    /// Number of the first new frame in its item.
    pub(super) frame: u64,
}

pub(super) enum Pending {
    None,
    Cut(Cut),
    /// A second cut is being written over one that is not applied yet: take nothing now.
    Changing,
}

#[derive(Default)]
pub(super) struct Cuts {
    /// Odd while a cut is written.
    serial: Word,
    old_end: Counter,
    at: Counter,
    frame: Counter,
    /// The serial of the last cut that the sink has applied.
    applied: Word,
    applied_at: Counter,
    skipped: [(Counter, Counter); SKIPS],
    skips: Word,
}

/// Skipped ranges that are remembered for [`Cuts::next_taken`], whose caller looks before each write: between two
/// writes there is rarely more than one.
const SKIPS: usize = 4;

impl Cuts {
    /// Writes a cut: everything before `at` is void. For the decoder's thread.
    pub(super) fn post(&self, at: u64, frame: u64) {
        let serial = self.serial.load(Ordering::Relaxed);
        if self.applied.load(Ordering::Acquire) == serial {
            self.old_end.store(at, Ordering::Relaxed);
        }
        self.serial.store(serial.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.at.store(at, Ordering::Relaxed);
        self.frame.store(frame, Ordering::Relaxed);
        self.serial.store(serial.wrapping_add(2), Ordering::Release);
    }

    /// The newest cut that the sink has not applied yet; from any thread. Never waits.
    pub(super) fn pending(&self) -> Pending {
        let serial = self.serial.load(Ordering::Acquire);
        // While a cut is written, this compares with the serial of the cut before it.
        if serial & !1 == self.applied.load(Ordering::Acquire) {
            return Pending::None;
        }
        let at = self.at.load(Ordering::Relaxed);
        let old_end = self.old_end.load(Ordering::Relaxed);
        let cut = Cut {
            serial,
            // If the cut before was applied while this one was written, all audio since then is contiguous.
            old_end: match old_end <= self.applied_at.load(Ordering::Relaxed) {
                true => at,
                false => old_end,
            },
            at,
            frame: self.frame.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        if serial % 2 == 1 || self.serial.load(Ordering::Relaxed) != serial {
            return Pending::Changing;
        }
        Pending::Cut(cut)
    }

    /// Records that the sink is about to skip from `from` to the cut.
    pub(super) fn skip(&self, from: u64, cut: &Cut) {
        if from < cut.at {
            let skips = self.skips.load(Ordering::Relaxed);
            if let Some((start, end)) = self.skipped.get(skips as usize % SKIPS) {
                start.store(from, Ordering::Relaxed);
                end.store(cut.at, Ordering::Relaxed);
            }
            self.skips.store(skips.wrapping_add(1), Ordering::Release);
        }
    }

    /// Records that the sink has skipped to the cut.
    pub(super) fn mark_applied(&self, cut: &Cut) {
        self.applied_at.store(cut.at, Ordering::Relaxed);
        self.applied.store(cut.serial, Ordering::Release);
    }

    /// The audio that the sink has taken from `offset` on, up to `head`: where it ends, and where the next begins.
    /// `head` was loaded before this call.
    pub(super) fn next_taken(&self, offset: u64, head: u64) -> (u64, u64) {
        self.skips.load(Ordering::Acquire);
        let skipped = self
            .skipped
            .iter()
            .map(|(start, end)| (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed)));
        skipped
            .filter(|(start, end)| offset <= *start && *end <= head && start < end)
            .min()
            .unwrap_or((head, head))
    }
}
