//! The end of a stream: claims of an end, their corroboration and their refutation.
//!
//! # Rules
//! * One answer proves nothing. A claim at the announced size is accepted at once. If no size is announced, so is a
//!   claim behind a page that was shorter than its range and than the largest page. Any other claim is accepted once
//!   reads that were sent after it arrived claim an end as well.
//! * Bytes at or past a claim make it false, whenever they arrive. The third false claim at one offset is a
//!   contradiction: the server serves bytes past the offset, but no bytes at it.
//! * Reads in flight past a corroborated claim are waited for, but not for long.
//! * Evidence counts if it was requested after the claim arrived: request ids ascend.
//!
//! Pure: every input carries its time.

mod claim;
mod error_claim;

use std::collections::{BTreeMap, BTreeSet};

use super::tuning::{
    CLAIM_ROUND_SECONDS, FALSE_CLAIMS, ROUNDS_BELOW_SIZE, SHORT_ENDS_KEPT, TAIL_BYTES,
    WAIT_PAST_CLAIM_SECONDS,
};
use claim::{Claim, Step};
use error_claim::ErrorClaim;
pub(super) use error_claim::Evidence;

/// The evidence that ended the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Empty contents, or an empty blob.
    Empty,
    /// A `[DONE]` blob.
    Done,
    /// An answer that the range lies past the end (416).
    PastEnd,
    /// The announced size: exact, or with an error answer to a read at it.
    Size,
    /// The same error answer repeatedly, while the byte before was served.
    Error,
    /// One answer that holds the whole resource.
    Whole,
    /// A growing resource whose end the server does not announce stopped growing.
    NoGrowth,
}

/// An accepted end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The offset of the end: no byte is at or past it.
    pub at: u64,
    /// The evidence.
    pub by: EndedBy,
}

/// The announced size, unless it was refuted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Size {
    Unknown,
    Announced {
        total: u64,
        /// `Content-Range` or a digest announced it: it needs no confirming read.
        exact: bool,
    },
    /// The bytes refuted it; reading continues as if nothing was announced.
    Refuted,
}

impl Size {
    pub fn announced(self) -> Option<u64> {
        match self {
            Self::Announced { total, .. } => Some(total),
            Self::Unknown | Self::Refuted => None,
        }
    }
}

/// The purpose of a corroborating read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Corroboration {
    /// A read at the claim.
    AtClaim,
    /// A read past the claim: a page further on, or the last bytes below the announced size.
    Beyond,
    /// The byte before an offset that was answered with errors.
    ByteBefore,
    /// The last bytes below the announced size, after errors.
    Tail,
}

/// The range of a corroborating read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Probe {
    pub start: u64,
    pub end: u64,
    pub purpose: Corroboration,
}

/// The state of the end: the size, the pending claim, the accepted end.
#[derive(Debug)]
pub(super) struct Ending {
    pub size: Size,
    pub size_was_wrong: bool,
    /// The claim that waits for evidence.
    claim: Option<Claim>,
    error_claim: Option<ErrorClaim>,
    accepted: Option<End>,
    /// The number of false claims at each offset.
    false_claims: BTreeMap<u64, u32>,
    /// An offset with too many of them, not yet reported.
    contradiction: Option<u64>,
    /// Ends of pages shorter than their range and than the largest page.
    short_ends: BTreeSet<u64>,
    /// The length of the longest page so far.
    largest_page: u64,
    /// One past the highest byte that ever arrived, stored or not.
    received_to: u64,
}

impl Ending {
    pub fn new() -> Self {
        Self {
            size: Size::Unknown,
            size_was_wrong: false,
            claim: None,
            error_claim: None,
            accepted: None,
            false_claims: BTreeMap::new(),
            contradiction: None,
            short_ends: BTreeSet::new(),
            largest_page: 0,
            received_to: 0,
        }
    }

    pub fn accepted(&self) -> Option<End> {
        self.accepted
    }

    pub fn is_exact(&self) -> bool {
        matches!(self.size, Size::Announced { exact: true, .. })
    }

    /// The offset of a contradiction, if one was found since the last call.
    pub fn take_contradiction(&mut self) -> Option<u64> {
        self.contradiction.take()
    }

