//! Settings of a planner, with the limits that bound its arithmetic and its memory.

use super::tuning::STAGNANT_ANSWERS;
use crate::ring::{CAPACITY_MAX_BYTES, OFFSET_MAX};

/// The most requests at once, more than any server should see from one listener.
pub const MAX_IN_FLIGHT: usize = 256;

/// The settings of a [`Planner`](super::Planner). Every default won in simulated time.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Room ahead of the reader: no requested page ends past reader + capacity. 1 to [`CAPACITY_MAX_BYTES`].
    pub capacity_bytes: u64,
    /// Size of the first page. Small, because the first audio waits for it; 8 KiB is half a second of 128 kbit/s mp3.
    pub page_min_bytes: u64,
    /// Pages grow to this by doubling. 100 KiB is what existing servers expect.
    pub page_bytes: u64,
    /// Pages grow on to this while the measured rate grows with them, up to a quarter of the room.
    pub page_bytes_max: u64,
    /// Pages of at least this size end on a multiple of it, so that readers with other page sizes share blocks. 0: not.
    pub grid_bytes: u64,
    /// The limit of requests at once, 1 to [`MAX_IN_FLIGHT`]. None derives it from the link and the server's pages.
    pub in_flight: Option<usize>,
    /// Requests at once before anything has arrived. Three fill the first latency without delaying the first page.
    pub in_flight_start: usize,
    /// A request is cancelled after this long without a byte of any answer.
    pub timeout_seconds: f64,
    /// The stream breaks when its reader has waited this long without progress.
    pub patience_seconds: f64,
    /// Once the room is full, ask for nothing until a quarter of it is free.
    pub sleeps_when_full: bool,
    /// Successful answers in a row without a new byte; one more breaks the stream.
    pub stagnant_answers: u32,
    /// Seed of the retry jitter, the only randomness.
    pub seed: u64,
    /// Offset of the first byte wanted.
    pub start: u64,
}

impl Settings {
    /// The defaults, for `capacity_bytes` of room.
    pub fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            page_min_bytes: 8 << 10,
            page_bytes: 100 << 10,
            page_bytes_max: 1 << 20,
            grid_bytes: 0,
            in_flight: None,
            in_flight_start: 3,
            timeout_seconds: 30.0,
            patience_seconds: 60.0,
            sleeps_when_full: false,
            stagnant_answers: STAGNANT_ANSWERS,
            seed: 0,
            start: 0,
        }
    }

    /// Checks that every setting is in its range; returns the first that is not.
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
        size("page_bytes_max", self.page_bytes_max)?;
        count("in_flight", self.in_flight.unwrap_or(1) as u64)?;
        count("in_flight_start", self.in_flight_start as u64)?;
        positive("timeout_seconds", self.timeout_seconds)?;
        positive("patience_seconds", self.patience_seconds)?;
        if self.grid_bytes > 0 {
            size("grid_bytes", self.grid_bytes)?;
        }
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: expected {expected}, got {got}")]
pub struct InvalidSetting {
    /// The setting's name.
    pub setting: &'static str,
    /// The expected range.
    pub expected: &'static str,
    /// The value.
    pub got: String,
}
