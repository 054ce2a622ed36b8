//! What holds for every server, link, reader and order of events: drawn at random, checked against the bytes themselves.
//!
//! Every byte exactly once; never outside the window; never stuck; never a wrong end; a bounded number of requests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod simulator;

use playhead_core::planner::{Planner, Request, Settings};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use simulator::Random;
use simulator::script::{Announced, Order, Pages, Script, scripts};

/// Drives a planner through a script, with the bytes in a bitmap.
struct World {
    script: Script,
    planner: Planner,
    random: Random,
    now: f64,
    head: u64,
    /// Where the reader started or last jumped to.
    base: u64,
    kept: Vec<bool>,
    in_flight: Vec<Request>,
    lost: Vec<Request>,
}

/// Far more than any script needs; a planner that goes in circles meets it.
const MOST_STEPS: u32 = 400_000;

impl World {
    fn new(script: Script) -> Self {
        let mut settings = Settings::new(script.capacity);
        settings.page_min_bytes = script.page_min;
        settings.page_bytes = script.page;
        settings.in_flight = script.in_flight;
        settings.max_tries = 256;
        settings.seed = script.seed;
        let mut planner = Planner::new(settings).unwrap();
        match script.announced {
            Announced::No => {}
            Announced::Right => planner.set_total(script.size),
            Announced::TooSmall => planner.set_total(script.size / 2),
            Announced::TooLarge => planner.set_total(script.size * 2 + 1),
        }
        let random = Random::new(script.seed);
        let kept = vec![false; script.size as usize];
        Self {
            script,
            planner,
            random,
            now: 0.0,
            head: 0,
            base: 0,
            kept,
            in_flight: vec![],
            lost: vec![],
        }
    }

    fn tail(&self) -> u64 {
        let from = self.head.min(self.script.size) as usize;
        self.kept[from..]
            .iter()
            .position(|kept| !kept)
            .map_or(self.script.size.max(self.head), |ahead| {
                self.head + ahead as u64
            })
    }

