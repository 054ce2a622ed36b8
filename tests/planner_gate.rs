//! When audio starts, and starts again: the start gate by rule, and in simulated time over links that are hardly faster
//! than the audio, and much faster. `cargo test --test planner_gate -- --nocapture` prints every row, and
//! `cargo test --test planner_gate -- --ignored --nocapture table` the starts and stalls over stdio and HTTP.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod simulator;

use playhead_core::planner::{Planner, START_SECONDS, Settings};
use simulator::{Discipline, KIB, Listener, MIB, Outcome, Slowdown, WIRE, World, run_with};

/// Bytes per second: mp3 at 320 kbit/s, CD audio, 96 kHz in 24 bit.
const AUDIO: [(&str, f64); 3] = [
    ("mp3 320", 40_000.0),
    ("CD WAV", 176_400.0),
    ("96/24 WAV", 576_000.0),
];
/// Round trip and cost of a read, in seconds.
const LINKS: [(f64, f64); 4] = [(0.005, 0.0), (0.02, 0.02), (0.04, 0.02), (0.1, 0.02)];
const PLAYED_SECONDS: f64 = 120.0;
const ROOM: u64 = 3 * MIB;

fn planner() -> Planner {
    Planner::new(Settings::new(ROOM)).unwrap()
}

/// Reads from `planner` one page after the other at `rate` until `bytes` have arrived; gives the time.
fn deliver(planner: &mut Planner, bytes: u64, rate: f64) -> f64 {
    let (mut now, mut got) = (0.0, 0);
    while got < bytes {
        let requests: Vec<_> = std::iter::from_fn(|| planner.next(now, 0)).collect();
        for request in requests {
            now += (request.end - request.start) as f64 / rate;
            planner.on_answer(request.id, now, request.end - request.start, None);
            got = request.end;
        }
    }
    now
}

#[test]
fn before_the_first_sample_half_a_second_is_enough() {
    let planner = planner();
    assert!(!planner.can_play(0.0, 19_999, 40_000.0, None));
    assert!(planner.can_play(0.0, 20_000, 40_000.0, None));
}

#[test]
fn a_stream_that_is_in_hand_to_its_end_is_enough_however_short() {
    assert!(planner().can_play(0.0, 100, 40_000.0, Some(100)));
    assert!(!planner().can_play(0.0, 100, 40_000.0, Some(101)));
}

#[test]
fn a_link_three_times_faster_needs_half_a_second_and_a_slower_one_what_it_will_not_deliver() {
    let mut planner = planner();
    let now = deliver(&mut planner, 300_000, 40_000.0);
    let rest = Some(4_000_000);
    let fast = 40_000.0 / 3.0;
    assert!(!planner.can_play(now, (0.49 * fast) as u64, fast, rest));
    assert!(planner.can_play(now, (0.54 * fast) as u64, fast, rest));
    // Half as fast as the audio: of the next half minute, half has to be there first, and a margin.
    let twice = 80_000.0;
    assert!(!planner.can_play(now, (15.0 * twice) as u64, twice, rest));
    assert!(planner.can_play(now, (17.0 * twice) as u64, twice, rest));
    // Of the last ten seconds, as much.
    let rest = Some((10.0 * twice) as u64);
    assert!(!planner.can_play(now, (5.0 * twice) as u64, twice, rest));
    assert!(planner.can_play(now, (6.0 * twice) as u64, twice, rest));
}

#[test]
fn nobody_waits_for_more_than_the_ring_holds() {
    let mut planner = planner();
    let now = deliver(&mut planner, 300_000, 40_000.0);
    let rate = 4_000_000.0;
    assert!(!planner.can_play(now, ROOM / 2, rate, None));
    assert!(planner.can_play(now, ROOM * 91 / 100, rate, None));
}

#[test]
fn a_rate_of_nothing_or_none_at_all_is_answered() {
    let mut planner = planner();
    let now = deliver(&mut planner, 300_000, 40_000.0);
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        for in_hand in [0, 1, u64::MAX] {
            planner.can_play(now, in_hand, rate, None);
        }
    }
    assert!(planner.can_play(now, ROOM, f64::NAN, None));
}

/// A link so many times as fast as audio of `rate` bytes per second.
fn world(rate: f64, over: f64, discipline: Discipline, (rtt, cost): (f64, f64)) -> World {
    let size = (PLAYED_SECONDS * rate) as u64;
    let mut world = World::new(rtt, rate * WIRE * over / 125_000.0, size);
    (world.discipline, world.cost_seconds) = (discipline, cost);
    world
}

