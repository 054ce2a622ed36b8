//! Which range to read next: a pure state machine. Time is an argument, in seconds on any clock that does not run back.
//!
//! # Rules
//! * Everything below the frontier is received, in flight, or a piece that waits to be asked for; nothing is in two of
//!   them. So every byte is asked for until it has come, and kept once.
//! * No range ends past reader + capacity: memory is bounded by construction.
//! * Only an empty answer proves an end, and the lowest one counts. A short page is a hint: the rest is asked for, or
//!   the next page starts where it stopped. Bytes past a proven end are a contradiction, never a guess.
//! * An announced size is planned to, and confirmed by one small read past it, asked for after the last page.
//! * A page that failed for good breaks the stream only once all before it has come; a lower end takes it back.
//!
//! # Theory of operation
//! Pages double from a small one, so that the first sound waits for 8 KiB and not for 100 KiB, while the first burst of
//! three fills the latency. After that the rate the link delivers and its least latency give the bandwidth-delay product:
//! so many bytes, and one page, are kept in flight (BBR: Cardwell et al., ACM Queue 14(5), 2016; draft-ietf-ccwg-bbr).
//! More would queue and make a retry or a seek slow; less would idle. The rate a window can show doubles at most from
//! round to round, hence the start-up gain of two, and the look at how closely the first answers follow each other. New
//! pages leave about a transfer apart: those that leave together arrive together, and leave the link idle together.
//! Deadlines come from smoothed latency and variance (RFC 6298) plus the transfer of what is queued. Where the rate grows
//! as the pages do, a cost a page limits and not bandwidth, as with a server that answers one read at a time: pages grow.

use std::cmp::min;

use crate::ring::OFFSET_MAX;

mod asking;
mod estimate;
mod flight;
mod gate;
mod outcome;
mod retry;
mod settings;
mod sizing;
mod statistics;

use estimate::{Completion, Estimates};
use flight::{Flights, Piece, Pieces, Standing};
use gate::Appetite;
use outcome::{Ending, Proof, Size, Trouble};
use retry::Jitter;
pub use settings::{InvalidSetting, MAX_IN_FLIGHT, Settings};
use sizing::Sizing;
use statistics::Counters;
pub use statistics::Statistics;

/// Wins a page, loses 30 % on an error: additive increase, multiplicative decrease, as TCP does.
const WINDOW_LOSS: f64 = 0.7;

/// One range to read now: bytes `start..end`, to be answered by `on_page` or `on_error` with its id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Never used twice.
    pub id: u64,
    /// First byte.
    pub start: u64,
    /// One past the last byte; above `start`.
    pub end: u64,
    /// When to give up on it, on the caller's clock.
    pub deadline: f64,
    /// Tries before this one.
    pub attempt: u32,
    /// The same range is in flight already and is late.
    pub is_hedge: bool,
    /// It starts at or past the announced size: most likely empty.
    pub is_confirm: bool,
}

/// The prefetch planner. After every event the driver calls [`next`](Self::next) until it gives None, then waits for an
/// answer, for the reader to move, or for [`timer`](Self::timer).
pub struct Planner {
    settings: Settings,
    now: f64,
    next_id: u64,
    /// All below is received, in flight or a piece.
    frontier: u64,
    /// When the newest page was asked for, and its size.
    newest: (f64, u64),
    flights: Flights,
    pieces: Pieces,
    /// Requests at once, as errors and answers have moved it.
    window: f64,
    /// One past the highest byte received.
    received_to: u64,
    ending: Ending,
    size: Size,
    trouble: Option<Trouble>,
    estimates: Estimates,
    sizing: Sizing,
    appetite: Appetite,
    jitter: Jitter,
    counters: Counters,
}

impl Planner {
    /// A planner that has asked for nothing yet.
    pub fn new(settings: Settings) -> Result<Self, InvalidSetting> {
        settings.check()?;
        Ok(Self {
            now: 0.0,
            next_id: 0,
            frontier: settings.start,
            newest: (0.0, 0),
            flights: Flights::new(),
            pieces: Pieces::new(),
            window: settings.in_flight_start as f64,
            received_to: 0,
            ending: Ending::Unknown,
            size: Size::Unknown,
            trouble: None,
            estimates: Estimates::new(),
            sizing: Sizing::new(
                settings.page_min_bytes,
                settings.page_bytes,
                settings.capacity_bytes,
            ),
            appetite: Appetite::new(settings.nominal_rate_bytes),
            jitter: Jitter::new(settings.seed),
            counters: Counters::default(),
            settings,
        })
    }

