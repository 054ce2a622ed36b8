//! Simulated time: a planner against a server behind a link, from one event to the next, without a clock.
//!
//! A fluid model. A request travels half a round trip, waits for the server's cost, shares the bottleneck with the other
//! answers (fair share, as parallel HTTP streams do, or first in first out, as a pipe does), and travels back. Payload
//! grows by 4/3 on the wire, and by an envelope. Every run also checks what must hold in any world: no byte is kept
//! twice, none is asked for outside the reader's window, and time goes on.
#![allow(dead_code, reason = "each test file uses a part of it")]

mod network;
pub mod script;

use std::collections::BTreeMap;

use playhead_core::planner::{
    Broken, Demand, EndedBy, Failure, Planner, REFILL_SECONDS, START_SECONDS, Settings, Statistics,
};

use network::{Answer, Network};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
/// Base64.
pub const WIRE: f64 = 4.0 / 3.0;
/// A bandwidth that is never the limit.
pub const UNLIMITED: f64 = 1e12;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Discipline {
    FairShare,
    Fifo,
}

/// From `at_seconds` on each page costs this much, and the link has this bandwidth.
#[derive(Clone, Copy, Debug)]
pub struct Slowdown {
    pub at_seconds: f64,
    pub cost_seconds: f64,
    pub bytes_per_second: f64,
}

/// A time in which nothing is answered.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    pub at_seconds: f64,
    pub seconds: f64,
    pub kind: OutageKind,
}

impl Outage {
    pub fn ends_at(&self) -> f64 {
        self.at_seconds + self.seconds
    }