fn listen(world: World, rate: f64) -> Outcome {
    let music = Listener::Music { rate };
    let outcome = run_with(world, Settings::new(ROOM), music, |planner| {
        planner.set_total(world.size_bytes, false);
    });
    assert!(outcome.finished && outcome.peak_bytes <= ROOM, "{world:?}");
    outcome
}

/// The results of a row of links.
struct Row {
    stalls_per_minute: f64,
    /// Of playing, after the start was possible with half a second in hand.
    late_seconds: f64,
    start_seconds: f64,
}

fn row(name: &str, rate: f64, over: f64, adjust: impl Fn(&mut World), seeds: u64) -> Row {
    let (mut stalls, mut minutes) = (0, 0.0);
    let (mut late_seconds, mut start_seconds) = (0.0f64, 0.0f64);
    for discipline in [Discipline::FairShare, Discipline::Fifo] {
        for link in LINKS {
            for seed in 1..=seeds {
                let mut world = world(rate, over, discipline, link);
                world.seed = seed;
                adjust(&mut world);
                let outcome = listen(world, rate);
                stalls += outcome.stalls;
                minutes += PLAYED_SECONDS / 60.0;
                late_seconds = late_seconds.max(outcome.play_started - outcome.could_start);
                start_seconds = start_seconds.max(outcome.play_started);
            }
        }
    }
    let row = Row {
        stalls_per_minute: f64::from(stalls) / minutes,
        late_seconds,
        start_seconds,
    };
    println!(
        "{name:>9} at {over:>4}x: {:.3} stalls per minute, starts at most {:.2} s after it had half a second, {:.2} s in all",
        row.stalls_per_minute, row.late_seconds, row.start_seconds
    );
    row
}

/// A start may take so long: half a second of audio, and what a link that is hardly faster makes necessary.
fn longest_start_seconds(over: f64) -> f64 {
    match over {
        over if over >= 10.0 => 0.5,
        over if over >= 3.0 => 0.8,
        over if over >= 1.5 => 1.2,
        _ => 2.75, // 2.5 s after the first byte
    }
}

#[test]
fn without_loss_nothing_stalls_and_a_fast_link_starts_at_once() {
    for (name, rate) in AUDIO {
        for over in [1.15, 1.5, 3.0, 10.0] {
            let row = row(name, rate, over, |_| {}, 1);
            assert!(row.stalls_per_minute == 0.0, "{name} at {over}x");
            assert!(
                row.start_seconds <= longest_start_seconds(over),
                "{name} at {over}x: {} s",
                row.start_seconds
            );
            if over >= 3.0 {
                // One page more, where pages that share the link hide its rate.
                assert!(row.late_seconds <= 0.6 * START_SECONDS, "{name} at {over}x");
            }
        }
    }
}

/// Over HTTP answers share the link, so its bound has the round trip of a read more.
#[test]
fn the_start_trusts_a_steady_link() {
    for (name, rate) in AUDIO {
        for (over, most) in [(1.15, 2.5), (1.3, 2.0), (1.5, 1.0), (2.0, 0.8)] {
            for link in LINKS {
                for discipline in [Discipline::Fifo, Discipline::FairShare] {
                    let world = world(rate, over, discipline, link);
                    let most = match discipline {
                        Discipline::Fifo => most,
                        Discipline::FairShare => most + world.latency(),
                    };
                    let outcome = listen(world, rate);
                    let seconds = outcome.play_started - world.latency();
                    assert!(seconds <= most, "{name} at {over}x: {seconds} s, {world:?}");
                    assert_eq!(outcome.stalls, 0, "{name} at {over}x: {world:?}");
                }
            }
        }
    }
}

#[test]
fn a_first_page_is_not_taken_for_that_of_a_serial_server() {
    let rate = 16_000.0; // the page has half a second
    for over in [1.3, 1.5, 2.0] {
        for link in LINKS {
            let world = world(rate, over, Discipline::Fifo, link);
            assert_eq!(listen(world, rate).stalls, 0, "{over}x: {world:?}");
        }
    }
}