    /// The next request to send, given the reader's offset. Call until None after every event.
    pub fn next(&mut self, now: f64, head: u64) -> Option<Request> {
        self.advance(now);
        self.appetite.observe(self.now, head);
        if self.failed().is_some()
            || self.contradiction().is_some()
            || self.flights.len() >= self.settings.in_flight
        {
            return None;
        }
        let room_to = head.saturating_add(self.settings.capacity_bytes);
        self.next_piece(room_to)
            .or_else(|| self.next_hedge())
            .or_else(|| self.next_page(room_to))
    }

    /// An answer came with `n_bytes` bytes from the request's start; 0 is the proof of an end there. True: they are
    /// wanted. More bytes than asked for count as a whole page.
    pub fn on_page(&mut self, id: u64, now: f64, n_bytes: u64) -> bool {
        self.advance(now);
        let Some(flight) = self.flights.take(id) else {
            return false;
        };
        let asked = flight.end - flight.start;
        let got = n_bytes.min(asked);
        let got_to = flight.start + got;
        if let Some(end) = self.end().filter(|&end| got > 0 && got_to > end) {
            self.ending = Ending::Contradicted { at: end };
            return false;
        }
        if flight.standing != Standing::Wanted {
            return false;
        }
        self.flights
            .make_moot(self.now, |twin| twin.start == flight.start);
        self.flights.overtake(id);
        self.window = (self.window + 1.0).min(self.settings.in_flight as f64);
        if got == 0 {
            self.counters.empty_pages += 1;
            self.end_at(flight.start, Proof::Empty);
            return false;
        }
        self.counters.pages += 1;
        self.estimates.complete(
            self.now,
            &Completion {
                id,
                next_id: self.next_id,
                bytes: got,
                latency_seconds: self.now - flight.issued_at,
                delivered_before: flight.delivered_before,
                app_limited: flight.app_limited,
                alone: flight.alone,
            },
        );
        self.received_to = self.received_to.max(got_to);
        self.size.bytes_to(got_to);
        self.sizing.answered(asked, got);
        if got < asked {
            self.counters.short_pages += 1;
            self.ask_for_rest(got_to, flight.end);
        }
        true
    }

    /// A request failed. Retryable: a deadline, a lost connection; else the peer's own refusal.
    pub fn on_error(&mut self, id: u64, now: f64, retryable: bool) {
        self.advance(now);
        let Some(flight) = self.flights.take(id) else {
            return;
        };
        if flight.standing != Standing::Wanted {
            return;
        }
        self.window = (self.window * WINDOW_LOSS).max(1.0);
        if self.flights.is_asked(flight.start) {
            return; // its copy is still out
        }
        let tries = flight.tries + 1;
        if retryable && tries < self.settings.max_tries {
            let not_before = self.now + self.jitter.backoff_seconds(flight.tries);
            self.pieces.put(Piece {
                start: flight.start,
                end: flight.end,
                tries,
                not_before,
            });
        } else if !retryable && self.size.is_announced_at(flight.start) {
            // The announced size and the refusal to read past it agree; servers without an empty answer do this.
            self.end_at(flight.start, Proof::Announced);
        } else if self.trouble.is_none_or(|known| flight.start < known.offset) {
            self.trouble = Some(Trouble {
                offset: flight.start,
                tries,
            });
        }
    }

    /// Requests to cancel: those past their deadline, to be reported by `on_error`, and, once, those whose answer is no
    /// longer wanted, for which `on_error` does nothing.
    pub fn expired(&mut self, now: f64) -> Vec<u64> {
        self.advance(now);
        let mut ids = self.flights.take_moot();
        ids.extend(
            self.flights
                .wanted()
                .filter(|flight| flight.deadline <= self.now)
                .map(|flight| flight.id),
        );
        ids
    }

