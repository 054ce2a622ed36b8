//! A pending claim of an end, and its corroboration.

use super::EndedBy;

/// The progress of a corroborating read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Needed,
    Sent,
    ClaimsEnd,
    /// The server refuses that range, which proves nothing.
    Refused,
}

/// A claim that is not decided yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    pub at: u64,
    pub by: EndedBy,
    /// The first request that was sent after the claim arrived.
    pub evidence_from: u64,
    /// True if the page that ended here was short, which is sufficient evidence.
    pub behind_short: bool,
    /// True if the `[DONE]` there is known to be a marker, not the tail of the file.
    pub is_marker: bool,
    pub at_claim: Step,
    pub beyond: Step,
    pub rounds_left: u32,
    pub next_round_at: f64,
    pub corroborated_at: Option<f64>,
    /// Failed reads past the claim.
    pub lost_beyond: u32,
}

impl Claim {
    /// Creates a claim that arrived before request `next_id` was sent, to be corroborated in `rounds` rounds, or by the
    /// short page before it.
    pub fn new(
        now: f64,
        (at, by): (u64, EndedBy),
        next_id: u64,
        rounds: u32,
        behind_short: bool,
    ) -> Self {
        Self {
            at,
            by,
            evidence_from: next_id,
            behind_short,
            is_marker: false,
            at_claim: Step::Needed,
            beyond: Step::Needed,
            rounds_left: rounds,
            next_round_at: now,
            corroborated_at: behind_short.then_some(now),
            lost_beyond: 0,
        }
    }

    /// Drops its corroboration and starts again.
    pub fn restart(&mut self, now: f64, rounds: u32) {
        *self = Self::new(now, (self.at, self.by), self.evidence_from, rounds, false);
    }
}
