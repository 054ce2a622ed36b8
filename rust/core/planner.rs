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
//! round to round, hence the start-up gain of two. Deadlines come from smoothed latency and variance (RFC 6298) plus the
//! transfer of what is queued. Where a cost a page and not bandwidth limits, as with a server that answers one read at a
//! time, the latency floor is that cost, the affordable page is one and a half times the last, and pages grow.

use std::cmp::min;

mod estimate;
mod flight;
mod gate;
mod outcome;
mod retry;
mod settings;
mod sizing;

use estimate::{Completion, Estimates};
use flight::{Copy, Flight, Flights, Piece, Pieces, Standing};
use gate::{Appetite, Outlook};
use outcome::{Ending, Proof, Size, Trouble};
use retry::Jitter;
pub use settings::{InvalidSetting, MAX_IN_FLIGHT, MAX_OFFSET, Settings};
use sizing::Sizing;

/// Wins a page, loses 30 % on an error: additive increase, multiplicative decrease, as TCP does.
const WINDOW_LOSS: f64 = 0.7;
/// Later pages that must have come before a late one is asked for again (TCP's duplicate acknowledgements, less one).
const OVERTAKEN_TO_HEDGE: u32 = 2;
const HEDGE_LATENESS: f64 = 1.5;
const HEDGE_DEVIATIONS: f64 = 2.0;

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

/// What a planner has done and measured so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// Requests handed out, retries and hedges included.
    pub requests: u64,
    /// Answers with bytes that were kept.
    pub pages: u64,
    /// Kept bytes.
    pub bytes: u64,
    /// Requests that asked again for a page that had failed.
    pub retries: u64,
    /// Requests that asked again for a page that was late.
    pub hedges: u64,
    /// Answers with fewer bytes than asked for.
    pub short_pages: u64,
    /// Answers without bytes.
    pub empty_pages: u64,
    /// Requests on the wire now.
    pub in_flight: usize,
    /// Most requests on the wire at once.
    pub in_flight_max: usize,
    /// Size of the next new page.
    pub page_bytes: u64,
    /// Payload bytes a second, the maximum over ten seconds.
    pub bandwidth_bytes_per_second: Option<f64>,
    /// The least latency of a page over thirty seconds.
    pub rtt_seconds: Option<f64>,
    /// Bytes came past the announced size, or the end before it.
    pub size_was_wrong: bool,
    /// The end is the announced size; the read past it was refused rather than empty.
    pub ended_by_size: bool,
}

#[derive(Default)]
struct Counters {
    requests: u64,
    pages: u64,
    retries: u64,
    hedges: u64,
    short_pages: u64,
    empty_pages: u64,
    in_flight_max: usize,
}

/// The prefetch planner. After every event the driver calls [`next`](Self::next) until it gives None, then waits for an
/// answer, for the reader to move, or for [`timer`](Self::timer).
pub struct Planner {
    settings: Settings,
    now: f64,
    next_id: u64,
    /// All below is received, in flight or a piece.
    frontier: u64,
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
            .reduce(f64::min)
    }

    /// The reader jumps to `offset`: what was asked for is stale and nothing counts as received. Gives the ids to
    /// cancel. Estimates, a proven end and an announced size stay.
    pub fn seek(&mut self, offset: u64) -> Vec<u64> {
        self.pieces.clear();
        self.trouble = None;
        self.frontier = min(offset, MAX_OFFSET);
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

    /// May the listener start, or resume, with `buffered_bytes` in hand, of which the decoder needs `needed_bytes`?
    /// `left_bytes` is what is left of the stream from the reader's offset, if known.
    pub fn can_play(
        &self,
        now: f64,
        buffered_bytes: u64,
        needed_bytes: u64,
        left_bytes: Option<u64>,
    ) -> bool {
        let over = self.finished() || self.failed().is_some() || self.contradiction().is_some();
        let full = self.flights.len() == 0
            && self.pieces.len() == 0
            && buffered_bytes.saturating_add(self.sizing.next_bytes(&self.estimates))
                > self.settings.capacity_bytes;
        if over || full || left_bytes.is_some_and(|left| buffered_bytes >= left) {
            return true;
        }
        let (Some(bandwidth), Some(smoothed)) = (
            self.estimates.bandwidth(),
            self.estimates.smoothed_seconds(),
        ) else {
            return false;
        };
        let arrival = self.flights.first().map_or(2.0 * smoothed, |first| {
            let due = first.issued_at + smoothed + self.estimates.deviation_seconds();
            due + self.flights.bytes() as f64 / bandwidth - self.now.max(now)
        });
        buffered_bytes >= needed_bytes
            && Outlook {
                buffered_bytes,
                needed_bytes,
                left_bytes,
                capacity_bytes: self.settings.capacity_bytes,
                appetite: self.appetite.rate(),
                bandwidth,
                samples: self.estimates.samples(),
                smoothed_seconds: smoothed,
                arrival_seconds: arrival,
            }
            .is_good()
    }

    /// A snapshot.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            requests: self.counters.requests,
            pages: self.counters.pages,
            bytes: self.estimates.delivered(),
            retries: self.counters.retries,
            hedges: self.counters.hedges,
            short_pages: self.counters.short_pages,
            empty_pages: self.counters.empty_pages,
            in_flight: self.flights.len(),
            in_flight_max: self.counters.in_flight_max,
            page_bytes: self.sizing.next_bytes(&self.estimates),
            bandwidth_bytes_per_second: self.estimates.bandwidth(),
            rtt_seconds: self.estimates.floor_seconds(),
            size_was_wrong: self.size == Size::Refuted,
            ended_by_size: matches!(
                self.ending,
                Ending::Proven {
                    proof: Proof::Announced,
                    ..
                }
            ),
        }
    }
}

