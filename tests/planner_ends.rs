//! Ends of a stream: one rule each, in the smallest story that shows it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod story;

use playhead_core::planner::{Broken, EndedBy, Failure};

use story::{
    EMPTY, KIB, LOST, REFUSED, ask, ask_one, end_of, lost, planner, ranges, read_to, serial, wait,
    whole, with_burst,
};

#[test]
fn a_claim_at_the_announced_size_is_the_end_at_once() {
    let mut planner = planner(|_| {});
    planner.set_total(8 * KIB, false);
    let burst = ask(&mut planner, 0.0, 0);
    assert_eq!(ranges(&burst), [(0, 8 * KIB), (8 * KIB, 16 * KIB)]);
    planner.on_answer(burst[1].id, 0.1, 0, EMPTY);
    assert_eq!(end_of(&planner), Some((8 * KIB, EndedBy::Empty)));
    whole(&mut planner, burst[0], 0.1);
    assert!(planner.finished() && !planner.statistics().size_was_wrong);
}

#[test]
fn any_error_answer_at_the_announced_size_is_the_end() {
    let lost_with_code = lost(None, false, Some(-32603));
    for failure in [REFUSED, lost_with_code] {
        let mut planner = planner(|_| {});
        planner.set_total(8 * KIB, false);
        let burst = ask(&mut planner, 0.0, 0);
        planner.on_error(burst[1].id, 0.1, failure);
        whole(&mut planner, burst[0], 0.1);
        assert_eq!(end_of(&planner), Some((8 * KIB, EndedBy::Size)));
    }
}

#[test]
fn a_lost_connection_at_the_announced_size_is_no_answer() {
    let mut planner = planner(|_| {});
    planner.set_total(8 * KIB, false);
    let burst = ask(&mut planner, 0.0, 0);
    planner.on_error(burst[1].id, 0.1, LOST);
    assert_eq!(planner.end(), None);
    let again = ask_one(&mut planner, 0.1);
    assert_eq!((again.start, again.is_retry), (8 * KIB, true));
}

#[test]
fn an_exact_size_needs_no_confirming_read() {
    let mut planner = planner(|_| {});
    planner.set_total(8 * KIB, true);
    let first = ask_one(&mut planner, 0.0);
    whole(&mut planner, first, 0.1);
    assert_eq!(end_of(&planner), Some((8 * KIB, EndedBy::Size)));
}

#[test]
fn an_exact_size_overrules_an_end_at_a_larger_one() {
    let mut planner = planner(|_| {});
    planner.set_total(8 * KIB, false);
    let burst = ask(&mut planner, 0.0, 0);
    planner.on_error(burst[1].id, 0.1, REFUSED); // the end, as far as anybody knows
    planner.set_total(8 * KIB - 1, true);
    planner.on_answer(burst[0].id, 0.1, 8 * KIB - 1, None);
    assert_eq!(end_of(&planner), Some((8 * KIB - 1, EndedBy::Size)));
    assert!(planner.finished());
}

#[test]
fn a_start_past_an_exact_size_is_past_the_end() {
    let mut planner = planner(|_| {});
    planner.set_total(8 * KIB, true);
    planner.seek(10 * KIB);
    assert_eq!(ask(&mut planner, 0.0, 10 * KIB), []);
    assert!(planner.finished());
}

#[test]
fn an_announced_zero_counts_as_not_announced() {
    let mut planner = planner(|_| {});
    planner.set_total(0, false);
    assert_eq!((planner.total(), planner.end()), (None, None));
    assert_eq!(ask(&mut planner, 0.0, 0)[0].end, 8 * KIB);
}

#[test]
fn a_size_too_small_is_read_past_and_reported() {
    let mut planner = planner(|_| {});
    planner.set_total(4096, false);
    let burst = ask(&mut planner, 0.0, 0);
    assert_eq!(ranges(&burst), [(0, 4096), (4096, 12 * KIB)]);
    whole(&mut planner, burst[0], 0.1);
    whole(&mut planner, burst[1], 0.1);
    assert!(planner.statistics().size_was_wrong && !planner.finished());
    assert_eq!(planner.total(), None);
    assert_eq!(ask(&mut planner, 0.1, 0)[0].start, 12 * KIB);
}

