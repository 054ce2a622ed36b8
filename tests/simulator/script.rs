//! A story to drive a planner through, drawn at random: the server's ways, the reader's, and what the driver changes on
//! the way.

use playhead_core::planner::{Demand, EndedBy, Failure};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub enum Pages {
    Whole,
    /// Never more than this.
    Capped(u64),
    /// Any length from 1 to what was asked.
    Ragged,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Announced {
    No,
    Right,
    TooSmall,
    TooLarge,
}

/// The answer to a read past the end.
#[derive(Clone, Copy, Debug)]
pub enum PastEnd {
    Claims(EndedBy),
    /// An error that a wrong argument or a broken server gives, too.
    Refuses(i64),
    Fails(i64),
}

/// A false claim of an end, by the first read that holds this offset, and by the reads at that claim that follow.
#[derive(Clone, Copy, Debug)]
pub struct Lie {
    pub offset: u64,
    pub times: u32,
    pub by: EndedBy,
    /// The start of the read that it met.
    pub at: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Script {
    pub size: u64,
    pub capacity: u64,
    pub page_min: u64,
    pub page: u64,
    pub in_flight: Option<usize>,
    pub sleeps: bool,
    pub pages: Pages,
    pub announced: Announced,
    pub past_end: PastEnd,
    pub lies: Vec<Lie>,
    /// Share of requests that fail, and that are never answered.
    pub errors: f64,
    pub losses: f64,
    /// The share of the readable bytes that the reader takes at a time.
    pub read_rate: f64,
    pub seeks: Vec<(u32, f64)>,
    pub orders: Vec<(u32, Order)>,
    pub seed: u64,
}

impl Script {
    /// The most that pages may grow to.
    pub fn page_max(&self) -> u64 {
        self.page * (1 + self.seed % 8)
    }

    /// The size that is announced before anything is read.
    pub fn announced_bytes(&self) -> Option<u64> {
        match self.announced {
            Announced::No => None,
            Announced::Right => Some(self.size),
            Announced::TooSmall => Some(self.size / 2),
            Announced::TooLarge => Some(self.size * 2 + 1),
        }
    }

    /// An announced size stands until the end of the file.
    pub fn has_large_size(&self) -> bool {
        matches!(self.announced, Announced::Right | Announced::TooLarge)
    }
}

/// Changes that a driver makes on the way.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    PageBytes(u64),
    /// A size that is announced late, in shares of the right one.
    Total(f64),
    Demand(Demand),
    /// A question of the driver's, in shares of the size.
    Probe(f64, u64),
    /// Until nothing else is in flight.
    HoldPages,
}

fn orders() -> impl Strategy<Value = Vec<(u32, Order)>> {
    let demand = prop_oneof![
        Just(Demand::Supplied),
        Just(Demand::Waiting),
        Just(Demand::Paused)
    ];
    let order = prop_oneof![
        (1u64..50_000).prop_map(Order::PageBytes),
        (0.0..1.5).prop_map(Order::Total),
        demand.prop_map(Order::Demand),
        (0.0..1.2, 1u64..5000).prop_map(|(share, bytes)| Order::Probe(share, bytes)),
        Just(Order::HoldPages),
    ];
    prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec((1u32..200, order), 1..4)]
}

fn claims() -> impl Strategy<Value = EndedBy> {
    prop_oneof![
        Just(EndedBy::Empty),
        Just(EndedBy::Done),
        Just(EndedBy::PastEnd)
    ]
}

fn lies() -> impl Strategy<Value = Vec<(f64, u32, EndedBy)>> {
    prop_oneof![
        1 => Just(vec![]),
        2 => prop::collection::vec((0.0..1.0, 1u32..=2, claims()), 1..4),
    ]
}

fn past_end() -> impl Strategy<Value = PastEnd> {
    let codes = prop_oneof![Just(-32602i64), Just(-32603), Just(500)];
    prop_oneof![
        4 => claims().prop_map(PastEnd::Claims),
        1 => codes.clone().prop_map(PastEnd::Refuses),
        1 => codes.prop_map(PastEnd::Fails),
    ]
}

