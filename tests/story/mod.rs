//! Helpers of the smallest stories about a planner: a planner with little to decide, and what a driver does with it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part of it, and may panic"
)]

use playhead_core::planner::{Demand, End, EndedBy, Failure, Planner, Request, Settings};

pub const KIB: u64 = 1 << 10;
pub const LOST: Failure = lost(None, false, None);
pub const REFUSED: Failure = Failure::Refused { code: -32602 };
pub const EMPTY: Option<EndedBy> = Some(EndedBy::Empty);

pub const fn lost(retry_after: Option<f64>, broke_off: bool, code: Option<i64>) -> Failure {
    Failure::Lost {
        retry_after,
        broke_off,
        code,
    }
}

pub fn planner(adjust: impl FnOnce(&mut Settings)) -> Planner {
    let mut settings = Settings::new(1 << 20);
    adjust(&mut settings);
    let mut planner = Planner::new(settings).unwrap();
    planner.set_demand(0.0, Demand::Waiting);
    planner
}

/// One request at a time, of 8 KiB.
pub fn serial() -> Planner {
    planner(|settings| {
        (
            settings.in_flight,
            settings.page_bytes,
            settings.page_bytes_max,
        ) = (Some(1), 8 * KIB, 8 * KIB);
    })
}

pub fn ask(planner: &mut Planner, now: f64, head: u64) -> Vec<Request> {
    std::iter::from_fn(|| planner.next(now, head)).collect()
}

/// A planner and its first requests, which are three.
pub fn with_burst() -> (Planner, Vec<Request>) {
    let mut planner = planner(|_| {});
    let burst = ask(&mut planner, 0.0, 0);
    (planner, burst)
}

pub fn ask_one(planner: &mut Planner, now: f64) -> Request {
    let requests = ask(planner, now, 0);
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests[0]
}

pub fn whole(planner: &mut Planner, request: Request, now: f64) -> bool {
    planner.on_answer(request.id, now, request.end - request.start, None)
}

/// Reads whole pages one after the other until `bytes` have arrived, and gives the time.
pub fn read_to(planner: &mut Planner, bytes: u64) -> f64 {
    let mut now = 0.0;
    loop {
        let request = ask_one(planner, now);
        if request.start >= bytes {
            planner.on_answer(request.id, now, 0, None);
            return now;
        }
        now += 0.1;
        planner.on_answer(
            request.id,
            now,
            request.end.min(bytes) - request.start,
            None,
        );
    }
}

pub fn ranges(requests: &[Request]) -> Vec<(u64, u64)> {
    requests
        .iter()
        .map(|request| (request.start, request.end))
        .collect()
}

pub fn end_of(planner: &Planner) -> Option<(u64, EndedBy)> {
    planner.end().map(|End { at, by }| (at, by))
}

/// The next time that the planner has something to send, and what.
pub fn wait(planner: &mut Planner, mut now: f64) -> (f64, Vec<Request>) {
    for _ in 0..1000 {
        let requests = ask(planner, now, 0);
        if !requests.is_empty() || planner.broken().is_some() {
            return (now, requests);
        }
        let next = planner.timer().unwrap();
        assert!(next > now, "a timer without anything to do");
        now = next;
    }
    unreachable!("the planner waits for ever")
}
