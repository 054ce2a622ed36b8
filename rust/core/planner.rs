//! The prefetch planner, which decides what range to read next: a pure state machine. Time is an argument, in seconds
//! on any clock that does not run back.
//!
//! # Rules
//! * The frontier is the end of the pages requested so far. Each byte below it is received, in flight, or in a hole
//!   that is read again. So every byte is requested until it has arrived, and stored once.
//! * No page ends past reader + room ahead: memory is bounded by construction.
//! * One answer proves no end (`ending`). A short page is a hint: the rest is requested, or the next page starts where
//!   it stopped.
//! * A failure is retried as long as the reader's patience lasts (`patience`). Then the stream breaks at the offset of
//!   the failure, once all bytes before it have arrived.
//! * A growing resource is read up to its present size, and waited for (`growth`).
//! * Late is not failed: a late page is read a second time, within a budget, and the first answer counts.
//!
//! # Theory of operation
//! Pages double from a small one, so that the first audio waits for 8 KiB and not for 100 KiB. The first burst of three
//! fills the latency, and shows whether the link is steady (`steady`). After that the link's delivery rate and least
//! latency give the bandwidth-delay product: that many bytes, and one page, are kept in flight (BBR: Cardwell et al.,
//! ACM Queue 14(5), 2016; draft-ietf-ccwg-bbr). More would queue and make a retry or a seek slow; less would idle. A
//! window limits the rate that is measured, so this rate at most doubles from round to round: hence the start-up gain
//! of two, and a second measurement, of how closely the first answers follow each other. New pages leave about a
//! transfer apart: those that leave together arrive together, and leave the link idle together. Lateness comes from
//! smoothed latency and variance (RFC 6298) plus the transfer of what is queued. If the rate grows with the pages, the
//! limit is a cost per page and not bandwidth, as with a server that answers one read at a time: pages grow.

use std::cmp::min;
use std::ops::Range;

use crate::ranges::RangeSet;
use crate::ring::OFFSET_MAX;

mod asking;
mod ending;
mod estimate;
mod flight;
mod gate;
mod growth;
mod patience;
mod serial;
mod settings;
mod settling;
mod sizing;
mod statistics;
mod steady;
mod tuning;
mod window;

use ending::Ending;
pub use ending::{End, EndedBy};
use estimate::Estimates;
use flight::{Flight, Flights, Purpose, Standing};
use growth::Growth;
use patience::Patience;
pub use patience::{Demand, Failure};
pub use settings::{InvalidSetting, MAX_IN_FLIGHT, Settings};
use sizing::Sizing;
use statistics::Counters;
pub use statistics::Statistics;
use tuning::{
    IN_FLIGHT_SERIAL, SERIAL_PAGE_BYTES, SERIAL_PAGE_SECONDS, STATUS_SECONDS, TIMER_SLACK_SECONDS,
};
pub use tuning::{REFILL_SECONDS, START_SECONDS};
use window::Window;

/// A range to read now: bytes `start..end`, to be answered by `on_answer` or `on_error` with its id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Never used twice.
    pub id: u64,
    /// First byte.
    pub start: u64,
    /// One past the last byte; above `start`.
    pub end: u64,
    /// A read of this range failed before.
    pub is_retry: bool,
    /// The same range is in flight already and is late.
    pub is_hedge: bool,
    /// Requested by [`Planner::probe`].
    pub is_probe: bool,
}

/// The reason why a stream breaks at its first missing byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Broken {
    /// The reader waited through its patience.
    Patience,
    /// The server asks to wait this many seconds, longer than the reader's patience.
    RetryAfter(f64),
    /// The server refused the range repeatedly, or failed in a way that no retry helps.
    Refused,
    /// The server sent this many successful answers in a row without a new byte.
    Stagnant(u32),
    /// The server claims an end there, and serves bytes past it.
    Contradiction,
    /// The server no longer has bytes there that a growing resource had.
    Shrunken,
}

