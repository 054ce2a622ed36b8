//! One rule of the planner each, in the smallest story that shows it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use playhead_core::planner::{InvalidSetting, Planner, Request, Settings};
use playhead_core::ring::CAPACITY_MAX_BYTES;

const KIB: u64 = 1 << 10;

fn planner(adjust: impl FnOnce(&mut Settings)) -> Planner {
    let mut settings = Settings::new(1 << 20);
    adjust(&mut settings);
    Planner::new(settings).unwrap()
}

fn ask(planner: &mut Planner, now: f64, head: u64) -> Vec<Request> {
    std::iter::from_fn(|| planner.next(now, head)).collect()
}

fn whole(planner: &mut Planner, request: Request, now: f64) -> bool {
    planner.on_page(request.id, now, request.end - request.start)
}

fn ranges(requests: &[Request]) -> Vec<(u64, u64)> {
    requests
        .iter()
        .map(|request| (request.start, request.end))
        .collect()
}

#[test]
fn a_short_page_with_later_ones_out_has_its_rest_asked_for() {
    let mut planner = planner(|_| {});
    let burst = ask(&mut planner, 0.0, 0);
    assert!(planner.on_page(burst[0].id, 0.1, 1000));
    assert_eq!(ranges(&ask(&mut planner, 0.1, 0))[0], (1000, 8 * KIB));
    assert_eq!(planner.statistics().short_pages, 1);
}

#[test]
fn a_short_page_with_nothing_later_is_continued_where_it_stopped() {
    let mut planner = planner(|settings| settings.in_flight = 1);
    let first = ask(&mut planner, 0.0, 0)[0];
    planner.on_page(first.id, 0.1, 1000);
    let next = ask(&mut planner, 0.1, 0)[0];
    assert_eq!(next.start, 1000);
    assert!(
        next.end - next.start > 7 * KIB,
        "the rest alone is asked for"
    );
}

#[test]
fn the_lowest_empty_answer_is_the_end_and_what_lies_past_it_is_cancelled_once() {
    let mut planner = planner(|_| {});
    let burst = ask(&mut planner, 0.0, 0);
    assert!(!planner.on_page(burst[1].id, 0.1, 0));
    assert_eq!((planner.end(), planner.finished()), (Some(8 * KIB), false));
    assert_eq!(planner.timer(), Some(0.1), "the driver is not told at once");
    assert_eq!(planner.expired(0.1), [burst[2].id]);
    assert_eq!(planner.expired(0.1), []);
    assert!(planner.on_page(burst[0].id, 0.2, 8 * KIB));
    assert!(planner.finished());
}

#[test]
fn a_gap_below_the_end_is_filled_before_the_stream_is_finished() {
    let mut planner = planner(|_| {});
    let burst = ask(&mut planner, 0.0, 0);
    planner.on_page(burst[1].id, 0.1, 0);
    planner.on_page(burst[0].id, 0.1, 8000);
    assert!(!planner.finished());
    let rest = ask(&mut planner, 0.1, 8000);
    assert_eq!(ranges(&rest), [(8000, 8 * KIB)]);
    planner.on_page(rest[0].id, 0.2, 0);
    assert_eq!((planner.end(), planner.finished()), (Some(8000), true));
}

#[test]
fn bytes_past_a_proven_end_are_a_contradiction_and_end_the_asking() {
    let mut planner = planner(|_| {});
    let burst = ask(&mut planner, 0.0, 0);
    planner.on_page(burst[1].id, 0.1, 0);
    assert!(!whole(&mut planner, burst[2], 0.1));
    assert_eq!(
        (planner.contradiction(), planner.end(), planner.finished()),
        (Some(8 * KIB), None, false)
    );
    assert_eq!(ask(&mut planner, 0.1, 0), []);
}

#[test]
fn an_empty_answer_below_bytes_already_received_is_a_contradiction() {
    let mut planner = planner(|_| {});
    let burst = ask(&mut planner, 0.0, 0);
    whole(&mut planner, burst[2], 0.1);
    planner.on_page(burst[1].id, 0.1, 0);
    assert_eq!(
        (planner.contradiction(), planner.end()),
        (Some(8 * KIB), None)
    );
}

#[test]
fn a_refusal_past_the_announced_size_ends_the_stream_there() {
    let mut planner = planner(|_| {});
    planner.set_total(8 * KIB);
    let burst = ask(&mut planner, 0.0, 0);
    assert!(burst[1].is_confirm);
    planner.on_error(burst[1].id, 0.1, false);
    whole(&mut planner, burst[0], 0.1);
    assert!(planner.finished() && planner.statistics().ended_by_size);
}

