//! Claims of an end that are false, or not decided yet: one rule each, in the smallest story that shows it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod story;

use playhead_core::planner::{Broken, EndedBy};

use story::{
    EMPTY, KIB, LOST, REFUSED, ask, ask_one, end_of, planner, read_to, serial, wait, whole,
    with_burst,
};

#[test]
fn a_read_in_flight_past_a_corroborated_claim_is_waited_for() {
    // The last page, short, and one past it that arrives late, or never.
    for arrives in [true, false] {
        let (mut planner, burst) = with_burst();
        whole(&mut planner, burst[0], 0.1);
        planner.on_answer(burst[1].id, 0.1, 0, EMPTY);
        let (at, beyond): (Vec<_>, Vec<_>) = ask(&mut planner, 0.1, 0)
            .into_iter()
            .partition(|request| request.start == burst[1].start);
        planner.on_answer(at[0].id, 0.1, 0, EMPTY);
        planner.on_answer(beyond[0].id, 0.1, 0, EMPTY);
        assert_eq!(planner.end(), None, "a read past the claim is dropped");
        ask(&mut planner, 0.55, 0);
        assert_eq!(planner.end(), None);
        if arrives {
            whole(&mut planner, burst[2], 0.55);
            ask(&mut planner, 2.0, 0);
            assert_eq!(planner.end(), None);
        } else {
            let due = planner.timer().unwrap();
            assert!((due - 0.6).abs() < 1e-9, "{due}");
            ask(&mut planner, due, 0);
            assert_eq!(planner.end().map(|end| end.at), Some(burst[1].start));
            assert_eq!(planner.expired(due), [burst[2].id]);
        }
    }
}

#[test]
fn nothing_past_an_announced_size_is_waited_for() {
    let (mut planner, burst) = with_burst();
    planner.set_total(8 * KIB, false);
    planner.on_answer(burst[1].id, 0.1, 0, EMPTY);
    whole(&mut planner, burst[0], 0.1);
    assert!(planner.finished());
    assert_eq!(planner.expired(0.1), [burst[2].id]);
    assert_eq!(planner.expired(0.1), [], "it is cancelled twice");
}

#[test]
fn bytes_past_a_claim_make_it_false_and_it_is_read_again() {
    let (mut planner, burst) = with_burst();
    whole(&mut planner, burst[0], 0.1);
    planner.on_answer(burst[1].id, 0.1, 0, EMPTY);
    assert!(
        whole(&mut planner, burst[2], 0.1),
        "later bytes are dropped"
    );
    let again = ask(&mut planner, 0.1, 0);
    assert!(
        again
            .iter()
            .any(|request| request.start == burst[1].start && request.is_retry),
        "{again:?}"
    );
    assert_eq!((planner.end(), planner.broken()), (None, None));
}

#[test]
fn the_third_false_claim_at_one_offset_is_a_contradiction() {
    let (mut planner, burst) = with_burst();
    let at = burst[1].start;
    whole(&mut planner, burst[2], 0.1);
    planner.on_answer(burst[1].id, 0.1, 0, EMPTY);
    let again = ask(&mut planner, 0.1, 0)[0];
    assert_eq!((again.start, again.is_retry), (at, true));
    planner.on_answer(again.id, 0.1, 0, EMPTY);
    planner.on_answer(burst[0].id, 0.2, 1, None);
    let rest = ask(&mut planner, 0.2, 0)[0];
    assert!(rest.start == 1 && rest.end > at, "{rest:?}");
    assert_eq!(planner.broken(), None, "after two");
    let now = 0.3;
    planner.on_answer(rest.id, now, at - 1, EMPTY);
    assert_eq!(planner.broken(), Some((at, Broken::Contradiction)));
    assert_eq!(ask(&mut planner, now, 0), []);
}

#[test]
fn a_contradiction_waits_for_all_before_it() {
    let mut planner = planner(|settings| settings.in_flight_start = 5);
    let burst = ask(&mut planner, 0.0, 0);
    let at = burst[1].start;
    whole(&mut planner, burst[2], 0.1);
    planner.on_answer(burst[1].id, 0.1, 0, EMPTY);
    for later in [burst[3], burst[4]] {
        let again = ask(&mut planner, 0.1, 0)[0];
        assert_eq!(again.start, at);
        planner.on_answer(again.id, 0.1, 0, EMPTY);
        whole(&mut planner, later, 0.1); // progress, without which nothing but the head page is read
    }
    assert_eq!(planner.broken(), None, "the bytes before it are cut off");
    whole(&mut planner, burst[0], 0.2);
    assert_eq!(planner.broken(), Some((at, Broken::Contradiction)));
}

