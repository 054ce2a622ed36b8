//! A story to drive a planner through, drawn at random: the server's ways, the reader's, and what the driver changes on
//! the way.

use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub enum Pages {
    Whole,
    /// Never more than this.
    Capped(u64),
    /// Any length from 1 to what was asked.
    Ragged,
}

#[derive(Clone, Copy, Debug)]
pub enum Announced {
    No,
    Right,
    TooSmall,
    TooLarge,
}

#[derive(Clone, Debug)]
pub struct Script {
    pub size: u64,
    pub capacity: u64,
    pub page_min: u64,
    pub page: u64,
    pub in_flight: usize,
    pub pages: Pages,
    pub announced: Announced,
    /// Past the end: a refusal instead of an empty answer. Only where the right size is announced does that end it.
    pub refuses_past_end: bool,
    /// Share of requests that fail, and that are never answered.
    pub errors: f64,
    pub losses: f64,
    /// How much of what is there the reader takes at a time.
    pub appetite: f64,
    pub seeks: Vec<(u32, f64)>,
    pub orders: Vec<(u32, Order)>,
    pub seed: u64,
}

/// What a driver changes its mind about on the way.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    PageBytes(u64),
    InFlight(usize),
    /// A size that is announced late, in shares of the right one.
    Total(f64),
}

fn orders() -> impl Strategy<Value = Vec<(u32, Order)>> {
    let order = prop_oneof![
        (1u64..50_000).prop_map(Order::PageBytes),
        (1usize..=64).prop_map(Order::InFlight),
        (0.0..1.5).prop_map(Order::Total),
    ];
    prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec((1u32..200, order), 1..4)]
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
        1usize..=64,
    );
    let faults = prop_oneof![2 => Just((0.0, 0.0)), 1 => (0.0..0.4, 0.0..0.3)];
    let seeks =
        prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec((1u32..200, 0.0..1.2), 1..4)];
    (
        shape,
        pages,
        announced,
        any::<bool>(),
        faults,
        0.01..=1.0,
        (seeks, orders()),
        any::<u64>(),
    )
        .prop_map(
            |(
                (size, capacity, page_min, page, in_flight),
                pages,
                announced,
                refuses,
                (errors, losses),
                appetite,
                (seeks, orders),
                seed,
            )| {
                let refuses_past_end = refuses
                    && matches!(announced, Announced::Right)
                    && seeks.is_empty()
                    && orders.is_empty();
                Script {
                    size,
                    capacity,
                    page_min,
                    page,
                    in_flight,
                    pages,
                    announced,
                    refuses_past_end,
                    errors,
                    losses,
                    appetite,
                    seeks,
                    orders,
                    seed,
                }
            },
        )
}
