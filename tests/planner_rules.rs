//! Pages, late pages, estimates and settings: one rule of the planner each, in the smallest story that shows it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod story;

use playhead_core::planner::{EndedBy, InvalidSetting, MAX_IN_FLIGHT, Planner, Request, Settings};
use playhead_core::ring::CAPACITY_MAX_BYTES;
use story::{EMPTY, KIB, LOST, ask, ask_one, end_of, planner, ranges, wait, whole, with_burst};

#[test]
fn a_short_page_with_later_ones_out_has_its_rest_asked_for() {
    let (mut planner, burst) = with_burst();
    assert!(planner.on_answer(burst[0].id, 0.1, 1000, None));
    assert_eq!(ranges(&ask(&mut planner, 0.1, 0))[0], (1000, 8 * KIB));
}

#[test]
fn a_short_page_with_nothing_later_is_continued_where_it_stopped() {
    let mut planner = planner(|settings| settings.in_flight = Some(1));
    let first = ask_one(&mut planner, 0.0);
    planner.on_answer(first.id, 0.1, 1000, None);
    let next = ask_one(&mut planner, 0.1);
    assert_eq!(next.start, 1000);
    assert!(
        next.end - next.start > 7 * KIB,
        "the rest alone is asked for"
    );
}

#[test]
fn answers_that_are_held_count_in_the_most_requests() {
    let mut planner = planner(|settings| settings.in_flight = Some(1));
    for start in 0..2 * MAX_IN_FLIGHT as u64 {
        planner.probe(start, start + 1);
    }
    let mut held = Vec::new();
    while let Some(request) = planner.next(0.0, 0) {
        planner.hold(request.id);
        held.push(request);
    }
    assert_eq!(held.len(), MAX_IN_FLIGHT);
    planner.on_answer(held[0].id, 0.1, 1, None);
    assert!(
        planner.next(0.1, 0).is_some(),
        "one is judged: room for another"
    );
}

#[test]
fn no_page_has_the_length_of_the_marker() {
    let mut planner = planner(|settings| {
        (
            settings.capacity_bytes,
            settings.page_min_bytes,
            settings.page_bytes,
        ) = (24, 6, 6);
    });
    planner.set_total(18, false);
    let mut head = 0;
    while !planner.finished() {
        let request = planner.next(0.0, head).unwrap();
        assert_ne!(request.end - request.start, 6, "{request:?}");
        let bytes = request.end.min(18).saturating_sub(request.start);
        planner.on_answer(request.id, 0.0, bytes, EMPTY.filter(|_| bytes == 0));
        head = request.end.min(18);
    }
}

#[test]
fn a_full_room_is_read_down_by_a_quarter_before_more_is_asked_for() {
    let mut planner = planner(|settings| {
        (
            settings.capacity_bytes,
            settings.page_bytes,
            settings.page_bytes_max,
            settings.sleeps_when_full,
        ) = (64 * KIB, 8 * KIB, 8 * KIB, true);
    });
    let mut now = 0.0;
    let mut end = 0;
    while end < 64 * KIB {
        let (at, requests) = wait(&mut planner, now);
        now = at + 0.1;
        for request in requests {
            whole(&mut planner, request, now);
            end = end.max(request.end);
        }
    }
    assert_eq!(ask(&mut planner, now, 0), []);
    assert_eq!(ask(&mut planner, now, 15 * KIB), [], "it does not sleep");
    assert!(!ask(&mut planner, now, 16 * KIB).is_empty(), "it sleeps on");
}

/// The first request that ends past `end`, for a reader at `head`.
fn wait_at(planner: &mut Planner, mut now: f64, head: u64, end: u64) -> Request {
    loop {
        let requests = ask(planner, now, head);
        if let Some(request) = requests.into_iter().find(|request| request.end > end) {
            return request;
        }
        now = planner.timer().unwrap();
    }
}

#[test]
fn a_reader_that_goes_back_inside_the_ring_loses_no_page_in_flight() {
    let mut planner = planner(|settings| settings.capacity_bytes = 64 * KIB);
    let burst = ask(&mut planner, 0.0, 0);
    for request in &burst {
        whole(&mut planner, *request, 0.1);
    }
    let head = burst[2].end;
    let next = wait_at(&mut planner, 0.1, head, 64 * KIB);
    ask(&mut planner, 1.0, 0);
    assert!(whole(&mut planner, next, 2.0), "the page is read again");
}

// --- late pages ----------------------------------------------------------------------------------------------

