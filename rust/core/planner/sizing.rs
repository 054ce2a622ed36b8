//! How large the next page is: doubling from a small first page, up to what the link, the ring and the server allow.

use super::estimate::Estimates;

/// Pages fewer than this in a ring leave nothing to overlap with.
const PAGES_IN_RING: u64 = 4;
/// Each page this many times the last.
const GROWTH: u64 = 2;
/// The same where only larger pages are faster: each small one costs as much as a large one.
const GROWTH_BY_COST: u64 = 4;
/// The page after a first burst of three, in first pages. Not doubling once more would cost a slow server three more
/// reads to find out; doubling costs a slow link half a second after the first sound.
const ALWAYS_AFFORDED: u64 = 8;
/// Short pages in a row that make a cap of the server's; one may be the end of the file.
const SHORTS_TO_LEARN: u32 = 3;
/// Whole pages at the cap before a page of twice the size is tried again; doubles with every try.
const WHOLES_TO_DOUBT: u32 = 16;
const WHOLES_TO_DOUBT_MAX: u32 = 4096;

/// What the server's short pages say about the largest page it gives.
enum ServerCap {
    Unknown {
        shorts: u32,
        largest: u64,
    },
    Known {
        bytes: u64,
        wholes: u32,
        doubt_after: u32,
    },
}

pub(super) struct Sizing {
    smallest: u64,
    largest: u64,
    capacity: u64,
    /// Size of the newest page; none before the first and after a seek.
    last: Option<u64>,
    cap: ServerCap,
}

impl Sizing {
    pub fn new(page_min: u64, page_max: u64, capacity: u64) -> Self {
        let largest = page_max.min(capacity / PAGES_IN_RING).max(1);
        Self {
            smallest: page_min.clamp(1, largest),
            largest,
            capacity,
            last: None,
            cap: ServerCap::Unknown {
                shorts: 0,
                largest: 0,
            },
        }
    }

    /// The server has its own page size: ask for exactly that, it would send no other.
    pub fn adopt(&mut self, page_bytes: u64) {
        let page = page_bytes.clamp(1, self.capacity);
        (self.smallest, self.largest) = (page, page);
        self.cap = ServerCap::Unknown {
            shorts: 0,
            largest: 0,
        };
    }

    pub fn restart(&mut self) {
        self.last = None;
    }

    /// Size of the next new page.
    pub fn next_bytes(&self, estimates: &Estimates) -> u64 {
        let Some(last) = self.last else {
            return self.under_cap(self.smallest);
        };
        // The first rates under-read, because latency hides the bandwidth: they stop the growth but do not undo it.
        let (growth, affordable) = match estimates.page_bytes() {
            _ if estimates.page_cost_limits() => (GROWTH_BY_COST, u64::MAX),
            None => (GROWTH, u64::MAX),
            Some(bytes) if estimates.starting_up() => (
                GROWTH,
                bytes
                    .max(last)
                    .max(self.smallest.saturating_mul(ALWAYS_AFFORDED)),
            ),
            Some(bytes) => (GROWTH, bytes),
        };
        let grown = last.saturating_mul(growth).min(affordable);
        self.under_cap(grown.clamp(self.smallest, self.largest))
    }

    /// The small page: the first, the lone one that finds the latency floor, and the one past an announced end.
    pub fn small_bytes(&self) -> u64 {
        self.under_cap(self.smallest)
    }

    /// The most that one request for a gap may ask for.
    pub fn gap_bytes(&self) -> u64 {
        self.under_cap(self.largest)
    }

    fn under_cap(&self, bytes: u64) -> u64 {
        match self.cap {
            ServerCap::Unknown { .. } => bytes,
            ServerCap::Known {
                bytes: cap,
                wholes,
                doubt_after,
            } if wholes >= doubt_after => bytes.min(cap.saturating_mul(2)),
            ServerCap::Known { bytes: cap, .. } => bytes.min(cap),
        }
    }

    pub fn asked_new_page(&mut self, bytes: u64) {
        self.last = Some(bytes);
        if let ServerCap::Known {
            bytes: cap,
            wholes,
            doubt_after,
        } = &mut self.cap
            && bytes > *cap
        {
            *wholes = 0;
            *doubt_after = (*doubt_after * 2).min(WHOLES_TO_DOUBT_MAX);
        }
    }

    /// A page of `got` > 0 bytes came for `asked`.
    pub fn answered(&mut self, asked: u64, got: u64) {
        match &mut self.cap {
            ServerCap::Unknown { shorts, largest } if got < asked => {
                *shorts += 1;
                *largest = got.max(*largest);
                if *shorts >= SHORTS_TO_LEARN {
                    self.cap = ServerCap::Known {
                        bytes: *largest,
                        wholes: 0,
                        doubt_after: WHOLES_TO_DOUBT,
                    };
                }
            }
            // The rest of a short page comes whole under any cap: only a larger page refutes one.
            ServerCap::Unknown { shorts, largest } if got > *largest => {
                (*shorts, *largest) = (0, 0)
            }
            ServerCap::Known { bytes, .. } if got > *bytes => {
                self.cap = ServerCap::Unknown {
                    shorts: 0,
                    largest: 0,
                }
            }
            ServerCap::Known { wholes, .. } if got == asked => *wholes = wholes.saturating_add(1),
            ServerCap::Unknown { .. } | ServerCap::Known { .. } => {}
        }
    }
}
