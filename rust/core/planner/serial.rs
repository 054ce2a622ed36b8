//! Evidence of a server that answers one read at a time: a page that waited for others arrives one service time after
//! the page before it, whatever its size. If the link is the limit, that time grows with the page.

use super::Planner;
use super::tuning::{
    OTHER_SIZE, SAME_GAP, SERIAL_ANSWERS, SERIAL_HEARD_SECONDS, SERIAL_MARGIN, SERIAL_SILENCE,
    SERIAL_SIZES, SERIAL_WAIT, START_SECONDS,
};

/// The evidence so far.
#[derive(Default)]
pub(super) struct Serial {
    /// The time of the newest answer.
    answered_at: f64,
    /// The seconds from the page before the newest to the newest; its latency if it did not wait for that page.
    newest: Option<f64>,
    /// Answers in a row that took the same time, each larger than the last one counted.
    answers: u32,
    /// The smallest size of that run, and the size of the last answer counted.
    sizes: (u64, u64),
    /// The largest factor by which their times differ.
    spread: f64,
    /// True if nothing arrived for a while although the second page was on its way: the link was not the limit.
    was_silent: bool,
}

impl Serial {
    /// Counts an answer of `bytes`. Its time is the gap since the answer before if it waited for that one, and its
    /// latency otherwise.
    pub fn answered(&mut self, now: f64, latency_seconds: f64, bytes: u64) {
        // The seconds that this page was in flight when the page before it arrived.
        let waited = self.answered_at - (now - latency_seconds);
        let seconds = match self.newest {
            Some(before) if waited >= SERIAL_WAIT * before => {
                let seconds = now - self.answered_at;
                let factor = |ratio: f64| ratio.max(1.0 / ratio);
                let longer = factor(seconds / before);
                self.spread = self.spread.max(longer);
                if longer > SAME_GAP {
                    // The times differ: a new run begins.
                    (self.answers, self.sizes, self.spread) = (0, (bytes, bytes), 1.0);
                } else if bytes as f64 >= OTHER_SIZE * self.sizes.1 as f64 {
                    self.answers = self.answers.saturating_add(1);
                    self.sizes.1 = bytes;
                }
                seconds
            }
            // A page that did not wait for an earlier one may have waited for one that was dropped.
            Some(before) => before.min(latency_seconds),
            None => latency_seconds,
        };
        let (smallest, largest) = self.newest.map_or((bytes, bytes), |_| self.sizes);
        self.sizes = (smallest.min(bytes), largest);
        self.newest = Some(seconds);
        self.answered_at = now;
    }

    /// The time at which silence after the first page shows that the link is not the limit. None unless one page has
    /// arrived.
    pub fn silent_at(&self, pages: u64) -> Option<f64> {
        let seconds = self.newest.filter(|_| pages == 1)?;
        Some(self.answered_at + SERIAL_SILENCE * seconds)
    }

    /// Records that nothing arrived since `heard_at`.
    pub fn waited(&mut self, now: f64, heard_at: f64, pages: u64) {
        let heard_nothing = heard_at <= self.answered_at + SERIAL_HEARD_SECONDS;
        self.was_silent |= heard_nothing && self.silent_at(pages).is_some_and(|at| now >= at);
    }

    /// Returns whether the first pages took equally long in spite of their sizes, with a silence between them.
    pub fn is_possible(&self) -> bool {
        self.was_silent && self.answers > 0 && self.spread <= SAME_GAP
    }

    /// Returns whether enough pages of different sizes took equally long.
    pub fn is_certain(&self) -> bool {
        let (smallest, largest) = self.sizes;
        self.answers >= SERIAL_ANSWERS && largest >= SERIAL_SIZES * smallest
    }
}

impl Planner {
    /// Sets the rate of the audio.
    pub fn set_audio_rate(&mut self, bytes_per_second: f64) {
        if bytes_per_second.is_finite() && bytes_per_second > 0.0 {
            self.audio_rate = bytes_per_second;
        }
    }

    /// Returns whether audio may start page by page: the next page is in flight, and if it takes as long as the newest,
    /// it arrives while the audio in hand plays. Two pages show such a server. After one page the link may be the
    /// limit, and the next page may take longer.
    pub(super) fn plays_page_by_page(&self, in_hand_bytes: u64, bytes_per_second: f64) -> bool {
        let serial = &self.estimates.serial;
        let (Some(seconds), Some(next)) = (serial.newest, self.flights.first()) else {
            return false;
        };
        let needed = bytes_per_second * SERIAL_MARGIN * seconds;
        let is_opening = serial.is_possible()
            && self.counters.pages == u64::from(serial.answers) + 1
            && seconds <= START_SECONDS;
        (serial.is_certain() || is_opening)
            && in_hand_bytes as f64 >= needed.max(START_SECONDS * bytes_per_second)
            && (next.end - next.start) as f64 >= needed
    }
}
