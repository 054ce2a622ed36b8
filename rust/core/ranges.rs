//! Sets of byte ranges: the bytes of a resource that are held, wanted or in flight.
//!
//! Ranges are half-open, absolute and in bytes. The set keeps them sorted, apart (two ranges that touch
//! become one) and never empty, so equal sets compare equal and a contiguous run is one entry. An
//! island costs one tree node, whatever its length.
//!
//! Precedent: quinn-proto's `RangeSet`, which tracks acknowledged packets in the same shape.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint half-open ranges of `u64`, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// start → end. Invariant: start < end, and each end lies below the next start.
    runs: BTreeMap<u64, u64>,
    total: u64,
}

impl RangeSet {
    /// An empty set; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            runs: BTreeMap::new(),
            total: 0,
        }
    }

    /// Adds `range`. An empty or reversed range adds nothing.
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        // The last run that begins at or before `end` is the only one that may reach past it; walk down
        // from there and merge every run that touches the new one.
        while let Some((&run_start, &run_end)) = self.runs.range(..=end).next_back() {
            if run_end < start {
                break;
            }
            self.runs.remove(&run_start);
            self.total -= run_end - run_start;
            start = start.min(run_start);
            end = end.max(run_end);
        }
        self.runs.insert(start, end);
        self.total += end - start;
    }

    /// The end of the run that holds `offset`, or `offset` itself if it is not held.
    #[must_use]
    pub fn contiguous_end(&self, offset: u64) -> u64 {
        match self.runs.range(..=offset).next_back() {
            Some((_, &end)) if end > offset => end,
            _ => offset,
        }
    }

    /// The parts of `range` that are in the set, in ascending order, cut to `range`.
    pub fn held(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let Range { start, end } = range;
        // The run before `start` may reach into the range; every other one begins inside it.
        let first = self.runs.range(..=start).next_back().map(|(&s, _)| s);
        self.runs
            .range(first.unwrap_or(start)..)
            .take_while(move |&(&s, _)| s < end)
            .map(move |(&s, &e)| s.max(start)..e.min(end))
            .filter(|run| run.start < run.end)
    }

    /// The parts of `range` that are not in the set, in ascending order.
    pub fn missing(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let Range { start, end } = range;
        // Each held run gives the gap before it; an empty run at the end gives the last gap.
        self.held(start..end)
            .chain(std::iter::once(end..end))
            .scan(start, |from, run| {
                let gap = *from..run.start;
                *from = run.end;
                Some(gap)
            })
            .filter(|gap| gap.start < gap.end)
    }

    /// Removes every byte of `range`.
    pub fn remove(&mut self, range: Range<u64>) {
        let Range { start, end } = range;
        let held: Vec<_> = self.held(start..end).collect();
        for run in held {
            // The run that holds `run` may reach past it on both sides.
            if let Some((&from, &to)) = self.runs.range(..=run.start).next_back() {
                self.runs.remove(&from);
                self.total -= run.end - run.start;
                if from < run.start {
                    self.runs.insert(from, run.start);
                }
                if run.end < to {
                    self.runs.insert(run.end, to);
                }
            }
        }
    }

    /// Removes every byte below `offset`.
    pub fn remove_below(&mut self, offset: u64) {
        while let Some(entry) = self.runs.first_entry() {
            if *entry.key() >= offset {
                return;
            }
            let (start, end) = entry.remove_entry();
            if end > offset {
                self.runs.insert(offset, end);
                self.total -= offset - start;
                return;
            }
            self.total -= end - start;
        }
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.total = 0;
    }

    /// The number of bytes in the set.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        self.total
    }
}