/// The prefetch planner. After every event the driver calls [`next`](Self::next) until it returns None, then waits for
/// an answer, for the reader to move, or for [`timer`](Self::timer).
///
/// ```
/// use playhead_core::planner::{EndedBy, Planner, Settings};
///
/// let mut planner = Planner::new(Settings::new(4 << 20))?;
/// let resource = 10_000;
/// let (mut now, mut head) = (0.0, 0);
/// while !planner.finished() {
///     while let Some(request) = planner.next(now, head) {
///         now += 0.1; // the answer arrives
///         let end = request.end.min(resource);
///         let claim = (request.start >= resource).then_some(EndedBy::Empty);
///         planner.on_answer(request.id, now, end.saturating_sub(request.start), claim);
///         head = head.max(end.min(request.end)); // the reader takes it
///     }
///     now = planner.timer().unwrap_or(now);
/// }
/// assert_eq!(planner.end().map(|end| end.at), Some(resource));
/// # Ok::<(), playhead_core::planner::InvalidSetting>(())
/// ```
pub struct Planner {
    settings: Settings,
    now: f64,
    next_id: u64,
    /// The first byte wanted, or the target of the last seek.
    base: u64,
    /// The end of the pages requested so far.
    frontier: u64,
    /// The bytes that have arrived since the last seek.
    received: RangeSet,
    /// The bytes received and the bytes in flight.
    taken: RangeSet,
    /// The time at which the newest page was requested, and its size.
    newest: (f64, u64),
    flights: Flights,
    /// Probes of the driver that are not in flight, and whether they failed before.
    probes: Vec<(Range<u64>, bool)>,
    /// True while only probes are sent, because the driver judges how the server handles ranges.
    pages_held: bool,
    window: Window,
    ending: Ending,
    /// The state of a resource that is still being written; None for any other.
    growth: Option<Growth>,
    patience: Patience,
    /// The time at which bytes of any answer arrived last, reported by the driver.
    heard_at: f64,
    /// The lowest offset where no retry helps, and why: the stream breaks there once all bytes before it have arrived.
    barrier: Option<(u64, Broken)>,
    /// The reason why the stream breaks at any offset.
    broken: Option<Broken>,
    /// Ranges that failed and are read again.
    failed: RangeSet,
    /// The size limit of the next read at the first missing byte, after an answer broke off.
    retry_bytes: u64,
    /// Ranges that were damaged once.
    damaged: RangeSet,
    /// True if a corroborating read has failed since the last new byte.
    evidence_failed: bool,
    /// Successful answers in a row without a new byte.
    stagnant: u32,
    stagnant_at: f64,
    /// The time at which an answer arrived or a read failed last.
    settled_at: f64,
    /// The end of the room. It stays when the reader moves back inside the bytes that are kept.
    room_to: u64,
    /// True if the ring was full, and drains before the next request.
    sleeping: bool,
    estimates: Estimates,
    sizing: Sizing,
    /// Bytes per second of the audio; 0 while unknown.
    audio_rate: f64,
    counters: Counters,
}

impl Planner {
    /// Creates a planner that has requested nothing yet.
    pub fn new(settings: Settings) -> Result<Self, InvalidSetting> {
        settings.check()?;
        Ok(Self {
            now: 0.0,
            next_id: 0,
            base: settings.start,
            frontier: settings.start,
            received: RangeSet::new(),
            taken: RangeSet::new(),
            newest: (0.0, 0),
            flights: Flights::new(),
            probes: Vec::new(),
            pages_held: false,
            window: Window::new(settings.in_flight, settings.in_flight_start),
            ending: Ending::new(),
            growth: None,
            patience: Patience::new(settings.patience_seconds, settings.seed),
            heard_at: f64::NEG_INFINITY,
            barrier: None,
            broken: None,
            failed: RangeSet::new(),
            retry_bytes: u64::MAX,
            damaged: RangeSet::new(),
            evidence_failed: false,
            stagnant: 0,
            stagnant_at: f64::NEG_INFINITY,
            settled_at: f64::NEG_INFINITY,
            room_to: settings.start.saturating_add(settings.capacity_bytes),
            sleeping: false,
            estimates: Estimates::new(),
            sizing: Sizing::new(
                settings.page_min_bytes,
                settings.page_bytes,
                settings.page_bytes_max,
                settings.capacity_bytes,
            ),
            audio_rate: 0.0,
            counters: Counters::default(),
            settings,
        })
    }

