//! A steady link: one whose rate hardly varies. The first burst shows its rate and latency, long before the samples of
//! later pages do. They are trusted until an answer contradicts them, or better samples exist.

use super::estimate::Completion;
use super::tuning::{OPENING_SECONDS, STEADY_BURST, STEADY_SPREAD};

/// The measurements of the first burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct SteadyLink {
    pub bytes_per_second: f64,
    pub latency_seconds: f64,
}

impl SteadyLink {
    /// Finds a link that explains the latencies and sizes of three pages that left together: they arrived either one
    /// after the other, or sharing the link. None for a server that answers one read at a time: its pages seem to share
    /// a link with a latency below 0.
    fn of_burst(burst: &[(f64, f64)]) -> Option<Self> {
        let &[(at, first), (second_at, second), (third_at, third)] = burst else {
            return None;
        };
        // The bytes that the link carried before the first page arrived, then before the second, then the third. Pages
        // that share the link get equal parts of it.
        let in_turn = (first, second, third);
        let shared = (3.0 * first, 2.0 * (second - first), third - second);
        [in_turn, shared]
            .into_iter()
            .find_map(|(first, second, third)| {
                let rate_ratio = third / (third_at - second_at) * (second_at - at) / second;
                let bytes_per_second = (second + third) / (third_at - at);
                let latency_seconds = at - first / bytes_per_second;
                ((rate_ratio - 1.0).abs() <= STEADY_SPREAD
                    && latency_seconds >= 0.0
                    && bytes_per_second > 0.0)
                    .then_some(Self {
                        bytes_per_second,
                        latency_seconds,
                    })
            })
    }
}

/// The evidence so far.
#[derive(Default)]
pub(super) struct Steady {
    /// Latency and size of the pages that were requested before any arrived.
    burst: Vec<(f64, f64)>,
    /// The bytes of all pages so far.
    bytes: u64,
    /// The link, and the time at which its first byte arrived.
    link: Option<(SteadyLink, f64)>,
}

impl Steady {
    /// Counts a page, with `bytes_in_flight` still to come.
    pub fn answered(&mut self, now: f64, page: &Completion, bytes_in_flight: u64) {
        self.bytes += page.bytes;
        if page.delivered_before == 0 && self.burst.len() < STEADY_BURST {
            let latency_seconds = page.latency_seconds;
            self.burst.push((latency_seconds, page.bytes as f64));
            self.link = SteadyLink::of_burst(&self.burst)
                .map(|link| (link, now - latency_seconds + link.latency_seconds));
        }
        // The link is trusted while the bytes it should have carried lie between those that arrived in full and those
        // that arrived or are in flight.
        let (least, most) = (self.bytes as f64, (self.bytes + bytes_in_flight) as f64);
        self.link = self.link.filter(|(link, first_at)| {
            let seconds = now - first_at;
            let expected = link.bytes_per_second * seconds;
            seconds <= OPENING_SECONDS
                && least <= (1.0 + STEADY_SPREAD) * expected
                && most >= (1.0 - STEADY_SPREAD) * expected
        });
    }

    /// The link, while it is trusted.
    pub fn link(&self) -> Option<SteadyLink> {
        self.link.map(|(link, _)| link)
    }
}