fn with_a_late_page(planner: &mut Planner) -> Vec<Request> {
    planner.set_total(56 * KIB, false);
    let burst = ask(planner, 0.0, 0);
    whole(planner, burst[1], 0.1);
    whole(planner, burst[2], 0.1);
    burst
}

#[test]
fn a_late_page_that_two_others_overtook_is_asked_for_once_more_and_the_first_answer_counts() {
    let mut planner = planner(|_| {});
    let burst = with_a_late_page(&mut planner);
    assert!(
        ask(&mut planner, 0.1, 0)
            .iter()
            .all(|request| !request.is_hedge),
        "it is not late yet"
    );
    let hedges: Vec<Request> = ask(&mut planner, 0.6, 0)
        .into_iter()
        .filter(|request| request.is_hedge)
        .collect();
    assert_eq!(ranges(&hedges), [(0, 8 * KIB)]);
    assert!(whole(&mut planner, hedges[0], 0.7));
    assert!(
        planner.expired(0.7).contains(&burst[0].id),
        "the loser is not cancelled"
    );
    assert!(!whole(&mut planner, burst[0], 0.8), "bytes kept twice");
}

#[test]
fn the_last_page_in_flight_is_asked_for_again_when_it_is_late_and_again_after_twice_as_long() {
    let mut planner = planner(|_| {});
    planner.set_total(56 * KIB, true);
    let burst = ask(&mut planner, 0.0, 0);
    whole(&mut planner, burst[0], 0.1);
    whole(&mut planner, burst[1], 0.1);
    let mut now = 0.1;
    let mut hedged_after = vec![];
    while hedged_after.len() < 2 {
        let (at, requests) = wait(&mut planner, now);
        now = at;
        assert!(requests.iter().all(|request| request.is_hedge));
        assert_eq!(ranges(&requests), [(burst[2].start, burst[2].end)]);
        hedged_after.push(now);
    }
    assert!(hedged_after[0] < 2.0, "{hedged_after:?}");
    let ratio = hedged_after[1] / hedged_after[0];
    assert!((ratio - 2.0).abs() < 1e-9, "{hedged_after:?}");
}

#[test]
fn a_page_that_came_in_parts_of_its_copies_is_asked_for_from_where_they_stopped() {
    let mut planner = planner(|_| {});
    planner.set_total(56 * KIB, true);
    let burst = ask(&mut planner, 0.0, 0);
    whole(&mut planner, burst[0], 0.1);
    whole(&mut planner, burst[1], 0.1);
    let (now, first) = wait(&mut planner, 0.1);
    planner.on_answer(first[0].id, now, 1000, None);
    let (now, second) = wait(&mut planner, now);
    assert_eq!(second[0].start, first[0].start + 1000);
    whole(&mut planner, second[0], now);
    assert_eq!(planner.expired(now), [burst[2].id], "it is still wanted");
}

#[test]
fn a_late_read_at_a_claim_is_asked_for_again() {
    let (mut planner, burst) = with_burst();
    whole(&mut planner, burst[0], 0.1);
    whole(&mut planner, burst[1], 0.1);
    planner.on_answer(burst[2].id, 0.1, 0, EMPTY);
    let claim = burst[2].start;
    let reads = ask(&mut planner, 0.1, 0);
    assert_eq!((reads.len(), reads[0].start), (2, claim));
    planner.on_answer(reads[1].id, 0.2, 0, EMPTY);
    let (now, again) = wait(&mut planner, 0.2);
    assert!(now < 3.0 && again[0].start == claim, "{again:?} at {now}");
    planner.on_answer(again[0].id, now, 0, EMPTY);
    ask(&mut planner, now + 3.0, 0);
    assert_eq!(end_of(&planner), Some((claim, EndedBy::Empty)));
}

#[test]
fn a_failure_while_the_copy_is_in_flight_is_no_failure() {
    let mut planner = planner(|_| {});
    let burst = with_a_late_page(&mut planner);
    let hedge = ask(&mut planner, 0.6, 0)
        .into_iter()
        .find(|request| request.is_hedge)
        .unwrap();
    planner.on_error(burst[0].id, 0.7, LOST);
    assert!(
        ask(&mut planner, 0.7, 0)
            .iter()
            .all(|request| request.start != 0)
    );
    planner.on_error(hedge.id, 0.8, LOST);
    assert_eq!(ask(&mut planner, 0.8, 0)[0].start, 0);
}

