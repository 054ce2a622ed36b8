//! Statistics of a planner: counters, and a frozen view of them.

use super::Planner;

/// A snapshot of the counters and estimates of a planner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// Requests made: retries, hedges, probes and corroborating reads included.
    pub requests: u64,
    /// Answers with new bytes.
    pub pages: u64,
    /// New bytes.
    pub bytes: u64,
    /// Requests for a page that had failed.
    pub retries: u64,
    /// Second requests for a late page.
    pub hedges: u64,
    /// Requests on the wire now, and answers that the driver still judges: at most `MAX_IN_FLIGHT`.
    pub in_flight: usize,
    /// The highest number of requests on the wire at once.
    pub in_flight_max: usize,
    /// Size of the next new page.
    pub page_bytes: u64,
    /// Payload bytes per second, the maximum over ten seconds.
    pub bandwidth_bytes_per_second: Option<f64>,
    /// The least latency of a page over thirty seconds.
    pub rtt_seconds: Option<f64>,
    /// Bytes arrived past the announced size, or the end was accepted below it.
    pub size_was_wrong: bool,
}

#[derive(Default)]
pub(super) struct Counters {
    pub requests: u64,
    pub pages: u64,
    pub bytes: u64,
    pub retries: u64,
    pub hedges: u64,
    pub in_flight_max: usize,
}

impl Planner {
    /// Takes a snapshot.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            requests: self.counters.requests,
            pages: self.counters.pages,
            bytes: self.counters.bytes,
            retries: self.counters.retries,
            hedges: self.counters.hedges,
            in_flight: self.flights.len(),
            in_flight_max: self.counters.in_flight_max,
            page_bytes: self.page_bytes(),
            bandwidth_bytes_per_second: self.estimates.bandwidth(),
            rtt_seconds: self.estimates.floor_seconds(),
            size_was_wrong: self.ending.size_was_wrong,
        }
    }
}
