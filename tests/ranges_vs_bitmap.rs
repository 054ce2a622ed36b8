//! `RangeSet` against a bitmap: the slow version that cannot be wrong.

use std::ops::Range;

use playhead_core::ranges::RangeSet;
use proptest::prelude::*;

const LIMIT: u64 = 64;

#[derive(Clone, Debug)]
enum Step {
    Insert(Range<u64>),
    Remove(Range<u64>),
    RemoveBelow(u64),
    Clear,
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (0..LIMIT, 0..LIMIT).prop_map(|(start, end)| start..end)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => range().prop_map(Step::Insert),
        4 => range().prop_map(Step::Remove),
        2 => (0..LIMIT).prop_map(Step::RemoveBelow),
        1 => Just(Step::Clear),
    ]
}

fn runs(bits: &[bool], inside: Range<u64>, wanted: bool) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for offset in inside.filter(|&offset| bits[offset as usize] == wanted) {
        match found.last_mut() {
            Some(last) if last.end == offset => last.end += 1,
            _ => found.push(offset..offset + 1),
        }
    }
    found
}

proptest! {
    #[test]
    fn a_range_set_answers_like_a_bitmap(steps in prop::collection::vec(step(), 0..40), asked in range()) {
        let mut set = RangeSet::new();
        let mut bits = vec![false; LIMIT as usize];
        for step in steps {
            match step {
                Step::Insert(range) => {
                    bits.iter_mut().enumerate().filter(|(i, _)| range.contains(&(*i as u64))).for_each(|(_, bit)| *bit = true);
                    set.insert(range);
                }
                Step::Remove(range) => {
                    bits.iter_mut().enumerate().filter(|(i, _)| range.contains(&(*i as u64))).for_each(|(_, bit)| *bit = false);
                    set.remove(range);
                }
                Step::RemoveBelow(offset) => {
                    bits[..offset as usize].fill(false);
                    set.remove_below(offset);
                }
                Step::Clear => {
                    bits.fill(false);
                    set.clear();
                }
            }
            prop_assert_eq!(set.held(0..LIMIT).collect::<Vec<_>>(), runs(&bits, 0..LIMIT, true));
            prop_assert_eq!(set.len_bytes(), bits.iter().filter(|&&bit| bit).count() as u64);
        }
        prop_assert_eq!(set.held(asked.clone()).collect::<Vec<_>>(), runs(&bits, asked.clone(), true));
        prop_assert_eq!(set.missing(asked.clone()).collect::<Vec<_>>(), runs(&bits, asked, false));
        for offset in 0..LIMIT {
            let end = (offset..LIMIT).find(|&o| !bits[o as usize]).unwrap_or(LIMIT);
            prop_assert_eq!(set.contiguous_end(offset), end);
        }
    }
}