    /// The offset of the pending claim: nothing new is read at or past it.
    pub fn claimed_at(&self) -> Option<u64> {
        self.claim.as_ref().map(|claim| claim.at)
    }

    /// Records an announced size. 0 says nothing; a size below what has arrived is already refuted. A pending claim
    /// needs the evidence for a known size from here on.
    pub fn announce(&mut self, total: u64, exact: bool, now: f64) {
        if total == 0 || self.size == Size::Refuted {
            return;
        }
        self.size = Size::Announced { total, exact };
        self.refute_size_below(self.received_to);
        // An error answer at a size that was too large was no end.
        self.accepted = self.accepted.filter(|end| !exact || end.at <= total);
        if self.accepted.is_some_and(|end| end.at < total) {
            self.refute_size();
        }
        if let Some(claim) = self.claim.as_mut().filter(|claim| claim.at < total) {
            claim.restart(now, ROUNDS_BELOW_SIZE);
        }
    }

    /// Drops the announced size, because the bytes contradict it.
    pub fn refute_size(&mut self) {
        if self.size.announced().is_some() {
            self.size = Size::Refuted;
            self.size_was_wrong = true;
        }
    }

    /// One past the highest byte that was ever served.
    pub const fn served_to(&self) -> u64 {
        self.received_to
    }

    /// Records that bytes up to `offset` were served, beyond a requested range or to a probe.
    pub fn seen_to(&mut self, offset: u64) {
        self.received_to = self.received_to.max(offset);
        self.refute_size_below(offset);
    }

    fn refute_size_below(&mut self, offset: u64) {
        if self.size.announced().is_some_and(|total| offset > total) {
            self.refute_size();
        }
    }

    /// Drops pending claims after a seek.
    pub fn forget_claims(&mut self) {
        self.claim = None;
        self.error_claim = None;
        self.false_claims.clear();
        self.contradiction = None;
    }

    // --- bytes -------------------------------------------------------------------------------------------

    /// Handles bytes `[start, end)` that arrived for a range up to `asked_to`. Returns the offset of a claim, or of an
    /// accepted end, that they make false: it must be read again.
    pub fn bytes(&mut self, start: u64, end: u64, asked_to: u64) -> Option<u64> {
        self.received_to = self.received_to.max(end);
        self.refute_size_below(end);
        self.false_claims.retain(|at, _| !(start..end).contains(at));
        if self.error_claim.is_some_and(|claim| end > claim.at) {
            self.error_claim = None;
        }
        let is_refuted = |known: End| end > known.at && known.by != EndedBy::Whole;
        if let Some(known) = self.accepted.filter(|known| is_refuted(*known)) {
            self.accepted = None;
            self.count_false(known.at);
            return Some(known.at);
        }
        let is_short = end - start < self.largest_page && !self.is_claim_below_size();
        let claim = self.claim.as_mut()?;
        let at = claim.at;
        if end > at {
            self.claim = None;
            self.count_false(at);
            return Some(at);
        }
        let only_byte_before = (start + 1, end) == (at, at) && asked_to > at;
        if claim.by == EndedBy::Done && claim.at_claim == Step::Sent && only_byte_before {
            // A read from the byte before returned that byte alone. If the answer is short, no data follows that byte,
            // and `[DONE]` was the marker. Otherwise a read from the claim on has to show that.
            claim.is_marker = true;
            claim.at_claim = if is_short {
                Step::ClaimsEnd
            } else {
                Step::Needed
            };
        }
        None
    }

    /// Records the length of a page, or of a read of the byte before an error and what follows it.
    pub fn note_length(&mut self, start: u64, end: u64, asked_to: u64) {
        let is_whole = end == asked_to;
        if !is_whole && end - start < self.largest_page {
            self.short_ends.insert(end);
            if self.short_ends.len() > SHORT_ENDS_KEPT {
                self.short_ends.pop_first();
            }
        } else if end - start > 1 {
            self.short_ends.remove(&end); // a lone byte is evidence of something else
        }
        self.largest_page = self.largest_page.max(end - start);
    }

