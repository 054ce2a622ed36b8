//! Patience, retries and failures: one rule each, in the smallest story that shows it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod story;

use playhead_core::planner::{Broken, Demand, Failure, Planner, Settings};

use story::{
    EMPTY, KIB, LOST, REFUSED, ask, ask_one, lost, planner, serial, wait, whole, with_burst,
};

/// Fails every request as `failure` says until the stream breaks or `until`: when each was sent.
fn outage(planner: &mut Planner, mut now: f64, until: f64, failure: Failure) -> Vec<f64> {
    let mut sent = vec![];
    while planner.broken().is_none() {
        let requests = ask(planner, now, 0);
        for request in &requests {
            sent.push(now);
            planner.on_error(request.id, now, failure);
        }
        if !requests.is_empty() {
            continue;
        }
        match planner.timer().filter(|&at| at < until) {
            Some(at) => now = at,
            None => break,
        }
    }
    ask(planner, until, 0);
    sent
}

#[test]
fn a_stream_breaks_when_its_reader_has_waited_for_its_patience() {
    let mut planner = serial();
    outage(&mut planner, 0.0, 59.9, LOST);
    assert_eq!(planner.broken(), None);
    ask(&mut planner, 60.0, 0);
    assert_eq!(planner.broken(), Some((0, Broken::Patience)));
    assert_eq!(ask(&mut planner, 61.0, 0), []);
}

#[test]
fn the_timer_names_the_instant_at_which_patience_ends() {
    // Seconds that no binary fraction is equal to.
    for start in [0.1, 1e6 + 0.3, 1e9 + 0.7] {
        let mut planner = Planner::new(Settings::new(1 << 20)).unwrap();
        planner.set_demand(start, Demand::Waiting);
        let (_, requests) = wait(&mut planner, start);
        for request in requests {
            planner.hold(request.id);
        }
        let mut now = start;
        while planner.broken().is_none() {
            let next = planner.timer().unwrap();
            assert!(next > now, "the timer stands still at {now}");
            now = next;
            for request in ask(&mut planner, now, 0) {
                planner.hold(request.id);
            }
            planner.expired(now);
        }
        assert!((now - start - 60.0).abs() < 1e-3, "{now}");
    }
}

#[test]
fn patience_runs_only_while_the_reader_waits() {
    for demand in [Demand::Supplied, Demand::Paused] {
        let mut planner = serial();
        planner.set_demand(0.0, demand);
        outage(&mut planner, 0.0, 1000.0, LOST);
        assert_eq!(
            (planner.broken(), planner.waited_seconds(1000.0)),
            (None, 0.0)
        );
        planner.set_demand(1000.0, Demand::Waiting);
        outage(&mut planner, 1000.0, 1030.0, LOST);
        planner.set_demand(1030.0, demand);
        outage(&mut planner, 1030.0, 2000.0, LOST);
        planner.set_demand(2000.0, Demand::Waiting);
        assert_eq!(planner.waited_seconds(2000.0), 30.0);
        ask(&mut planner, 2029.9, 0);
        assert_eq!(planner.broken(), None);
        ask(&mut planner, 2030.1, 0);
        assert_eq!(planner.broken(), Some((0, Broken::Patience)));
    }
}

#[test]
fn a_new_byte_restores_the_patience() {
    let mut planner = serial();
    outage(&mut planner, 0.0, 50.0, LOST);
    let (now, requests) = wait(&mut planner, 50.0);
    planner.on_answer(requests[0].id, now, 1, None);
    assert_eq!(planner.waited_seconds(now), 0.0);
    outage(&mut planner, now, now + 59.0, LOST);
    assert_eq!(planner.broken(), None);
}

#[test]
fn bytes_of_an_answer_in_flight_hold_the_end_of_patience_up_until_it_fails() {
    let mut planner = serial();
    let request = ask_one(&mut planner, 0.0);
    planner.heard(59.0);
    ask(&mut planner, 70.0, 0);
    assert_eq!(planner.broken(), None);
    planner.on_error(request.id, 75.0, LOST);
    assert_eq!(planner.broken(), Some((0, Broken::Patience)));
}

#[test]
fn the_allowed_wait_is_the_patience_or_the_timeout_of_an_answer_that_has_begun() {
    let mut planner = planner(|settings| settings.patience_seconds = 2.0);
    planner.set_demand(0.0, Demand::Waiting);
    let request = ask(&mut planner, 0.0, 0)[0];
    assert_eq!(planner.allowed_seconds(), 2.0);
    planner.heard(1.0);
    assert_eq!(planner.allowed_seconds(), 31.0, "30 s from the byte at 1 s");
    ask(&mut planner, 30.9, 0);
    assert_eq!(planner.broken(), None);
    planner.on_error(request.id, 31.0, LOST);
    assert_eq!(planner.broken(), Some((0, Broken::Patience)));
    assert_eq!(planner.allowed_seconds(), 2.0);
}

