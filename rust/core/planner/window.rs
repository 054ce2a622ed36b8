//! The limit of requests in flight, before the link's own bandwidth-delay product limits them.
//!
//! The limit is meant in bytes: if the server gives only small pages, more of them may be in flight. The window grows
//! by one per page and shrinks by a share on errors, as TCP's does.

use super::estimate::Round;
use super::tuning::{
    FULL_PAGE_BYTES, IN_FLIGHT, IN_FLIGHT_AT_LATENCY, IN_FLIGHT_OF_SMALL, WINDOW_LOSS,
};

/// The window of one planner.
pub(super) struct Window {
    /// The caller's limit.
    limit: Option<usize>,
    /// The number of full pages worth having in flight.
    full_pages: usize,
    /// The window: the limit after the answers and errors so far.
    size: f64,
    /// True if the window has delayed a page since the last round ended.
    was_full: bool,
}

impl Window {
    pub fn new(limit: Option<usize>, start: usize) -> Self {
        Self {
            limit,
            full_pages: IN_FLIGHT,
            size: start as f64,
            was_full: false,
        }
    }

    /// The most requests at once, if the server gives pages of `page` bytes.
    pub fn limit(&self, page: u64) -> usize {
        self.limit.unwrap_or_else(|| {
            let bytes = self.full_pages as u64 * FULL_PAGE_BYTES;
            let pages = bytes.div_ceil(page.max(1)).min(IN_FLIGHT_OF_SMALL as u64);
            self.full_pages.max(pages as usize)
        })
    }

    /// Returns whether another page may join `in_flight` others.
    pub fn has_room(&mut self, in_flight: usize) -> bool {
        let has_room = (in_flight as f64) < self.size;
        self.was_full |= !has_room;
        has_room
    }

    /// Grows by one after a page.
    pub fn grow(&mut self, page: u64) {
        self.size = (self.size + 1.0).min(self.limit(page) as f64);
    }

    /// Shrinks by a share after a failure.
    pub fn shrink(&mut self) {
        self.size = (self.size * WINDOW_LOSS).max(1.0);
    }

    /// Handles the end of a round. If the window was full, and pages did not wait for each other, latency is the limit:
    /// more requests at once are faster.
    pub fn round_ended(&mut self, round: &Round, floor: f64) {
        if self.was_full && !round.queues(floor) {
            self.full_pages = IN_FLIGHT_AT_LATENCY;
        }
        self.was_full = false;
    }
}
