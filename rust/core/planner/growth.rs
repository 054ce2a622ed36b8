//! A resource that is still being written: bytes are appended, and its end arrives as an event.
//!
//! # Rules
//! * Pages are read ahead up to the present size. Past it, one read at a time asks for growth. An answer without a byte
//!   is not an end: nothing has been appended yet.
//! * A server that notifies is asked after each notification, and every `NET_SECONDS` in case one was lost. Another is
//!   polled: first when the audio in hand is half played, then less and less often, at last once per second.
//! * The end is announced. If the server announces none, a long time without growth is the end. The server must have
//!   confirmed that it has nothing more: failed reads prove no end.
//! * What was there stays there: a resource that shrinks is another one.

use super::ending::Size;
use super::flight::{Flight, Purpose};
use super::{Broken, EndedBy, Planner};
use crate::ring::OFFSET_MAX;

/// The wait after the first poll. Each later one waits twice as long, up to `POLL_MAX_SECONDS`.
const POLL_SECONDS: f64 = 0.125;
const POLL_MAX_SECONDS: f64 = 1.0;
/// Polls after which the wait has reached its limit.
const POLL_DOUBLINGS: u32 = 3;
/// A notified read follows the one before by this, so that a server which notifies of every write is not asked for
/// every write. Each notification of what is known already, because the read before has found it, doubles the wait, and
/// each second without one halves it: there is about one such read per second.
const NOTIFIED_SECONDS: f64 = 0.05;
const KNOWN_SECONDS: f64 = 1.0;
/// A server that notifies is asked this often without a notification, and any server while the listener has paused.
const NET_SECONDS: f64 = 5.0;
/// The least time without growth that is an end.
const NO_GROWTH_SECONDS: f64 = 10.0;
/// A source that paused before may pause this many times as long.
const NO_GROWTH_PAUSES: f64 = 3.0;
/// Answers without a byte below the present size, one after another, that show a shrunken resource.
const SHRUNKEN_ANSWERS: u32 = 3;

/// The state of a growing resource.
pub(super) struct Growth {
    /// The present size, as far as it is known.
    size: u64,
    raised_at: f64,
    /// True if the server says of each page whether the resource still grows.
    announces_end: bool,
    /// True if the server notifies of growth.
    notifies: bool,
    /// True if a notification arrived after the newest read for growth was sent.
    notified: bool,
    /// True if the next read is for what was appended before the server began to notify.
    catches_up: bool,
    /// True if the newest read for growth followed a notification.
    follows: bool,
    /// The wait between notified reads, and the time at which it last changed.
    notified_wait: f64,
    wait_changed_at: f64,
    asked_at: f64,
    /// Polls since the wait between them was the shortest.
    polls: u32,
    /// The time at which the audio in hand is half played; none before the player reports it.
    half_played_at: Option<f64>,
    grew_at: Option<f64>,
    /// Answers without growth since then.
    still: u32,
    longest_pause: f64,
    shrunken: u32,
}

impl Growth {
    fn new() -> Self {
        Self {
            size: 0,
            raised_at: f64::NEG_INFINITY,
            announces_end: false,
            notifies: false,
            notified: false,
            catches_up: false,
            follows: false,
            notified_wait: NOTIFIED_SECONDS,
            wait_changed_at: f64::NEG_INFINITY,
            asked_at: f64::NEG_INFINITY,
            polls: 0,
            half_played_at: None,
            grew_at: None,
            still: 0,
            longest_pause: 0.0,
            shrunken: 0,
        }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    fn raise(&mut self, now: f64, size: u64) {
        if size > self.size {
            (self.size, self.raised_at) = (size.min(OFFSET_MAX), now);
        }
    }

    /// The time from which the present end may be read again.
    pub fn due_at(&self, is_paused: bool) -> f64 {
        let wait = match (self.notifies, self.notified) {
            (true, true) => self.notified_wait,
            (true, false) => NET_SECONDS,
            (false, _) if is_paused => NET_SECONDS,
            (false, _) => {
                let doubled = POLL_SECONDS * f64::from(1u32 << self.polls.min(POLL_DOUBLINGS));
                let half_played_at = self.half_played_at.unwrap_or(f64::NEG_INFINITY);
                return (self.asked_at + doubled)
                    .max(half_played_at.min(self.asked_at.max(self.raised_at) + NET_SECONDS));
            }
        };
        self.asked_at + wait
    }

    pub fn asked(&mut self, now: f64) {
        self.asked_at = now;
        self.follows = self.notified && !self.catches_up;
        (self.notified, self.catches_up) = (false, false);
        self.polls = self.polls.saturating_add(1).min(POLL_DOUBLINGS);
    }

    fn grew(&mut self, now: f64) {
        if let Some(grew_at) = self.grew_at.filter(|_| self.still > 0) {
            self.longest_pause = self.longest_pause.max(now - grew_at);
        }
        if self.half_played_at.is_some() {
            self.polls = 1; // a listener waits for these bytes, and the next ones
        }
        self.grew_at = Some(now);
        (self.still, self.shrunken) = (0, 0);
        if now >= self.wait_changed_at + KNOWN_SECONDS {
            self.set_notified_wait(now, self.notified_wait / 2.0);
        }
    }

    fn set_notified_wait(&mut self, now: f64, wait: f64) {
        self.notified_wait = wait.clamp(NOTIFIED_SECONDS, POLL_MAX_SECONDS);
        self.wait_changed_at = now;
    }

    /// Handles an answer that has nothing more, to a read sent at `issued_at`. Returns whether this is the end.
    fn stood_still(&mut self, now: f64, issued_at: f64) -> bool {
        let since = *self.grew_at.get_or_insert(now);
        self.still = self.still.saturating_add(1);
        if self.follows {
            self.set_notified_wait(now, self.notified_wait * 2.0);
        }
        let limit = NO_GROWTH_SECONDS.max(NO_GROWTH_PAUSES * self.longest_pause);
        !self.announces_end && issued_at >= since + limit
    }
}

impl Planner {
    /// Records that the resource is still being written and has at least `size` bytes. `announces_end`: the server
    /// says of each page whether it still grows, so that silence is never taken for the end.
    pub fn set_growing(&mut self, now: f64, size: u64, announces_end: bool) {
        self.advance(now);
        if self.end().is_some() {
            return;
        }
        if self.growth.is_none() {
            self.ending.forget_claims();
            self.ending.size = Size::Unknown;
        }
        let size = size.max(self.ending.served_to());
        let now = self.now;
        let growth = self.growth.get_or_insert_with(Growth::new);
        growth.announces_end |= announces_end;
        if size > growth.size && growth.grew_at.is_some() {
            growth.grew(now);
        }
        growth.raise(now, size);
    }

