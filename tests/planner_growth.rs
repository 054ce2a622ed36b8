//! A resource that grows while it is read, in simulated time: exact bytes, few requests, and its end.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use playhead_core::planner::{Broken, Demand, EndedBy, Planner, Request, Settings};
use proptest::prelude::*;

const RTT: f64 = 0.02;

/// The size of the resource from each time on.
type Schedule = Vec<(f64, u64)>;

fn size_at(schedule: &Schedule, now: f64) -> u64 {
    let until = schedule.iter().take_while(|(at, _)| *at <= now);
    until.last().map_or(0, |(_, size)| *size)
}

struct Reader {
    planner: Planner,
    now: f64,
    head: u64,
    requests: u64,
    in_flight: Vec<(f64, Request)>,
    bytes: Vec<u32>,
}

/// Reads a growing resource until its end; an announced one is seen by the first answer after it.
fn read(schedule: &Schedule, announces: bool, notifies: bool, seed: u64) -> Reader {
    let total = schedule.last().unwrap().1;
    let last_at = schedule.last().unwrap().0;
    let mut settings = Settings::new(1 << 20);
    settings.seed = seed;
    let mut reader = Reader {
        planner: Planner::new(settings).unwrap(),
        now: 0.0,
        head: 0,
        requests: 0,
        in_flight: vec![],
        bytes: vec![0; total as usize],
    };
    let planner = &mut reader.planner;
    planner.set_growing(0.0, size_at(schedule, 0.0), announces);
    planner.set_notifies(0.0, notifies);
    planner.set_demand(0.0, Demand::Waiting);
    let mut notified = 0;
    while !planner.finished() {
        assert_eq!(planner.broken(), None, "at {}", reader.now);
        while let Some(request) = planner.next(reader.now, reader.head) {
            reader.requests += 1;
            reader.in_flight.push((reader.now + RTT, request));
        }
        let answer = reader.in_flight.iter().map(|(at, _)| *at);
        let growth = schedule.get(notified).map(|(at, _)| at + RTT / 2.0);
        let next = answer
            .chain(planner.timer())
            .chain(growth.filter(|_| notifies))
            .fold(f64::INFINITY, f64::min);
        assert!(next.is_finite() && next < 3600.0, "stuck at {}", reader.now);
        reader.now = reader.now.max(next);
        while notifies
            && notified < schedule.len()
            && schedule[notified].0 + RTT / 2.0 <= reader.now
        {
            planner.on_notified(reader.now);
            notified += 1;
        }
        let now = reader.now;
        let (due, rest) = reader.in_flight.drain(..).partition(|(at, _)| *at <= now);
        reader.in_flight = rest;
        let due: Vec<(f64, Request)> = due;
        for (at, request) in due {
            let size = size_at(schedule, at - RTT / 2.0);
            let n_bytes = request.end.min(size).saturating_sub(request.start);
            let claim = (n_bytes == 0).then_some(EndedBy::Empty);
            if planner.on_answer(request.id, now, n_bytes, claim) {
                for offset in request.start..request.start + n_bytes {
                    reader.bytes[offset as usize] += 1;
                }
                while reader.bytes.get(reader.head as usize) == Some(&1) {
                    reader.head += 1;
                }
            }
            if announces && at - RTT / 2.0 >= last_at {
                planner.set_grown(now, Some(total));
            } else {
                planner.set_growing(now, size, announces);
            }
        }
    }
    reader
}

/// Growth in steps of 0.1 s, at a multiple of 16,000 bytes per second.
fn steady(times: f64, seconds: f64) -> Schedule {
    let steps = (seconds * 10.0) as u64;
    (1..=steps)
        .map(|step| (step as f64 * 0.1, (step as f64 * times * 1600.0) as u64))
        .collect()
}

