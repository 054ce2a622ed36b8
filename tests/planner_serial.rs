//! A server that answers one read at a time: when audio starts, and goes on after a seek, while the ring fills and when
//! it is full. `cargo test --test planner_serial -- --nocapture` prints every row.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod simulator;

use playhead_core::planner::{Demand, Settings};
use simulator::{Discipline, Listener, MIB, Outcome, World, run_seeking};

const PAGE_SECONDS: f64 = 0.333;
const SONG_SECONDS: f64 = 3000.0;
/// 128 and 320 kbit/s.
const RATES: [f64; 2] = [16_000.0, 40_000.0];

fn play(rate: f64, seeks: &[(f64, u64)], adjust: impl Fn(&mut World)) -> Outcome {
    let mut world = World::new(0.001, f64::INFINITY, (SONG_SECONDS * rate) as u64);
    (world.serial, world.cost_seconds) = (true, PAGE_SECONDS);
    adjust(&mut world);
    let mut settings = Settings::new(3 * MIB);
    settings.sleeps_when_full = true;
    let outcome = run_seeking(
        world,
        settings,
        Listener::Music { rate },
        seeks,
        |planner| {
            planner.set_total(world.size_bytes, false);
            planner.set_demand(0.0, Demand::Waiting);
        },
    );
    println!(
        "{:3.0} kbit/s: starts after {:.3} s, seeks {:?}, {} stalls, {} in flight",
        rate / 125.0,
        outcome.play_started,
        outcome.seek_seconds,
        outcome.stalls,
        outcome.statistics.in_flight_max,
    );
    outcome
}

#[test]
fn audio_starts_with_the_first_pages_that_tell_the_server_from_a_slow_link() {
    for (rate, most) in RATES.into_iter().zip([0.7, 0.9]) {
        for discipline in [Discipline::FairShare, Discipline::Fifo] {
            let outcome = play(rate, &[], |world| world.discipline = discipline);
            assert!(outcome.play_started <= most, "{}", outcome.play_started);
            assert_eq!(outcome.stalls, 0);
        }
    }
}

#[test]
fn a_seek_waits_for_one_page_and_what_is_being_served() {
    for rate in RATES {
        for (at, most) in [(4.1, 1.1), (60.0, 0.8)] {
            for phase in 0..8 {
                let at = at + f64::from(phase) * PAGE_SECONDS / 8.0;
                let to = |share: f64| (SONG_SECONDS * share * rate) as u64;
                let outcome = play(rate, &[(at, to(0.5)), (at + 4.0, to(0.75))], |_| {});
                let [first, again] = outcome.seek_seconds[..] else {
                    panic!("{:?}", outcome.seek_seconds)
                };
                assert!(first <= most && again <= 1.1, "{first} at {at}, {again}");
                assert_eq!(outcome.stalls, 0);
            }
        }
    }
}