#[test]
fn a_claim_behind_a_short_page_is_the_end() {
    let mut planner = serial();
    let now = read_to(&mut planner, 20_000);
    let request = ask_one(&mut planner, now);
    planner.on_answer(request.id, now, 0, EMPTY);
    assert_eq!(end_of(&planner), Some((20_000, EndedBy::Empty)));
    assert!(planner.finished());
}

#[test]
fn a_claim_behind_a_whole_page_is_the_end_once_a_read_at_it_and_one_beyond_agree() {
    let mut planner = serial();
    let now = read_to(&mut planner, 16 * KIB);
    let request = ask_one(&mut planner, now);
    planner.on_answer(request.id, now, 0, EMPTY);
    assert_eq!(planner.end(), None, "one answer is believed");
    let at = ask_one(&mut planner, now);
    assert_eq!(at.start, 16 * KIB);
    planner.on_answer(at.id, now, 0, EMPTY);
    assert_eq!(planner.end(), None, "what lies beyond is not looked at");
    let beyond = ask_one(&mut planner, now);
    assert!(beyond.start > 16 * KIB);
    planner.on_answer(beyond.id, now, 0, Some(EndedBy::PastEnd));
    assert_eq!(end_of(&planner), Some((16 * KIB, EndedBy::Empty)));
}

#[test]
fn a_read_beyond_a_claim_that_the_server_refuses_is_not_waited_for() {
    let mut planner = serial();
    let now = read_to(&mut planner, 16 * KIB);
    for failure in [None, None, Some(REFUSED)] {
        let request = ask_one(&mut planner, now);
        match failure {
            None => drop(planner.on_answer(request.id, now, 0, EMPTY)),
            Some(failure) => planner.on_error(request.id, now, failure),
        }
    }
    assert_eq!(end_of(&planner), Some((16 * KIB, EndedBy::Empty)));
}

#[test]
fn a_claim_far_below_the_announced_size_takes_two_rounds_at_it_and_at_the_tail() {
    let mut planner = serial();
    planner.set_total(100 * KIB, false);
    let now = read_to(&mut planner, 16 * KIB);
    let request = ask_one(&mut planner, now);
    planner.on_answer(request.id, now, 0, EMPTY);
    let mut at = now;
    let mut asked = vec![];
    for _ in 0..4 {
        let (sent_at, requests) = wait(&mut planner, at);
        at = sent_at;
        asked.push((requests[0].start, ((at - now) * 1e6).round() / 1e6));
        assert_eq!(planner.end(), None);
        planner.on_answer(requests[0].id, at, 0, EMPTY);
    }
    assert_eq!(
        asked,
        [
            (16 * KIB, 0.0),
            (96 * KIB, 0.0),
            (16 * KIB, 0.5),
            (96 * KIB, 0.5)
        ]
    );
    assert_eq!(end_of(&planner), Some((16 * KIB, EndedBy::Empty)));
    assert!(planner.statistics().size_was_wrong);
}

#[test]
fn bytes_at_the_tail_below_the_announced_size_make_a_claim_false() {
    let mut planner = serial();
    planner.set_total(100 * KIB, false);
    let now = read_to(&mut planner, 16 * KIB);
    for _ in 0..2 {
        let request = ask_one(&mut planner, now);
        planner.on_answer(request.id, now, 0, EMPTY);
    }
    let tail = ask_one(&mut planner, now);
    assert_eq!((tail.start, tail.end), (96 * KIB, 100 * KIB));
    whole(&mut planner, tail, now);
    let again = ask_one(&mut planner, now);
    assert_eq!((again.start, again.is_retry), (16 * KIB, true));
    assert!(!planner.statistics().size_was_wrong);
}

