//! The size of the next page: doubling from a small first page, within the limits of the link, the ring and the server.

use super::estimate::{Estimates, Round};
use super::tuning::{
    ALWAYS_AFFORDED, LARGER_PAYS, PAGE_GROWTH, PAGE_GROWTH_BY_COST, PAGES_IN_ROOM, PAGES_OF_SIZE,
    ROOM_TO_TRY, ROUNDS_ON_TRIAL, ROUNDS_TO_RETRY, ROUNDS_TO_RETRY_MAX, SHORTS_TO_LEARN,
    WHOLES_TO_TEST_CAP, WHOLES_TO_TEST_CAP_MAX,
};

/// The server's largest page, learned from its short pages.
enum ServerCap {
    Unknown {
        /// Short pages since a larger page was whole.
        shorts: u32,
        /// The largest of them.
        largest: u64,
    },
    Known {
        bytes: u64,
        /// Pages as long as requested, since the cap was tested.
        wholes: u32,
        /// The number of them after which a larger page tests the cap.
        test_after: u32,
    },
}

/// The largest page to request: the size that servers expect, doubled as long as that is faster.
struct Ceiling {
    bytes: u64,
    /// The limit of the doublings.
    most: u64,
    trial: Option<Trial>,
    /// Rounds until larger pages may be tried again.
    rounds_to_retry: u32,
    /// The value of `rounds_to_retry` after the next failed trial.
    retry_after: u32,
}

/// A comparison of larger pages with the size before.
#[derive(Clone, Copy)]
struct Trial {
    bytes_before: u64,
    rate_before: f64,
    rounds_left: u32,
}

impl Ceiling {
    fn new(bytes: u64, most: u64) -> Self {
        Self {
            bytes,
            most: most.max(bytes),
            trial: None,
            rounds_to_retry: 0,
            retry_after: ROUNDS_TO_RETRY,
        }
    }

    /// Handles the end of a round; pages up to `affordable` bytes do not take too long. Returns whether larger pages
    /// are on trial from now on.
    fn round_ended(&mut self, round: &Round, affordable: u64) -> bool {
        if round.page < PAGES_OF_SIZE * self.bytes as f64 {
            return false;
        }
        if let Some(trial) = &mut self.trial
            && round.rate < LARGER_PAYS * trial.rate_before
        {
            trial.rounds_left -= 1;
            if trial.rounds_left == 0 {
                self.bytes = trial.bytes_before;
                self.trial = None;
                self.rounds_to_retry = self.retry_after;
                self.retry_after = (self.retry_after * 2).min(ROUNDS_TO_RETRY_MAX);
            }
            return false;
        }
        self.trial = None;
        if self.rounds_to_retry > 0 {
            self.rounds_to_retry -= 1;
            return false;
        }
        let larger = self.bytes.saturating_mul(2).min(self.most);
        let is_affordable = affordable as f64 >= ROOM_TO_TRY * self.bytes as f64;
        if larger == self.bytes || !is_affordable {
            return false;
        }
        self.trial = Some(Trial {
            bytes_before: self.bytes,
            rate_before: round.rate,
            rounds_left: ROUNDS_ON_TRIAL,
        });
        self.bytes = larger;
        true
    }
}

/// The sizes of the pages of one planner.
pub(super) struct Sizing {
    smallest: u64,
    ceiling: Ceiling,
    capacity: u64,
    /// Size of the newest page; none before the first and after a seek.
    last: Option<u64>,
    /// Size of the first page after a seek, if that is more than the smallest.
    first: u64,
    cap: ServerCap,
}

impl Sizing {
    pub fn new(page_min: u64, page: u64, page_max: u64, capacity: u64) -> Self {
        let room = (capacity / PAGES_IN_ROOM).max(1);
        let largest = page.min(room);
        Self {
            smallest: page_min.clamp(1, largest),
            ceiling: Ceiling::new(largest, page_max.min(room)),
            capacity,
            last: None,
            first: 0,
            cap: ServerCap::Unknown {
                shorts: 0,
                largest: 0,
            },
        }
    }

    /// Sets the server's own page size: it sends no other.
    pub fn set_page_bytes(&mut self, page_bytes: u64) {
        let page = page_bytes.clamp(1, self.capacity);
        (self.smallest, self.ceiling) = (page, Ceiling::new(page, page));
        self.cap = ServerCap::Unknown {
            shorts: 0,
            largest: 0,
        };
    }

