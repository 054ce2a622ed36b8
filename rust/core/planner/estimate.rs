//! Estimates of the link from completed pages: delivery rate, latency floor, smoothed latency.
//!
//! Sources: delivery rate, its maximum over 10 s, the app-limited mark, rounds and the start-up exit are BBR's
//! (Cardwell et al., ACM Queue 14(5), 2016; draft-ietf-ccwg-bbr). Smoothed latency and its variance are RFC 6298's.
//! The windowed maximum is Nichols's constant-space filter (Linux `lib/win_minmax.c`).

use super::serial::Serial;
use super::steady::Steady;
use super::tuning::{
    BANDWIDTH_WINDOW_SECONDS, FLAT_ROUNDS, FLOOR_WINDOW_SECONDS, GAIN_STARTUP, GAIN_STEADY, GROWTH,
    IN_PROPORTION, LARGER_PAGES, PACING_STARTUP, PACING_STEADY, PAGE_LATENCIES, PAGE_SECONDS,
    QUEUED_LATENCIES, ROUNDS_IN_PROPORTION, TICK_SECONDS, TRAIN_EXCESS,
};

/// A completed page.
pub(super) struct Completion {
    pub id: u64,
    pub next_id: u64,
    pub bytes: u64,
    pub latency_seconds: f64,
    /// Total bytes delivered when this page was requested.
    pub delivered_before: u64,
    /// True if the reader, not the link, was the limit when the page was requested.
    pub app_limited: bool,
    /// True if nothing else was in flight when the page was requested.
    pub alone: bool,
}

#[derive(Clone, Copy)]
struct Sample {
    at: f64,
    value: f64,
}

enum Phase {
    /// The rate still grows from round to round.
    Startup {
        best: f64,
        flat_rounds: u32,
    },
    Steady,
}

/// Smoothed view of the link. Constant size.
pub(super) struct Estimates {
    /// The bytes of all completed pages.
    delivered: u64,
    /// Pages requested before `delivered` reaches this are app-limited.
    app_limited_until: u64,
    /// The best delivery rate of the window, and the best since that one and since the second.
    rate: Option<[Sample; 3]>,
    /// The least latency of its window.
    floor: Option<Sample>,
    /// The mean and the mean deviation of the latency.
    smoothed: Option<(f64, f64)>,
    phase: Phase,
    /// The first request of the current round. Its answer ends the round.
    round_id: u64,
    train: Train,
    rounds: Rounds,
    pub serial: Serial,
    pub steady: Steady,
}

/// The pages of a round after its first. How fast they follow shows the bandwidth, without the latency. Used only until
/// the rates of whole rounds show it, which takes five rounds on a long fast link.
#[derive(Default)]
struct Train {
    first_at: f64,
    bytes: u64,
    rate: f64,
}

impl Train {
    fn add(&mut self, now: f64, bytes: u64) {
        self.bytes += bytes;
        self.rate = self.bytes as f64 / (now - self.first_at).max(TICK_SECONDS);
    }

    fn start(&mut self, now: f64) {
        (self.first_at, self.bytes) = (now, 0);
    }
}

/// A round. It ends with the answer to the first page that was requested after the previous round had ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Round {
    /// Bytes per second.
    pub rate: f64,
    /// Mean size of its pages in bytes.
    pub page: f64,
    /// Mean latency of its pages in seconds.
    pub latency: f64,
}

impl Round {
    /// Returns whether its pages waited for each other: they took longer than the least latency and their own transfer.
    pub fn queues(&self, floor: f64) -> bool {
        self.latency > QUEUED_LATENCIES * floor
    }
}

/// The pages of the current round.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// The time at which the previous round ended; for a first round, at which its first page was requested.
    started_at: Option<f64>,
    bytes: u64,
    pages: u32,
    latencies: f64,
    /// True if the reader was the limit, or the link was kept empty for a lone page.
    idle: bool,
}

/// Detects a cost per page: the rate then grows as the pages do.
#[derive(Default)]
struct Rounds {
    tally: Tally,
    last: Option<Round>,
    /// Rounds in a row whose rate grew with their pages.
    in_proportion: u32,
}

impl Rounds {
    fn add(&mut self, now: f64, page: &Completion, idle: bool) {
        let tally = &mut self.tally;
        tally.started_at.get_or_insert(now - page.latency_seconds);
        tally.bytes += page.bytes;
        tally.pages += 1;
        tally.latencies += page.latency_seconds;
        tally.idle |= idle;
    }

