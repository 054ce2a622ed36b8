//! The effects of an answer or a failure.

use super::ending::{Corroboration, End, Evidence};
use super::estimate::{Completion, Round};
use super::flight::{Flight, Purpose};
use super::{Broken, EndedBy, Failure, Planner};

impl Planner {
    /// Takes out a flight that is over; None if it is unknown.
    pub(super) fn settle(&mut self, id: u64) -> Option<Flight> {
        let flight = self.flights.take(id)?;
        self.settled_at = self.now;
        self.release(&flight);
        flight.is_wanted().then_some(flight)
    }

    /// Marks the range of a flight as missing again, except bytes that have arrived or are part of another flight.
    fn release(&mut self, flight: &Flight) {
        let range = flight.start..flight.end;
        self.taken.remove(range.clone());
        for run in self.received.held(range.clone()) {
            self.taken.insert(run);
        }
        for other in self.flights.wanted().filter(|other| other.covers()) {
            let both = other.start.max(range.start)..other.end.min(range.end);
            self.taken.insert(both);
        }
    }

    /// Records `[start, got_to)` as received, if it fits. Returns the number of new bytes.
    pub(super) fn store(&mut self, flight: &Flight, got_to: u64) -> u64 {
        if got_to > self.room_to {
            return 0; // read as evidence, beyond the room
        }
        let run = flight.start.max(self.base)..got_to;
        let before = self.received.len_bytes();
        self.received.insert(run.clone());
        self.taken.insert(run.clone());
        self.failed.remove(run.clone());
        self.damaged.remove(run.clone());
        self.barrier = self.barrier.filter(|(at, _)| !run.contains(at));
        self.received.len_bytes() - before
    }

    // --- answers -----------------------------------------------------------------------------------------

    /// Bytes up to `got_to` arrived, if any. Returns the offset of a claim that they make false.
    pub(super) fn arrived(&mut self, flight: &Flight, got_to: u64) -> Option<u64> {
        let Flight {
            start,
            end,
            purpose,
            ..
        } = *flight;
        if got_to == start {
            return None;
        }
        use Corroboration::{AtClaim, Beyond, ByteBefore, Tail};
        match purpose {
            Purpose::Page | Purpose::Hedge | Purpose::Corroborate(ByteBefore) => {
                self.ending.note_length(start, got_to, end);
            }
            Purpose::Probe | Purpose::Corroborate(AtClaim | Beyond | Tail) => {}
        }
        self.ending.bytes(start, got_to, end)
    }

    /// Handles the claim of an end at `at`. Returns the offset if the claim is false.
    pub(super) fn claimed(&mut self, flight: &Flight, at: u64, by: EndedBy) -> Option<u64> {
        // A read that starts one byte before the first wanted one is clipped, and so is its claim.
        let at = at.max(self.base);
        let evidence = match flight.purpose {
            Purpose::Corroborate(purpose) => Some((purpose, flight.id)),
            Purpose::Page | Purpose::Hedge | Purpose::Probe => None,
        };
        let before = self.ending.accepted();
        let is_false = self
            .ending
            .claim(self.now, (at, by), evidence, self.next_id);
        if self.ending.accepted() != before {
            self.end_if(self.ending.accepted());
        }
        if !is_false {
            // A slow server needs time to confirm the end, in a few rounds. Failed reads are not retried sooner.
            self.patience.restore(self.now);
        }
        is_false.then_some(at)
    }

    /// Handles a false claim: the missing bytes there are read again.
    pub(super) fn claimed_falsely(&mut self, flight: &Flight, at: u64) {
        if let Some(at) = self.ending.take_contradiction() {
            self.bar(self.received.contiguous_end(at), Broken::Contradiction);
        }
        if self.received.held(at..at + 1).next().is_none() {
            self.failed.insert(at..at + 1);
            self.patience.failed(self.now, flight.is_retry, None);
        }
    }

    /// Handles a corroborating read that was answered with bytes, or with none.
    pub(super) fn corroborated(&mut self, flight: &Flight, has_bytes: bool) {
        let Purpose::Corroborate(purpose) = flight.purpose else {
            return;
        };
        self.ending.uncorroborated(purpose, flight.id, false);
        let evidence = if has_bytes {
            Evidence::Bytes
        } else {
            Evidence::NoBytes
        };
        let end = self.ending.error_evidence(purpose, evidence);
        self.end_if(end);
    }