pub fn scripts() -> impl Strategy<Value = Script> {
    let pages = prop_oneof![
        3 => Just(Pages::Whole),
        2 => (1u64..3000).prop_map(Pages::Capped),
        1 => Just(Pages::Ragged),
    ];
    let announced = prop_oneof![
        3 => Just(Announced::No),
        2 => Just(Announced::Right),
        1 => Just(Announced::TooSmall),
        1 => Just(Announced::TooLarge),
    ];
    let shape = (
        0u64..60_000,
        1u64..40_000,
        1u64..4096,
        1u64..8192,
        prop::option::of(1usize..=64),
        any::<bool>(),
    );
    let faults = prop_oneof![2 => Just((0.0, 0.0)), 1 => (0.0..0.4, 0.0..0.3)];
    let seeks =
        prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec((1u32..200, 0.0..1.2), 1..4)];
    (
        shape,
        pages,
        (announced, past_end(), lies()),
        faults,
        0.01..=1.0,
        (seeks, orders()),
        any::<u64>(),
    )
        .prop_map(
            |(
                (size, capacity, page_min, page, in_flight, sleeps),
                pages,
                (announced, past_end, lies),
                (errors, losses),
                read_rate,
                (seeks, orders),
                seed,
            )| {
                let script = Script {
                    size,
                    capacity,
                    page_min,
                    page,
                    in_flight,
                    sleeps,
                    pages,
                    announced,
                    past_end,
                    lies: vec![],
                    errors,
                    losses,
                    read_rate,
                    seeks,
                    orders,
                    seed,
                };
                tellable(script, lies)
            },
        )
}

/// Leaves out what no reader can tell from the truth.
fn tellable(mut script: Script, lies: Vec<(f64, u32, EndedBy)>) -> Script {
    let changes_reach = script
        .orders
        .iter()
        .any(|(_, order)| matches!(order, Order::Total(_) | Order::PageBytes(_)));
    // Behind a short page, one claim without a size is believed.
    let is_believed_at_once = matches!(script.pages, Pages::Ragged) && !script.has_large_size();
    if !is_believed_at_once && !changes_reach {
        script.lies = lies
            .into_iter()
            .map(|(share, times, by)| Lie {
                offset: (share * script.size as f64) as u64,
                times,
                by,
                at: None,
            })
            .collect();
        // Two in a row are told from the truth by a third read, if that one is answered with the truth.
        if let Some(lie) = script.lies.iter().copied().find(|lie| lie.times > 1) {
            script.lies = vec![lie];
        }
    }
    // An error past the end is an end by the byte before it, which a seek past the end does not have, and by a short
    // page, which a page of a byte never is.
    let is_shown = script.size >= 64 && script.page_min >= 2 && script.page >= 2;
    let is_capped = matches!(script.pages, Pages::Capped(cap) if cap < 64);
    let stays = script.seeks.is_empty() && script.orders.is_empty() && script.capacity >= 64;
    let is_refuted = script.announced == Announced::TooSmall; // an error at a size that is too small is an end
    let needs_claims = !is_shown || is_capped || !stays || is_refuted || !script.lies.is_empty();
    if needs_claims && !matches!(script.past_end, PastEnd::Claims(_)) {
        script.past_end = PastEnd::Claims(EndedBy::Empty);
    }
    script
}

// --- whatever a driver may say ----------------------------------------------------------------------------

pub fn numbers() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 0.0..100.0]
}

pub fn failures() -> impl Strategy<Value = Failure> {
    prop_oneof![
        (
            prop::option::of(numbers()),
            any::<bool>(),
            prop::option::of(-3i64..3)
        )
            .prop_map(|(retry_after, broke_off, code)| Failure::Lost {
                retry_after,
                broke_off,
                code
            }),
        (-3i64..3).prop_map(|code| Failure::Refused { code }),
        Just(Failure::Damaged),
        Just(Failure::Final),
    ]
}

pub fn ends() -> impl Strategy<Value = EndedBy> {
    prop_oneof![
        Just(EndedBy::Empty),
        Just(EndedBy::Done),
        Just(EndedBy::PastEnd),
        Just(EndedBy::Size),
        Just(EndedBy::Error),
        Just(EndedBy::Whole),
    ]
}

pub fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0u64..200_000]
}
