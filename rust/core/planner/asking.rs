//! The choice of the next request: evidence of an end first, then holes, then late pages, then new pages.

use std::cmp::min;

use super::ending::Size;
use super::flight::{Flight, Purpose, Standing};
use super::tuning::{
    BURST_SHARE, HEDGES_AT_START, LATE_MAX_SECONDS, LATE_MIN_SECONDS, MOST_DOUBLINGS,
    OVERTAKEN_TO_HEDGE, PACING_MIN_SECONDS, REQUESTS_PER_HEDGE, STEADY_BURST, STEADY_LATE,
};
use super::{Planner, Request};
use crate::ring::OFFSET_MAX;

/// Length of `[DONE]`: an answer of exactly these bytes could be the marker, so no page is that long.
const MARKER_BYTES: u64 = 6;

/// Shortens a length that the marker could fill, by one byte.
const fn not_marker(bytes: u64) -> u64 {
    if bytes == MARKER_BYTES {
        MARKER_BYTES - 1
    } else {
        bytes
    }
}

impl Planner {
    /// The newest probe that may be sent now.
    pub(super) fn next_probe(&mut self) -> Option<Request> {
        let may_retry = self.now >= self.patience.retry_at();
        let is_due = |(_, is_retry): &(_, bool)| may_retry || !is_retry;
        let index = self.probes.iter().rposition(is_due)?;
        let (range, is_retry) = self.probes.remove(index);
        Some(self.issue(range.start, range.end, is_retry, Purpose::Probe))
    }

    /// The next read that supports or refutes the claim of an end.
    pub(super) fn next_corroboration(&mut self) -> Option<Request> {
        let is_retry = self.evidence_failed;
        if is_retry && self.now < self.patience.retry_at() {
            return None;
        }
        let small = self.sizing.small_bytes();
        let page = self.sizing.next_bytes(&self.estimates);
        let tail = self.tail();
        let probe = self
            .ending
            .probe(self.now, tail, small, page, self.room_to)
            .or_else(|| self.ending.error_probe(small, tail))?;
        let end = probe.start + not_marker(probe.end - probe.start);
        Some(self.issue(
            probe.start,
            end,
            is_retry,
            Purpose::Corroborate(probe.purpose),
        ))
    }

    /// The lowest hole that may be read now.
    pub(super) fn next_hole(&mut self) -> Option<Request> {
        let tail = self.tail();
        let limit = [
            self.ending.claimed_at(),
            self.barrier.map(|(at, _)| at),
            Some(self.room_to),
            self.present_bytes(),
        ]
        .into_iter()
        .flatten()
        .fold(self.frontier, min);
        let may_retry = self.now >= self.patience.retry_at();
        let is_outage = self.patience.is_outage();
        let (hole, is_retry) = self.taken.missing(tail..limit).find_map(|hole| {
            let is_retry = self.failed.held(hole.clone()).next().is_some();
            let is_due = (may_retry || !is_retry) && (!is_outage || hole.start == tail);
            is_due.then_some((hole, is_retry))
        })?;
        let most = if is_retry { self.retry_bytes } else { u64::MAX };
        let bytes = (hole.end - hole.start)
            .min(self.sizing.gap_bytes())
            .min(most);
        let end = hole.start + not_marker(bytes);
        Some(self.issue(hole.start, end, is_retry, Purpose::Page))
    }

    /// A second read of the page that the reader waits for, if it is late.
    pub(super) fn next_hedge(&mut self) -> Option<Request> {
        let late = self.hedge_candidate()?;
        if self.late_at(late)? > self.now {
            return None;
        }
        let (id, end) = (late.id, late.end);
        let (start, purpose) = match late.purpose {
            Purpose::Corroborate(_) => (late.start, late.purpose),
            Purpose::Page | Purpose::Hedge | Purpose::Probe => {
                (self.received.contiguous_end(late.start), Purpose::Hedge)
            }
        };
        let end = start + not_marker(end - start);
        self.flights.mark_hedged(id);
        self.counters.hedges += 1;
        Some(self.issue(start, end, false, purpose))
    }

