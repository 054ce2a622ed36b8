//! How long a page may take, and how long a failed one waits.

use super::estimate::Estimates;

/// Before anything has come back a server may be starting up.
const TIMEOUT_UNKNOWN_SECONDS: f64 = 8.0;
/// Below this a garbage collection looks like a loss.
const TIMEOUT_MIN_SECONDS: f64 = 0.5;
const BACKOFF_SECONDS: f64 = 0.1;
/// Doublings after which a wait would be longer than any stream; keeps the power finite.
const MOST_DOUBLINGS: u32 = 16;

/// RFC 6298's smoothed latency and four deviations, doubled for the latency of a server under load, plus twice the
/// transfer of everything queued; doubled again with every try.
pub(super) fn timeout_seconds(estimates: &Estimates, queued_bytes: u64, tries: u32) -> f64 {
    let base = match (estimates.bandwidth(), estimates.smoothed_seconds()) {
        (Some(bandwidth), Some(smoothed)) => {
            2.0 * smoothed
                + 4.0 * estimates.deviation_seconds()
                + 2.0 * queued_bytes as f64 / bandwidth
        }
        _ => TIMEOUT_UNKNOWN_SECONDS,
    };
    (base * doublings(tries)).max(TIMEOUT_MIN_SECONDS)
}

fn doublings(tries: u32) -> f64 {
    f64::from(1u32 << tries.min(MOST_DOUBLINGS))
}

/// Random numbers from a seed: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(super) struct Jitter(u64);

impl Jitter {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// None after a first failure, then a tenth of a second doubling, spread by half either way so that pages that
    /// failed together do not come back together.
    pub fn backoff_seconds(&mut self, tries_before: u32) -> f64 {
        if tries_before == 0 {
            return 0.0;
        }
        BACKOFF_SECONDS * doublings(tries_before) * (0.5 + self.unit())
    }

    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}