    /// Handles an answer with new bytes: patience, window, sizes and estimates.
    pub(super) fn progressed(
        &mut self,
        flight: &Flight,
        got_to: u64,
        new_bytes: u64,
        is_end: bool,
        asks_for_growth: bool,
    ) {
        let request_bytes = flight.end - flight.start;
        // What a growing resource has by now tells nothing about the link, or the server's pages.
        let is_page = matches!(flight.purpose, Purpose::Page | Purpose::Hedge) && !asks_for_growth;
        let received = &self.received;
        self.flights.supersede(self.now, |twin| {
            let is_page = matches!(twin.purpose, Purpose::Page | Purpose::Hedge);
            is_page && !twin.held && received.contiguous_end(twin.start) >= twin.end
        });
        self.flights.overtake(flight.id);
        // If all bytes up to the page's end have arrived now, this page had the first missing byte.
        let head_moved = self.tail() >= got_to;
        self.patience.progress(self.now, head_moved);
        (self.stagnant, self.retry_bytes) = (0, u64::MAX);
        self.evidence_failed = false;
        self.window.grow(self.sizing.whole_bytes());
        self.counters.pages += 1;
        self.counters.bytes = self.counters.bytes.saturating_add(new_bytes);
        if is_page {
            let round = self.estimates.complete(
                self.now,
                &Completion {
                    id: flight.id,
                    next_id: self.next_id,
                    bytes: new_bytes,
                    latency_seconds: self.now - flight.issued_at,
                    delivered_before: flight.delivered_before,
                    app_limited: flight.app_limited,
                    alone: flight.alone,
                },
                self.flights.bytes(),
            );
            if let Some(round) = round {
                self.round_ended(&round);
            }
            if !is_end {
                self.sizing.answered(request_bytes, got_to - flight.start);
            }
        }
    }

    fn round_ended(&mut self, round: &Round) {
        let floor = self.estimates.floor_seconds().unwrap_or(round.latency);
        self.window.round_ended(round, floor);
        // Larger pages gain nothing on a link that is full.
        if self.estimates.steady.link().is_none() && self.sizing.round_ended(round, &self.estimates)
        {
            self.estimates.start_up();
        }
    }

    /// Counts a successful answer without a new byte or a plausible claim, to a read sent after the previous one
    /// arrived.
    pub(super) fn stagnate(&mut self, flight: &Flight) {
        if flight.issued_at < self.stagnant_at {
            return;
        }
        self.stagnant_at = self.now;
        self.stagnant += 1;
        if self.stagnant > self.settings.stagnant_answers && self.broken.is_none() {
            self.broken = Some(Broken::Stagnant(self.stagnant));
        }
    }

    // --- failures ----------------------------------------------------------------------------------------

    /// Sends a lost probe again; the driver judges the others.
    pub(super) fn probe_failed(&mut self, flight: &Flight, failure: Failure) {
        if let Failure::Lost { retry_after, .. } = failure {
            self.probes.push((flight.start..flight.end, true));
            self.patience.failed(self.now, flight.is_retry, retry_after);
        }
    }

    /// Handles a corroborating read that failed. An error answer can be evidence; otherwise the read is sent again.
    pub(super) fn uncorroborated(
        &mut self,
        flight: &Flight,
        purpose: Corroboration,
        failure: Failure,
    ) {
        let (code, is_transient) = match failure {
            Failure::Refused { code } => (Some(code), false),
            Failure::Lost { code, .. } => (code, true),
            Failure::Damaged | Failure::Final => (None, false),
        };
        self.ending
            .uncorroborated(purpose, flight.id, code.is_some());
        let refusal = code.filter(|&code| !is_transient || self.ending.suspects_code(code));
        let evidence = refusal.map_or(Evidence::Lost, Evidence::Refused);
        let end = self.ending.error_evidence(purpose, evidence);
        self.end_if(end);
        let is_answered = match purpose {
            Corroboration::AtClaim => false,
            Corroboration::Beyond => code.is_some() && !self.ending.needs_beyond(),
            Corroboration::ByteBefore | Corroboration::Tail => refusal.is_some(),
        };
        if is_answered {
            return;
        }
        self.evidence_failed = true;
        let at = self.ending.claimed_at().unwrap_or(flight.start);
        self.failed_at(at, flight, failure);
    }

