//! What a planner may be told, with the limits that keep its arithmetic and its memory bounded.

use std::fmt;

use crate::ring::{CAPACITY_MAX_BYTES, OFFSET_MAX};

/// More requests at once than any server should see from one listener.
pub const MAX_IN_FLIGHT: usize = 256;

/// The settings of a [`Planner`](super::Planner). Every default is the one that won in simulated time.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Bytes of the ring: no range is asked for that ends past reader + capacity. 1 to
    /// [`CAPACITY_MAX_BYTES`].
    pub capacity_bytes: u64,
    /// Size of the first page. Small, because the first sound waits for it; 8 KiB is half a second of 128 kbit/s mp3.
    pub page_min_bytes: u64,
    /// Largest page. 100 KiB is what existing servers expect; 1 MiB pays off where latency is high.
    pub page_bytes: u64,
    /// Most requests at once, 1 to [`MAX_IN_FLIGHT`].
    pub in_flight: usize,
    /// Requests at once before anything has come back. Three fill the first latency without delaying the first page.
    pub in_flight_start: usize,
    /// Tries a page gets, the first one included.
    pub max_tries: u32,
    /// No request may run longer, whatever the estimates say.
    pub deadline_seconds: f64,
    /// The listener's appetite in bytes per second until it has been seen; 40 000 is 320 kbit/s mp3.
    pub nominal_rate_bytes: f64,
    /// Ask a second time for a late page that holds up the reader.
    pub hedge: bool,
    /// Seed of the retry jitter, the only randomness there is.
    pub seed: u64,
    /// Offset of the first byte wanted.
    pub start: u64,
}

impl Settings {
    /// The defaults, for a ring of `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            page_min_bytes: 8 << 10,
            page_bytes: 100 << 10,
            in_flight: 8,
            in_flight_start: 3,
            max_tries: 6,
            deadline_seconds: 30.0,
            nominal_rate_bytes: 40_000.0,
            hedge: true,
            seed: 0,
            start: 0,
        }
    }

    /// Every setting inside its range, or the first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let within = |setting, value: u64, most: u64, expected| {
            (1..=most)
                .contains(&value)
                .then_some(())
                .ok_or_else(|| InvalidSetting {
                    setting,
                    expected,
                    got: value.to_string(),
                })
        };
        let size = |setting, value| within(setting, value, CAPACITY_MAX_BYTES, "1 to 2**40");
        let count = |setting, value| within(setting, value, MAX_IN_FLIGHT as u64, "1 to 256");
        let positive = |setting, value: f64| {
            (value.is_finite() && value > 0.0)
                .then_some(())
                .ok_or_else(|| InvalidSetting {
                    setting,
                    expected: "a finite number above 0",
                    got: value.to_string(),
                })
        };
        size("capacity_bytes", self.capacity_bytes)?;
        size("page_min_bytes", self.page_min_bytes)?;
        size("page_bytes", self.page_bytes)?;
        count("in_flight", self.in_flight as u64)?;
        count("in_flight_start", self.in_flight_start as u64)?;
        count("max_tries", self.max_tries.into())?;
        positive("deadline_seconds", self.deadline_seconds)?;
        positive("nominal_rate_bytes", self.nominal_rate_bytes)?;
        if self.start > OFFSET_MAX {
            return Err(InvalidSetting {
                setting: "start",
                expected: "0 to 2**62",
                got: self.start.to_string(),
            });
        }
        Ok(())
    }
}

/// A setting outside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSetting {
    /// The setting's name.
    pub setting: &'static str,
    /// What it may be.
    pub expected: &'static str,
    /// What it is.
    pub got: String,
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} must be {}, got {}",
            self.setting, self.expected, self.got
        )
    }
}

impl std::error::Error for InvalidSetting {}