    fn run(&mut self) {
        let mut seeks = self.script.seeks.clone();
        let mut orders = self.script.orders.clone();
        for step in 0..MOST_STEPS {
            while let Some(index) = orders.iter().position(|(at, _)| *at <= step) {
                self.order(orders.swap_remove(index).1);
            }
            if let Some(index) = seeks.iter().position(|(at, _)| *at <= step) {
                let (_, place) = seeks.swap_remove(index);
                self.seek((place * self.script.size as f64) as u64);
            }
            self.ask();
            if self.planner.finished() {
                return;
            }
            assert_eq!(self.planner.failed(), None);
            assert_eq!(self.planner.contradiction(), None);
            self.step();
        }
        panic!(
            "still at {} of {} after {MOST_STEPS} steps: {:?}",
            self.tail(),
            self.script.size,
            self.planner.statistics()
        );
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::PageBytes(bytes) => self.planner.set_page_bytes(bytes),
            Order::InFlight(limit) => {
                self.planner.set_in_flight(limit);
                self.script.in_flight = limit;
            }
            Order::Total(share) => {
                let total = (share * self.script.size as f64) as u64;
                self.planner.set_total(total);
            }
        }
    }

    fn ask(&mut self) {
        for id in self.planner.expired(self.now) {
            self.in_flight.retain(|request| request.id != id);
            self.lost.retain(|request| request.id != id);
            self.planner.on_error(id, self.now, true);
        }
        while let Some(request) = self.planner.next(self.now, self.head) {
            assert!(request.start < request.end, "{request:?} asks for nothing");
            assert!(
                request.end <= self.head + self.script.capacity,
                "{request:?} ends outside the window at {}",
                self.head
            );
            assert!(
                request.deadline > self.now && request.deadline <= self.now + 30.0,
                "{request:?} at {}",
                self.now
            );
            let bucket = if self.random.unit() < self.script.losses {
                &mut self.lost
            } else {
                &mut self.in_flight
            };
            bucket.push(request);
            assert!(
                self.in_flight.len() + self.lost.len() <= self.script.in_flight,
                "too many in flight"
            );
        }
    }

    fn step(&mut self) {
        let ready = self.tail() - self.head;
        if ready > 0 && (self.in_flight.is_empty() || self.random.unit() < 0.5) {
            self.head += ((ready as f64 * self.script.appetite) as u64).max(1);
        } else if self.in_flight.is_empty() {
            let next = self.planner.timer();
            assert!(
                next.is_some(),
                "stuck at {} of {}: {:?}",
                self.tail(),
                self.script.size,
                self.planner.statistics()
            );
            self.now = self.now.max(next.unwrap());
        } else {
            let index = (self.random.unit() * self.in_flight.len() as f64) as usize;
            let request = self.in_flight.swap_remove(index);
            self.now += self.random.exponential(0.02);
            self.answer(request);
        }
    }

    fn answer(&mut self, request: Request) {
        let size = self.script.size;
        if self.random.unit() < self.script.errors {
            return self.planner.on_error(request.id, self.now, true);
        }
        if request.start >= size && self.script.refuses_past_end {
            return self.planner.on_error(request.id, self.now, false);
        }
        let there = request.end.min(size).saturating_sub(request.start);
        let bytes = match self.script.pages {
            Pages::Whole => there,
            Pages::Capped(cap) => there.min(cap),
            Pages::Ragged => there.min(1 + (self.random.unit() * there as f64) as u64),
        };
        if !self.planner.on_page(request.id, self.now, bytes) {
            return;
        }
        for offset in request.start..request.start + bytes {
            assert!(!self.kept[offset as usize], "byte {offset} kept twice");
            self.kept[offset as usize] = true;
        }
    }

    fn seek(&mut self, offset: u64) {
        let mut out: Vec<u64> = self
            .in_flight
            .drain(..)
            .chain(self.lost.drain(..))
            .map(|request| request.id)
            .collect();
        let mut stale = self.planner.seek(offset);
        out.sort_unstable();
        stale.sort_unstable();
        // The planner may have taken back some that lie past the end, and names those by `expired`.
        assert!(stale.iter().all(|id| out.contains(id)));
        for id in out {
            assert!(
                !self.planner.on_page(id, self.now, 1),
                "a stale answer is wanted"
            );
        }
        (self.head, self.base) = (offset, offset);
        self.kept.fill(false);
    }

    fn check_end(&self) {
        let size = self.script.size;
        if self.base <= size {
            assert_eq!(self.planner.end(), Some(size));
        }
        assert_eq!(
            self.tail(),
            size.max(self.head),
            "finished without every byte"
        );
        let statistics = self.planner.statistics();
        if self.base == 0 && self.script.orders.is_empty() {
            let wrong = match self.script.announced {
                Announced::No | Announced::Right => false,
                Announced::TooSmall => size > 0,
                Announced::TooLarge => true,
            };
            assert_eq!(statistics.size_was_wrong, wrong);
        }
    }

    /// Requests that neither a fault nor lateness explains.
    fn check_amplification(&self) {
        let Script {
            size,
            capacity,
            page_min,
            page,
            in_flight,
            pages,
            ..
        } = self.script;
        let asked = page_min.min(page).min((capacity / 4).max(1));
        let Some(smallest) = (match pages {
            Pages::Whole => Some(asked),
            Pages::Capped(cap) => Some(asked.min(cap)),
            Pages::Ragged => None,
        }) else {
            return;
        };
        let statistics = self.planner.statistics();
        let fresh = statistics.requests - statistics.retries - statistics.hedges;
        let most = 2 * size.div_ceil(smallest) + 2 * in_flight as u64 + 8;
        assert!(fresh <= most, "{fresh} requests, at most {most} expected");
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 600,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_byte_comes_once_and_the_end_is_right(script in scripts()) {
        let mut world = World::new(script);
        world.run();
        world.check_end();
        if world.script.seeks.is_empty() && world.script.orders.is_empty() {
            world.check_amplification();
        }
    }

    /// Whatever a driver says, in any order, with any numbers.
    #[test]
    fn no_input_makes_it_panic(
        capacity in prop_oneof![1u64..100_000, Just(1 << 40)],
        calls in prop::collection::vec((0u8..10, any::<u64>(), 0u64..40, prop_oneof![any::<f64>(), 0.0..100.0]), 0..300),
    ) {
        let mut planner = Planner::new(Settings::new(capacity)).unwrap();
        for (call, number, id, now) in calls {
            match call {
                0 | 1 => {
                    let request = planner.next(now, number % (capacity * 2).max(1));
                    prop_assert!(request.is_none_or(|request| request.start < request.end));
                }
                2 | 3 => {
                    planner.on_page(id, now, number % 100_000);
                }
                4 => planner.on_error(id, now, number % 2 == 0),
                5 => {
                    planner.expired(now);
                }
                6 => {
                    planner.seek(number);
                }
                7 => planner.set_total(number),
                8 => planner.set_page_bytes(number),
                _ => planner.set_in_flight(number as usize % 300),
            }
            planner.timer();
            planner.can_play(now, number, id, Some(number));
            prop_assert!(planner.statistics().in_flight <= 256);
        }
    }
}