    /// Handles a page that failed. An error answer may show the end; otherwise the missing bytes are read again.
    pub(super) fn page_failed(&mut self, flight: &Flight, failure: Failure) {
        let tail = self.tail();
        let is_covered = self.flights.wanted().any(|twin| {
            twin.covers() && twin.start <= flight.start.max(tail) && twin.end >= flight.end
        });
        if is_covered || flight.end <= tail {
            return; // its copy is still in flight, or its bytes arrived another way
        }
        let is_head = flight.start <= tail;
        let code = match failure {
            Failure::Lost { code, .. } => code,
            Failure::Refused { code } => Some(code),
            Failure::Damaged | Failure::Final => None,
        };
        if let Some(code) = code
            && (is_head || self.total() == Some(flight.start))
            && self.growth.is_none()
            && let Some(end) = self.ending.error_answer(flight.start.max(tail), code)
        {
            return self.end_at(end);
        }
        let missing: Vec<_> = self
            .taken
            .missing(flight.start.max(tail)..flight.end)
            .collect();
        for hole in missing {
            self.failed.insert(hole);
        }
        self.failed_at(flight.start.max(tail), flight, failure);
    }

    /// Decides when `at` is read again, if ever.
    fn failed_at(&mut self, at: u64, flight: &Flight, failure: Failure) {
        let is_damaged = self.damaged.held(at..at + 1).next().is_some();
        match failure {
            Failure::Final => self.bar(at, Broken::Refused),
            Failure::Damaged if is_damaged => self.bar(at, Broken::Refused),
            Failure::Refused { .. } if at <= self.tail() && !self.ending.suspects_error_at(at) => {
                if !self.patience.refused(self.now) {
                    self.bar(at, Broken::Refused);
                }
            }
            Failure::Damaged => {
                self.damaged.insert(at..at + 1);
                self.patience.failed(self.now, flight.is_retry, None);
            }
            Failure::Refused { .. } => self.patience.failed(self.now, flight.is_retry, None),
            Failure::Lost {
                retry_after,
                broke_off,
                ..
            } => {
                if broke_off {
                    self.retry_bytes = ((flight.end - flight.start) / 2).max(1);
                }
                self.patience.failed(self.now, flight.is_retry, retry_after);
            }
        }
    }

    /// Records that no retry helps at `at`.
    fn bar(&mut self, at: u64, reason: Broken) {
        if self.barrier.is_none_or(|(known, _)| at < known) {
            self.barrier = Some((at, reason));
        }
    }

    // --- the end -----------------------------------------------------------------------------------------

    /// Decides about the end and the patience, by the time and the evidence so far.
    pub(super) fn decide(&mut self) {
        let waits = self.ending.claimed_at().is_some_and(|at| {
            self.flights
                .wanted()
                .any(|flight| flight.covers() && flight.end > at)
        });
        let (tail, latency) = (self.tail(), self.latency_seconds());
        let end = self.ending.decide(self.now, tail, waits, latency);
        self.end_if(end);
        if self.broken.is_some() || self.finished() {
            return;
        }
        if let Some(seconds) = self.patience.hopeless_wait(self.now) {
            self.broken = Some(Broken::RetryAfter(seconds));
        } else if self.patience.is_over(self.now) && !self.is_receiving() {
            self.broken = Some(Broken::Patience);
        }
    }

    /// Returns whether an answer has begun to arrive: patience then does not end before the answer's own timeout.
    pub(super) fn is_receiving(&self) -> bool {
        self.heard_at > self.settled_at && self.flights.len() > 0
    }

    fn end_if(&mut self, end: Option<End>) {
        if let Some(end) = end {
            self.end_at(end);
        }
    }

    /// Drops what was planned at or past the end.
    pub(super) fn end_at(&mut self, end: End) {
        self.frontier = self.frontier.min(end.at.max(self.base));
        self.failed.remove(end.at..u64::MAX);
        // Bytes that arrived past this end stay taken: if the end turns out to be later, they are not read again.
        let missing: Vec<_> = self.received.missing(end.at..u64::MAX).collect();
        missing
            .into_iter()
            .for_each(|range| self.taken.remove(range));
        self.flights.supersede(self.now, |flight| {
            flight.purpose != Purpose::Probe && flight.start >= end.at
        });
        self.barrier = self.barrier.filter(|&(at, _)| at < end.at);
    }
}