#[test]
fn a_link_that_slows_down_while_the_first_pages_arrive_is_not_trusted() {
    for discipline in [Discipline::FairShare, Discipline::Fifo] {
        let [steady, slower] = [1.5, 1.2].map(|over| {
            let mut world = world(40_000.0, 1.5, discipline, LINKS[1]);
            world.slowdown = Some(Slowdown {
                at_seconds: 0.6,
                cost_seconds: world.cost_seconds,
                bytes_per_second: over * WIRE * 40_000.0,
            });
            let outcome = listen(world, 40_000.0);
            assert_eq!(outcome.stalls, 0, "{world:?}");
            outcome.play_started
        });
        assert!(
            slower > steady + 1.0,
            "{slower} s, {steady} s if it does not"
        );
    }
}

/// Over real links the first burst looks steady by chance, or not, and the gate is asked before the next request.
#[test]
fn the_start_over_a_noisy_link_does_not_stall() {
    for (name, rate) in &AUDIO[..2] {
        for (over, noise) in [(1.15, 0.2), (1.3, 0.3), (1.5, 0.3), (3.0, 0.5)] {
            let row = row(name, *rate, over, |world| world.noise = noise, 8);
            assert!(row.stalls_per_minute == 0.0, "{name} at {over}x, {noise}");
        }
    }
}

/// The latest start after the first byte over the links, and the stalls per minute, for 2 % of reads without an answer.
#[test]
#[ignore = "prints, asserts nothing"]
fn table() {
    println!(
        "|  audio | link | stdio, s | HTTP, s | 2 % loss: stdio, s | HTTP, s | stalls/min | 2 % loss |"
    );
    for (name, rate) in [("mp3 128", 16_000.0)].into_iter().chain(AUDIO) {
        for over in [1.15, 1.3, 1.5, 2.0, 3.0] {
            let (mut starts, mut stalls) = ([[0.0f64; 2]; 2], [0; 2]);
            let seeds = [1, 10];
            for (is_lossy, loss) in [0.0, 0.02].into_iter().enumerate() {
                for (is_http, discipline) in [Discipline::Fifo, Discipline::FairShare]
                    .into_iter()
                    .enumerate()
                {
                    for (link, seed) in LINKS
                        .into_iter()
                        .flat_map(|link| (1..=seeds[is_lossy]).map(move |seed| (link, seed)))
                    {
                        let mut world = world(rate, over, discipline, link);
                        (world.loss, world.seed) = (loss, seed);
                        let outcome = listen(world, rate);
                        let latest = &mut starts[is_lossy][is_http];
                        *latest = latest.max(outcome.play_started - world.latency());
                        stalls[is_lossy] += outcome.stalls;
                    }
                }
            }
            let minutes = |is_lossy: usize| {
                2.0 * LINKS.len() as f64 * seeds[is_lossy] as f64 * PLAYED_SECONDS / 60.0
            };
            println!(
                "| {name} | {over}x | {:.2} | {:.2} | {:.2} | {:.2} | {:.3} | {:.3} |",
                starts[0][0],
                starts[0][1],
                starts[1][0],
                starts[1][1],
                f64::from(stalls[0]) / minutes(0),
                f64::from(stalls[1]) / minutes(1),
            );
        }
    }
}

#[test]
fn two_per_cent_of_reads_that_fail_hardly_stall() {
    for (name, rate) in AUDIO {
        for over in [1.15, 1.5, 3.0, 10.0] {
            let row = row(name, rate, over, |world| world.errors = 0.02, 10);
            assert!(row.stalls_per_minute <= 0.1, "{name} at {over}x");
        }
    }
}

#[test]
fn two_per_cent_of_reads_that_are_never_answered_stall_seldom() {
    for (name, rate) in AUDIO {
        for over in [1.15, 1.5, 3.0, 10.0] {
            let row = row(name, rate, over, |world| world.loss = 0.02, 10);
            assert!(row.stalls_per_minute <= 0.6, "{name} at {over}x");
        }
    }
}

#[test]
fn a_ring_of_a_few_pages_is_enough_to_start_with() {
    let rate = 576_000.0;
    for over in [1.15, 3.0] {
        let world = World::new(0.02, rate * WIRE * over / 125_000.0, (30.0 * rate) as u64);
        let outcome = run_with(
            world,
            Settings::new(512 * KIB),
            Listener::Music { rate },
            |_| {},
        );
        assert!(outcome.finished, "{over}x");
        assert!(
            outcome.play_started <= 2.0,
            "{over}x: {}",
            outcome.play_started
        );
    }
}