#[test]
fn a_request_expires_when_no_byte_of_any_answer_arrived_for_the_timeout() {
    let mut planner = serial();
    let request = ask_one(&mut planner, 0.0);
    planner.heard(10.0);
    assert_eq!(planner.expired(39.9), []);
    assert_eq!(planner.expired(40.0), [request.id]);
    planner.hold(request.id);
    assert_eq!(planner.expired(100.0), [], "the driver still judges it");
}

#[test]
fn a_failed_page_is_retried_at_once_then_ever_later_up_to_five_seconds() {
    let mut planner = serial();
    let sent = outage(&mut planner, 0.0, 59.0, LOST);
    assert_eq!(sent[..2], [0.0, 0.0], "the first retry waits");
    let gaps: Vec<f64> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap <= 5.0), "{gaps:?}");
    assert!(gaps[gaps.len() - 1] >= 2.5, "{gaps:?}");
    assert_eq!(planner.statistics().retries, sent.len() as u64 - 1);
}

#[test]
fn at_most_two_retries_are_sent_in_a_second_without_progress() {
    for in_flight in [1, 8, 64] {
        let mut planner = planner(|settings| settings.in_flight = Some(in_flight));
        let fresh = ask(&mut planner, 0.0, 0);
        for request in fresh {
            planner.on_error(request.id, 0.0, LOST);
        }
        let sent = outage(&mut planner, 0.0, 59.0, LOST);
        assert!(
            sent.windows(3).all(|three| three[2] - three[0] >= 1.0),
            "{sent:?}"
        );
    }
}

#[test]
fn progress_ends_the_backoff() {
    let (mut planner, burst) = with_burst();
    planner.on_error(burst[0].id, 0.1, LOST);
    let mut now = 0.1;
    for _ in 0..4 {
        let (at, requests) = wait(&mut planner, now);
        now = at;
        for request in requests.iter().filter(|request| request.is_retry) {
            planner.on_error(request.id, now, LOST);
        }
    }
    whole(&mut planner, burst[1], now);
    let again = ask(&mut planner, now, 0);
    assert!(again.iter().any(|request| request.start == 0), "{again:?}");
}

#[test]
fn in_an_outage_only_the_head_page_is_read() {
    let (mut planner, burst) = with_burst();
    assert_eq!(burst.len(), 3);
    for request in &burst {
        planner.on_error(request.id, 0.1, LOST);
    }
    let head = ask_one(&mut planner, 0.1);
    assert_eq!((head.start, head.is_retry), (0, true));
    for at in [1.0, 10.0, 20.0] {
        assert_eq!(ask(&mut planner, at, 0), [], "the rest does not wait");
    }
    whole(&mut planner, head, 20.0);
    assert!(
        !ask(&mut planner, 20.0, 0).is_empty(),
        "the outage does not end"
    );
}

#[test]
fn the_head_page_is_read_in_an_outage_even_if_nothing_had_been_asked_for_there() {
    let mut planner = serial();
    planner.hold_pages(true);
    planner.probe(0, 4096);
    let mut now = 0.0;
    for _ in 0..3 {
        let (at, requests) = wait(&mut planner, now);
        now = at;
        assert!(requests[0].is_probe);
        planner.on_error(requests[0].id, now, LOST);
    }
    let (at, requests) = wait(&mut planner, now);
    planner.on_answer(requests[0].id, at, 100, None);
    planner.hold_pages(false);
    let (_, requests) = wait(&mut planner, at);
    assert_eq!((requests[0].start, requests[0].is_probe), (0, false));
}

#[test]
fn a_page_that_broke_off_is_asked_for_by_halves_until_bytes_arrive() {
    let broke_off = lost(None, true, None);
    let mut planner = serial();
    let mut now = 0.0;
    let mut sizes = vec![];
    for _ in 0..4 {
        let (at, requests) = wait(&mut planner, now);
        now = at;
        sizes.push(requests[0].end - requests[0].start);
        planner.on_error(requests[0].id, now, broke_off);
    }
    assert_eq!(sizes, [8 * KIB, 4 * KIB, 2 * KIB, KIB]);
    let (now, requests) = wait(&mut planner, now);
    whole(&mut planner, requests[0], now);
    assert_eq!(ask_one(&mut planner, now).end, 8 * KIB);
}

#[test]
fn a_refusal_is_tried_again_after_one_five_and_fifteen_seconds_then_breaks_the_stream() {
    // At offset 0, where no byte before it could be served.
    let mut planner = serial();
    planner.set_total(8 * KIB, true);
    let sent = outage(&mut planner, 0.0, 59.0, REFUSED);
    assert_eq!(sent, [0.0, 1.0, 6.0, 21.0]);
    assert_eq!(planner.broken(), Some((0, Broken::Refused)));
}