#[test]
fn the_same_error_three_times_behind_a_short_page_is_the_end() {
    let mut planner = serial();
    let mut now = read_to(&mut planner, 16 * KIB);
    for _ in 0..10 {
        let (at, requests) = wait(&mut planner, now);
        now = at;
        let request = requests[0];
        if request.start < 16 * KIB {
            assert_eq!(request.start, 16 * KIB - 1);
            planner.on_answer(request.id, now, 1, None);
        } else {
            planner.on_error(request.id, now, REFUSED);
        }
        if planner.finished() {
            break;
        }
    }
    assert_eq!(end_of(&planner), Some((16 * KIB, EndedBy::Error)));
}

#[test]
fn the_same_error_below_an_announced_size_is_the_end_if_the_tail_has_it_too() {
    let mut planner = serial();
    planner.set_total(100 * KIB, false);
    let mut now = read_to(&mut planner, 16 * KIB);
    let mut starts = vec![];
    while !planner.finished() {
        let (at, requests) = wait(&mut planner, now);
        now = at;
        let request = requests[0];
        starts.push(request.start);
        if request.start < 16 * KIB {
            planner.on_answer(request.id, now, 1, None);
        } else {
            planner.on_error(request.id, now, REFUSED);
        }
        assert!(starts.len() < 10);
    }
    let claim = 16 * KIB;
    assert_eq!(starts, [claim, claim, claim - 1, claim, 96 * KIB]);
    assert_eq!(end_of(&planner), Some((claim, EndedBy::Error)));
    assert!(planner.statistics().size_was_wrong);
}

#[test]
fn another_error_or_bytes_at_the_tail_are_no_end() {
    for tail_has_bytes in [true, false] {
        let mut planner = serial();
        planner.set_total(100 * KIB, false);
        let mut now = read_to(&mut planner, 16 * KIB);
        while planner.broken().is_none() {
            let (at, requests) = wait(&mut planner, now);
            now = at;
            let Some(request) = requests.first().copied() else {
                break;
            };
            if request.start < 16 * KIB || (tail_has_bytes && request.start > 24 * KIB) {
                planner.on_answer(request.id, now, 1, None);
            } else if request.start > 24 * KIB {
                planner.on_error(request.id, now, Failure::Refused { code: -32002 });
            } else {
                planner.on_error(request.id, now, REFUSED);
            }
        }
        assert_eq!(planner.broken(), Some((16 * KIB, Broken::Refused)));
        assert_eq!(planner.end(), None);
    }
}

#[test]
fn a_lost_read_of_the_byte_before_does_not_turn_an_end_into_a_refusal() {
    let mut planner = serial();
    let mut now = read_to(&mut planner, 16 * KIB);
    let mut lost = 5;
    while !planner.finished() {
        let (at, requests) = wait(&mut planner, now);
        now = at;
        assert_eq!(planner.broken(), None);
        let request = requests[0];
        if request.start >= 16 * KIB {
            planner.on_error(request.id, now, REFUSED);
        } else if lost > 0 {
            lost -= 1;
            now += 5.0;
            planner.on_error(request.id, now, LOST);
        } else {
            planner.on_answer(request.id, now, 1, None);
        }
    }
    assert_eq!(end_of(&planner), Some((16 * KIB, EndedBy::Error)));
}

#[test]
fn bytes_past_an_end_that_is_taken_back_are_not_read_again() {
    let (mut planner, burst) = with_burst();
    whole(&mut planner, burst[1], 0.1);
    planner.set_end(4 * KIB, EndedBy::Whole);
    planner.set_end(64 * KIB, EndedBy::Whole);
    let stored = burst[1].start..burst[1].end;
    let asked = ask(&mut planner, 0.2, 0);
    assert!(!asked.is_empty());
    for request in asked {
        assert!(
            request.end <= stored.start || request.start >= stored.end,
            "{request:?} is stored already"
        );
    }
}