/// Deciding.
impl Planner {
    /// A driver's clock that jumps back, or is no number, must not undo what has happened.
    fn advance(&mut self, now: f64) {
        if now.is_finite() {
            self.now = self.now.max(now);
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

    fn next_piece(&mut self, room_to: u64) -> Option<Request> {
        let below = self
            .trouble
            .map_or(room_to, |trouble| min(room_to, trouble.offset));
        let piece = self.pieces.due(self.now, below)?;
        let end = min(
            piece.end,
            piece.start.saturating_add(self.sizing.gap_bytes()),
        )
        .min(room_to);
        self.pieces.remove(piece.start);
        self.pieces.put(Piece {
            start: end,
            ..piece
        });
        self.counters.retries += u64::from(piece.tries > 0);
        Some(self.issue(piece.start, end, piece.tries, Copy::Only))
    }

    fn next_hedge(&mut self) -> Option<Request> {
        let late = self.hedge_candidate()?;
        if self.late_at(late)? > self.now {
            return None;
        }
        let (start, end, tries) = (late.start, late.end, late.tries);
        self.flights.mark_hedged(start);
        self.counters.hedges += 1;
        Some(self.issue(start, end, tries, Copy::Hedge))
    }

    /// The page the reader waits for, if others have overtaken it and it was not asked for twice yet.
    fn hedge_candidate(&self) -> Option<&Flight> {
        self.flights.first().filter(|first| {
            self.settings.hedge
                && self.flights.len() < self.settings.in_flight
                && first.copy == Copy::Only
                && first.overtaken >= OVERTAKEN_TO_HEDGE
        })
    }

    fn late_at(&self, flight: &Flight) -> Option<f64> {
        let expected = self
            .estimates
            .expected_seconds(flight.end - flight.start, self.flights.bytes())?;
        let grace = HEDGE_DEVIATIONS * self.estimates.deviation_seconds();
        Some(flight.issued_at + HEDGE_LATENESS * expected + grace)
    }

    fn next_page(&mut self, room_to: u64) -> Option<Request> {
        let finding_floor = self.estimates.floor_is_stale(self.now);
        let start = self.frontier;
        if !self.may_ask_at(start) || !self.link_has_room(finding_floor) {
            return None;
        }
        let size = if finding_floor {
            self.sizing.small_bytes()
        } else {
            self.sizing.next_bytes(&self.estimates)
        };
        let size = match (self.end(), self.size) {
            (Some(end), _) => min(size, end - start),
            (None, Size::Announced(total)) if start < total => min(size, total - start),
            (None, Size::Announced(_)) => self.sizing.small_bytes(),
            (None, Size::Unknown | Size::Refuted) => size,
        };
        let end = start.saturating_add(size);
        if end > room_to {
            // Waiting for a whole page's room keeps a slow reader from asking for crumbs (RFC 9293, 3.8.6.2.2).
            self.estimates.mark_app_limited(self.flights.bytes());
            return None;
        }
        self.frontier = end;
        if !finding_floor {
            self.sizing.asked_new_page(size);
        }
        Some(self.issue(start, end, 0, Copy::Only))
    }

    fn may_ask_at(&self, start: u64) -> bool {
        let past_total = matches!(self.size, Size::Announced(total) if start >= total);
        let asked_past = || {
            let total = self.size.announced();
            self.pieces.any_from(total) || self.flights.wanted().any(|flight| flight.start >= total)
        };
        self.end().is_none_or(|end| start < end)
            && self.trouble.is_none_or(|trouble| start < trouble.offset)
            && start < MAX_OFFSET
            && !(past_total && asked_past())
    }

    fn link_has_room(&self, finding_floor: bool) -> bool {
        let wanted = self.flights.wanted().count();
        if finding_floor {
            return wanted == 0 && self.pieces.len() == 0;
        }
        let page = self.sizing.next_bytes(&self.estimates) as f64;
        let enough = self
            .estimates
            .bytes_wanted_in_flight()
            .is_some_and(|bytes| self.flights.bytes() as f64 >= bytes + page);
        !enough && (wanted as f64) < self.window && self.pieces.len() < self.settings.in_flight
    }

    fn issue(&mut self, start: u64, end: u64, tries: u32, copy: Copy) -> Request {
        let id = self.next_id;
        self.next_id += 1;
        let deadline = self.now + self.timeout_seconds(end - start, tries);
        let alone = self.flights.len() == 0;
        self.flights.push(Flight {
            id,
            start,
            end,
            issued_at: self.now,
            deadline,
            tries,
            delivered_before: self.estimates.delivered(),
            app_limited: self.estimates.app_limited(),
            alone,
            overtaken: 0,
            copy,
            standing: Standing::Wanted,
        });
        self.counters.requests += 1;
        self.counters.in_flight_max = self.counters.in_flight_max.max(self.flights.len());
        let is_confirm = matches!(self.size, Size::Announced(total) if start >= total);
        Request {
            id,
            start,
            end,
            deadline,
            attempt: tries,
            is_hedge: copy == Copy::Hedge,
            is_confirm,
        }
    }

    fn timeout_seconds(&self, bytes: u64, tries: u32) -> f64 {
        let queued = bytes.saturating_add(self.flights.bytes());
        retry::timeout_seconds(&self.estimates, queued, tries).min(self.settings.deadline_seconds)
    }
}
