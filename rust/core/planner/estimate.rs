//! What the completed pages say about the link: delivery rate, latency floor, smoothed latency.
//!
//! Sources: delivery rate, its maximum over 10 s, the app-limited mark, rounds and the start-up exit are BBR's
//! (Cardwell et al., ACM Queue 14(5), 2016; draft-ietf-ccwg-bbr). Smoothed latency and its variance are RFC 6298's.
//! The windowed maximum is Nichols's constant-space filter (Linux `lib/win_minmax.c`).

const BANDWIDTH_WINDOW_SECONDS: f64 = 10.0;
const FLOOR_WINDOW_SECONDS: f64 = 30.0;
/// Rounds without 25 % growth after which the link counts as full (BBR's "full pipe").
const FLAT_ROUNDS: u32 = 3;
const GROWTH: f64 = 1.25;
const GAIN_STARTUP: f64 = 2.0;
const GAIN_STEADY: f64 = 1.5;
/// Rounds whose rate grew with their pages, by this much of it, before a cost a page is believed; one may be chance,
/// as the first pages are small and share the link.
const ROUNDS_IN_PROPORTION: u32 = 2;
const LARGER_PAGES: f64 = 1.25;
const IN_PROPORTION: f64 = 0.8;
const PACING_STARTUP: f64 = 2.0;
const PACING_STEADY: f64 = 1.25;
/// Answers that share a link overlap, so pages that follow each other read up to twice too fast.
const TRAIN_EXCESS: f64 = 2.0;
/// A page should take about half a second to transfer, or one and a half latencies where those are longer.
const PAGE_SECONDS: f64 = 0.5;
const PAGE_LATENCIES: f64 = 1.5;
/// Latency below the resolution of a driver's clock; keeps rates finite.
const TICK_SECONDS: f64 = 1e-6;

/// One completed page, as the link showed it.
pub(super) struct Completion {
    pub id: u64,
    pub next_id: u64,
    pub bytes: u64,
    pub latency_seconds: f64,
    /// Bytes delivered in all when this page was asked for.
    pub delivered_before: u64,
    /// The reader, not the link, was the limit when it was asked for.
    pub app_limited: bool,
    /// Nothing else was in flight when it was asked for.
    pub alone: bool,
}

#[derive(Clone, Copy)]
struct Sample {
    at: f64,
    value: f64,
}

enum Phase {
    /// Rate still grows from round to round.
    Startup {
        best: f64,
        flat_rounds: u32,
    },
    Steady,
}

/// Smoothed view of the link. Constant size.
pub(super) struct Estimates {
    delivered: u64,
    app_limited_until: u64,
    rate: Option<[Sample; 3]>,
    floor: Option<Sample>,
    smoothed: Option<(f64, f64)>,
    phase: Phase,
    round_id: u64,
    train: Train,
    page_cost: PageCost,
    samples: u64,
}

/// The pages of a round that came after its first: how fast they follow shows the bandwidth behind the latency.
/// Used only until the rounds have told: on a long fast link that takes five of them.
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

/// One round's pages, to compare with the next round's.
#[derive(Clone, Copy, Default)]
struct Round {
    /// When the page before it came; for the first round, when its first page was asked for.
    started_at: Option<f64>,
    bytes: u64,
    pages: u32,
}

/// How fast a round went, and with what pages.
#[derive(Clone, Copy)]
struct Pace {
    rate: f64,
    page: f64,
}

/// Whether a cost a page limits, and not bandwidth: then the rate grows as the pages do.
#[derive(Default)]
struct PageCost {
    round: Round,
    before: Option<Pace>,
    rounds_in_proportion: u32,
}

impl PageCost {
    fn add(&mut self, issued_at: f64, bytes: u64) {
        self.round.started_at.get_or_insert(issued_at);
        self.round.bytes += bytes;
        self.round.pages += 1;
    }