#[test]
fn a_false_claim_that_was_followed_by_bytes_does_not_count_for_ever() {
    let mut planner = serial();
    for _ in 0..6 {
        let first = ask_one(&mut planner, 0.0);
        planner.on_answer(first.id, 0.0, 0, EMPTY);
        let at = ask_one(&mut planner, 0.0);
        assert!(whole(&mut planner, at, 0.0));
        assert_eq!(planner.broken(), None);
        planner.seek(0);
    }
}

#[test]
fn a_marker_is_confirmed_from_the_byte_before() {
    for tail_is_marker in [false, true] {
        let mut planner = serial();
        let now = read_to(&mut planner, 20_000); // a short page, which is not enough here
        let request = ask_one(&mut planner, now);
        planner.on_answer(request.id, now, 0, Some(EndedBy::Done));
        assert_eq!(planner.end(), None, "the marker is believed");
        let at = ask_one(&mut planner, now);
        assert!(at.start == 19_999 && at.end > 20_001, "{at:?}");
        if tail_is_marker {
            assert!(planner.on_answer(at.id, now, 7, None));
            assert_eq!(ask_one(&mut planner, now).start, 20_006);
        } else {
            planner.on_answer(at.id, now, 1, None);
            let beyond = ask_one(&mut planner, now);
            planner.on_answer(beyond.id, now, 0, Some(EndedBy::Done));
            assert_eq!(end_of(&planner), Some((20_000, EndedBy::Done)));
        }
    }
}

#[test]
fn a_marker_is_confirmed_past_the_claim_even_if_the_ring_is_full() {
    let mut planner = planner(|settings| {
        (settings.capacity_bytes, settings.page_bytes) = (20 * KIB, 8 * KIB);
        settings.in_flight = Some(1);
    });
    let mut now = 0.0;
    while let Some(request) = planner.next(now, 0) {
        now += 0.1;
        whole(&mut planner, request, now);
    }
    let last = planner.next(now, 1).or_else(|| planner.next(now, 8 * KIB));
    let last = last.unwrap();
    planner.on_answer(last.id, now, 0, Some(EndedBy::Done));
    let at = planner.next(now, 0).unwrap();
    assert_eq!(at.start + 1, last.start);
    assert!(at.end > last.start, "nothing past the claim is asked for");
}

#[test]
fn a_lower_claim_takes_the_place_of_a_higher_one() {
    let (mut planner, burst) = with_burst();
    planner.on_answer(burst[2].id, 0.1, 0, EMPTY);
    whole(&mut planner, burst[0], 0.1);
    planner.on_answer(burst[1].id, 0.1, 0, EMPTY);
    let mut now = 0.1;
    while !planner.finished() {
        let (at, requests) = wait(&mut planner, now);
        now = at;
        for request in requests {
            planner.on_answer(request.id, now, 0, EMPTY);
        }
    }
    assert_eq!(planner.end().map(|end| end.at), Some(burst[1].start));
}

#[test]
fn a_seek_forgets_a_claim_that_is_being_corroborated() {
    let mut planner = serial();
    let now = read_to(&mut planner, 16 * KIB);
    let request = ask_one(&mut planner, now);
    planner.on_answer(request.id, now, 0, EMPTY);
    let at = ask_one(&mut planner, now);
    assert_eq!(planner.seek(0), [at.id]);
    assert_eq!(ask_one(&mut planner, now).start, 0);
    planner.on_answer(at.id, now, 0, EMPTY);
    assert_eq!(planner.end(), None);
}

#[test]
fn a_failed_read_at_a_claim_is_sent_again_with_backoff() {
    let mut planner = serial();
    let now = read_to(&mut planner, 16 * KIB);
    let request = ask_one(&mut planner, now);
    planner.on_answer(request.id, now, 0, EMPTY);
    let mut at = now;
    let mut sent = vec![];
    for _ in 0..5 {
        let (sent_at, requests) = wait(&mut planner, at);
        at = sent_at;
        sent.push(at);
        assert_eq!(requests[0].start, 16 * KIB);
        planner.on_error(requests[0].id, at, LOST);
    }
    assert!(
        sent.windows(4).all(|four| four[3] - four[1] >= 1.0 - 1e-9),
        "{sent:?}"
    );
}