#[test]
fn a_refused_head_page_waits_out_its_delay_while_later_pages_arrive() {
    let (mut planner, burst) = with_burst();
    planner.on_error(burst[0].id, 0.0, REFUSED);
    whole(&mut planner, burst[1], 0.1);
    whole(&mut planner, burst[2], 0.2);
    assert!(
        ask(&mut planner, 0.2, 0)
            .iter()
            .all(|request| request.start != 0)
    );
    assert_eq!(ask(&mut planner, 1.0, 0)[0].start, 0);
}

#[test]
fn a_damaged_answer_is_read_once_more_and_no_more() {
    let mut planner = serial();
    for broken in [None, Some((0, Broken::Refused))] {
        let request = ask_one(&mut planner, 0.0);
        planner.on_error(request.id, 0.0, Failure::Damaged);
        assert_eq!(planner.broken(), broken);
    }
}

#[test]
fn two_pages_that_are_damaged_by_turns_break_the_stream() {
    let (mut planner, burst) = with_burst();
    planner.on_error(burst[0].id, 0.0, Failure::Damaged);
    planner.on_error(burst[1].id, 0.0, Failure::Damaged);
    let again = ask_one(&mut planner, 0.0);
    assert_eq!(again.start, 0);
    planner.on_error(again.id, 0.0, Failure::Damaged);
    assert_eq!(planner.broken(), Some((0, Broken::Refused)));
}

#[test]
fn a_later_page_that_fails_for_good_waits_for_all_before_it() {
    let (mut planner, burst) = with_burst();
    planner.on_error(burst[1].id, 0.1, Failure::Final);
    assert_eq!(planner.broken(), None);
    whole(&mut planner, burst[0], 0.2);
    assert_eq!(planner.broken(), Some((8 * KIB, Broken::Refused)));
}

#[test]
fn retry_after_is_kept_to_and_a_hopeless_one_is_named() {
    let asked = |seconds| lost(Some(seconds), false, Some(429));
    let mut planner = serial();
    let request = ask_one(&mut planner, 0.0);
    planner.on_error(request.id, 0.0, asked(7.0));
    let (now, requests) = wait(&mut planner, 0.0);
    assert_eq!((now, requests.len()), (7.0, 1));
    planner.set_demand(7.0, Demand::Supplied);
    planner.on_error(requests[0].id, 7.0, asked(100.0));
    assert_eq!(planner.broken(), None, "there is audio in hand");
    planner.set_demand(17.0, Demand::Waiting);
    ask(&mut planner, 17.0, 0);
    let Some((0, Broken::RetryAfter(seconds))) = planner.broken() else {
        unreachable!("{:?}", planner.broken())
    };
    assert!((seconds - 90.0).abs() < 1e-9, "{seconds}");
}

#[test]
fn nothing_at_all_is_sent_while_the_server_asks_for_silence() {
    let (mut planner, burst) = with_burst();
    let failure = lost(Some(5.0), false, Some(503));
    planner.on_error(burst[0].id, 0.1, failure);
    whole(&mut planner, burst[1], 0.2);
    assert_eq!(ask(&mut planner, 5.0, 0), []);
    assert!(!ask(&mut planner, 5.1, 0).is_empty());
}

#[test]
fn a_paused_listener_costs_one_try_in_a_minute() {
    let mut planner = serial();
    planner.set_demand(0.0, Demand::Paused);
    let sent = outage(&mut planner, 0.0, 601.0, LOST);
    let retries = &sent[1..];
    assert!(
        retries.windows(2).all(|pair| pair[1] - pair[0] >= 60.0),
        "{sent:?}"
    );
    assert!(retries.len() >= 10, "{sent:?}");
}

#[test]
fn a_lost_probe_is_sent_again_within_the_same_budget() {
    let mut planner = serial();
    planner.hold_pages(true);
    planner.probe(100, 200);
    let sent = outage(&mut planner, 0.0, 59.0, LOST);
    assert!(sent.len() > 5, "{sent:?}");
    assert!(
        sent[1..].windows(3).all(|three| three[2] - three[0] >= 1.0),
        "{sent:?}"
    );
}

#[test]
fn a_probe_is_the_drivers_to_judge() {
    let mut planner = serial();
    planner.hold_pages(true);
    planner.probe(100, 200);
    let request = ask_one(&mut planner, 0.0);
    assert_eq!((request.start, request.end), (100, 200));
    assert!(request.is_probe);
    assert!(!planner.on_answer(request.id, 0.1, 100, EMPTY));
    assert_eq!(planner.statistics().bytes, 0);
    assert_eq!(ask(&mut planner, 0.1, 0), [], "the pages are not held");
    planner.hold_pages(false);
    assert_eq!(ask_one(&mut planner, 0.1).start, 0);
}
