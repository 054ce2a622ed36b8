//! The planner under any script: a server that answers, lies and fails, a driver that calls in any order, and clocks
//! that jump. What tests/planner_laws.rs promises for servers that can be right does not hold here; what bounds memory,
//! requests and arithmetic does.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use playhead_core::planner::{Demand, EndedBy, Failure, MAX_IN_FLIGHT, Planner, Request, Settings};
use playhead_core::ring::{CAPACITY_MAX_BYTES, OFFSET_MAX};

/// Numbers out of the fuzzer's bytes; zeros once they are used up.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Mostly small, and now and then near a limit.
    fn number(&mut self) -> u64 {
        let size = self.byte();
        let low = u64::from(self.byte()) | u64::from(self.byte()) << 8;
        match size % 16 {
            0..8 => low,
            8..12 => low << (size / 16),
            12 => u64::MAX - low,
            13 => OFFSET_MAX.saturating_sub(low),
            14 => CAPACITY_MAX_BYTES.saturating_sub(low),
            _ => low << 48,
        }
    }

    fn seconds(&mut self) -> f64 {
        let step = f64::from(self.byte());
        match self.byte() % 32 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => -step,
            3 => step * 1e15,
            4..16 => step / 1000.0,
            _ => step / 10.0,
        }
    }

    fn end(&mut self) -> Option<EndedBy> {
        match self.byte() % 12 {
            0 => Some(EndedBy::Empty),
            1 => Some(EndedBy::Done),
            2 => Some(EndedBy::PastEnd),
            3 => Some(EndedBy::Size),
            4 => Some(EndedBy::Whole),
            _ => None,
        }
    }

    fn failure(&mut self) -> Failure {
        match self.byte() % 6 {
            0 => Failure::Refused { code: -32602 },
            1 => Failure::Damaged,
            2 => Failure::Final,
            3 => Failure::Lost {
                retry_after: Some(self.seconds()),
                broke_off: false,
                code: None,
            },
            4 => Failure::Lost {
                retry_after: None,
                broke_off: true,
                code: None,
            },
            _ => Failure::Lost {
                retry_after: None,
                broke_off: false,
                code: Some(-32603),
            },
        }
    }
}

fn settings(script: &mut Script<'_>) -> Settings {
    let mut settings = Settings::new(script.number());
    if script.byte() % 2 == 1 {
        settings.page_min_bytes = script.number();
        settings.page_bytes = script.number();
        settings.page_bytes_max = script.number();
        settings.in_flight = (script.byte() % 2 == 1).then(|| usize::from(script.byte()));
        settings.in_flight_start = usize::from(script.byte());
        settings.sleeps_when_full = script.byte() % 2 == 1;
        settings.stagnant_answers = u32::from(script.byte());
        settings.start = script.number();
    }
    settings
}

/// Asks until the planner wants nothing more.
fn ask(
    planner: &mut Planner,
    now: f64,
    head: u64,
    out: &mut BTreeMap<u64, Request>,
    newest: &mut Option<u64>,
) {
    for asked in 0.. {
        assert!(asked <= 4 * MAX_IN_FLIGHT, "asks without end");
        let is_over = planner.finished() || planner.broken().is_some();
        let Some(request) = planner.next(now, head) else {
            break;
        };
        assert!(
            !is_over || !planner.finished(),
            "asks after the end: {request:?}"
        );
        assert!(request.start < request.end, "asks for nothing: {request:?}");
        assert!(
            newest.is_none_or(|id| id < request.id),
            "an id twice: {request:?}"
        );
        *newest = Some(request.id);
        out.insert(request.id, request);
    }
    assert!(planner.statistics().in_flight <= MAX_IN_FLIGHT);
}

fuzz_target!(|data: &[u8]| {
    let mut script = Script(data);
    let Ok(mut planner) = Planner::new(settings(&mut script)) else {
        return;
    };
    let (mut now, mut head) = (0.0, 0_u64);
    let (mut out, mut newest) = (BTreeMap::new(), None);
    let mut stored = 0;
    ask(&mut planner, now, head, &mut out, &mut newest);
    while !script.0.is_empty() {
        let what = script.byte();
        // One that is in flight, or an id that is not.
        let id = match usize::from(script.byte()) {
            255 => script.number(),
            index => out
                .keys()
                .nth(index % out.len().max(1))
                .copied()
                .unwrap_or(0),
        };
        match what % 32 {
            0..12 => {
                let known = out.remove(&id);
                let asked = known.map_or(0, |request: Request| request.end - request.start);
                let bytes = if what % 2 == 0 {
                    asked
                } else {
                    script.number()
                };
                let end = script.end();
                let is_wanted = planner.on_answer(id, now, bytes, end);
                assert!(
                    !is_wanted || known.is_some_and(|request| !request.is_probe),
                    "{id} is wanted twice"
                );
                let bytes_now = planner.statistics().bytes;
                assert_eq!(
                    is_wanted,
                    bytes_now > stored,
                    "new bytes are wanted, and only they"
                );
                assert!(
                    bytes_now - stored <= asked,
                    "more bytes than were asked for"
                );
                stored = bytes_now;
            }
            12..16 => {
                out.remove(&id);
                let failure = script.failure();
                planner.on_error(id, now, failure);
            }
            16..20 => head = head.saturating_add(script.number()),
            20 => {
                head = script.number();
                for id in planner.seek(head) {
                    assert!(
                        !planner.on_answer(id, now, 1, None),
                        "a stale answer is wanted"
                    );
                }
                out.clear();
            }
            21 => planner.set_total(script.number(), what > 127),
            22 => {
                if let Some(by) = script.end() {
                    planner.set_end(script.number(), by);
                }
            }
            23 => planner.set_page_bytes(script.number()),
            24 => planner.probe(script.number(), script.number()),
            25 => planner.hold_pages(what > 127),
            26 => planner.hold(id),
            27 => planner.seen_to(script.number()),
            28 => planner.heard(script.seconds()),
            29 => planner.set_demand(
                now,
                if what > 127 {
                    Demand::Waiting
                } else {
                    Demand::Supplied
                },
            ),
            30 => {
                planner.on_fed(now, script.number() & 0xffff_ffff);
                stored = planner.statistics().bytes;
            }
            _ => now += script.seconds(),
        }
        for id in planner.expired(now) {
            out.remove(&id);
            let failure = script.failure();
            planner.on_error(id, now, failure);
        }
        ask(&mut planner, now, head, &mut out, &mut newest);
        if let Some(at) = planner.timer() {
            assert!(!at.is_nan(), "a timer that is not a time");
            if what > 191 {
                now = at;
            }
        }
        assert!(!planner.waited_seconds(now).is_nan());
    }
});
