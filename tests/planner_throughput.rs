//! Whole files in simulated time with the settings of `read`: against one read after the other, and against eight fixed
//! reads at a time. `cargo test --test planner_throughput -- --nocapture` prints every row.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod simulator;

use playhead_core::planner::Settings;
use simulator::{Discipline, KIB, Listener, MIB, Outcome, World, run};

const FILE: u64 = 32 * MIB;
const PAGE: u64 = 100 * KIB;
const RING: u64 = 8 * MIB;

fn world(rtt_seconds: f64, mbit: f64) -> World {
    World::new(rtt_seconds, mbit, FILE)
}

fn read(world: World) -> Outcome {
    read_with(world, Settings::new(RING))
}

fn read_with(world: World, settings: Settings) -> Outcome {
    let outcome = run(world, settings, Listener::Greedy);
    println!(
        "rtt {:3.0} ms, cost {:3.0} ms{}, {:9.2} MB/s, cap {:?}: {:6.2} s, optimum {:.2}, one by one {:6.2} (x{:.3}), eight {:6.2} (x{:.3}) | {} requests, most {} at once, pages {} KiB, {} hedges, {} retries",
        world.rtt_seconds * 1e3,
        world.cost_seconds * 1e3,
        if world.serial { " serial" } else { "" },
        world.bytes_per_second / 1e6,
        world.cap_bytes,
        outcome.whole,
        world.optimum_seconds(FILE),
        world.sequential_seconds(page_of(world)),
        outcome.whole / world.sequential_seconds(page_of(world)),
        eight(world),
        outcome.whole / eight(world),
        outcome.statistics.requests,
        outcome.statistics.in_flight_max,
        outcome.statistics.page_bytes / KIB,
        outcome.statistics.hedges,
        outcome.statistics.retries,
    );
    assert!(outcome.finished, "{:?}", outcome.broken);
    assert!(outcome.peak_bytes <= RING);
    outcome
}

fn page_of(world: World) -> u64 {
    world.cap_bytes.map_or(PAGE, |cap| cap.min(PAGE))
}

/// A loop with eight reads of one page in flight.
fn eight(world: World) -> f64 {
    world.page_optimum_seconds(page_of(world), 8)
}

#[test]
fn a_hundred_milliseconds_away_a_file_takes_less_than_a_tenth_of_one_by_one() {
    for mbit in [1000.0, f64::INFINITY] {
        let world = world(0.1, mbit);
        let outcome = read(world);
        assert!(outcome.whole <= 0.09 * world.sequential_seconds(PAGE));
        assert!(outcome.whole <= eight(world));
    }
}

#[test]
fn the_smaller_room_of_a_player_is_enough_for_that() {
    for mbit in [1000.0, f64::INFINITY] {
        let mut settings = Settings::new(3 * MIB);
        settings.sleeps_when_full = true;
        let world = world(0.1, mbit);
        let outcome = read_with(world, settings);
        assert!(outcome.whole <= 0.06 * world.sequential_seconds(PAGE));
    }
}

#[test]
fn where_latency_limits_more_reads_are_in_flight_even_if_pages_may_not_grow() {
    let mut settings = Settings::new(RING);
    settings.page_bytes_max = PAGE;
    let world = world(0.1, f64::INFINITY);
    let outcome = read_with(world, settings);
    assert!(outcome.whole <= 0.6 * eight(world));
    assert_eq!(outcome.statistics.in_flight_max, 16);
    assert_eq!(outcome.statistics.page_bytes, PAGE);
}

#[test]
fn no_latency_makes_it_slower_than_eight_at_once() {
    for discipline in [Discipline::FairShare, Discipline::Fifo] {
        for rtt in [0.0005, 0.002, 0.02, 0.1] {
            for mbit in [20.0, 100.0, 1000.0, f64::INFINITY] {
                let mut world = world(rtt, mbit);
                world.discipline = discipline;
                let outcome = read(world);
                assert!(
                    outcome.whole <= 1.1 * eight(world) + 3.0 * rtt + 0.01,
                    "{world:?}"
                );
            }
        }
    }
}

/// Without latency the client's own work per page limits, one page after the other.
#[test]
fn next_door_fewer_and_larger_pages_save_the_cost_of_each() {
    for cost in [0.002, 0.005] {
        let mut world = world(0.0005, 2000.0);
        (world.serial, world.cost_seconds) = (true, cost);
        let outcome = read(world);
        assert!(outcome.whole <= 0.6 * eight(world), "{world:?}");
    }
}

#[test]
fn a_server_that_answers_in_turn_is_not_slower_than_one_by_one() {
    for cost in [0.02, 0.1, 0.5] {
        for rtt in [0.0005, 0.02, 0.1] {
            let mut world = world(rtt, f64::INFINITY);
            (world.serial, world.cost_seconds) = (true, cost);
            let outcome = read(world);
            assert!(
                outcome.whole <= 0.5 * world.sequential_seconds(PAGE),
                "{world:?}"
            );
            assert!(
                outcome.statistics.in_flight_max <= 8 || rtt > cost,
                "{world:?}"
            );
            assert_eq!(outcome.statistics.hedges, 0, "{world:?}");
        }
    }
}

#[test]
fn a_server_of_small_pages_gets_more_reads_at_once() {
    for (cap, share) in [(8 * KIB, 0.25), (64 * KIB, 0.75)] {
        for rtt in [0.02, 0.1] {
            let mut world = world(rtt, f64::INFINITY);
            world.cap_bytes = Some(cap);
            let outcome = read(world);
            assert!(outcome.whole <= share * eight(world), "{world:?}");
            assert!(outcome.statistics.in_flight_max <= 64);
            let fewest = FILE / cap;
            assert!(outcome.statistics.requests <= fewest + fewest / 10 + 100);
        }
    }
}

#[test]
fn errors_now_and_then_cost_little() {
    for rtt in [0.02, 0.1] {
        let mut world = world(rtt, 100.0);
        world.errors = 0.05;
        let clean = read(World {
            errors: 0.0,
            ..world
        });
        let outcome = read(world);
        assert!(outcome.whole <= 1.5 * clean.whole + 10.0 * rtt);
    }
}

#[test]
fn a_caller_s_limit_holds() {
    let mut settings = Settings::new(RING);
    settings.in_flight = Some(2);
    let mut world = world(0.02, f64::INFINITY);
    world.cap_bytes = Some(8 * KIB);
    world.size_bytes = MIB;
    assert_eq!(read_with(world, settings).statistics.in_flight_max, 2);
}

#[test]
fn pages_stop_growing_where_larger_ones_are_not_faster() {
    for (mbit, pages) in [(2.0, 1), (20.0, 4), (100.0, 4)] {
        let world = world(0.02, mbit);
        let page = read(world).statistics.page_bytes;
        assert!(page <= pages * PAGE, "{page} bytes, {world:?}");
        let seconds = world.optimum_seconds(page) - world.latency();
        assert!(seconds <= 0.6, "{seconds} s, {world:?}");
    }
}