    // --- events -----------------------------------------------------------------------------------

    /// Handles an answer with `n_bytes` bytes from the request's start (more than requested count as a whole page),
    /// and, with `end`, the claim that nothing follows them. Returns whether the bytes are wanted and fit. Answers to
    /// probes are left to the driver.
    pub fn on_answer(&mut self, id: u64, now: f64, n_bytes: u64, end: Option<EndedBy>) -> bool {
        self.advance(now);
        let Some(flight) = self.settle(id).filter(|_| !self.finished()) else {
            return false;
        };
        if flight.purpose == Purpose::Probe {
            self.stagnate(&flight);
            return false;
        }
        let got_to = flight.start + n_bytes.min(flight.end - flight.start);
        let asks_for_growth = self.asks_for_growth(&flight);
        let end = end.filter(|_| self.growth.is_none());
        if self.growth.is_some() {
            if n_bytes == 0 {
                self.nothing_yet(&flight);
                self.decide();
                return false;
            }
            self.grew(&flight, got_to, flight.start.saturating_add(n_bytes));
        }
        let refuted = self.arrived(&flight, got_to);
        if n_bytes > flight.end - flight.start {
            self.ending
                .seen_to(flight.start.saturating_add(n_bytes).min(OFFSET_MAX));
        }
        let new_bytes = self.store(&flight, got_to);
        if self.frontier == flight.end && got_to < flight.end {
            self.frontier = got_to.max(self.base); // no later page was requested: the next page starts here
        }
        let false_claim = end.and_then(|by| self.claimed(&flight, got_to, by));
        self.corroborated(&flight, n_bytes > 0);
        if new_bytes > 0 {
            self.progressed(&flight, got_to, new_bytes, end.is_some(), asks_for_growth);
        } else if end.is_none() || false_claim.is_some() {
            self.stagnate(&flight);
        }
        for at in [refuted, false_claim].into_iter().flatten() {
            self.claimed_falsely(&flight, at);
        }
        self.decide();
        new_bytes > 0
    }

    /// Handles the failure of a request.
    pub fn on_error(&mut self, id: u64, now: f64, failure: Failure) {
        self.advance(now);
        let Some(flight) = self.settle(id) else {
            return;
        };
        self.window.shrink();
        match flight.purpose {
            Purpose::Probe => self.probe_failed(&flight, failure),
            Purpose::Corroborate(purpose) => self.uncorroborated(&flight, purpose, failure),
            Purpose::Page | Purpose::Hedge => self.page_failed(&flight, failure),
        }
        self.decide();
    }

    /// Holds the answer to `id` while the driver judges it: meanwhile it is neither read again nor late.
    pub fn hold(&mut self, id: u64) {
        if let Some(flight) = self.flights.find(id) {
            flight.held = true;
        }
    }

    /// Probes `[start, end)`: it is read next and retried as pages are, and the driver judges the answer.
    pub fn probe(&mut self, start: u64, end: u64) {
        if start < end && end <= OFFSET_MAX {
            self.probes.push((start..end, false));
        }
    }

    /// Sends nothing but probes after a call with true, until one with false.
    pub fn hold_pages(&mut self, hold: bool) {
        self.pages_held = hold;
    }

    /// Records that a probe showed bytes up to `offset`.
    pub fn seen_to(&mut self, offset: u64) {
        self.ending.seen_to(min(offset, OFFSET_MAX));
    }

    /// One past the highest byte that was ever served.
    pub fn served_to(&self) -> u64 {
        self.ending.served_to()
    }

    /// Size of the next new page.
    pub fn page_bytes(&self) -> u64 {
        self.sizing.next_bytes(&self.estimates)
    }

