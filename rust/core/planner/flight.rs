//! What is asked for and what is still to be asked: requests in flight and pieces that wait for one.

use std::collections::BTreeMap;

/// Whether a request's answer is still wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Standing {
    Wanted,
    /// Its bytes came another way, or lie past the end. The driver is told once, by `expired`.
    Moot {
        since: f64,
    },
}

/// A page is asked for twice at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Copy {
    Only,
    Hedged,
    Hedge,
}

#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub id: u64,
    pub start: u64,
    pub end: u64,
    pub issued_at: f64,
    pub deadline: f64,
    pub tries: u32,
    pub delivered_before: u64,
    pub app_limited: bool,
    pub alone: bool,
    /// Pages asked for later that came earlier.
    pub overtaken: u32,
    pub copy: Copy,
    pub standing: Standing,
}

/// Requests on the wire. At most `in_flight` of them, so a scan is cheaper than an index.
pub(super) struct Flights(Vec<Flight>);

impl Flights {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn push(&mut self, flight: Flight) {
        self.0.push(flight);
    }

    pub fn take(&mut self, id: u64) -> Option<Flight> {
        let index = self.0.iter().position(|flight| flight.id == id)?;
        Some(self.0.swap_remove(index))
    }

    pub fn drain_ids(&mut self) -> Vec<u64> {
        self.0.drain(..).map(|flight| flight.id).collect()
    }

    pub fn all(&self) -> impl Iterator<Item = &Flight> {
        self.0.iter()
    }

    pub fn wanted(&self) -> impl Iterator<Item = &Flight> {
        self.0
            .iter()
            .filter(|flight| flight.standing == Standing::Wanted)
    }

    fn wanted_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.0
            .iter_mut()
            .filter(|flight| flight.standing == Standing::Wanted)
    }

    /// Bytes the link still owes; a hedge asks for nothing new.
    pub fn bytes(&self) -> u64 {
        self.wanted()
            .filter(|flight| flight.copy != Copy::Hedge)
            .map(|flight| flight.end - flight.start)
            .sum()
    }

    pub fn first(&self) -> Option<&Flight> {
        self.wanted()
            .filter(|flight| flight.copy != Copy::Hedge)
            .min_by_key(|flight| flight.start)
    }

    pub fn is_asked(&self, start: u64) -> bool {
        self.wanted().any(|flight| flight.start == start)
    }

    pub fn mark_hedged(&mut self, start: u64) {
        for flight in self.wanted_mut().filter(|flight| flight.start == start) {
            flight.copy = Copy::Hedged;
        }
    }

    /// The page with this id has come: the older ones still out have been overtaken.
    pub fn overtake(&mut self, id: u64) {
        for flight in self.wanted_mut().filter(|flight| flight.id < id) {
            flight.overtaken = flight.overtaken.saturating_add(1);
        }
    }

    pub fn make_moot(&mut self, now: f64, is_moot: impl Fn(&Flight) -> bool) {
        for flight in self.wanted_mut().filter(|flight| is_moot(flight)) {
            flight.standing = Standing::Moot { since: now };
        }
    }

    /// Takes the moot requests out: the driver cancels them and need not say how that went.
    pub fn take_moot(&mut self) -> Vec<u64> {
        let (wanted, moot): (Vec<_>, Vec<_>) = self
            .0
            .drain(..)
            .partition(|flight| flight.standing == Standing::Wanted);
        self.0 = wanted;
        moot.into_iter().map(|flight| flight.id).collect()
    }
}

/// A range that was asked for and did not come, or not whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub start: u64,
    pub end: u64,
    pub tries: u32,
    pub not_before: f64,
}

/// Pieces by their start; they never overlap.
pub(super) struct Pieces(BTreeMap<u64, Piece>);

impl Pieces {
    pub fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn put(&mut self, piece: Piece) {
        if piece.start < piece.end {
            self.0.insert(piece.start, piece);
        }
    }

    pub fn first_start(&self) -> Option<u64> {
        self.0.keys().next().copied()
    }

    pub fn any_from(&self, offset: u64) -> bool {
        self.0.range(offset..).next().is_some()
    }

    /// The lowest piece that is due, wholly below `limit`'s start.
    pub fn due(&self, now: f64, limit: u64) -> Option<Piece> {
        self.0
            .range(..limit)
            .map(|(_, piece)| *piece)
            .find(|piece| piece.not_before <= now)
    }

    pub fn remove(&mut self, start: u64) {
        self.0.remove(&start);
    }

    /// Forgets everything from `end` on.
    pub fn truncate(&mut self, end: u64) {
        self.0.split_off(&end);
        if let Some(mut last) = self.0.last_entry() {
            let last = last.get_mut();
            last.end = last.end.min(end);
        }
    }

    /// When the next piece becomes due, after `now`.
    pub fn next_due(&self, now: f64) -> Option<f64> {
        self.0
            .values()
            .map(|piece| piece.not_before)
            .filter(|&at| at > now)
            .reduce(f64::min)
    }
}