#[test]
fn an_empty_answer_beyond_the_announced_size_does_not_refute_it() {
    let mut planner = planner(|_| {});
    planner.set_total(8 * KIB);
    let burst = ask(&mut planner, 0.0, 0);
    planner.set_page_bytes(4 * KIB);
    planner.on_error(burst[1].id, 0.1, true);
    let again = ask(&mut planner, 0.1, 0);
    assert_eq!(
        ranges(&again),
        [(8 * KIB, 12 * KIB), (12 * KIB, 16 * KIB)],
        "the read past it is not in two"
    );
    planner.on_page(again[1].id, 0.2, 0);
    planner.on_page(again[0].id, 0.2, 0);
    whole(&mut planner, burst[0], 0.2);
    assert_eq!((planner.end(), planner.finished()), (Some(8 * KIB), true));
    assert!(!planner.statistics().size_was_wrong);
}

#[test]
fn a_size_too_small_is_read_past_and_said() {
    let mut planner = planner(|_| {});
    planner.set_total(4096);
    let burst = ask(&mut planner, 0.0, 0);
    assert_eq!(ranges(&burst), [(0, 4096), (4096, 12 * KIB)]);
    whole(&mut planner, burst[0], 0.1);
    whole(&mut planner, burst[1], 0.1);
    assert!(planner.statistics().size_was_wrong && !planner.finished());
    assert_eq!(ask(&mut planner, 0.1, 0)[0].start, 12 * KIB);
}

#[test]
fn a_failed_page_is_retried_at_once_then_ever_later_and_breaks_the_stream_after_the_last_try() {
    let mut planner = planner(|settings| (settings.in_flight, settings.max_tries) = (1, 4));
    let mut now = 0.0;
    let mut waits = vec![];
    for attempt in 0..4 {
        let request = ask(&mut planner, now, 0)[0];
        assert_eq!((request.start, request.attempt), (0, attempt));
        planner.on_error(request.id, now, true);
        let again = planner.timer().unwrap_or(now);
        waits.push(again - now);
        now = again;
    }
    assert_eq!(waits[0], 0.0);
    assert!(
        (0.1..=0.3).contains(&waits[1]) && (0.2..=0.6).contains(&waits[2]),
        "{waits:?}"
    );
    assert_eq!(planner.failed(), Some((0, 4)));
    assert_eq!(planner.statistics().retries, 3);
}

#[test]
fn a_later_page_that_fails_for_good_waits_for_all_before_it() {
    let mut planner = planner(|_| {});
    let burst = ask(&mut planner, 0.0, 0);
    planner.on_error(burst[1].id, 0.1, false);
    assert_eq!(planner.failed(), None);
    whole(&mut planner, burst[0], 0.2);
    assert_eq!(planner.failed(), Some((8 * KIB, 1)));
}

#[test]
fn a_refusal_past_an_end_that_is_then_proven_is_no_failure() {
    let mut planner = planner(|_| {});
    let burst = ask(&mut planner, 0.0, 0);
    planner.on_error(burst[2].id, 0.1, false);
    planner.on_page(burst[1].id, 0.1, 0);
    whole(&mut planner, burst[0], 0.1);
    assert_eq!((planner.failed(), planner.finished()), (None, true));
}

#[test]
fn a_late_page_that_two_others_overtook_is_asked_for_once_more_and_the_first_answer_counts() {
    let mut planner = planner(|_| {});
    planner.set_total(56 * KIB);
    let burst = ask(&mut planner, 0.0, 0);
    whole(&mut planner, burst[1], 0.1);
    whole(&mut planner, burst[2], 0.1);
    assert!(
        ask(&mut planner, 0.1, 0)
            .iter()
            .all(|request| !request.is_hedge),
        "it is not late yet"
    );
    let hedges: Vec<Request> = ask(&mut planner, 0.45, 0)
        .into_iter()
        .filter(|request| request.is_hedge)
        .collect();
    assert_eq!(ranges(&hedges), [(0, 8 * KIB)]);
    assert!(whole(&mut planner, hedges[0], 0.46));
    assert!(
        planner.expired(0.46).contains(&burst[0].id),
        "the loser is not cancelled"
    );
    assert!(!whole(&mut planner, burst[0], 0.47), "bytes kept twice");
}

#[test]
fn the_timer_says_when_a_page_becomes_late() {
    let mut planner = planner(|_| {});
    planner.set_total(56 * KIB);
    let burst = ask(&mut planner, 0.0, 0);
    whole(&mut planner, burst[1], 0.1);
    whole(&mut planner, burst[2], 0.1);
    let mut now = 0.1;
    while planner.statistics().hedges == 0 {
        ask(&mut planner, now, 0);
        let next = planner.timer().unwrap();
        assert!(
            next > now && next < burst[0].deadline,
            "no hedge before the deadline"
        );
        now = next;
        ask(&mut planner, now, 0);
    }
}

#[test]
fn seek_keeps_the_estimates_and_starts_small_again() {
    let mut planner = planner(|_| {});
    let burst = ask(&mut planner, 0.0, 0);
    for request in &burst {
        whole(&mut planner, *request, 0.1);
    }
    let known = planner.statistics();
    planner.seek(500_000);
    let after = planner.statistics();
    assert_eq!(
        after.bandwidth_bytes_per_second,
        known.bandwidth_bytes_per_second
    );
    assert_eq!(after.rtt_seconds, known.rtt_seconds);
    assert_eq!(
        ranges(&ask(&mut planner, 0.2, 500_000))[0],
        (500_000, 500_000 + 8 * KIB)
    );
}