#[test]
fn a_growing_resource_is_read_exactly_with_few_requests() {
    for times in [0.5, 1.0, 4.0] {
        for notifies in [false, true] {
            let schedule = steady(times, 20.0);
            let reader = read(&schedule, true, notifies, 1);
            assert!(reader.bytes.iter().all(|&count| count == 1));
            assert_eq!(reader.planner.end().unwrap().by, EndedBy::Size);
            let late = reader.now - 20.0;
            println!(
                "{times} x, notified {notifies}: {} requests, end after {late:.2} s",
                reader.requests
            );
            assert!(late <= 1.2, "the end was noticed after {late} s");
            // One per page of growth, and one per second.
            let pages = if notifies {
                200
            } else {
                reader.bytes.len() as u64 / 8192
            };
            assert!(
                reader.requests <= 8 + pages + 21,
                "{} requests",
                reader.requests
            );
        }
    }
}

#[test]
fn an_end_that_nobody_announces_is_found_after_ten_seconds_without_growth() {
    let reader = read(&steady(1.0, 5.0), false, false, 1);
    assert_eq!(reader.planner.end().unwrap().by, EndedBy::NoGrowth);
    // A poll per second sees the last growth up to a second late, and the silence as well.
    assert!((15.0..17.1).contains(&reader.now), "{}", reader.now);
}

#[test]
fn a_source_that_paused_for_long_may_pause_for_three_times_as_long() {
    let schedule = vec![(0.0, 5000), (8.0, 9000), (30.0, 12_000)];
    let reader = read(&schedule, false, false, 1);
    assert_eq!(reader.planner.end().unwrap().at, 12_000);
}

/// The first answers tell that the resource grows, when three pages are in flight. They arrive in any order.
#[test]
fn a_resource_that_turns_out_to_grow_is_read_on_at_its_present_end() {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut planner = Planner::new(Settings::new(1 << 20)).unwrap();
        let burst: Vec<_> = std::iter::from_fn(|| planner.next(0.0, 0)).collect();
        assert_eq!(burst.len(), 3);
        let (mut now, present) = (0.1, 500);
        for index in order {
            now += 0.01;
            let Request { id, start, end, .. } = burst[index];
            let n_bytes = present.min(end).saturating_sub(start);
            planner.set_growing(now, present, true);
            planner.on_answer(id, now, n_bytes, (n_bytes == 0).then_some(EndedBy::Empty));
        }
        let asked = (0..10).find_map(|_| {
            now = planner.timer().unwrap_or(now).max(now);
            planner.next(now, 0)
        });
        assert_eq!(asked.map(|it| it.start), Some(present), "{order:?}");
        assert!(now < 2.0);
    }
}

#[test]
fn a_shrunken_resource_breaks_the_stream() {
    let mut planner = Planner::new(Settings::new(1 << 20)).unwrap();
    planner.set_growing(0.0, 10_000, false);
    let mut now = 1.0;
    while planner.broken().is_none() {
        while let Some(request) = planner.next(now, 0) {
            now += 0.1;
            let n_bytes = request.end.min(4000).saturating_sub(request.start);
            let claim = (n_bytes == 0).then_some(EndedBy::Empty);
            planner.on_answer(request.id, now, n_bytes, claim);
        }
        now = planner.timer().unwrap_or(now).max(now);
        assert!(now < 60.0);
    }
    assert_eq!(planner.broken(), Some((4000, Broken::Shrunken)));
}

proptest! {
    #[test]
    fn any_schedule_gives_the_same_bytes(
        steps in prop::collection::vec((0.0..4.0f64, 0u64..30_000), 1..20),
        notifies in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (mut at, mut size) = (0.0, 1);
        let schedule = steps.iter().map(|(wait, bytes)| {
            (at, size) = (at + wait, size + bytes);
            (at, size)
        }).collect();
        let reader = read(&schedule, true, notifies, seed);
        prop_assert!(reader.bytes.iter().all(|&count| count == 1));
        prop_assert_eq!(reader.planner.end().unwrap().at, size);
        prop_assert!(notifies || reader.now - at <= 1.2);
    }
}