#[test]
fn hedges_keep_to_two_and_one_in_twenty_requests() {
    let mut planner = planner(|_| {});
    let mut now = 0.0;
    let mut head = 0;
    // The page that the reader waits for is late, always.
    for _ in 0..2000 {
        let mut requests = ask(&mut planner, now, head);
        requests.sort_by_key(|request| request.start);
        for request in requests.iter().skip(1).rev() {
            whole(&mut planner, *request, now + 0.1);
        }
        now += 1.0;
        ask(&mut planner, now, head); // hedged, if the budget allows
        if let Some(first) = requests.first() {
            whole(&mut planner, *first, now);
            head = head.max(first.end);
        }
        planner.expired(now);
        let statistics = planner.statistics();
        assert!(
            statistics.hedges <= 2 + statistics.requests / 20,
            "{statistics:?}"
        );
    }
}

#[test]
fn the_timer_says_when_a_page_becomes_late() {
    let mut planner = planner(|_| {});
    with_a_late_page(&mut planner);
    let mut now = 0.1;
    while planner.statistics().hedges == 0 {
        ask(&mut planner, now, 0);
        let next = planner.timer().unwrap();
        assert!(next > now && next < 30.0, "no hedge before the timeout");
        now = next;
        ask(&mut planner, now, 0);
    }
}

// --- estimates, and settings -----------------------------------------------------------------------------------

#[test]
fn seek_keeps_the_estimates_and_starts_small_again() {
    let (mut planner, burst) = with_burst();
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
fn pages_of_the_grid_or_more_end_on_it_and_the_first_burst_does_not() {
    let mut planner = planner(|settings| settings.grid_bytes = 64 * KIB);
    planner.set_total(1_000_000, false);
    let mut asked = Vec::new();
    while !planner.finished() {
        for request in ask(&mut planner, 0.0, 0) {
            planner.on_answer(request.id, 0.01, request.end - request.start, None);
            asked.push((request.start, request.end));
        }
        if asked.last().is_some_and(|(_, end)| *end >= 1_000_000) {
            break;
        }
    }
    assert_eq!(
        asked[..4],
        [
            (0, 8 * KIB),
            (8 * KIB, 24 * KIB),
            (24 * KIB, 56 * KIB),
            (56 * KIB, 128 * KIB)
        ]
    );
    let odd = |(_, end): &&(u64, u64)| end % (64 * KIB) != 0 && *end < 1_000_000;
    assert_eq!(asked[3..].iter().filter(odd).count(), 0, "{asked:?}");
}

#[test]
fn a_clock_that_runs_back_or_is_no_number_changes_nothing() {
    let mut planner = planner(|settings| settings.in_flight = Some(1));
    let request = ask_one(&mut planner, 10.0);
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
        let mut settings = Settings::new(1 << 20);
        settings.in_flight = Some(1);
        let mut planner = Planner::new(settings).unwrap();
        let mut now = origin;
        // The second page, twice the first, takes four times as long: no sign of a cost per page.
        [0.0625, 0.25, 0.25, 0.25].map(|seconds| {
            let request = ask_one(&mut planner, now);
            let timeout_seconds = planner.timer().unwrap() - now;
            now += seconds;
            whole(&mut planner, request, now);
            (request.start, request.end, timeout_seconds)
        })
    };
    // Powers of two, so that every time is exact.
    for origin in [262_144.0, -262_144.0] {
        assert_eq!(asked_from(origin), asked_from(0.0), "from {origin} s on");
    }
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
    type Change = fn(&mut Settings);
    let cases: [(Option<&str>, Change); 8] = [
        (None, |_| {}),
        (Some("capacity_bytes"), |it| it.capacity_bytes = 0),
        (Some("capacity_bytes"), |it| {
            it.capacity_bytes = CAPACITY_MAX_BYTES + 1
        }),
        (Some("page_bytes"), |it| it.page_bytes = u64::MAX),
        (Some("in_flight"), |it| it.in_flight = Some(0)),
        (Some("patience_seconds"), |it| it.patience_seconds = 0.0),
        (Some("timeout_seconds"), |it| it.timeout_seconds = f64::NAN),
        (Some("start"), |it| it.start = u64::MAX),
    ];
    for (expected, adjust) in cases {
        let mut settings = Settings::new(1);
        adjust(&mut settings);
        let refused = Planner::new(settings)
            .err()
            .map(|InvalidSetting { setting, .. }| setting);
        assert_eq!(refused, expected);
    }
}