    /// Records progress: the driver stored bytes that its probes read.
    pub fn on_fed(&mut self, now: f64, n_bytes: u64) {
        self.advance(now);
        self.patience.progress(self.now, true);
        self.stagnant = 0;
        self.counters.pages += 1;
        self.counters.bytes = self.counters.bytes.saturating_add(n_bytes);
    }

    /// Records that bytes of an answer arrived at `at`.
    pub fn heard(&mut self, at: f64) {
        if at.is_finite() {
            self.heard_at = self.heard_at.max(at);
        }
    }

    /// Sets how urgently the listener needs bytes.
    pub fn set_demand(&mut self, now: f64, demand: Demand) {
        self.advance(now);
        self.patience.set_demand(self.now, demand);
    }

    // --- actions --------------------------------------------------------------------------------------

    /// The next request to send, given the reader's offset. Call it until it returns None after every event.
    pub fn next(&mut self, now: f64, head: u64) -> Option<Request> {
        self.advance(now);
        let room_to = head.saturating_add(self.settings.capacity_bytes);
        self.room_to = self.room_to.max(room_to);
        self.decide();
        (self.estimates.serial).waited(self.now, self.heard_at, self.counters.pages);
        if self.broken().is_some()
            || self.finished()
            || self.flights.out() >= self.in_flight_limit()
            || self.flights.len() >= MAX_IN_FLIGHT
            || self.now < self.patience.silent_until()
        {
            return None;
        }
        let evidence = self.next_probe().or_else(|| self.next_corroboration());
        if evidence.is_some() || self.pages_held {
            return evidence;
        }
        self.next_hole()
            .or_else(|| self.next_hedge())
            .or_else(|| self.next_page(head))
    }

    /// Requests to cancel: those that were silent for too long, to be reported by `on_error`; and, once each, those
    /// whose answer is no longer wanted, for which `on_error` does nothing.
    pub fn expired(&mut self, now: f64) -> Vec<u64> {
        self.advance(now);
        let mut ids = self.flights.take_superseded();
        ids.extend(
            self.flights
                .wanted()
                .filter(|flight| !flight.held && self.silent_at(flight) <= self.now)
                .map(|flight| flight.id),
        );
        ids
    }

    /// The time at which [`next`](Self::next), [`expired`](Self::expired) or [`broken`](Self::broken) may change
    /// without another event.
    pub fn timer(&self) -> Option<f64> {
        let flights = self
            .flights
            .all()
            .filter(|flight| !flight.held)
            .map(|flight| match flight.standing {
                Standing::Wanted => self.silent_at(flight),
                Standing::Superseded { since } => since,
            });
        if self.finished() || self.broken().is_some() {
            return flights.reduce(f64::min);
        }
        let status = self.patience.waited_at(STATUS_SECONDS);
        let later = [
            Some(self.patience.retry_at()),
            Some(self.patience.silent_until()),
            self.ending.due(self.now, self.latency_seconds()),
            self.hedge_candidate()
                .and_then(|flight| self.late_at(flight)),
            self.paced_until(),
            self.estimates.serial.silent_at(self.counters.pages),
            self.patience.over_at(),
            status.map(|at| at + TIMER_SLACK_SECONDS),
            self.growth_due_at(),
        ];
        later
            .into_iter()
            .flatten()
            .filter(|&at| at > self.now && at.is_finite())
            .chain(flights)
            .reduce(f64::min)
    }

    /// Moves the reader to `offset`, which is not held: all requests are stale and nothing counts as received. Returns
    /// the ids to cancel. Estimates, an accepted end and an announced size stay.
    pub fn seek(&mut self, offset: u64) -> Vec<u64> {
        self.base = min(offset, OFFSET_MAX);
        self.frontier = self.base;
        self.received.clear();
        self.taken.clear();
        self.failed.clear();
        self.damaged.clear();
        self.probes.clear();
        (self.barrier, self.broken) = (None, None);
        (self.stagnant, self.retry_bytes) = (0, u64::MAX);
        self.evidence_failed = false;
        self.sleeping = false;
        self.room_to = self.base.saturating_add(self.settings.capacity_bytes);
        self.ending.forget_claims();
        self.patience.progress(self.now, true);
        let first_page_bytes = if self.estimates.serial.is_certain() {
            (self.audio_rate * SERIAL_PAGE_SECONDS) as u64 + SERIAL_PAGE_BYTES
        } else {
            0
        };
        self.sizing.restart(first_page_bytes);
        self.flights.drain_ids()
    }