    /// Ends the round. Returns it if the link was its limit.
    fn end(&mut self, now: f64) -> Option<Round> {
        let tally = std::mem::take(&mut self.tally);
        if tally.idle {
            (self.last, self.in_proportion) = (None, 0);
            return None;
        }
        self.tally.started_at = Some(now);
        let pages = f64::from(tally.pages.max(1));
        let round = Round {
            rate: tally.bytes as f64 / (now - tally.started_at.unwrap_or(now)).max(TICK_SECONDS),
            page: tally.bytes as f64 / pages,
            latency: tally.latencies / pages,
        };
        let page_growth = self.last.map_or(0.0, |last| round.page / last.page);
        let rate_growth = self.last.map_or(0.0, |last| round.rate / last.rate);
        let in_proportion =
            page_growth >= LARGER_PAGES && rate_growth >= IN_PROPORTION * page_growth;
        self.in_proportion = if in_proportion {
            self.in_proportion + 1
        } else {
            0
        };
        self.last = Some(round);
        Some(round)
    }
}

impl Estimates {
    pub fn new() -> Self {
        Self {
            delivered: 0,
            app_limited_until: 0,
            rate: None,
            floor: None,
            smoothed: None,
            phase: Phase::Startup {
                best: 0.0,
                flat_rounds: 0,
            },
            round_id: 0,
            train: Train::default(),
            rounds: Rounds::default(),
            serial: Serial::default(),
            steady: Steady::default(),
        }
    }

    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Payload bytes per second.
    pub fn bandwidth(&self) -> Option<f64> {
        let steady = self.steady.link().map(|link| link.bytes_per_second);
        steady.or(self.rate.map(|best| best[0].value))
    }

    /// The least latency of a page: the link's round trip, the server's cost and the transfer of a small page.
    pub fn floor_seconds(&self) -> Option<f64> {
        let steady = self.steady.link().map(|link| link.latency_seconds);
        steady.or(self.floor.map(|sample| sample.value))
    }

    pub fn smoothed_seconds(&self) -> Option<f64> {
        self.smoothed.map(|(mean, _)| mean)
    }

    pub fn deviation_seconds(&self) -> f64 {
        self.smoothed.map_or(0.0, |(_, deviation)| deviation)
    }

    pub fn starting_up(&self) -> bool {
        self.steady.link().is_none() && matches!(self.phase, Phase::Startup { .. })
    }

    /// Returns whether the floor is out of date: the planner's own queue hides it until a page runs alone (BBR's
    /// ProbeRTT).
    pub fn floor_is_stale(&self, now: f64) -> bool {
        self.floor
            .is_some_and(|sample| now - sample.at > FLOOR_WINDOW_SECONDS)
    }

    /// Records that the reader is the limit: rates until these bytes arrive say nothing about the link.
    pub fn mark_app_limited(&mut self, bytes_in_flight: u64) {
        self.app_limited_until = self.delivered + bytes_in_flight.max(1);
    }

    pub fn app_limited(&self) -> bool {
        self.app_limited_until > self.delivered
    }

    /// The rate at which the newest pages of a round followed its first.
    pub fn train_rate(&self) -> f64 {
        self.train.rate
    }

    /// Bytes that keep the link busy: gain × bandwidth × latency floor. None before the first page.
    pub fn bytes_wanted_in_flight(&self) -> Option<f64> {
        let (rate, floor) = (self.bandwidth()?, self.floor_seconds()?);
        Some(
            floor
                * if self.starting_up() {
                    (GAIN_STARTUP * rate).max(self.train.rate / TRAIN_EXCESS)
                } else {
                    GAIN_STEADY * rate
                },
        )
    }

    /// The pause between a page of `bytes` and the next new one: about its transfer, so that they do not arrive
    /// together. Without a steady link it is at most the least latency, because the rate may be estimated far too low.
    /// None before the first page.
    pub fn gap_seconds(&self, bytes: u64) -> Option<f64> {
        if let Some(link) = self.steady.link() {
            return Some(bytes as f64 / (PACING_STEADY * link.bytes_per_second));
        }
        let rate = match self.phase {
            Phase::Startup { .. } => {
                (PACING_STARTUP * self.bandwidth()?).max(self.train.rate / TRAIN_EXCESS)
            }
            Phase::Steady => PACING_STEADY * self.bandwidth()?,
        };
        Some((bytes as f64 / rate).min(self.floor_seconds()?))
    }

