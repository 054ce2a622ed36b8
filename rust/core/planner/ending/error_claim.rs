//! Errors that may be an end: a server that answers a read past its end with the error of a bad argument.
//!
//! The same error three times at the first missing byte, while the byte before is served, is an end if the size agrees:
//! the page that ended there was short, or, below an announced size, its last bytes are answered with the same error.

use super::{Corroboration, End, EndedBy, Ending, Probe};
use crate::planner::tuning::{ERROR_CLAIMS, TAIL_BYTES};

/// The state of the byte before an error.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ByteBefore {
    /// Needs a read together with the bytes that follow it: they refute the error, and their absence makes a short page.
    Spanning,
    /// Needs a read alone: the server refuses a range that reaches past its end.
    Alone,
    Read,
    Refused,
}

/// Repeated equal error answers at the first missing byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ErrorClaim {
    pub at: u64,
    code: i64,
    answers: u32,
    byte_before: ByteBefore,
    /// The last bytes below the announced size: the same error (true), another answer (false), not read yet.
    tail_refused: Option<bool>,
    /// The read in flight that examines it.
    probe: Option<Corroboration>,
}

impl Ending {
    /// An error answer to the read of the first missing byte, or at the announced size. Returns the end if the evidence
    /// is complete.
    pub fn error_answer(&mut self, at: u64, code: i64) -> Option<End> {
        if self.size.announced().is_some_and(|total| at >= total) {
            return Some(self.accept(End {
                at,
                by: EndedBy::Size,
            }));
        }
        if at == 0 || self.received_to > at {
            return None;
        }
        match &mut self.error_claim {
            Some(claim) if (claim.at, claim.code) == (at, code) => {
                claim.answers = claim.answers.saturating_add(1);
            }
            Some(_) | None => {
                self.error_claim = Some(ErrorClaim {
                    at,
                    code,
                    answers: 1,
                    byte_before: ByteBefore::Spanning,
                    tail_refused: None,
                    probe: None,
                });
            }
        }
        self.accept_error()
    }

    /// Handles the result of the read for `purpose`: bytes or none (`got_bytes`), or a refusal with its `code`; with
    /// neither it is needed again.
    pub fn error_evidence(
        &mut self,
        purpose: Corroboration,
        got_bytes: Option<bool>,
        code: Option<i64>,
    ) -> Option<End> {
        let claim = self
            .error_claim
            .as_mut()
            .filter(|claim| claim.probe == Some(purpose))?;
        claim.probe = None;
        match (purpose, got_bytes, code) {
            (Corroboration::ByteBefore, Some(true), _) => claim.byte_before = ByteBefore::Read,
            (Corroboration::ByteBefore, Some(false), _)
            | (Corroboration::ByteBefore, None, Some(_)) => {
                claim.byte_before = match claim.byte_before {
                    ByteBefore::Spanning => ByteBefore::Alone,
                    ByteBefore::Alone | ByteBefore::Read | ByteBefore::Refused => {
                        ByteBefore::Refused
                    }
                };
            }
            (Corroboration::Tail, Some(_), _) => claim.tail_refused = Some(false),
            (Corroboration::Tail, None, Some(code)) => {
                claim.tail_refused = Some(code == claim.code);
            }
            (_, _, _) => {}
        }
        self.accept_error()
    }

    fn accept_error(&mut self) -> Option<End> {
        let claim = self.error_claim?;
        let is_backed = match self.size.announced() {
            None => self.short_ends.contains(&claim.at),
            Some(total) => total > claim.at && claim.tail_refused == Some(true),
        };
        let is_complete = claim.answers >= ERROR_CLAIMS && claim.byte_before == ByteBefore::Read;
        (is_backed && is_complete).then(|| {
            self.accept(End {
                at: claim.at,
                by: EndedBy::Error,
            })
        })
    }

    /// The next read that tells an error at the end from an error in the middle, if the first missing byte is `tail`.
    pub fn error_probe(&mut self, small: u64, tail: u64) -> Option<Probe> {
        let total = self.size.announced();
        let claim = self
            .error_claim
            .as_mut()
            .filter(|claim| claim.at == tail && claim.answers >= 2 && claim.probe.is_none())?;
        let before = claim.at - 1;
        let (start, end, purpose) = match (claim.byte_before, total) {
            (ByteBefore::Spanning, _) => (before, before + small.max(2), Corroboration::ByteBefore),
            (ByteBefore::Alone, _) => (before, claim.at, Corroboration::ByteBefore),
            (ByteBefore::Read, Some(total))
                if total > claim.at
                    && claim.tail_refused.is_none()
                    && claim.answers >= ERROR_CLAIMS =>
            {
                let start = claim.at.max(total.saturating_sub(TAIL_BYTES));
                (start, total, Corroboration::Tail)
            }
            (ByteBefore::Read | ByteBefore::Refused, _) => return None,
        };
        claim.probe = Some(purpose);
        Some(Probe {
            start,
            end,
            purpose,
        })
    }

    /// Returns whether `code` is the error under examination.
    pub fn suspects_code(&self, code: i64) -> bool {
        self.error_claim.is_some_and(|claim| claim.code == code)
    }

    /// Returns whether an error at `at` is under examination: its next read does not wait as after a refusal.
    pub fn suspects_error_at(&self, at: u64) -> bool {
        let needs_tail = self.size.announced().is_some_and(|total| total > at);
        self.error_claim
            .filter(|claim| claim.at == at)
            .is_some_and(|claim| match claim.byte_before {
                ByteBefore::Spanning | ByteBefore::Alone => true,
                ByteBefore::Read => {
                    claim.answers < ERROR_CLAIMS || (needs_tail && claim.tail_refused.is_none())
                }
                ByteBefore::Refused => false,
            })
    }
}
