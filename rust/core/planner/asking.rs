//! What to ask for next: first what is missing, then what is late, then what is new.

use std::cmp::min;

use super::flight::{Copy, Flight, Piece, Standing};
use super::outcome::Size;
use super::{Planner, Request, retry};
use crate::ring::OFFSET_MAX;

/// Later pages that must have come before a late one is asked for again (TCP's duplicate acknowledgements, less one).
const OVERTAKEN_TO_HEDGE: u32 = 2;
/// Late is past this many times what a page should take, and so many deviations more: nearer than its deadline (two times
/// and four deviations), further than most pages ever are.
const HEDGE_LATENESS: f64 = 1.5;
const HEDGE_DEVIATIONS: f64 = 2.0;

/// Shorter gaps are below what a driver's timer can keep.
const PACING_MIN_SECONDS: f64 = 0.002;

impl Planner {
    pub(super) fn next_piece(&mut self, room_to: u64) -> Option<Request> {
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

    pub(super) fn next_hedge(&mut self) -> Option<Request> {
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
    pub(super) fn hedge_candidate(&self) -> Option<&Flight> {
        self.flights.first().filter(|first| {
            self.settings.hedge
                && self.flights.len() < self.settings.in_flight
                && first.copy == Copy::Only
                && first.overtaken >= OVERTAKEN_TO_HEDGE
        })
    }

    pub(super) fn late_at(&self, flight: &Flight) -> Option<f64> {
        let expected = self
            .estimates
            .expected_seconds(flight.end - flight.start, self.flights.bytes())?;
        let grace = HEDGE_DEVIATIONS * self.estimates.deviation_seconds();
        Some(flight.issued_at + HEDGE_LATENESS * expected + grace)
    }

    pub(super) fn next_page(&mut self, room_to: u64) -> Option<Request> {
        let finding_floor = self.estimates.floor_is_stale(self.now);
        let start = self.frontier;
        let paced = self.paced_until().is_some_and(|at| at > self.now);
        if paced || !self.may_ask_at(start) || !self.link_has_room(finding_floor) {
            return None;
        }
        let page = if finding_floor {
            self.sizing.small_bytes()
        } else {
            self.sizing.next_bytes(&self.estimates)
        };
        let size = match (self.end(), self.size) {
            (Some(end), _) => min(page, end - start),
            (None, Size::Announced(total)) if start < total => min(page, total - start),
            (None, Size::Announced(_)) => self.sizing.small_bytes(),
            (None, Size::Unknown | Size::Refuted) => page,
        };
        let end = start.saturating_add(size);
        if end > room_to {
            // Waiting for a whole page's room keeps a slow reader from asking for crumbs (RFC 9293, 3.8.6.2.2).
            self.estimates.mark_app_limited(self.flights.bytes());
            return None;
        }
        self.frontier = end;
        self.newest = (self.now, size);
        if !finding_floor {
            self.sizing.asked_new_page(page);
        }
        Some(self.issue(start, end, 0, Copy::Only))
    }

    /// Pages that leave together share the link, arrive together and leave it idle together until the next ones come:
    /// they leave one transfer apart, as BBR's packets do.
    pub(super) fn paced_until(&self) -> Option<f64> {
        let (asked_at, bytes) = self.newest;
        let gap = self.estimates.gap_seconds(bytes)?;
        (gap >= PACING_MIN_SECONDS && self.flights.len() > 0).then_some(asked_at + gap)
    }

    fn may_ask_at(&self, start: u64) -> bool {
        let past_total = matches!(self.size, Size::Announced(total) if start >= total);
        let asked_past = || {
            let total = self.size.announced();
            self.pieces.any_from(total) || self.flights.wanted().any(|flight| flight.start >= total)
        };
        self.end().is_none_or(|end| start < end)
            && self.trouble.is_none_or(|trouble| start < trouble.offset)
            && start < OFFSET_MAX
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