    /// Returns whether a cost per page is the limit, not bandwidth: then only larger pages are faster.
    pub fn page_cost_limits(&self) -> bool {
        self.rounds.in_proportion >= ROUNDS_IN_PROPORTION
    }

    /// Returns to the start-up, because the limit of the rate has changed.
    pub fn start_up(&mut self) {
        self.phase = Phase::Startup {
            best: self.bandwidth().unwrap_or(0.0),
            flat_rounds: 0,
        };
    }

    /// The page that takes about [`PAGE_SECONDS`]. None before the first page.
    pub fn page_bytes(&self) -> Option<u64> {
        let seconds = PAGE_SECONDS.max(PAGE_LATENCIES * self.floor_seconds()?);
        Some((self.bandwidth()? * seconds) as u64)
    }

    /// Counts a page, and returns the round that it ends.
    pub fn complete(&mut self, now: f64, page: &Completion, bytes_in_flight: u64) -> Option<Round> {
        self.serial.answered(now, page.latency_seconds, page.bytes);
        self.steady.answered(now, page, bytes_in_flight);
        self.delivered += page.bytes;
        let latency = page.latency_seconds.max(TICK_SECONDS);
        let rate = (self.delivered - page.delivered_before) as f64 / latency;
        if !page.app_limited || self.rate.is_none_or(|best| rate >= best[0].value) {
            self.add_rate(Sample {
                at: now,
                value: rate,
            });
        }
        let replaces_floor = self.floor_is_stale(now) && page.alone;
        if replaces_floor || self.floor.is_none_or(|floor| latency <= floor.value) {
            self.floor = Some(Sample {
                at: now,
                value: latency,
            });
        }
        // A page after the first burst confirms the steady link: its values stay when it is no longer trusted, and so
        // do small and few pages.
        if let Some(link) = self.steady.link().filter(|_| page.delivered_before > 0) {
            self.phase = Phase::Steady;
            self.floor = Some(Sample {
                at: now,
                value: link.latency_seconds.max(TICK_SECONDS),
            });
        }
        self.smoothed = Some(match self.smoothed {
            None => (latency, latency / 2.0),
            Some((mean, deviation)) => (
                mean + (latency - mean) / 8.0,
                deviation + ((mean - latency).abs() - deviation) / 4.0,
            ),
        });
        self.rounds
            .add(now, page, page.app_limited || replaces_floor);
        if page.id < self.round_id {
            self.train.add(now, page.bytes);
            return None;
        }
        self.round_id = page.next_id;
        self.train.start(now);
        if !page.app_limited {
            self.end_round();
        }
        self.rounds.end(now)
    }

    /// Ends the start-up once the rate has stopped growing.
    fn end_round(&mut self) {
        let rate = self.rate.map_or(0.0, |best| best[0].value);
        if let Phase::Startup { best, flat_rounds } = &mut self.phase {
            if rate > *best * GROWTH {
                (*best, *flat_rounds) = (rate, 0);
            } else {
                *flat_rounds += 1;
                if *flat_rounds >= FLAT_ROUNDS {
                    self.phase = Phase::Steady;
                }
            }
        }
    }

    /// Adds a sample to the windowed maximum. The second and third best are from later parts of the window, so that one
    /// of them replaces a best that is too old.
    fn add_rate(&mut self, new: Sample) {
        let Some(best) = &mut self.rate else {
            self.rate = Some([new; 3]);
            return;
        };
        if new.value >= best[0].value || new.at - best[2].at > BANDWIDTH_WINDOW_SECONDS {
            *best = [new; 3];
            return;
        }
        if new.value >= best[1].value {
            (best[1], best[2]) = (new, new);
        } else if new.value >= best[2].value {
            best[2] = new;
        }
        let age = new.at - best[0].at;
        if age > BANDWIDTH_WINDOW_SECONDS {
            *best = [best[1], best[2], new];
            if new.at - best[0].at > BANDWIDTH_WINDOW_SECONDS {
                *best = [best[1], best[2], new];
            }
        } else if best[1].at == best[0].at && age > BANDWIDTH_WINDOW_SECONDS / 4.0 {
            // A quarter of the window has passed: the second best must be newer than the best.
            (best[1], best[2]) = (new, new);
        } else if best[2].at == best[1].at && age > BANDWIDTH_WINDOW_SECONDS / 2.0 {
            best[2] = new;
        }
    }
}