    /// Records an announced size and plans to it, until bytes refute it. `exact` sizes (`Content-Range`) need no
    /// confirming read.
    pub fn set_total(&mut self, total_bytes: u64, exact: bool) {
        if self.growth.is_some() {
            return self.set_growing(self.now, total_bytes, false);
        }
        self.ending.announce(total_bytes, exact, self.now);
        self.decide();
    }

    /// Sets a known end: one answer held the whole resource.
    pub fn set_end(&mut self, at: u64, by: EndedBy) {
        if self.total().is_some_and(|total| total != at) {
            self.ending.refute_size();
        }
        let end = self.ending.accept(End { at, by });
        self.end_at(end);
    }

    /// Sets the server's own page size, at least 1 byte and at most the ring.
    pub fn set_page_bytes(&mut self, page_bytes: u64) {
        self.sizing.set_page_bytes(page_bytes);
    }

    // --- state -----------------------------------------------------------------------------------------

    /// The accepted end.
    pub fn end(&self) -> Option<End> {
        self.ending.accepted()
    }

    /// The announced size, unless something refutes it.
    pub fn total(&self) -> Option<u64> {
        self.ending.size.announced()
    }

    /// Returns whether every byte up to the accepted end has arrived.
    pub fn finished(&self) -> bool {
        self.end().is_some_and(|end| self.tail() >= end.at)
    }

    /// The reason why the stream breaks at its first missing byte; it holds until a seek.
    pub fn broken(&self) -> Option<(u64, Broken)> {
        if self.finished() {
            return None;
        }
        let tail = self.tail();
        self.barrier
            .filter(|&(at, _)| tail >= at)
            .map(|(_, reason)| (tail, reason))
            .or_else(|| self.broken.map(|reason| (tail, reason)))
    }

    /// Seconds that the reader has waited without progress.
    pub fn waited_seconds(&self, now: f64) -> f64 {
        self.patience.waited_seconds(now.max(self.now))
    }

    /// The seconds of waiting after which the stream breaks, if nothing more arrives: the reader's patience, or more
    /// if an answer has begun to arrive, which has its own timeout.
    pub fn allowed_seconds(&self) -> f64 {
        let late = match self.patience.over_at() {
            Some(over_at) if self.is_receiving() => {
                self.heard_at + self.settings.timeout_seconds - over_at
            }
            _ => 0.0,
        };
        self.settings.patience_seconds + late.max(0.0)
    }
}

impl Planner {
    /// Advances the clock. One that jumps back, or is not a number, must not undo what has happened; before the first
    /// request the clock may start anywhere.
    fn advance(&mut self, now: f64) {
        if now.is_finite() && (now > self.now || self.next_id == 0) {
            self.now = now;
        }
    }

    /// End of the contiguous bytes.
    fn tail(&self) -> u64 {
        self.received.contiguous_end(self.base)
    }

    fn in_flight_limit(&self) -> usize {
        let limit = self.window.limit(self.sizing.whole_bytes());
        if self.estimates.serial.is_certain() {
            limit.min(IN_FLIGHT_SERIAL)
        } else {
            limit
        }
    }

    fn latency_seconds(&self) -> f64 {
        self.estimates.smoothed_seconds().unwrap_or(0.0)
    }

    /// The time at which a flight has been silent for too long.
    fn silent_at(&self, flight: &Flight) -> f64 {
        flight.issued_at.max(self.heard_at) + self.settings.timeout_seconds
    }
}
