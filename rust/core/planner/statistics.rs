//! What a planner has done and measured: counters, and the frozen view of them.

use super::Planner;
use super::outcome::{Ending, Proof, Size};

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
pub(super) struct Counters {
    pub requests: u64,
    pub pages: u64,
    pub retries: u64,
    pub hedges: u64,
    pub short_pages: u64,
    pub empty_pages: u64,
    pub in_flight_max: usize,
}

impl Planner {
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