    /// When [`next`](Self::next) or [`expired`](Self::expired) could have something new to say without another event.
    pub fn timer(&self) -> Option<f64> {
        let flights = self.flights.all().map(|flight| match flight.standing {
            Standing::Wanted => flight.deadline,
            Standing::Moot { since } => since,
        });
        let hedge = self
            .hedge_candidate()
            .and_then(|flight| self.late_at(flight))
            .filter(|&at| at > self.now);
        flights
            .chain(self.pieces.next_due(self.now))
            .chain(hedge)
            .chain(self.paced_until().filter(|&at| at > self.now))
            .reduce(f64::min)
    }

    /// The reader jumps to `offset`: what was asked for is stale and nothing counts as received. Gives the ids to
    /// cancel. Estimates, a proven end and an announced size stay.
    pub fn seek(&mut self, offset: u64) -> Vec<u64> {
        self.pieces.clear();
        self.trouble = None;
        self.frontier = min(offset, OFFSET_MAX);
        self.sizing.restart();
        self.appetite.forget_place();
        self.flights.drain_ids()
    }

    /// Somebody announced the size: plan to it. The bytes decide.
    pub fn set_total(&mut self, total_bytes: u64) {
        self.size = Size::Announced(total_bytes);
        self.size.bytes_to(self.received_to);
        if let Ending::Proven { at, .. } = self.ending {
            self.size.ends_at(at);
        }
    }

    /// The server has its own page size: ask for that much from now on, at least 1 byte, at most the ring.
    pub fn set_page_bytes(&mut self, page_bytes: u64) {
        self.sizing.adopt(page_bytes);
    }

    /// Another limit of requests at once, 1 to [`MAX_IN_FLIGHT`]. Those out stay out.
    pub fn set_in_flight(&mut self, limit: usize) {
        self.settings.in_flight = limit.clamp(1, MAX_IN_FLIGHT);
        self.window = self.window.min(self.settings.in_flight as f64);
    }

    /// The proven end.
    pub fn end(&self) -> Option<u64> {
        match self.ending {
            Ending::Proven { at, .. } => Some(at),
            Ending::Unknown | Ending::Contradicted { .. } => None,
        }
    }

    /// Where the server said the stream ends although it gave bytes past that.
    pub fn contradiction(&self) -> Option<u64> {
        match self.ending {
            Ending::Contradicted { at } => Some(at),
            Ending::Unknown | Ending::Proven { .. } => None,
        }
    }

    /// Every byte up to the proven end has come.
    pub fn finished(&self) -> bool {
        self.end().is_some_and(|end| self.tail() >= end)
    }

    /// Offset and tries of the page that broke the stream, once all before it has come.
    pub fn failed(&self) -> Option<(u64, u32)> {
        self.trouble
            .filter(|trouble| self.tail() >= trouble.offset)
            .map(|trouble| (trouble.offset, trouble.tries))
    }
}

impl Planner {
    /// A driver's clock that jumps back, or is no number, must not undo what has happened. Before the first request
    /// nothing has, so the clock may begin anywhere.
    fn advance(&mut self, now: f64) {
        if now.is_finite() && (now > self.now || self.next_id == 0) {
            self.now = now;
        }
    }

    /// End of the contiguous bytes.
    fn tail(&self) -> u64 {
        let flights = self.flights.wanted().map(|flight| flight.start);
        let trouble = self.trouble.map(|trouble| trouble.offset);
        flights
            .chain(self.pieces.first_start())
            .chain(trouble)
            .fold(self.frontier, min)
    }

    fn ask_for_rest(&mut self, from: u64, asked_to: u64) {
        let to = self.end().map_or(asked_to, |end| min(end, asked_to));
        if self.frontier == to {
            self.frontier = from; // nothing later is asked for: the next page starts here
        } else {
            self.pieces.put(Piece {
                start: from,
                end: to,
                tries: 0,
                not_before: self.now,
            });
        }
    }

    fn end_at(&mut self, offset: u64, proof: Proof) {
        if self.received_to > offset {
            self.ending = Ending::Contradicted { at: offset };
        } else if self.end().is_none_or(|known| offset < known) {
            self.ending = Ending::Proven { at: offset, proof };
            self.size.ends_at(offset);
            self.frontier = min(self.frontier, offset);
            self.pieces.truncate(offset);
            self.flights
                .make_moot(self.now, |flight| flight.start >= offset);
            self.trouble = self.trouble.filter(|trouble| trouble.offset < offset);
        }
    }
}