    /// The read that the reader waits for, if it may be hedged: the budget allows it, and later reads have overtaken
    /// it, or too few are in flight for that.
    pub(super) fn hedge_candidate(&self) -> Option<&Flight> {
        let budget = HEDGES_AT_START + self.counters.requests / REQUESTS_PER_HEDGE;
        let is_last = self.flights.pages() <= OVERTAKEN_TO_HEDGE as usize;
        let first = self.flights.first().or_else(|| self.flights.at_claim());
        first.filter(|first| {
            self.counters.hedges < budget
                && !self.estimates.serial.is_certain()
                && self.flights.len() < self.in_flight_limit()
                && !first.held
                && !self.asks_for_growth(first)
                && (first.overtaken >= OVERTAKEN_TO_HEDGE || is_last)
        })
    }

    /// The time at which a page is late: after two smoothed latencies, four deviations (RFC 6298), and the transfer of
    /// what is queued. Each hedge doubles it. Deviations don't count on a steady link, where only the queue makes them.
    pub(super) fn late_at(&self, flight: &Flight) -> Option<f64> {
        let transfer = self.flights.bytes() as f64 / self.estimates.bandwidth()?;
        let seconds = match self.estimates.steady.link() {
            Some(link) => 2.0 * link.latency_seconds + STEADY_LATE * transfer,
            None => {
                2.0 * self.estimates.smoothed_seconds()?
                    + 4.0 * self.estimates.deviation_seconds()
                    + transfer
            }
        };
        let doubled =
            LATE_MIN_SECONDS.max(seconds) * f64::from(1u32 << flight.hedges.min(MOST_DOUBLINGS));
        Some(flight.issued_at + doubled.min(LATE_MAX_SECONDS))
    }

    /// The page at the frontier, if the link, the room and the end allow it.
    pub(super) fn next_page(&mut self, head: u64) -> Option<Request> {
        self.frontier = self.taken.contiguous_end(self.grown_frontier());
        let start = self.frontier;
        let asks_for_growth = self.present_bytes().is_some_and(|size| start >= size);
        let measures_floor = !asks_for_growth && self.estimates.floor_is_stale(self.now);
        let is_paced = self.paced_until().is_some_and(|at| at > self.now);
        // In an outage only the page at the first missing byte is read, which may be a new one.
        let is_retry = self.patience.is_outage() || self.failed.contiguous_end(start) > start;
        let is_due = !is_retry || (start == self.tail() && self.now >= self.patience.retry_at());
        if is_paced
            || !is_due
            || !self.may_request_at(start)
            || !self.may_grow_at(start)
            || self.is_asleep(head)
            || !self.link_has_room(measures_floor)
        {
            return None;
        }
        let page = if measures_floor {
            self.sizing.small_bytes()
        } else {
            self.on_grid(start, self.sizing.next_bytes(&self.estimates))
        };
        let size = match (self.end(), self.ending.size) {
            (Some(end), _) => min(page, end.at - start),
            (None, Size::Announced { total, .. }) if start < total => min(page, total - start),
            (None, Size::Announced { .. }) => self.sizing.small_bytes(),
            (None, Size::Unknown | Size::Refuted) => page,
        };
        let size = match self.present_bytes() {
            Some(present) if start < present => size.min(present - start),
            _ => size,
        };
        let size = if is_retry {
            size.min(self.retry_bytes)
        } else {
            size
        };
        let end = self
            .ending
            .claimed_at()
            .unwrap_or(u64::MAX)
            .min(start.saturating_add(size));
        if end > self.room_to {
            // Waiting for room for a whole page keeps a slow reader from requesting tiny ones (RFC 9293, 3.8.6.2.2).
            self.estimates.mark_app_limited(self.flights.bytes());
            self.sleeping = self.settings.sleeps_when_full && self.flights.bytes() == 0;
            return None;
        }
        // Bytes that were read as evidence of an end are not read again.
        let end = self
            .taken
            .held(start..end)
            .next()
            .map_or(end, |run| run.start);
        let end = start + not_marker(end - start);
        self.frontier = end;
        self.newest = (self.now, end - start);
        if asks_for_growth {
            if let Some(growth) = &mut self.growth {
                growth.asked(self.now);
            }
        } else if !measures_floor {
            self.sizing.requested_page(page);
        }
        Some(self.issue(start, end, is_retry, Purpose::Page))
    }

