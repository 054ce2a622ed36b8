//! Patience with a server, and the times of retries.
//!
//! Patience is the time that the reader waits without progress before the stream breaks. Progress (a new byte in the
//! ring) restores all of it and ends every backoff. During an outage only the head page, the one at the first missing
//! byte, is read again, and seldom.

use super::tuning::{
    BACKOFF_MAX_SECONDS, BACKOFF_SECONDS, FAILURES_TO_OUTAGE, MOST_DOUBLINGS, PAUSED_RETRY_SECONDS,
    REFUSAL_DELAYS_SECONDS, RETRIES_PER_SECOND,
};

/// Urgency of the listener's need for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// There is something to read, or to hear.
    Supplied,
    /// The reader waits for bytes.
    Waiting,
    /// The listener has paused: nothing is urgent.
    Paused,
}

/// The reason why a read failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Failure {
    /// Not all of the answer arrived, or the server asks to try again.
    Lost {
        /// Seconds that the server asks to wait.
        retry_after: Option<f64>,
        /// A part of the answer had arrived.
        broke_off: bool,
        /// The server's error code, if it answered with one.
        code: Option<i64>,
    },
    /// The server refused the range.
    Refused {
        /// Its error code.
        code: i64,
    },
    /// The answer is damaged; it is read once more.
    Damaged,
    /// No retry would get another answer.
    Final,
}

/// The reader's waits, the failures in a row, and the times before which nothing is retried.
pub(super) struct Patience {
    allowed_seconds: f64,
    demand: Demand,
    /// The time at which the reader began to wait, or of the last progress if that was later.
    waiting_since: Option<f64>,
    /// Seconds of earlier waits since the last progress.
    waited_before: f64,
    /// Failures since the last progress.
    failures: u32,
    /// Those of them that were retries; each doubles the backoff.
    failed_retries: u32,
    /// Refusals of the head page since it last moved.
    refusals: u32,
    /// The time at which the refused head page is read again.
    refused_until: f64,
    /// The end of the backoff.
    retry_at: f64,
    /// The end of the silence that the server asked for.
    retry_after_until: f64,
    /// The times of the latest retries since progress, oldest first.
    retries: [f64; RETRIES_PER_SECOND],
    jitter: Jitter,
}

impl Patience {
    pub fn new(allowed_seconds: f64, seed: u64) -> Self {
        Self {
            allowed_seconds,
            demand: Demand::Supplied,
            waiting_since: None,
            waited_before: 0.0,
            failures: 0,
            failed_retries: 0,
            refusals: 0,
            refused_until: f64::NEG_INFINITY,
            retry_at: f64::NEG_INFINITY,
            retry_after_until: f64::NEG_INFINITY,
            retries: [f64::NEG_INFINITY; RETRIES_PER_SECOND],
            jitter: Jitter::new(seed),
        }
    }

    /// Sets the demand. The time waited so far stays counted.
    pub fn set_demand(&mut self, now: f64, demand: Demand) {
        if demand == self.demand {
            return;
        }
        self.waited_before = self.waited_seconds(now);
        self.waiting_since = (demand == Demand::Waiting).then_some(now);
        self.demand = demand;
    }

    /// Seconds that the reader has waited since the last progress.
    pub fn waited_seconds(&self, now: f64) -> f64 {
        self.waited_before + self.waiting_since.map_or(0.0, |since| now - since)
    }

    /// The time at which the reader will have waited `seconds`, if nothing changes. It is the same instant at every
    /// call: a sum with the current time would be rounded, and a timer could be due for ever.
    pub fn waited_at(&self, seconds: f64) -> Option<f64> {
        self.waiting_since
            .map(|since| since + (seconds - self.waited_before))
    }

    pub fn is_paused(&self) -> bool {
        self.demand == Demand::Paused
    }

    /// Records a new byte. Only bytes of the head page (`head_moved`) end its refusal.
    pub fn progress(&mut self, now: f64, head_moved: bool) {
        self.restore(now);
        (self.failures, self.failed_retries) = (0, 0);
        self.retry_at = f64::NEG_INFINITY;
        self.retries = [f64::NEG_INFINITY; RETRIES_PER_SECOND];
        if head_moved {
            (self.refusals, self.refused_until) = (0, f64::NEG_INFINITY);
        }
    }

    /// Restores patience without a new byte: the reader's wait starts again, and backoffs continue.
    pub fn restore(&mut self, now: f64) {
        self.waited_before = 0.0;
        self.waiting_since = self.waiting_since.map(|_| now);
    }

    /// Returns whether only the head page is read, and the rest waits for it.
    pub fn is_outage(&self) -> bool {
        self.failures >= FAILURES_TO_OUTAGE
    }

    /// Records a failure that is retried as long as patience lasts.
    pub fn failed(&mut self, now: f64, was_retry: bool, retry_after: Option<f64>) {
        self.failures = self.failures.saturating_add(1);
        if was_retry {
            let step = BACKOFF_SECONDS * f64::from(1u32 << self.failed_retries.min(MOST_DOUBLINGS));
            self.failed_retries = self.failed_retries.saturating_add(1);
            self.retry_at = now + step.min(BACKOFF_MAX_SECONDS) * self.jitter.between(0.5, 1.0);
        }
        if let Some(seconds) = retry_after.filter(|seconds| seconds.is_finite() && *seconds > 0.0) {
            self.retry_after_until = self.retry_after_until.max(now + seconds);
        }
    }

    /// Records a refusal of the head page. Returns false if it was refused too often.
    pub fn refused(&mut self, now: f64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let delay = REFUSAL_DELAYS_SECONDS.get(self.refusals as usize);
        self.refusals += 1;
        if let Some(seconds) = delay {
            self.refused_until = now + seconds;
        }
        delay.is_some()
    }

    /// The time from which a failed read may be sent again.
    pub fn retry_at(&self) -> f64 {
        let spaced = self.retries[0] + 1.0;
        let paused = if self.demand == Demand::Paused {
            self.retries[RETRIES_PER_SECOND - 1] + PAUSED_RETRY_SECONDS
        } else {
            f64::NEG_INFINITY
        };
        self.retry_at
            .max(self.refused_until)
            .max(self.retry_after_until)
            .max(spaced)
            .max(paused)
    }

    /// The time until which nothing may be sent: the server asked for silence.
    pub fn silent_until(&self) -> f64 {
        self.retry_after_until
    }

    /// Records a retry at `now`.
    pub fn retried(&mut self, now: f64) {
        self.retries.rotate_left(1);
        self.retries[RETRIES_PER_SECOND - 1] = now;
    }

    /// The time at which patience ends, if nothing changes.
    pub fn over_at(&self) -> Option<f64> {
        self.waited_at(self.allowed_seconds)
    }

    /// Returns whether patience is over.
    pub fn is_over(&self, now: f64) -> bool {
        self.over_at().is_some_and(|at| now >= at)
    }

    /// The seconds that the server still asks to wait, if the reader's patience ends before they are over.
    pub fn hopeless_wait(&self, now: f64) -> Option<f64> {
        let is_hopeless = self
            .over_at()
            .is_some_and(|at| self.retry_after_until > at && now < self.retry_after_until);
        is_hopeless.then_some(self.retry_after_until - now)
    }
}

/// Random numbers from a seed: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
struct Jitter(u64);

impl Jitter {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        low + (high - low) * ((mixed >> 11) as f64 / (1u64 << 53) as f64)
    }
}
