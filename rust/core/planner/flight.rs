//! Requests on the wire.

use super::ending::Corroboration;

/// The standing of a request: its answer is wanted, or not any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Standing {
    Wanted,
    /// Its bytes arrived another way, or lie past the end. `expired` reports it once.
    Superseded {
        since: f64,
    },
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Purpose {
    Page,
    /// A second read of a late page.
    Hedge,
    /// Evidence about a claimed end.
    Corroborate(Corroboration),
    /// A probe: the driver judges the answer.
    Probe,
}

/// One request on the wire, and the state of the link when it was sent; see `Completion`.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub id: u64,
    pub start: u64,
    pub end: u64,
    pub issued_at: f64,
    pub is_retry: bool,
    pub delivered_before: u64,
    pub app_limited: bool,
    pub alone: bool,
    /// Pages requested later that arrived earlier.
    pub overtaken: u32,
    pub purpose: Purpose,
    /// The hedges that were sent for this page.
    pub hedges: u32,
    /// True if it is answered, and the driver still judges the answer.
    pub held: bool,
    pub standing: Standing,
}

impl Flight {
    pub fn is_wanted(&self) -> bool {
        self.standing == Standing::Wanted
    }

    /// Returns whether its range counts as taken, because its bytes are expected to be stored.
    pub fn covers(&self) -> bool {
        self.is_wanted() && self.purpose != Purpose::Probe
    }
}

/// The requests on the wire: at most `MAX_IN_FLIGHT`, so a scan is cheaper than an index.
pub(super) struct Flights(Vec<Flight>);

impl Flights {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Requests on the wire, without those that are answered and still judged.
    pub fn out(&self) -> usize {
        self.0.iter().filter(|flight| !flight.held).count()
    }

    pub fn push(&mut self, flight: Flight) {
        self.0.push(flight);
    }

    /// Takes out the request with this id.
    pub fn take(&mut self, id: u64) -> Option<Flight> {
        let index = self.0.iter().position(|flight| flight.id == id)?;
        Some(self.0.swap_remove(index))
    }

    pub fn find(&mut self, id: u64) -> Option<&mut Flight> {
        self.0.iter_mut().find(|flight| flight.id == id)
    }

    /// Takes out all requests, and returns their ids.
    pub fn drain_ids(&mut self) -> Vec<u64> {
        self.0.drain(..).map(|flight| flight.id).collect()
    }

    pub fn all(&self) -> impl Iterator<Item = &Flight> {
        self.0.iter()
    }

    pub fn wanted(&self) -> impl Iterator<Item = &Flight> {
        self.0.iter().filter(|flight| flight.is_wanted())
    }

    fn wanted_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.0.iter_mut().filter(|flight| flight.is_wanted())
    }

    /// Bytes still to arrive. Hedges don't count: they request no further bytes.
    pub fn bytes(&self) -> u64 {
        self.wanted()
            .filter(|flight| flight.purpose == Purpose::Page && !flight.held)
            .map(|flight| flight.end - flight.start)
            .sum()
    }

    /// The page that the reader waits for.
    pub fn first(&self) -> Option<&Flight> {
        self.wanted()
            .filter(|flight| flight.purpose == Purpose::Page)
            .min_by_key(|flight| flight.start)
    }

    /// Pages in flight.
    pub fn pages(&self) -> usize {
        self.wanted()
            .filter(|flight| flight.purpose == Purpose::Page)
            .count()
    }

    /// The read at a claimed end.
    pub fn at_claim(&self) -> Option<&Flight> {
        self.wanted()
            .find(|flight| flight.purpose == Purpose::Corroborate(Corroboration::AtClaim))
    }

    pub fn mark_hedged(&mut self, id: u64) {
        if let Some(flight) = self.find(id) {
            flight.hedges += 1;
        }
    }

    /// Records that the page with this id has arrived, and so has overtaken the older ones in flight.
    pub fn overtake(&mut self, id: u64) {
        for flight in self.wanted_mut().filter(|flight| flight.id < id) {
            flight.overtaken = flight.overtaken.saturating_add(1);
        }
    }

    /// Marks the requests whose answer is no longer wanted.
    pub fn supersede(&mut self, now: f64, is_superseded: impl Fn(&Flight) -> bool) {
        for flight in self.wanted_mut().filter(|flight| is_superseded(flight)) {
            flight.standing = Standing::Superseded { since: now };
        }
    }

    /// Takes the superseded requests out: the driver cancels them and reports nothing.
    pub fn take_superseded(&mut self) -> Vec<u64> {
        let (wanted, superseded): (Vec<_>, Vec<_>) = self.0.drain(..).partition(Flight::is_wanted);
        self.0 = wanted;
        superseded.into_iter().map(|flight| flight.id).collect()
    }
}