    /// Rounds a page up so that it ends on the grid. A page below the grid's size stays as it is: one of the first
    /// burst, or of a server that caps its pages.
    fn on_grid(&self, start: u64, page: u64) -> u64 {
        let grid = self.settings.grid_bytes;
        let end = start.saturating_add(page);
        if grid == 0 || page < grid || end > OFFSET_MAX {
            return page;
        }
        let rounded = end.next_multiple_of(grid) - start;
        // At most half of the room, so that pages still overlap.
        if rounded <= self.settings.capacity_bytes / 2 {
            rounded
        } else {
            page
        }
    }

    /// Returns whether a full ring still drains. The next request waits until a quarter of it is free, so that a
    /// radio can rest in between.
    fn is_asleep(&mut self, head: u64) -> bool {
        let room = head
            .saturating_add(self.settings.capacity_bytes)
            .saturating_sub(self.frontier);
        self.sleeping = self.sleeping && room < self.settings.capacity_bytes / 4;
        if self.sleeping {
            self.estimates.mark_app_limited(self.flights.bytes());
        }
        self.sleeping
    }

    /// The time before which no new page leaves. Pages leave about one transfer apart, as BBR's packets do: together
    /// they would share the link, and then leave it idle.
    pub(super) fn paced_until(&self) -> Option<f64> {
        let (asked_at, bytes) = self.newest;
        let gap = self.estimates.gap_seconds(bytes)?;
        (gap >= PACING_MIN_SECONDS && self.flights.len() > 0).then_some(asked_at + gap)
    }

    /// Returns whether a new page may start at `start`. Past an announced size, only one read at a time tests whether
    /// the size is too small, and none does if the size is exact.
    fn may_request_at(&self, start: u64) -> bool {
        let is_past_total = self.total().is_some_and(|total| start >= total);
        let is_past_requested = || {
            let total = self.total().unwrap_or(u64::MAX);
            self.failed.held(total..self.frontier).next().is_some()
                || self
                    .flights
                    .wanted()
                    .any(|flight| flight.covers() && flight.start >= total)
        };
        self.end().is_none_or(|end| start < end.at)
            && self.ending.claimed_at().is_none_or(|at| start < at)
            && self.barrier.is_none_or(|(at, _)| start < at)
            && start < OFFSET_MAX
            && !(is_past_total && (self.ending.is_exact() || is_past_requested()))
    }

    /// Returns whether the first burst is still arriving. It shows the link if no other page shares it.
    pub(super) fn is_opening(&self) -> bool {
        self.counters.pages < STEADY_BURST as u64
    }

    /// Returns whether another page may join those in flight. A page that measures the floor must be alone.
    fn link_has_room(&mut self, measures_floor: bool) -> bool {
        let wanted = self.flights.wanted().count();
        if measures_floor {
            return wanted == 0;
        }
        let page = self.sizing.next_bytes(&self.estimates) as f64;
        let is_opening = self.is_opening() && !self.estimates.serial.is_possible();
        let is_full = self
            .estimates
            .bytes_wanted_in_flight()
            .is_some_and(|bytes| {
                let most = if is_opening {
                    BURST_SHARE * bytes
                } else {
                    bytes + page
                };
                self.flights.bytes() as f64 >= most
            });
        !is_full && self.window.has_room(wanted)
    }

    /// Records a request as in flight, and returns it.
    fn issue(&mut self, start: u64, end: u64, is_retry: bool, purpose: Purpose) -> Request {
        let id = self.next_id;
        self.next_id += 1;
        let alone = self.flights.len() == 0;
        let flight = Flight {
            id,
            start,
            end,
            issued_at: self.now,
            is_retry,
            delivered_before: self.estimates.delivered(),
            app_limited: self.estimates.app_limited(),
            alone,
            overtaken: 0,
            purpose,
            hedges: 0,
            held: false,
            standing: Standing::Wanted,
        };
        if flight.covers() {
            self.taken.insert(start..end);
        }
        self.flights.push(flight);
        if is_retry {
            self.counters.retries += 1;
            self.patience.retried(self.now);
        }
        self.counters.requests += 1;
        self.counters.in_flight_max = self.counters.in_flight_max.max(self.flights.len());
        Request {
            id,
            start,
            end,
            is_retry,
            is_hedge: purpose == Purpose::Hedge,
            is_probe: purpose == Purpose::Probe,
        }
    }
}