    /// Counts a false claim at `at`. Too many at one offset are a contradiction.
    fn count_false(&mut self, at: u64) {
        if self.false_claims.len() >= SHORT_ENDS_KEPT && !self.false_claims.contains_key(&at) {
            self.false_claims.pop_first();
        }
        let count = self.false_claims.entry(at).or_insert(0);
        *count += 1;
        if *count >= FALSE_CLAIMS {
            self.contradiction = Some(at);
        }
    }

    // --- claims ------------------------------------------------------------------------------------------

    /// Handles a claim of an end at `at`, by an answer that arrived before request `next_id` was sent; `evidence` is
    /// the purpose of its read and its id. Returns true if the claim is false, because bytes past it have arrived: it
    /// must be read again.
    pub fn claim(
        &mut self,
        now: f64,
        (at, by): (u64, EndedBy),
        evidence: Option<(Corroboration, u64)>,
        next_id: u64,
    ) -> bool {
        if self.accepted.is_some_and(|end| at >= end.at) {
            return false;
        }
        if self.received_to > at {
            self.claim = self.claim.take().filter(|claim| claim.at != at);
            self.count_false(at);
            return true;
        }
        let announced = self.size.announced();
        if announced == Some(at) {
            self.accept(End { at, by });
            return false;
        }
        let is_evidence_only = matches!(
            evidence,
            Some((Corroboration::Beyond | Corroboration::Tail, _))
        );
        match &mut self.claim {
            Some(claim) if claim.at <= at => match evidence {
                Some((_, id)) if id < claim.evidence_from => {}
                Some((Corroboration::AtClaim, _)) if claim.at == at => {
                    claim.at_claim = Step::ClaimsEnd
                }
                Some((Corroboration::Beyond, _)) => claim.beyond = Step::ClaimsEnd,
                Some(_) | None => {}
            },
            Some(_) | None if is_evidence_only => {} // its claim was dropped, and it is no claim of its own
            Some(_) | None => {
                let is_below_size = announced.is_some_and(|total| at < total);
                let behind_short =
                    announced.is_none() && by != EndedBy::Done && self.short_ends.contains(&at);
                let rounds = if is_below_size { ROUNDS_BELOW_SIZE } else { 1 };
                self.claim = Some(Claim::new(now, (at, by), next_id, rounds, behind_short));
            }
        }
        false
    }

    /// Handles a corroborating read that gave no evidence: it is needed again. Exception: without an announced size,
    /// the read past a claim is dispensable once the server refused it, or it was lost twice.
    pub fn uncorroborated(&mut self, purpose: Corroboration, id: u64, is_refused: bool) {
        let is_below_size = self.is_claim_below_size();
        let Some(claim) = &mut self.claim else {
            return;
        };
        if id < claim.evidence_from {
            return;
        }
        let (step, next_step) = match purpose {
            Corroboration::AtClaim => (&mut claim.at_claim, Step::Needed),
            Corroboration::Beyond => {
                claim.lost_beyond += 1;
                let is_dispensable = (is_refused || claim.lost_beyond > 1) && !is_below_size;
                let next_step = if is_dispensable {
                    Step::Refused
                } else {
                    Step::Needed
                };
                (&mut claim.beyond, next_step)
            }
            Corroboration::ByteBefore | Corroboration::Tail => return,
        };
        if *step == Step::Sent {
            *step = next_step;
        }
    }

    /// Returns whether the read past the claim is to be sent again.
    pub fn needs_beyond(&self) -> bool {
        self.claim
            .as_ref()
            .is_some_and(|claim| claim.beyond == Step::Needed)
    }

    fn is_claim_below_size(&self) -> bool {
        match (&self.claim, self.size.announced()) {
            (Some(claim), Some(total)) => claim.at < total,
            (_, _) => false,
        }
    }