    /// Starts small again, with a page of `first` bytes or the smallest.
    pub fn restart(&mut self, first: u64) {
        self.last = None;
        self.first = first.min(self.ceiling.bytes);
    }

    /// Size of the next new page.
    pub fn next_bytes(&self, estimates: &Estimates) -> u64 {
        let Some(last) = self.last else {
            return self.under_cap(self.smallest.max(self.first));
        };
        // The first rates are too low, because they contain the latency: they stop the growth but do not undo it.
        let (growth, affordable) = match estimates.page_bytes() {
            _ if estimates.page_cost_limits() => (PAGE_GROWTH_BY_COST, u64::MAX),
            None => (PAGE_GROWTH, u64::MAX),
            Some(bytes) if estimates.starting_up() => (
                PAGE_GROWTH,
                bytes
                    .max(last)
                    .max(self.smallest.saturating_mul(ALWAYS_AFFORDED)),
            ),
            Some(bytes) => (PAGE_GROWTH, bytes),
        };
        let grown = last.saturating_mul(growth).min(affordable);
        self.under_cap(grown.clamp(self.smallest, self.ceiling.bytes))
    }

    /// The small page: the first, the lone one that measures the latency floor, and the one past an announced end.
    pub fn small_bytes(&self) -> u64 {
        self.under_cap(self.smallest)
    }

    /// The largest request for a hole.
    pub fn gap_bytes(&self) -> u64 {
        self.under_cap(self.ceiling.bytes)
    }

    /// The largest page that the server is known to give, or that is requested.
    pub fn whole_bytes(&self) -> u64 {
        match self.cap {
            ServerCap::Known { bytes, .. } => bytes.min(self.ceiling.bytes),
            ServerCap::Unknown { .. } => self.ceiling.bytes,
        }
    }

    /// Handles the end of a round. Returns whether larger pages are on trial from now on.
    pub fn round_ended(&mut self, round: &Round, estimates: &Estimates) -> bool {
        let affordable = estimates.page_bytes().unwrap_or(0);
        self.ceiling.round_ended(round, affordable)
    }

    /// Limits a size to the server's cap, or to twice the cap when it is due to be tested.
    fn under_cap(&self, bytes: u64) -> u64 {
        match self.cap {
            ServerCap::Unknown { .. } => bytes,
            ServerCap::Known {
                bytes: cap,
                wholes,
                test_after,
            } if wholes >= test_after => bytes.min(cap.saturating_mul(2)),
            ServerCap::Known { bytes: cap, .. } => bytes.min(cap),
        }
    }

    /// Records that a new page was requested.
    pub fn requested_page(&mut self, bytes: u64) {
        self.last = Some(bytes);
        if let ServerCap::Known {
            bytes: cap,
            wholes,
            test_after,
        } = &mut self.cap
            && bytes > *cap
        {
            *wholes = 0;
            *test_after = (*test_after * 2).min(WHOLES_TO_TEST_CAP_MAX);
        }
    }

    /// Handles a page of `page_bytes` > 0, the answer to a request of `request_bytes`.
    pub fn answered(&mut self, request_bytes: u64, page_bytes: u64) {
        match &mut self.cap {
            ServerCap::Unknown { shorts, largest } if page_bytes < request_bytes => {
                *shorts += 1;
                *largest = page_bytes.max(*largest);
                if *shorts >= SHORTS_TO_LEARN {
                    self.cap = ServerCap::Known {
                        bytes: *largest,
                        wholes: 0,
                        test_after: WHOLES_TO_TEST_CAP,
                    };
                }
            }
            // The rest of a short page is answered in full under any cap: only a larger page refutes a cap.
            ServerCap::Unknown { shorts, largest } if page_bytes > *largest => {
                (*shorts, *largest) = (0, 0)
            }
            ServerCap::Known { bytes, .. } if page_bytes > *bytes => {
                self.cap = ServerCap::Unknown {
                    shorts: 0,
                    largest: 0,
                }
            }
            ServerCap::Known { wholes, .. } if page_bytes == request_bytes => {
                *wholes = wholes.saturating_add(1)
            }
            ServerCap::Unknown { .. } | ServerCap::Known { .. } => {}
        }
    }
}