    fn end_round(&mut self, now: f64) {
        let Round {
            started_at,
            bytes,
            pages,
        } = self.round;
        let pace = Pace {
            rate: bytes as f64 / (now - started_at.unwrap_or(now)).max(TICK_SECONDS),
            page: bytes as f64 / f64::from(pages.max(1)),
        };
        let in_proportion = self.before.is_some_and(|before| {
            let larger = pace.page / before.page;
            larger >= LARGER_PAGES && pace.rate >= IN_PROPORTION * larger * before.rate
        });
        self.rounds_in_proportion = if in_proportion {
            self.rounds_in_proportion + 1
        } else {
            0
        };
        self.before = Some(pace);
        self.round = Round {
            started_at: Some(now),
            bytes: 0,
            pages: 0,
        };
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
            page_cost: PageCost::default(),
            samples: 0,
        }
    }

    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Bytes a second, as payload.
    pub fn bandwidth(&self) -> Option<f64> {
        self.rate.map(|best| best[0].value)
    }

    /// The least latency of a page: the link's round trip, the server's cost and the transfer of a small page.
    pub fn floor_seconds(&self) -> Option<f64> {
        self.floor.map(|sample| sample.value)
    }

    pub fn smoothed_seconds(&self) -> Option<f64> {
        self.smoothed.map(|(mean, _)| mean)
    }

    pub fn deviation_seconds(&self) -> f64 {
        self.smoothed.map_or(0.0, |(_, deviation)| deviation)
    }

    pub fn starting_up(&self) -> bool {
        matches!(self.phase, Phase::Startup { .. })
    }

    /// The floor is too old to be believed: queueing of our own making hides it until a page runs alone (BBR's ProbeRTT).
    pub fn floor_is_stale(&self, now: f64) -> bool {
        self.floor
            .is_some_and(|sample| now - sample.at > FLOOR_WINDOW_SECONDS)
    }

    /// The reader holds us back, so rates seen until these bytes have come say nothing about the link.
    pub fn mark_app_limited(&mut self, bytes_in_flight: u64) {
        self.app_limited_until = self.delivered + bytes_in_flight.max(1);
    }

    pub fn app_limited(&self) -> bool {
        self.app_limited_until > self.delivered
    }

    /// Bytes that keep the link busy: gain × bandwidth × latency floor. None before the first page.
    pub fn bytes_wanted_in_flight(&self) -> Option<f64> {
        let (rate, floor) = (self.bandwidth()?, self.floor_seconds()?);
        Some(
            floor
                * match self.phase {
                    Phase::Startup { .. } => {
                        (GAIN_STARTUP * rate).max(self.train.rate / TRAIN_EXCESS)
                    }
                    Phase::Steady => GAIN_STEADY * rate,
                },
        )
    }

    /// How long after a page of `bytes` the next new one leaves: about its transfer, so that they do not arrive
    /// together; never half a latency, for the estimate may be far too low. None before the first page.
    pub fn gap_seconds(&self, bytes: u64) -> Option<f64> {
        let rate = match self.phase {
            Phase::Startup { .. } => {
                (PACING_STARTUP * self.bandwidth()?).max(self.train.rate / TRAIN_EXCESS)
            }
            Phase::Steady => PACING_STEADY * self.bandwidth()?,
        };
        Some((bytes as f64 / rate).min(self.floor_seconds()?))
    }

    /// A cost a page limits, not bandwidth: only larger pages are faster.
    pub fn page_cost_limits(&self) -> bool {
        self.page_cost.rounds_in_proportion >= ROUNDS_IN_PROPORTION
    }

    /// The page that takes about [`PAGE_SECONDS`]. None before the first page.
    pub fn page_bytes(&self) -> Option<u64> {
        let seconds = PAGE_SECONDS.max(PAGE_LATENCIES * self.floor_seconds()?);
        Some((self.bandwidth()? * seconds) as u64)
    }

    /// How long `bytes` should take when `queued` are ahead of them.
    pub fn expected_seconds(&self, bytes: u64, queued: u64) -> Option<f64> {
        let transfer = (bytes.saturating_add(queued)) as f64 / self.bandwidth()?;
        Some(self.floor_seconds()?.max(self.smoothed_seconds()?) + transfer)
    }

    pub fn complete(&mut self, now: f64, page: &Completion) {
        self.delivered += page.bytes;
        let latency = page.latency_seconds.max(TICK_SECONDS);
        let rate = (self.delivered - page.delivered_before) as f64 / latency;
        if !page.app_limited || self.bandwidth().is_none_or(|known| rate >= known) {
            self.add_rate(Sample {
                at: now,
                value: rate,
            });
        }
        let stale = self.floor_is_stale(now) && page.alone;
        if stale || self.floor.is_none_or(|floor| latency <= floor.value) {
            self.floor = Some(Sample {
                at: now,
                value: latency,
            });
        }
        self.smoothed = Some(match self.smoothed {
            None => (latency, latency / 2.0),
            Some((mean, deviation)) => (
                mean + (latency - mean) / 8.0,
                deviation + ((mean - latency).abs() - deviation) / 4.0,
            ),
        });
        self.samples += 1;
        self.page_cost.add(now - page.latency_seconds, page.bytes);
        if page.id >= self.round_id {
            self.round_id = page.next_id;
            self.train.start(now);
            self.page_cost.end_round(now);
            if !page.app_limited {
                self.end_round();
            }
        } else {
            self.train.add(now, page.bytes);
        }
    }

    fn end_round(&mut self) {
        let rate = self.bandwidth().unwrap_or(0.0);
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
            (best[1], best[2]) = (new, new);
        } else if best[2].at == best[1].at && age > BANDWIDTH_WINDOW_SECONDS / 2.0 {
            best[2] = new;
        }
    }
}
