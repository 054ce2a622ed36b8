//! Errors that may be an end: a server that answers a read past its end with the error of a bad argument.
//!
//! The same error three times at the first missing byte, while the byte before is served, is an end if one more fact
//! agrees: without an announced size, the page that ended there was short; below an announced size, the last bytes are
//! answered with the same error.

use super::{Corroboration, End, EndedBy, Ending, Probe};
use crate::planner::tuning::{ERROR_CLAIMS, TAIL_BYTES};

/// The outcome of a corroborating read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::planner) enum Evidence {
    Bytes,
    NoBytes,
    /// An error answer with this code.
    Refused(i64),
    /// Neither: the read is needed again.
    Lost,
}

/// The state of the byte before an error.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ByteBefore {
    /// To be read together with the bytes after it: they would refute the error, their absence makes a short page.
    Spanning,
    /// To be read alone: the server refuses a range that reaches past its end.
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
    /// True if the last bytes below the announced size are answered with the same error; `None` before they are read.
    tail_refused: Option<bool>,
    /// The purpose of the corroborating read in flight, if any.
    probe: Option<Corroboration>,
}

impl Ending {
    /// Handles an error answer to a read at the first missing byte, or at the announced size. Returns the end if the
    /// evidence is complete.
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

    /// Handles the outcome of the read for `purpose`. Returns the end if the evidence is complete.
    pub fn error_evidence(&mut self, purpose: Corroboration, evidence: Evidence) -> Option<End> {
        let claim = self
            .error_claim
            .as_mut()
            .filter(|claim| claim.probe == Some(purpose))?;
        claim.probe = None;
        match (purpose, evidence) {
            (Corroboration::ByteBefore, Evidence::Bytes) => claim.byte_before = ByteBefore::Read,
            (Corroboration::ByteBefore, Evidence::NoBytes | Evidence::Refused(_)) => {
                claim.byte_before = match claim.byte_before {
                    ByteBefore::Spanning => ByteBefore::Alone,
                    ByteBefore::Alone | ByteBefore::Read | ByteBefore::Refused => {
                        ByteBefore::Refused
                    }
                };
            }
            (Corroboration::Tail, Evidence::Bytes | Evidence::NoBytes) => {
                claim.tail_refused = Some(false);
            }
            (Corroboration::Tail, Evidence::Refused(code)) => {
                claim.tail_refused = Some(code == claim.code);
            }
            (_, _) => {}
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

    /// The next read to distinguish an error at the end from one in the middle; `tail` is the first missing byte.
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
