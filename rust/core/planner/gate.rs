//! The start gate: may the listener begin, or resume, without a stall that can be foreseen?

use super::Planner;

/// Movement over less time than this says more about the decoder's buffer than about the music.
const RATE_WINDOW_SECONDS: f64 = 0.5;
const RATE_WEIGHT: f64 = 0.3;
/// A link must be this much faster than the music to count as fast enough.
const MARGIN_RATE: f64 = 1.15;
/// The buffer must outlast the next page's expected arrival by this much.
const MARGIN_ARRIVAL: f64 = 1.25;
/// The page expected next may be late; it counts as at least this share of a latency away.
const LEAST_WAIT: f64 = 0.3;
/// Fewer pages than this say nothing about a slow link: latency hides the bandwidth.
const SAMPLES_TO_JUDGE: u64 = 4;
/// Of the ring, as much as a listener is made to wait for.
const RING_SHARE: f64 = 0.9;

/// How fast the listener reads.
pub(super) struct Appetite {
    rate: f64,
    seen: Option<(f64, u64)>,
}

impl Appetite {
    pub fn new(nominal_rate: f64) -> Self {
        Self {
            rate: nominal_rate,
            seen: None,
        }
    }

    pub fn rate(&self) -> f64 {
        self.rate
    }

    pub fn forget_place(&mut self) {
        self.seen = None;
    }

    pub fn observe(&mut self, now: f64, head: u64) {
        match self.seen {
            None => self.seen = Some((now, head)),
            Some((at, before)) if now - at > RATE_WINDOW_SECONDS => {
                let rate = head.saturating_sub(before) as f64 / (now - at);
                if rate > 0.0 {
                    self.rate += RATE_WEIGHT * (rate - self.rate);
                }
                self.seen = Some((now, head));
            }
            Some(_) => {}
        }
    }
}

impl Planner {
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
}

/// What the gate weighs once the simple answers are out of the way.
struct Outlook {
    buffered_bytes: u64,
    needed_bytes: u64,
    left_bytes: Option<u64>,
    capacity_bytes: u64,
    appetite: f64,
    bandwidth: f64,
    samples: u64,
    smoothed_seconds: f64,
    /// Seconds until the next contiguous page should be here; may be negative when it is late.
    arrival_seconds: f64,
}

impl Outlook {
    fn is_good(&self) -> bool {
        let buffered = self.buffered_bytes as f64;
        let most = RING_SHARE * self.capacity_bytes as f64;
        if buffered >= most {
            return true;
        }
        let wanted = MARGIN_RATE * self.appetite;
        if self.samples >= SAMPLES_TO_JUDGE && self.bandwidth < wanted {
            // Slower than the music: hold back the share that the link will not deliver in time.
            let left = self
                .left_bytes
                .map_or(self.capacity_bytes as f64, |bytes| bytes as f64);
            let deficit = left * (1.0 - self.bandwidth / wanted);
            return buffered >= deficit.min(most).max(self.needed_bytes as f64);
        }
        let wait = self.arrival_seconds.max(LEAST_WAIT * self.smoothed_seconds);
        buffered / self.appetite >= MARGIN_ARRIVAL * wait
    }
}
