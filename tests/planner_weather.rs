//! Listening through bad weather, in simulated time: outages, servers that slow down, errors now and then.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod simulator;

use playhead_core::planner::Settings;
use simulator::{Listener, MIB, Outage, OutageKind, Outcome, Slowdown, World, run};

/// 320 kbit/s.
const RATE: f64 = 40_000.0;
const MUSIC: Listener = Listener::Music { rate: RATE };
/// Seven minutes of it.
const SONG: u64 = 16 * MIB;
/// The room of `play` ahead of its reader, in bytes and in seconds.
const AHEAD: u64 = 3 * MIB;
const AHEAD_SECONDS: f64 = AHEAD as f64 / RATE;

fn world(mbit: f64) -> World {
    let mut world = World::new(0.05, mbit, SONG);
    world.cost_seconds = 0.02;
    world
}

fn settings() -> Settings {
    let mut settings = Settings::new(AHEAD);
    settings.sleeps_when_full = true;
    settings
}

fn play(world: World) -> Outcome {
    play_with(world, settings())
}

fn play_with(world: World, settings: Settings) -> Outcome {
    let outcome = run(world, settings, MUSIC);
    println!(
        "{:?} {:?} errors {}: started {:.2} s, {} stalls of {:.1} s, at rest {:.0} s, {} requests, {} in the outage, {} retries, {} hedges",
        world.outage,
        world.slowdown,
        world.errors,
        outcome.play_started,
        outcome.stalls,
        outcome.stalled_seconds,
        outcome.resting_seconds,
        outcome.statistics.requests,
        outcome.outage_requests,
        outcome.statistics.retries,
        outcome.statistics.hedges,
    );
    assert!(outcome.finished, "{:?}", outcome.broken);
    assert!(outcome.peak_bytes <= AHEAD);
    outcome
}

fn outages(at_seconds: f64) -> impl Iterator<Item = Outage> {
    [5.0, 20.0, 45.0].into_iter().flat_map(move |seconds| {
        [OutageKind::Silent, OutageKind::Fails].map(|kind| Outage {
            at_seconds,
            seconds,
            kind,
        })
    })
}

#[test]
fn an_outage_is_not_heard_while_the_ring_is_full() {
    for at_seconds in [60.0, 61.3, 75.0, 90.0] {
        for outage in outages(at_seconds) {
            assert!(outage.seconds < 0.9 * 0.75 * AHEAD_SECONDS);
            let mut world = world(10.0);
            world.outage = Some(outage);
            let outcome = play(world);
            assert_eq!(outcome.stalls, 0, "{outage:?}");
            assert!(outcome.outage_requests as f64 <= 2.0 * outage.seconds + 8.0);
        }
    }
}

#[test]
fn an_outage_with_an_empty_ring_is_one_stall_and_few_requests() {
    for outage in outages(0.5) {
        let mut world = world(2.0);
        world.outage = Some(outage);
        let outcome = play(world);
        assert!(outcome.stalls <= 1, "{outage:?}");
        assert!(
            outcome.stalled_seconds <= outage.seconds + 6.0,
            "{} s, {outage:?}",
            outcome.stalled_seconds
        );
        assert!(
            outcome.outage_requests as f64 <= 2.0 * outage.seconds + 8.0,
            "{} requests, {outage:?}",
            outcome.outage_requests
        );
    }
}

#[test]
fn a_file_is_saved_through_an_outage() {
    for outage in outages(0.5) {
        let mut world = world(20.0);
        world.outage = Some(outage);
        let outcome = run(world, Settings::new(8 * MIB), Listener::Greedy);
        assert!(outcome.finished, "{:?}", outcome.broken);
        let clear = World {
            outage: None,
            ..world
        };
        assert!(outcome.whole <= clear.optimum_seconds(SONG) + outage.seconds + 7.0);
    }
}

#[test]
fn a_server_that_slows_down_in_mid_file_is_not_heard_while_it_is_faster_than_the_music() {
    let slow_server = Slowdown {
        at_seconds: 30.0,
        cost_seconds: 3.0,
        bytes_per_second: 1_250_000.0,
    };
    let slow_link = Slowdown {
        at_seconds: 30.0,
        cost_seconds: 0.02,
        bytes_per_second: 1.3 * RATE * simulator::WIRE,
    };
    for slowdown in [slow_server, slow_link] {
        for serial in [false, true] {
            let mut world = world(10.0);
            (world.slowdown, world.serial) = (Some(slowdown), serial);
            assert_eq!(play(world).stalls, 0, "{slowdown:?}");
        }
    }
}

#[test]
fn errors_now_and_then_are_not_heard() {
    for seed in 0..10 {
        let mut world = world(3.0);
        (world.errors, world.seed) = (0.05, seed);
        assert_eq!(play(world).stalls, 0);
    }
}

#[test]
fn a_full_ring_lets_the_link_rest_until_a_quarter_of_it_is_free() {
    let mut settings = settings();
    settings.page_bytes_max = settings.page_bytes;
    let outcome = play_with(world(10.0), settings);
    assert!(outcome.resting_seconds >= 0.9 * SONG as f64 / RATE);
    let quarters = SONG / (AHEAD / 4);
    assert!(outcome.bursts <= 2 * quarters, "{} bursts", outcome.bursts);
}

#[test]
fn saving_never_rests() {
    let outcome = run(world(10.0), Settings::new(8 * MIB), Listener::Greedy);
    assert!(outcome.resting_seconds <= 0.2);
}