    pub fn covers(&self, now: f64) -> bool {
        (self.at_seconds..self.ends_at()).contains(&now)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OutageKind {
    /// The server pauses: what it was asked is answered late.
    Silent,
    /// The server fails every request at once.
    Fails,
}

#[derive(Clone, Copy, Debug)]
pub struct World {
    pub rtt_seconds: f64,
    pub bytes_per_second: f64,
    pub discipline: Discipline,
    pub cost_seconds: f64,
    /// Share by which the link's rate varies, as that of a process which shares its processor does.
    pub noise: f64,
    /// Mean of an exponential addition to the cost.
    pub jitter_seconds: f64,
    /// One read at a time.
    pub serial: bool,
    /// Share of requests that are never answered.
    pub loss: f64,
    /// Share of requests that fail at once.
    pub errors: f64,
    /// Largest page the server gives.
    pub cap_bytes: Option<u64>,
    /// From when on it is slower.
    pub slowdown: Option<Slowdown>,
    pub outage: Option<Outage>,
    pub size_bytes: u64,
    pub seed: u64,
}

impl World {
    pub fn new(rtt_seconds: f64, mbit: f64, size_bytes: u64) -> Self {
        Self {
            rtt_seconds,
            bytes_per_second: if mbit.is_finite() {
                mbit * 125_000.0
            } else {
                UNLIMITED
            },
            discipline: Discipline::FairShare,
            cost_seconds: 0.0,
            noise: 0.0,
            jitter_seconds: 0.0,
            serial: false,
            loss: 0.0,
            errors: 0.0,
            cap_bytes: None,
            slowdown: None,
            outage: None,
            size_bytes,
            seed: 1,
        }
    }

    pub fn latency(&self) -> f64 {
        self.rtt_seconds + self.cost_seconds
    }

    fn transfer(&self, bytes: u64) -> f64 {
        bytes as f64 * WIRE / self.bytes_per_second
    }

    /// No reader can have `bytes` earlier.
    pub fn optimum_seconds(&self, bytes: u64) -> f64 {
        self.latency() + self.transfer(bytes)
    }

    /// The optimum for pages of `page` bytes, `in_flight` at once: what the link, the window and a serial server allow.
    pub fn page_optimum_seconds(&self, page: u64, in_flight: usize) -> f64 {
        let link = self.optimum_seconds(self.size_bytes);
        let pages = self.size_bytes.div_ceil(page);
        let rounds = pages.div_ceil(in_flight as u64) as f64;
        let window = if self.fills_link(page, in_flight) {
            0.0
        } else {
            rounds * (self.latency() + self.transfer(page))
        };
        let serial = if self.serial {
            self.rtt_seconds + pages as f64 * self.cost_seconds + self.transfer(page)
        } else {
            0.0
        };
        link.max(window).max(serial)
    }

    /// One read after the other: how the reference client does it.
    pub fn sequential_seconds(&self, page: u64) -> f64 {
        let reads = self.size_bytes / page + 1;
        reads as f64 * self.latency() + self.transfer(self.size_bytes)
    }

    /// The window holds the bandwidth-delay product.
    pub fn fills_link(&self, page: u64, in_flight: usize) -> bool {
        (page * in_flight as u64) as f64 * WIRE >= self.latency() * self.bytes_per_second
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Listener {
    /// Takes what is there at once.
    Greedy,
    /// Plays `rate` bytes per second once the gate opens, and again after every stall. The gate is asked when bytes
    /// arrive, as by a decoder.
    Music { rate: f64 },
}

#[derive(Clone, Debug)]
pub struct Outcome {
    /// When the first 8 and 24 KiB, and all, were there.
    pub first_8k: f64,
    pub first_24k: f64,
    pub whole: f64,
    /// When audio to start with was in hand (or the end), and when playing did start.
    pub could_start: f64,
    pub play_started: f64,
    pub stalls: u32,
    pub stalled_seconds: f64,
    pub peak_bytes: u64,
    pub wire_bytes: u64,
    pub finished: bool,
    pub broken: Option<(u64, Broken)>,
    /// Requests sent during the outage.
    pub outage_requests: u64,
    /// For each seek, the time until it played on.
    pub seek_seconds: Vec<f64>,
    /// Time with nothing in flight, and how often it ended.
    pub resting_seconds: f64,
    pub bursts: u64,
    pub statistics: Statistics,
}

pub fn run(world: World, settings: Settings, listener: Listener) -> Outcome {
    run_with(world, settings, listener, |_| {})
}

/// `prepare` may tell the planner what a driver would, such as an announced size.
pub fn run_with(
    world: World,
    settings: Settings,
    listener: Listener,
    prepare: impl FnOnce(&mut Planner),
) -> Outcome {
    run_seeking(world, settings, listener, &[], prepare)
}

/// `seeks` are when and where to, each outside of what is held.
pub fn run_seeking(
    world: World,
    settings: Settings,
    listener: Listener,
    seeks: &[(f64, u64)],
    prepare: impl FnOnce(&mut Planner),
) -> Outcome {
    let mut planner = Planner::new(settings.clone()).unwrap();
    prepare(&mut planner);
    Simulation {
        network: Network::new(world),
        planner,
        world,
        capacity: settings.capacity_bytes,
        listener,
        now: 0.0,
        head: 0.0,
        tail: 0,
        islands: BTreeMap::new(),
        playing: false,
        asked_gate_at: 0,
        asked: BTreeMap::new(),
        seeks: seeks.to_vec(),
        sought_at: None,
        outcome: Outcome {
            first_8k: f64::INFINITY,
            first_24k: f64::INFINITY,
            whole: f64::INFINITY,
            could_start: f64::INFINITY,
            play_started: f64::INFINITY,
            stalls: 0,
            stalled_seconds: 0.0,
            peak_bytes: 0,
            wire_bytes: 0,
            finished: false,
            broken: None,
            outage_requests: 0,
            seek_seconds: vec![],
            resting_seconds: 0.0,
            bursts: 0,
            statistics: Planner::new(settings).unwrap().statistics(),
        },
    }
    .run()
}

struct Simulation {
    network: Network,
    planner: Planner,
    world: World,
    capacity: u64,
    listener: Listener,
    now: f64,
    head: f64,
    tail: u64,
    islands: BTreeMap<u64, u64>,
    playing: bool,
    /// Contiguous bytes when the gate was asked last.
    asked_gate_at: u64,
    asked: BTreeMap<u64, (u64, u64)>,
    seeks: Vec<(f64, u64)>,
    sought_at: Option<f64>,
    outcome: Outcome,
}

/// A connection that broke, or an answer that asks to try again.
const LOST: Failure = Failure::Lost {
    retry_after: None,
    broke_off: false,
    code: None,
};
/// Bytes that a decoder reads at once.
const READ_BYTES: f64 = 4096.0;
const LONGEST_SECONDS: f64 = 3600.0;

impl Simulation {
    fn run(mut self) -> Outcome {
        loop {
            self.seek();
            self.drive();
            self.listen();
            let is_broken = self.planner.broken().is_some();
            if is_broken || (self.planner.finished() && !self.playing) {
                break;
            }
            let next = self.next_event();
            assert!(
                next.is_finite(),
                "stuck at {} of {} bytes, {:?}",
                self.tail,
                self.world.size_bytes,
                self.planner.statistics()
            );
            assert!(
                next < LONGEST_SECONDS,
                "still at {} of {} bytes after an hour",
                self.tail,
                self.world.size_bytes
            );
            self.advance_to(next.max(self.now));
        }
        self.outcome.finished = self.planner.finished();
        self.outcome.broken = self.planner.broken();
        self.outcome.statistics = self.planner.statistics();
        self.outcome
    }

    fn seek(&mut self) {
        let Some(&(at, offset)) = self.seeks.first().filter(|(at, _)| *at <= self.now) else {
            return;
        };
        self.seeks.remove(0);
        for id in self.planner.seek(offset) {
            self.network.cancel(id);
        }
        (self.tail, self.head, self.asked_gate_at) = (offset, offset as f64, offset);
        self.islands.clear();
        self.playing = false;
        self.sought_at = Some(at);
    }

    fn drive(&mut self) {
        for id in self.planner.expired(self.now) {
            self.network.cancel(id);
            self.planner.on_error(id, self.now, LOST);
        }
        let head = self.head as u64;
        while let Some(request) = self.planner.next(self.now, head) {
            let is_evidence = request.start >= self.world.size_bytes;
            assert!(
                request.start < request.end && (request.end <= head + self.capacity || is_evidence),
                "{request:?} outside the window at {head}"
            );
            let is_out = self
                .world
                .outage
                .is_some_and(|outage| outage.covers(self.now));
            self.outcome.outage_requests += u64::from(is_out);
            self.outcome.bursts += u64::from(self.network.is_idle());
            self.asked.insert(request.id, (request.start, request.end));
            self.network
                .send(self.now, request.id, request.start, request.end);
        }
    }

    fn next_event(&self) -> f64 {
        let reader = if self.playing {
            self.now + READ_BYTES.min(self.tail as f64 - self.head).max(1.0) / self.rate()
        } else {
            f64::INFINITY
        };
        let seek = self.seeks.first().map_or(f64::INFINITY, |(at, _)| *at);
        self.network
            .next_event(self.now)
            .min(self.planner.timer().unwrap_or(f64::INFINITY))
            .min(reader)
            .min(seek)
    }

    fn rate(&self) -> f64 {
        match self.listener {
            Listener::Greedy => f64::INFINITY,
            Listener::Music { rate } => rate,
        }
    }

    fn advance_to(&mut self, next: f64) {
        let seconds = next - self.now;
        if self.playing {
            self.head = (self.head + self.rate() * seconds).min(self.tail as f64);
        } else if self.outcome.play_started.is_finite()
            && !self.planner.finished()
            && self.sought_at.is_none()
        {
            self.outcome.stalled_seconds += seconds;
        }
        if self.network.is_idle() {
            self.outcome.resting_seconds += seconds;
        }
        self.now = next;
        if self.network.is_sending() {
            self.planner.heard(next);
        }
        for (id, answer) in self.network.advance_to(next) {
            let (start, end) = self.asked[&id];
            match answer {
                Answer::Failed => self.planner.on_error(id, self.now, LOST),
                Answer::Bytes(bytes) => {
                    self.outcome.wire_bytes += bytes;
                    let claim = (bytes == 0).then_some(EndedBy::Empty);
                    if self.planner.on_answer(id, self.now, bytes, claim) {
                        assert!(start + bytes <= end);
                        self.keep(start, start + bytes);
                    }
                }
            }
            // The decoder's thread asks the gate when bytes arrive, the driver for the next page: in either order.
            self.listen();
            self.drive();
            self.asked_gate_at = 0;
            self.listen();
        }
    }

    fn keep(&mut self, start: u64, end: u64) {
        assert!(
            end <= self.head as u64 + self.capacity,
            "bytes {start}..{end} outside the window at {}",
            self.head
        );
        assert!(
            start >= self.tail,
            "byte {start} kept twice: {} are contiguous",
            self.tail
        );
        let before = self.islands.range(..end).next_back();
        assert!(
            before.is_none_or(|(_, &to)| to <= start),
            "bytes {start}..{end} overlap {before:?}"
        );
        self.islands.insert(start, end);
        while let Some(island) = self
            .islands
            .first_entry()
            .filter(|island| *island.key() == self.tail)
        {
            self.tail = island.remove();
        }
        let held = self.tail as f64 - self.head
            + self
                .islands
                .iter()
                .map(|(from, to)| (to - from) as f64)
                .sum::<f64>();
        self.outcome.peak_bytes = self.outcome.peak_bytes.max(held as u64);
        for (bytes, time) in [
            (8 * KIB, &mut self.outcome.first_8k),
            (24 * KIB, &mut self.outcome.first_24k),
            (self.world.size_bytes, &mut self.outcome.whole),
        ] {
            if self.tail >= bytes.min(self.world.size_bytes) && time.is_infinite() {
                *time = self.now;
            }
        }
    }

    fn listen(&mut self) {
        let Listener::Music { rate } = self.listener else {
            self.head = self.tail as f64;
            self.planner.set_demand(self.now, Demand::Waiting);
            return;
        };
        let demand = if self.playing {
            Demand::Supplied
        } else {
            Demand::Waiting
        };
        self.planner.set_demand(self.now, demand);
        let in_hand = self.tail - self.head as u64;
        if self.playing && in_hand == 0 {
            self.playing = false;
            if !self.planner.finished() {
                self.outcome.stalls += 1;
            }
        } else if !self.playing && in_hand > 0 && self.asked_gate_at != self.tail {
            self.asked_gate_at = self.tail;
            let at_end = self.tail == self.world.size_bytes;
            if in_hand as f64 >= START_SECONDS * rate || at_end {
                self.outcome.could_start = self.outcome.could_start.min(self.now);
            }
            let least = match self.outcome.play_started {
                started if started.is_finite() && self.sought_at.is_none() => REFILL_SECONDS,
                _ => START_SECONDS,
            };
            let left = self.world.size_bytes - self.head as u64;
            let enough = in_hand as f64 >= least * rate || at_end;
            self.planner.set_audio_rate(rate);
            if enough && self.planner.can_play(self.now, in_hand, rate, Some(left)) {
                self.playing = true;
                let sought_at = self.sought_at.take();
                self.outcome
                    .seek_seconds
                    .extend(sought_at.map(|at| self.now - at));
                self.outcome.play_started = self.outcome.play_started.min(self.now);
            }
        }
    }
}

/// A small generator, so that a run is the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}