    /// The next corroborating read, once all bytes before the claim have arrived: otherwise the byte before it may not
    /// exist. `small` and `page` are sizes of pages. A read at the claim ends inside the room if it fits there.
    pub fn probe(
        &mut self,
        now: f64,
        tail: u64,
        small: u64,
        page: u64,
        room_to: u64,
    ) -> Option<Probe> {
        let announced = self.size.announced();
        let claim = self.claim.as_mut()?;
        if claim.behind_short || now < claim.next_round_at || tail < claim.at {
            return None;
        }
        let at = claim.at;
        if claim.at_claim == Step::Needed {
            claim.at_claim = Step::Sent;
            // If the file itself ends in `[DONE]`, a read from the byte before returns more than these bytes.
            let may_be_data = claim.by == EndedBy::Done && !claim.is_marker;
            let start = at.saturating_sub(u64::from(may_be_data));
            let most = announced.map_or(room_to, |total| total.min(room_to));
            return Some(Probe {
                start,
                end: (at + small).min(most).max(at + 1),
                purpose: Corroboration::AtClaim,
            });
        }
        if claim.beyond == Step::Needed {
            claim.beyond = Step::Sent;
            let (start, end) = match announced {
                Some(total) if total > at => (at.max(total.saturating_sub(TAIL_BYTES)), total),
                _ => (at + page.max(small), at + page.max(small) + small),
            };
            return Some(Probe {
                start,
                end,
                purpose: Corroboration::Beyond,
            });
        }
        None
    }

    /// Accepts an end if the evidence suffices, and returns it. `tail` is the first missing byte; `waits` says whether
    /// a read past the claim is still in flight, `latency` how long an answer takes.
    pub fn decide(&mut self, now: f64, tail: u64, waits: bool, latency: f64) -> Option<End> {
        if let Size::Announced { total, exact: true } = self.size
            && self.accepted.is_none()
            && self.received_to.max(tail) >= total
        {
            return Some(self.accept(End {
                at: total,
                by: EndedBy::Size,
            }));
        }
        let is_below_size = self.is_claim_below_size();
        let is_at_size = self.claimed_at().is_some() && self.claimed_at() == self.size.announced();
        let claim = self.claim.as_mut()?;
        let end = End {
            at: claim.at,
            by: claim.by,
        };
        if is_at_size {
            return Some(self.accept(end));
        }
        // Without an announced size the read past the claim may remain unanswered, but it must have been sent.
        let is_tried = claim.beyond != Step::Needed && !is_below_size;
        let is_complete =
            claim.at_claim == Step::ClaimsEnd && (claim.beyond == Step::ClaimsEnd || is_tried);
        if claim.corroborated_at.is_none() && is_complete {
            claim.rounds_left -= 1;
            if claim.rounds_left == 0 {
                claim.corroborated_at = Some(now);
            } else {
                claim.next_round_at = now + CLAIM_ROUND_SECONDS;
                (claim.at_claim, claim.beyond) = (Step::Needed, Step::Needed);
            }
        }
        let since = claim.corroborated_at?;
        // A restarted claim needs its reads again, unless a short page is evidence enough.
        let is_open = !claim.behind_short && !is_complete;
        // Until all bytes below the claim have arrived, a lower claim may take its place.
        if is_open || tail < end.at || (waits && now < since + wait_past_claim(latency)) {
            return None;
        }
        Some(self.accept(end))
    }

    /// The time at which [`decide`](Self::decide) or [`probe`](Self::probe) may give a new result without another
    /// event.
    pub fn due(&self, now: f64, latency: f64) -> Option<f64> {
        let claim = self.claim.as_ref()?;
        let at = match claim.corroborated_at {
            Some(since) => since + wait_past_claim(latency),
            None => claim.next_round_at,
        };
        (at > now).then_some(at)
    }

    /// Accepts an end. A larger announced size was wrong; a smaller one is refuted by bytes alone.
    pub fn accept(&mut self, end: End) -> End {
        if self.size.announced().is_some_and(|total| total > end.at) {
            self.refute_size();
        }
        // A lower claim stays pending: the lowest end counts.
        self.claim = self.claim.take().filter(|claim| claim.at < end.at);
        self.error_claim = self.error_claim.filter(|claim| claim.at < end.at);
        self.accepted = Some(end);
        end
    }
}

/// The seconds to wait for reads past a corroborated claim.
fn wait_past_claim(latency: f64) -> f64 {
    WAIT_PAST_CLAIM_SECONDS.max(2.0 * latency)
}
