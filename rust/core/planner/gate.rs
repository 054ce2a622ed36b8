//! The start gate: decides whether audio may start, or resume, without a foreseeable stall.
//!
//! # Theory of operation
//! Audio that starts now takes bytes at the decoder's rate. It does not stall if two things hold: the next contiguous
//! page arrives before the audio in hand is played; and over the rest of the stream, or the next half minute, the audio
//! in hand covers the link's deficit. A link several times faster than the audio meets both with half a second in hand.
//!
//! Callers ask the gate when bytes arrive, so nothing here waits for a clock. The rate of the link is that
//! of the delivery-rate samples. They are too low until the first pages have shared the link, because they contain the
//! latency. So while the first burst arrives, the rate at which its bytes followed the first page counts as well, which
//! contains no latency. From then on a steady link (`steady`) needs less in hand the faster it is.

use super::Planner;
use super::tuning::{
    ARRIVAL_MARGIN, ARRIVAL_MARGIN_FAST, FAST_LINK, HORIZON_SECONDS, RATE_SHARE, ROOM_SHARE,
    SLOW_START_SECONDS, START_SECONDS, STEADY_LEAST_SECONDS, STEADY_START_BYTES,
    STEADY_START_POWER, STEADY_START_SECONDS,
};

impl Planner {
    /// Returns whether audio may start, or resume, with `in_hand_bytes` in hand that play at `bytes_per_second`. In
    /// hand is what can be read from the ring, and what was read but has not been heard. `left_bytes` is what is left
    /// to be heard, including what is in hand, if known.
    pub fn can_play(
        &self,
        now: f64,
        in_hand_bytes: u64,
        bytes_per_second: f64,
        left_bytes: Option<u64>,
    ) -> bool {
        let now = self.now.max(now);
        let is_over = self.finished() || self.broken().is_some();
        let is_full = self.flights.len() == 0
            && self.failed.len_bytes() == 0
            && in_hand_bytes.saturating_add(self.sizing.next_bytes(&self.estimates))
                > self.settings.capacity_bytes;
        let link = self
            .estimates
            .bandwidth()
            .zip(self.estimates.floor_seconds())
            .map(|(rate, latency_seconds)| {
                let rate = if self.is_opening() {
                    rate.max(self.estimates.train_rate())
                } else {
                    rate
                };
                Link {
                    is_steady: self.estimates.steady.link().is_some(),
                    bytes_per_second: rate,
                    arrival_seconds: self.arrival_seconds(now, rate, latency_seconds),
                }
            });
        is_over
            || is_full
            || self.plays_page_by_page(in_hand_bytes, bytes_per_second)
            || GateInputs {
                in_hand_bytes: in_hand_bytes as f64,
                bytes_per_second,
                left_bytes: left_bytes.map_or(f64::INFINITY, |bytes| bytes as f64),
                room_bytes: self.settings.capacity_bytes as f64,
                link,
            }
            .is_enough()
    }

    /// Seconds until the page that the reader waits for should arrive; 0 if it is late. With nothing in flight, this is
    /// the next page: the decoder's thread may ask before it is requested.
    fn arrival_seconds(&self, now: f64, bytes_per_second: f64, latency_seconds: f64) -> f64 {
        let Some(first) = self.flights.first() else {
            let page = self.sizing.next_bytes(&self.estimates);
            return latency_seconds + page as f64 / bytes_per_second;
        };
        let size = first.end - first.start;
        // Pages that share a link get equal shares of it: until this one has arrived, none takes more of the link than
        // it does. If answers arrive one after the other, only those before it count, which is less.
        let sharing: u64 = self
            .flights
            .wanted()
            .map(|flight| (flight.end - flight.start).min(size))
            .sum();
        let before = self
            .estimates
            .delivered()
            .saturating_sub(first.delivered_before);
        let transfer_seconds = before.saturating_add(sharing) as f64 / bytes_per_second;
        (first.issued_at + latency_seconds + transfer_seconds - now).max(0.0)
    }
}

/// The link according to the samples.
struct Link {
    is_steady: bool,
    bytes_per_second: f64,
    arrival_seconds: f64,
}

/// The inputs of the gate while the stream continues and has room for more.
struct GateInputs {
    in_hand_bytes: f64,
    /// The decoder's rate.
    bytes_per_second: f64,
    left_bytes: f64,
    room_bytes: f64,
    /// None before the first sample.
    link: Option<Link>,
}

impl GateInputs {
    /// Returns whether the audio in hand lasts. A link that was not measured yet counts as fast.
    fn is_enough(&self) -> bool {
        if self.in_hand_bytes >= self.left_bytes.min(ROOM_SHARE * self.room_bytes) {
            return true;
        }
        let mut wanted_bytes = START_SECONDS * self.bytes_per_second;
        if let Some(link) = &self.link {
            let arrival_bytes = self.bytes_per_second * link.arrival_seconds;
            let least_bytes = if link.is_steady {
                let speed = link.bytes_per_second / self.bytes_per_second;
                let at_speed_one =
                    (STEADY_START_SECONDS * self.bytes_per_second).max(STEADY_START_BYTES);
                (at_speed_one / speed.powf(STEADY_START_POWER))
                    .max(STEADY_LEAST_SECONDS * self.bytes_per_second)
            } else {
                SLOW_START_SECONDS * self.bytes_per_second
            };
            wanted_bytes = wanted_bytes.max(
                if link.bytes_per_second >= FAST_LINK * self.bytes_per_second {
                    ARRIVAL_MARGIN_FAST * arrival_bytes
                } else {
                    (ARRIVAL_MARGIN * arrival_bytes)
                        .max(self.deficit_bytes(link))
                        .max(least_bytes)
                },
            );
        }
        self.in_hand_bytes >= wanted_bytes
    }

    /// The link's deficit over the rest of the stream, or the horizon.
    fn deficit_bytes(&self, link: &Link) -> f64 {
        let ahead = self.left_bytes.min(HORIZON_SECONDS * self.bytes_per_second);
        ahead * (1.0 - RATE_SHARE * link.bytes_per_second / self.bytes_per_second)
    }
}