    /// The present size of a resource that is still being written.
    pub fn present_bytes(&self) -> Option<u64> {
        self.growth.as_ref().map(Growth::size)
    }

    /// Records whether the server notifies of growth.
    pub fn set_notifies(&mut self, now: f64, notifies: bool) {
        self.advance(now);
        if let Some(growth) = &mut self.growth {
            // What was appended before the subscription began is not notified of.
            growth.catches_up = notifies && !growth.notifies;
            growth.notified |= growth.catches_up;
            growth.notifies = notifies;
        }
    }

    /// Records a notification of growth.
    pub fn on_notified(&mut self, now: f64) {
        self.advance(now);
        if let Some(growth) = &mut self.growth {
            growth.notified = true;
        }
    }

    /// Records that the audio in hand lasts `seconds` from now on.
    pub fn set_in_hand(&mut self, now: f64, seconds: f64) {
        self.advance(now);
        if let Some(growth) = self.growth.as_mut().filter(|_| seconds.is_finite()) {
            growth.half_played_at = Some(self.now + seconds.max(0.0) / 2.0);
        }
    }

    /// Records the announced end of a resource that was still being written. Without a size, the end is found as that
    /// of any resource.
    pub fn set_grown(&mut self, now: f64, size: Option<u64>) {
        self.advance(now);
        if self.growth.take().is_some()
            && let Some(size) = size
        {
            self.set_end(size, EndedBy::Size);
        }
        self.decide();
    }

    /// Returns whether a flight asks for growth.
    pub(super) fn asks_for_growth(&self, flight: &Flight) -> bool {
        self.growth
            .as_ref()
            .is_some_and(|growth| flight.covers() && flight.end > growth.size)
    }

    /// Returns whether a page from `start` on may be read now: one of those before the present end, or the one read
    /// for growth.
    pub(super) fn may_grow_at(&self, start: u64) -> bool {
        self.growth.as_ref().is_none_or(|growth| {
            start < growth.size
                || (start == self.tail() && self.growth_due_at().is_some_and(|at| at <= self.now))
        })
    }

    /// The time of the next read for growth, unless one is in flight.
    pub(super) fn growth_due_at(&self) -> Option<f64> {
        let growth = self.growth.as_ref()?;
        let is_in_flight = self
            .flights
            .wanted()
            .any(|flight| self.asks_for_growth(flight));
        (!is_in_flight && self.tail() >= growth.size)
            .then(|| growth.due_at(self.patience.is_paused()))
    }

    /// Handles the bytes of an answer, up to `got_to`, of which the server has at least up to `seen_to`.
    pub(super) fn grew(&mut self, flight: &Flight, got_to: u64, seen_to: u64) {
        let now = self.now;
        if let Some(growth) = &mut self.growth {
            if seen_to > growth.size || growth.grew_at.is_none() {
                growth.grew(now);
            }
            growth.shrunken = 0;
            growth.raise(now, seen_to);
            if got_to >= growth.size {
                self.failed.remove(got_to..u64::MAX);
            }
            if got_to == flight.end {
                growth.polls = 0; // a full page: there is more to catch up with
            }
        }
    }

    /// Handles an answer without a byte.
    pub(super) fn nothing_yet(&mut self, flight: &Flight) {
        let (now, tail) = (self.now, self.tail());
        let Some(growth) = &mut self.growth else {
            return;
        };
        if flight.purpose == Purpose::Probe || flight.issued_at < growth.raised_at {
            return; // it was sent before the growth was known
        }
        if flight.start < growth.size {
            growth.shrunken += 1;
            if growth.shrunken >= SHRUNKEN_ANSWERS {
                self.broken = self.broken.or(Some(Broken::Shrunken));
                return;
            }
            self.failed.insert(flight.start..flight.start + 1);
            self.patience.failed(now, flight.is_retry, None);
            return;
        }
        self.failed.remove(flight.start..u64::MAX);
        let announces_end = growth.announces_end;
        if growth.stood_still(now, flight.issued_at) {
            self.growth = None;
            self.set_end(tail, EndedBy::NoGrowth);
        } else if !announces_end {
            self.patience.restore(now); // the server answers: only growth decides about the end
        }
    }

    /// The frontier, no further than the present end and the reads in flight: what else lies past it was requested
    /// before the resource was known to grow, or has failed, and is read again once it was written.
    pub(super) fn grown_frontier(&self) -> u64 {
        let Some(growth) = &self.growth else {
            return self.frontier;
        };
        let in_flight = self.flights.wanted().filter(|flight| flight.covers());
        let asked_to = in_flight.map(|flight| flight.end).max();
        let end = growth.size.max(self.tail()).max(asked_to.unwrap_or(0));
        self.frontier.min(end)
    }
}