#[test]
fn a_read_at_a_claim_that_is_refused_for_good_breaks_the_stream_there() {
    let mut planner = serial();
    let mut now = read_to(&mut planner, 16 * KIB);
    let request = ask_one(&mut planner, now);
    planner.on_answer(request.id, now, 0, EMPTY);
    while planner.broken().is_none() {
        let (at, requests) = wait(&mut planner, now);
        now = at;
        for request in requests {
            planner.on_error(request.id, now, REFUSED);
        }
    }
    assert_eq!(planner.broken(), Some((16 * KIB, Broken::Refused)));
}

#[test]
fn a_file_that_shrank_is_a_contradiction_and_not_an_end() {
    let mut planner = serial();
    let mut now = read_to(&mut planner, 32 * KIB);
    planner.seek(0);
    while planner.broken().is_none() {
        let (at, requests) = wait(&mut planner, now);
        now = at;
        for request in requests {
            let bytes = request.end.min(16 * KIB).saturating_sub(request.start);
            planner.on_answer(request.id, now, bytes, EMPTY.filter(|_| bytes == 0));
        }
    }
    assert_eq!(planner.broken(), Some((16 * KIB, Broken::Contradiction)));
    planner.seek(0);
    assert_eq!(planner.broken(), None, "a seek does not mend it");
}

#[test]
fn a_seek_past_the_announced_size_does_not_make_it_wrong() {
    let mut planner = serial();
    planner.set_total(16 * KIB, false);
    planner.seek(64 * KIB);
    let mut now = 0.0;
    while !planner.finished() {
        now += 0.1;
        for request in ask(&mut planner, now, 64 * KIB) {
            planner.on_answer(request.id, now, 0, EMPTY);
        }
    }
    assert!(!planner.statistics().size_was_wrong);
    assert_eq!(planner.total(), Some(16 * KIB));
}

#[test]
fn answers_that_bring_nothing_and_claim_nothing_end_the_stream() {
    let mut planner = serial();
    let mut answers = 0;
    while planner.broken().is_none() {
        let request = ask_one(&mut planner, f64::from(answers));
        planner.on_answer(request.id, f64::from(answers), 0, None);
        answers += 1;
    }
    assert_eq!(answers, 9);
    assert_eq!(planner.broken(), Some((0, Broken::Stagnant(9))));
}

#[test]
fn an_end_is_accepted_once_all_before_it_has_arrived() {
    let (mut planner, burst) = with_burst();
    whole(&mut planner, burst[1], 0.1);
    let claim = burst[2].start + 1000; // a short page
    planner.on_answer(burst[2].id, 0.1, 1000, EMPTY);
    for now in [0.1, 1.0, 2.0] {
        ask(&mut planner, now, 0);
        assert_eq!(
            planner.end(),
            None,
            "a lower claim could not be looked into"
        );
    }
    whole(&mut planner, burst[0], 2.0);
    assert_eq!(end_of(&planner), Some((claim, EndedBy::Empty)));
}

#[test]
fn what_a_read_beyond_a_claim_that_is_no_more_says_is_no_claim() {
    let (mut planner, burst) = with_burst();
    whole(&mut planner, burst[0], 0.1);
    whole(&mut planner, burst[1], 0.1);
    planner.on_answer(burst[2].id, 0.1, 0, EMPTY);
    let reads = ask(&mut planner, 0.1, 0);
    let (at, beyond) = (reads[0], reads[1]);
    whole(&mut planner, at, 0.2);
    planner.on_answer(beyond.id, 0.2, 0, EMPTY);
    let (_, next) = wait(&mut planner, 0.2);
    assert_eq!(next[0].start, at.end);
    assert!(next[0].end > beyond.start, "{next:?} stops at {beyond:?}");
}

#[test]
fn a_read_at_a_claim_that_says_nothing_is_sent_again() {
    let mut planner = serial();
    let now = read_to(&mut planner, 16 * KIB);
    let request = ask_one(&mut planner, now);
    planner.on_answer(request.id, now, 0, EMPTY);
    for _ in 0..3 {
        let at = ask_one(&mut planner, now);
        assert_eq!(at.start, 16 * KIB);
        planner.on_answer(at.id, now, 0, None);
    }
}