#[test]
fn the_page_size_of_the_server_is_adopted() {
    let mut planner = planner(|_| {});
    planner.set_page_bytes(5000);
    assert_eq!(
        ranges(&ask(&mut planner, 0.0, 0))[..2],
        [(0, 5000), (5000, 10_000)]
    );
}

#[test]
fn no_deadline_is_longer_than_the_callers() {
    let mut planner = planner(|settings| settings.deadline_seconds = 0.25);
    assert!(
        ask(&mut planner, 1.0, 0)
            .iter()
            .all(|request| request.deadline == 1.25)
    );
}

#[test]
fn a_clock_that_runs_back_or_is_no_number_changes_nothing() {
    let mut planner = planner(|settings| settings.in_flight = 1);
    let request = ask(&mut planner, 10.0, 0)[0];
    for now in [5.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(planner.expired(now), []);
    }
    assert!(whole(&mut planner, request, 3.0));
    assert!(
        planner
            .statistics()
            .bandwidth_bytes_per_second
            .unwrap()
            .is_finite()
    );
}

#[test]
fn when_the_clock_began_changes_no_request() {
    let asked_from = |origin: f64| {
        let mut planner = planner(|settings| settings.in_flight = 1);
        let mut now = origin;
        // The second page, twice the first, takes four times as long: no sign of a cost a page.
        [0.0625, 0.25, 0.25, 0.25].map(|seconds| {
            let request = ask(&mut planner, now, 0)[0];
            let patience_seconds = request.deadline - now;
            now += seconds;
            whole(&mut planner, request, now);
            (request.start, request.end, patience_seconds)
        })
    };
    // Powers of two, so that every time is exact.
    for origin in [262_144.0, -262_144.0] {
        assert_eq!(asked_from(origin), asked_from(0.0), "from {origin} s on");
    }
}

#[test]
fn a_full_ring_can_be_played_however_much_is_needed() {
    let mut planner = planner(|settings| settings.capacity_bytes = 1000);
    assert!(!planner.can_play(0.0, 0, 8192, None));
    while let Some(request) = planner.next(0.0, 0) {
        whole(&mut planner, request, 0.1);
    }
    assert!(planner.can_play(0.1, 1000, 8192, None));
}

#[test]
fn music_faster_than_the_link_is_held_back_until_it_will_not_stall() {
    let mut planner = planner(|settings| settings.in_flight = 1);
    let (mut now, mut got) = (0.0, 0);
    while got < 200_000 {
        let request = ask(&mut planner, now, 0)[0];
        now += (request.end - request.start) as f64 / 20_000.0;
        whole(&mut planner, request, now);
        got = request.end;
    }
    // 20 kB/s for 40 kB/s of music: of 600 kB, more than half has to be there first.
    assert!(!planner.can_play(now, 200_000, 8192, Some(600_000)));
    assert!(planner.can_play(now, 400_000, 8192, Some(600_000)));
}

#[test]
fn pages_as_large_as_can_be_asked_for_overflow_nothing() {
    let mut planner = planner(|settings| {
        settings.capacity_bytes = CAPACITY_MAX_BYTES;
        settings.page_min_bytes = CAPACITY_MAX_BYTES;
        settings.page_bytes = CAPACITY_MAX_BYTES;
    });
    for round in 0..100 {
        let now = f64::from(round);
        for request in ask(&mut planner, now, 0) {
            assert!(whole(&mut planner, request, now + 0.5));
        }
        planner.seek(0);
    }
    assert!(planner.statistics().bytes > CAPACITY_MAX_BYTES);
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let refused = |adjust: fn(&mut Settings)| {
        let mut settings = Settings::new(1);
        adjust(&mut settings);
        Planner::new(settings)
            .err()
            .map(|InvalidSetting { setting, .. }| setting)
    };
    assert_eq!(refused(|_| {}), None);
    assert_eq!(
        refused(|settings| settings.capacity_bytes = 0),
        Some("capacity_bytes")
    );
    assert_eq!(
        refused(|settings| settings.capacity_bytes = CAPACITY_MAX_BYTES + 1),
        Some("capacity_bytes")
    );
    assert_eq!(
        refused(|settings| settings.page_bytes = u64::MAX),
        Some("page_bytes")
    );
    assert_eq!(
        refused(|settings| settings.in_flight = 0),
        Some("in_flight")
    );
    assert_eq!(
        refused(|settings| settings.max_tries = 0),
        Some("max_tries")
    );
    assert_eq!(
        refused(|settings| settings.deadline_seconds = f64::NAN),
        Some("deadline_seconds")
    );
    assert_eq!(refused(|settings| settings.start = u64::MAX), Some("start"));
}
