//! A device's callback allocates nothing and needs no lock, in whatever phase it meets the audio.
#![cfg(not(loom))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed test is a panic"
)]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use playhead_core::error::Error;
use playhead_core::gain::Sample;
use playhead_core::payload::Payload;
use playhead_core::pipe::{Pipe, Wake};
use playhead_core::playout::{Event, Output, Phase, Playout, PlayoutSettings, next_call};

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}

    fn wait_while(&self, _: Option<Duration>, waiting: &mut dyn FnMut() -> bool) -> bool {
        !waiting()
    }
}

type TestPipe = Pipe<NoWake, &'static str>;
type TestPlayout = Playout<NoWake, &'static str>;

const SOON: Duration = Duration::from_millis(7);

/// Mono: a frame is one sample.
fn playout(fade_frames: u32) -> (Arc<TestPipe>, Arc<TestPlayout>) {
    let pipe = Pipe::new(1 << 13, 0, 1 << 12, NoWake).unwrap();
    playout_of(pipe, fade_frames, 0)
}

/// A playout with room for 32 frames in its pipe; `spare_bytes` of it are for after a seek.
fn short_playout(spare_bytes: u64) -> (Arc<TestPipe>, Arc<TestPlayout>) {
    playout_of(Pipe::new(64, 0, 0, NoWake).unwrap(), 0, spare_bytes)
}

fn playout_of(
    pipe: TestPipe,
    fade_frames: u32,
    spare_bytes: u64,
) -> (Arc<TestPipe>, Arc<TestPlayout>) {
    let pipe = Arc::new(pipe);
    let settings = settings(fade_frames, spare_bytes);
    let playout = Arc::new(Playout::new(Arc::clone(&pipe), settings));
    (pipe, playout)
}

fn settings(fade_frames: u32, spare_bytes: u64) -> PlayoutSettings {
    PlayoutSettings {
        sample: Sample::S16,
        frame_bytes: NonZeroU32::new(2).unwrap(),
        rate_hz: NonZeroU32::new(1000).unwrap(),
        gain: 1.0,
        fade_frames,
        seek_fade_frames: fade_frames,
        spare_bytes,
    }
}

/// A playout that sounds; a device has taken so many frames of `samples`, if any.
fn sounding(
    fade_frames: u32,
    samples: &[i16],
    taken_frames: usize,
) -> (Arc<TestPipe>, Arc<TestPlayout>) {
    let (pipe, playout) = playout(fade_frames);
    write(&pipe, samples);
    playout.release();
    if taken_frames > 0 {
        filled(&playout, taken_frames);
    }
    (pipe, playout)
}

fn write(pipe: &TestPipe, samples: &[i16]) {
    let bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_ne_bytes()).collect();
    pipe.write(pipe.tail(), Payload::Bytes(&bytes)).unwrap();
}

fn filled(playout: &TestPlayout, frames: usize) -> Vec<i16> {
    let mut out = vec![0xAA; 2 * frames];
    let filled = playout.fill(&mut out, SOON);
    assert!(out[filled.audio_bytes..].iter().all(|byte| *byte == 0));
    samples_of(&out[..filled.audio_bytes])
}

fn samples_of(bytes: &[u8]) -> Vec<i16> {
    bytes
        .chunks(2)
        .map(|pair| i16::from_ne_bytes([pair[0], pair[1]]))
        .collect()
}

#[test]
fn the_table_has_every_transition_of_the_header_and_no_other() {
    use Event::{Close, Empty, Enough, Filled, Last, Seek, Taken};
    use Phase::{Closed, Draining, Dry, Ended, Filling, Playing, Ready};
    let phases = [Filling, Ready, Playing, Draining, Dry, Ended, Closed];
    let row =
        |phase: Phase| [Enough, Filled, Taken, Empty, Last, Seek, Close].map(|e| phase.after(e));
    let (filling, closed) = (Some(Filling), Some(Closed));
    let expected = [
        [Some(Ready), None, None, None, None, filling, closed],
        [
            None,
            Some(Playing),
            Some(Draining),
            Some(Dry),
            Some(Ended),
            filling,
            closed,
        ],
        [None, None, None, Some(Dry), Some(Ended), filling, closed],
        [None, None, None, None, Some(Ended), filling, closed],
        [Some(Ready), None, None, None, None, filling, closed],
        [None, None, None, None, None, None, closed],
        [None; 7],
    ];
    assert_eq!(phases.map(row), expected);
}

#[test]
fn a_device_is_fed_without_an_allocation_and_without_a_lock_through_every_phase() {
    let (pipe, playout) = playout(100);
    let output = Output::default();
    let mut out = vec![0; 2 * 200];
    let mut period = |act: &dyn Fn()| {
        act();
        let counted = playout.with_all_locks(|| {
            allocation_counter::measure(|| {
                output.call(&mut out, SOON);
            })
        });
        assert_eq!(
            counted.count_total,
            0,
            "allocations in {:?}",
            playout.phase()
        );
        playout.phase()
    };
    let thousand = [1000; 1000];
    assert_eq!(period(&|| ()), Phase::Filling, "a device without audio yet");
    assert!(output.play(Arc::clone(&playout)));
    assert_eq!(period(&|| ()), Phase::Filling);
    assert_eq!(period(&|| write(&pipe, &thousand)), Phase::Filling);
    assert_eq!(period(&|| _ = playout.release()), Phase::Playing);
    assert_eq!(period(&|| playout.set_gain(0.5, 70)), Phase::Playing);
    assert_eq!(period(&|| playout.set_paused(true)), Phase::Playing);
    assert_eq!(period(&|| ()), Phase::Playing);
    assert_eq!(period(&|| playout.set_paused(false)), Phase::Playing);
    for _ in 0..3 {
        period(&|| ());
    }
    assert_eq!(playout.phase(), Phase::Dry);
    write(&pipe, &thousand);
    assert_eq!(
        period(&|| pipe.close()),
        Phase::Playing,
        "the rest, at the end"
    );
    for _ in 0..5 {
        period(&|| ());
    }
    assert_eq!((playout.phase(), playout.frames()), (Phase::Ended, 2000));
    assert_eq!(
        (playout.underruns(), playout.first_audio()),
        (1, Some(SOON))
    );
}

#[test]
fn a_device_is_over_once_it_has_played_the_periods_that_it_holds() {
    let playout = whole(&[1; 10], 0);
    let output = Output::default();
    assert!(output.play(Arc::clone(&playout)));
    let (_, other) = self::playout(0);
    assert!(!output.play(other), "one buffer per device");
    let mut out = [0; 40];
    let news: Vec<(bool, bool)> = (0..6)
        .map(|_| (output.call(&mut out, SOON), output.is_over()))
        .collect();
    let expected = [
        (true, false),
        (false, false),
        (false, false),
        (true, true),
        (false, true),
    ];
    assert_eq!(news[..5], expected);
    assert_eq!(output.calls(), 6);
    let stopped = Output::<NoWake, &str>::default();
    stopped.stop();
    assert!(stopped.is_over());
}

#[test]
fn a_pause_fades_out_holds_the_very_sample_and_fades_in() {
    let (pipe, playout) = playout(4);
    let ascending: Vec<i16> = (1..=20).map(|step| 400 * step).collect();
    write(&pipe, &ascending);
    playout.release();
    assert_eq!(
        filled(&playout, 4),
        &ascending[..4],
        "the start is not faded"
    );
    playout.set_paused(true);
    let out = filled(&playout, 10);
    assert_eq!(out, [2000 * 3 / 4, 2400 / 2, 2800 / 4, 0]);
    assert_eq!(filled(&playout, 10), []);
    assert_eq!(playout.frames(), 8);
    playout.set_paused(false);
    assert_eq!(
        filled(&playout, 6),
        [3600 / 4, 4000 / 2, 4400 * 3 / 4, 4800, 5200, 5600]
    );
}

#[test]
fn a_pause_in_the_middle_of_a_fade_turns_it_round() {
    let (_, playout) = sounding(4, &[8000; 40], 4);
    playout.set_paused(true);
    assert_eq!(filled(&playout, 2), [6000, 4000]);
    playout.set_paused(false);
    assert_eq!(filled(&playout, 3), [6000, 8000, 8000]);
}

#[test]
fn a_pause_before_the_first_audio_takes_none_of_it() {
    let (pipe, playout) = playout(4);
    write(&pipe, &[8000; 8]);
    playout.set_paused(true);
    playout.release();
    assert_eq!(filled(&playout, 4), []);
    playout.set_paused(false);
    assert_eq!(filled(&playout, 4), [8000; 4]);
}

#[test]
fn the_volume_follows_a_line_however_the_periods_cut_it_and_turns_from_where_it_is() {
    for cut in [1, 3, 7, 100] {
        let (_, playout) = sounding(0, &[10_000; 400], 0);
        playout.set_gain(0.0, 100);
        let mut heard = Vec::new();
        while heard.len() < 100 {
            heard.extend(filled(&playout, cut.min(100 - heard.len())));
        }
        let exact: Vec<i16> = (1..=100).map(|step| 10_000 - 100 * step).collect();
        let off = heard.iter().zip(&exact).map(|(a, b)| (a - b).abs()).max();
        assert!(off <= Some(1), "cut every {cut} frames: off by {off:?}");
        playout.set_gain(1.0, 100);
        filled(&playout, 50);
        playout.set_gain(0.0, 50);
        let turned = filled(&playout, 50);
        assert!(
            (turned[0] - 4900).abs() <= 1,
            "from a half, not from an end: {}",
            turned[0]
        );
        assert_eq!(turned[49], 0);
    }
}

#[test]
fn a_playout_that_ran_dry_goes_on_by_itself_when_its_writer_waits_for_room() {
    let (pipe, playout) = short_playout(0);
    write(&pipe, &[5; 32]);
    assert_eq!(
        playout.wait_room(2),
        Ok(false),
        "held back: read on instead"
    );
    assert_eq!(filled(&playout, 4), []);
    playout.release();
    assert_eq!(filled(&playout, 32).len(), 32);
    assert_eq!(filled(&playout, 4), []);
    assert_eq!(playout.phase(), Phase::Dry);
    pipe.close();
    assert_eq!(filled(&playout, 4), []);
    assert_eq!(
        (playout.phase(), playout.underruns()),
        (Phase::Ended, 0),
        "the end is not an underrun"
    );
}

#[test]
fn a_thread_takes_as_fast_as_it_can_waits_while_paused_and_is_woken_by_the_end() {
    let (pipe, playout) = playout(0);
    std::thread::scope(|threads| {
        let taker = threads.spawn(|| {
            let mut all = Vec::new();
            let mut out = [0; 64];
            loop {
                match playout.take(&mut out, || SOON) {
                    Ok(Some(0)) => return Ok(all),
                    Ok(Some(len)) => all.extend(samples_of(&out[..len])),
                    Ok(None) => unreachable!("nothing interrupts it"),
                    Err(error) => return Err(error),
                }
            }
        });
        write(&pipe, &[1; 100]);
        playout.set_paused(true);
        playout.release();
        assert_eq!(playout.frames(), 0);
        playout.set_paused(false);
        write(&pipe, &[1; 100]);
        pipe.close();
        assert_eq!(taker.join().unwrap(), Ok(vec![1; 200]));
    });
    assert_eq!((playout.phase(), playout.frames()), (Phase::Ended, 200));
}

#[test]
fn closing_wakes_a_thread_that_waits_at_the_gate() {
    let (_pipe, playout) = playout(0);
    std::thread::scope(|threads| {
        let taker = threads.spawn(|| playout.take(&mut [0; 64], || SOON));
        assert!(playout.close());
        assert_eq!(taker.join().unwrap(), Err(Error::Closed));
    });
    assert!(!playout.close());
}

#[test]
fn an_interrupt_wakes_a_thread_that_waits_at_the_gate_or_for_audio_once() {
    let (pipe, playout) = playout(0);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            let taker = threads.spawn(|| playout.take(&mut [0; 64], || SOON));
            playout.interrupt_take();
            assert_eq!(taker.join().unwrap(), Ok(None));
            playout.release();
        }
        let taker = threads.spawn(|| playout.take(&mut [0; 64], || SOON));
        write(&pipe, &[1; 10]);
        assert_eq!(taker.join().unwrap(), Ok(Some(20)));
    });
}

#[test]
fn what_was_taken_can_be_read_again_while_it_is_kept() {
    let (pipe, playout) = sounding(0, &[1, 2, 3, 4], 3);
    let mut out = [0; 64];
    assert_eq!(pipe.copy_behind(0, &mut out), 6);
    assert_eq!(samples_of(&out[..6]), [1, 2, 3], "up to the head");
    assert_eq!(pipe.copy_behind(2, &mut out[..2]), 2);
    assert_eq!(samples_of(&out[..2]), [2]);
    assert_eq!(pipe.copy_behind(6, &mut out), 0);
    let all = [7; 2048];
    for _ in 0..3 {
        write(&pipe, &all[..2000]);
        filled(&playout, 2000);
    }
    assert_eq!(pipe.copy_behind(0, &mut out), 0, "no longer kept");
}

/// A filling of `frames` frames, with its silence.
fn period(playout: &TestPlayout, frames: usize) -> Vec<i16> {
    let mut out = vec![0xAA; 2 * frames];
    playout.fill(&mut out, SOON);
    samples_of(&out)
}

#[test]
fn a_duck_and_the_volume_are_two_lines_that_are_multiplied() {
    let (_, playout) = sounding(0, &[16_000; 400], 0);
    playout.set_duck(0.5, 4);
    assert_eq!(
        filled(&playout, 6),
        [14_000, 12_000, 10_000, 8000, 8000, 8000]
    );
    playout.set_gain(0.5, 0);
    assert_eq!(filled(&playout, 2), [4000, 4000]);
    playout.set_duck(1.0, 8);
    assert_eq!(filled(&playout, 4), [4500, 5000, 5500, 6000]);
    playout.set_duck(0.75, 0);
    assert_eq!(filled(&playout, 1), [6000]);
}

#[test]
fn a_stop_fades_out_over_its_own_frames_and_closes_and_is_immediate_where_nothing_sounds() {
    for cut in [1, 3, 50] {
        let (_, playout) = sounding(2, &[8000; 400], 5);
        playout.stop(8);
        let mut heard = Vec::new();
        while playout.phase() != Phase::Closed {
            heard.extend(filled(&playout, cut));
        }
        assert_eq!(
            heard,
            [7000, 6000, 5000, 4000, 3000, 2000, 1000, 0],
            "{cut}"
        );
        assert_eq!(period(&playout, 4), [0; 4]);
    }
    let (_, playout) = sounding(2, &[8000; 400], 0);
    playout.stop(8);
    assert_eq!(
        playout.phase(),
        Phase::Closed,
        "no callback has taken any of it"
    );
}

#[test]
fn a_stop_of_a_paused_playout_is_silent() {
    let (_, playout) = sounding(2, &[8000; 400], 5);
    playout.set_paused(true);
    filled(&playout, 5);
    playout.stop(8);
    assert_eq!(filled(&playout, 5), []);
    assert_eq!(playout.phase(), Phase::Closed);
}

#[test]
fn a_seek_fades_what_sounds_skips_the_rest_and_fades_the_new_audio_in() {
    let (pipe, playout) = sounding(4, &[8000; 100], 10);
    assert!(playout.seek(5000));
    assert_eq!(
        (
            playout.phase(),
            playout.position(),
            playout.buffered_bytes()
        ),
        (Phase::Filling, 5000, 0)
    );
    write(&pipe, &[-4000; 100]);
    assert_eq!(playout.buffered_bytes(), 200);
    playout.release();
    assert_eq!(
        period(&playout, 10),
        [
            6000, 4000, 2000, 0, -1000, -2000, -3000, -4000, -4000, -4000
        ],
        "in one period, without a gap"
    );
    assert_eq!((playout.position(), playout.frames()), (5006, 20));
    assert_eq!(playout.underruns(), 0);
}

#[test]
fn a_seek_without_new_audio_is_silent_after_its_fade_and_starts_as_at_the_beginning() {
    for cut in [1, 3, 50] {
        let (pipe, playout) = sounding(4, &[8000; 100], 10);
        playout.seek(7);
        let mut heard = Vec::new();
        for _ in 0..20 {
            heard.extend(filled(&playout, cut));
        }
        assert_eq!(heard, [6000, 4000, 2000, 0], "{cut}");
        write(&pipe, &[4000; 100]);
        assert_eq!(filled(&playout, 10), []);
        playout.release();
        assert_eq!(filled(&playout, 6), [1000, 2000, 3000, 4000, 4000, 4000]);
        assert_eq!((playout.position(), playout.underruns()), (13, 0));
    }
}

#[test]
fn of_several_seeks_between_two_periods_the_last_counts() {
    let (pipe, playout) = sounding(2, &[8000; 100], 10);
    for frame in [10, 20, 30] {
        assert!(playout.seek(frame));
        write(&pipe, &[frame as i16; 50]);
    }
    playout.release();
    assert_eq!(period(&playout, 6), [4000, 0, 15, 30, 30, 30]);
    assert_eq!(playout.position(), 34);
}

#[test]
fn a_seek_while_paused_is_silent_and_moves_the_playhead() {
    let (pipe, playout) = sounding(2, &[8000; 100], 10);
    playout.set_paused(true);
    assert_eq!(filled(&playout, 10), [4000, 0]);
    playout.seek(3000);
    write(&pipe, &[5000; 50]);
    playout.release();
    assert_eq!(filled(&playout, 10), []);
    assert_eq!(playout.position(), 3000);
    playout.set_paused(false);
    assert_eq!(filled(&playout, 3), [2500, 5000, 5000]);
}

#[test]
fn a_seek_reopens_a_pipe_that_has_ended_until_the_sink_has_the_last_frame() {
    let (pipe, playout) = playout(0);
    write(&pipe, &[1; 10]);
    pipe.close();
    playout.release();
    filled(&playout, 5);
    assert!(playout.seek(2));
    write(&pipe, &[2; 10]);
    pipe.close();
    playout.release();
    assert_eq!(filled(&playout, 100), [2; 10]);
    assert_eq!(playout.phase(), Phase::Ended);
    assert!(!playout.seek(0), "too late");
    assert_eq!((playout.position(), playout.frames()), (12, 15));
}

#[test]
fn a_thread_that_takes_gets_a_seek_with_its_fades_too() {
    let (pipe, playout) = sounding(2, &[8000; 100], 0);
    let mut out = [0; 20];
    let mut take = || {
        let len = playout.take(&mut out, || SOON).unwrap().unwrap();
        samples_of(&out[..len])
    };
    assert_eq!(take(), [8000; 10]);
    playout.seek(40);
    write(&pipe, &[6000; 4]);
    pipe.close();
    playout.release();
    assert_eq!(take(), [4000, 0]);
    assert_eq!(take(), [3000, 6000, 6000, 6000]);
    assert_eq!(take(), []);
    assert_eq!(playout.position(), 44);
}

#[test]
fn what_was_taken_leaves_out_what_a_seek_made_void() {
    let (pipe, playout) = sounding(2, &[1, 2, 3, 4, 5, 6], 2);
    playout.seek(40);
    write(&pipe, &[7, 8, 9]);
    playout.release();
    filled(&playout, 50);
    let mut out = [0; 64];
    let mut offset = 0;
    let mut taken = Vec::new();
    loop {
        let (len, next) = playout.copy_taken(offset, &mut out);
        if len == 0 {
            break;
        }
        taken.extend(samples_of(&out[..len]));
        offset = next;
    }
    assert_eq!(taken, [1, 2, 3, 4, 7, 8, 9], "3 and 4 were faded out");
}

#[test]
fn a_writer_that_waits_for_room_is_interrupted_once() {
    let (pipe, playout) = sounding(0, &[1; 2048], 1);
    write(&pipe, &[1]);
    playout.interrupt();
    assert_eq!(playout.wait_room(2), Ok(false));
    filled(&playout, 1);
    assert_eq!(playout.wait_room(2), Ok(true));
}

#[test]
fn an_output_goes_on_with_the_next_playout_in_the_same_period_and_lets_the_first_go() {
    let (first_pipe, first) = playout(0);
    let (second_pipe, second) = playout(0);
    let (skipped_pipe, skipped) = playout(0);
    for (pipe, playout, sample) in [(&first_pipe, &first, 1), (&second_pipe, &second, 2)] {
        write(pipe, &[sample; 25]);
        pipe.close();
        playout.release();
    }
    write(&skipped_pipe, &[9; 25]);
    let output = Output::default();
    assert!(output.play(Arc::clone(&first)));
    assert!(first.follow_with(Arc::clone(&skipped)));
    assert!(!first.follow_with(Arc::clone(&second)), "it has one");
    skipped.withdraw();
    assert!(skipped.follow_with(Arc::clone(&second)));
    let mut out = [0; 40];
    let mut heard = Vec::new();
    let mut news = Vec::with_capacity(4);
    for _ in 0..4 {
        let counted = first.with_all_locks(|| {
            allocation_counter::measure(|| news.push(output.call(&mut out, SOON)))
        });
        assert_eq!(counted.count_total, 0);
        heard.extend(samples_of(&out));
    }
    let exact = [[1; 25].as_slice(), &[2; 25], &[0; 30]].concat();
    assert_eq!(heard, exact);
    assert_eq!(news, [true, true, true, false]);
    assert!(first.is_followed() && !second.is_followed());
    assert!(!output.is_over());
    drop((first, skipped));
    assert_eq!(Arc::strong_count(&first_pipe), 2, "until its owner looks");
    output.collect();
    assert_eq!(Arc::strong_count(&first_pipe), 1);
}

#[test]
fn ramps_and_fades_cross_from_one_playout_to_the_next() {
    let (first_pipe, first) = playout(4);
    let (second_pipe, second) = playout(4);
    write(&first_pipe, &[16_000; 12]);
    write(&second_pipe, &[16_000; 100]);
    first_pipe.close();
    first.release();
    second.release();
    first.follow_with(Arc::clone(&second));
    let output = Output::default();
    output.play(Arc::clone(&first));
    let call = |frames: usize| {
        let mut out = vec![0; 2 * frames];
        output.call(&mut out, SOON);
        samples_of(&out)
    };
    call(8);
    for playout in [&first, &second] {
        playout.set_duck(0.5, 8);
    }
    let ramp = call(9);
    assert_eq!(ramp, [15, 14, 13, 12, 11, 10, 9, 8, 8].map(|n| n * 1000));
    let (third_pipe, third) = playout(4);
    write(&third_pipe, &[16_000; 100]);
    third.release();
    second.follow_with(Arc::clone(&third));
    second_pipe.close();
    call(93);
    for playout in [&second, &third] {
        playout.set_paused(true);
    }
    assert_eq!(
        call(6),
        [6000, 4000, 2000, 0, 0, 0],
        "a fade that begins with two frames left"
    );
    assert_eq!(third.frames(), 2);
}

#[test]
fn what_was_heard_is_what_was_taken_a_delay_ago_and_never_less_than_before() {
    let (pipe, playout) = playout(0); // 1000 frames per second
    let at = Duration::from_millis;
    let fill = |frames: usize, now| {
        playout.fill(&mut vec![0; 2 * frames], now);
    };
    playout.set_delay(at(30));
    write(&pipe, &[1; 1000]);
    playout.release();
    assert_eq!(playout.heard(at(100)), 0);
    fill(20, at(100));
    fill(20, at(120));
    assert_eq!(playout.heard(at(125)), 0);
    assert_eq!(playout.heard(at(145)), 15);
    playout.set_paused(true);
    fill(20, at(140));
    assert_eq!(playout.heard(at(165)), 35);
    assert_eq!(playout.heard(at(500)), 40, "a device plays what it holds");
    playout.set_paused(false);
    fill(20, at(500));
    assert_eq!(playout.heard(at(510)), 40);
    assert_eq!(playout.heard(at(540)), 50);
    fill(20, at(525));
    assert_eq!(playout.heard(at(540)), 45, "its calls came late");
    assert_eq!(playout.heard(at(900)), 80);
}

#[test]
fn a_playout_that_was_stopped_is_not_followed() {
    let ((_, first), (_, next)) = (sounding(0, &[1; 25], 0), sounding(0, &[1; 25], 0));
    first.follow_with(Arc::clone(&next));
    let output = Output::default();
    output.play(Arc::clone(&first));
    let mut out = [0; 20];
    output.call(&mut out, SOON);
    first.close();
    output.call(&mut out, SOON);
    assert_eq!((out, next.frames()), ([0; 20], 0));
}

#[test]
fn a_full_pipe_has_room_for_the_first_audio_after_a_seek() {
    let (pipe, playout) = short_playout(16);
    write(&pipe, &[5; 24]);
    assert_eq!(playout.wait_room(16), Ok(false), "kept");
    playout.seek(7);
    assert_eq!(playout.wait_room(16), Ok(true));
    assert_eq!(playout.wait_room(18), Ok(false));
}

#[test]
fn a_playout_that_is_over_is_followed_later_too_even_if_it_was_closed() {
    let (first, next) = (whole(&[1; 5], 0), whole(&[1; 5], 0));
    let output = Output::default();
    output.play(Arc::clone(&first));
    let mut out = [0; 20];
    for _ in 0..5 {
        output.call(&mut out, SOON);
    }
    first.close();
    assert!(output.is_over() && !output.is_stopped());
    first.follow_with(Arc::clone(&next));
    output.call(&mut out, SOON);
    assert_eq!((next.frames(), output.is_over()), (5, false));
}

/// A playout with an audible `samples` and its end.
fn whole(samples: &[i16], fade_frames: u32) -> Arc<TestPlayout> {
    let (pipe, playout) = playout(fade_frames);
    write(&pipe, samples);
    pipe.close();
    playout.release();
    playout
}

#[test]
fn what_is_mixed_in_is_added_across_two_playouts_of_an_output_and_after_the_last_one() {
    let (first, second) = (whole(&[10; 15], 0), whole(&[20; 15], 0));
    let (said, more) = (whole(&[1; 30], 0), whole(&[2; 20], 0));
    let output = Output::default();
    output.play(Arc::clone(&first));
    first.follow_with(Arc::clone(&second));
    said.follow_with(Arc::clone(&more));
    let mut out = [0; 20];
    let mut heard = Vec::new();
    for call in 0..7 {
        if call == 1 {
            assert!(first.mix(Some(Arc::clone(&said))));
        }
        let counted = allocation_counter::measure(|| {
            output.call(&mut out, SOON);
        });
        assert_eq!(counted.count_total, 0);
        heard.extend(samples_of(&out));
    }
    let exact = [
        [10; 10].as_slice(),
        &[11; 5],
        &[21; 15],
        &[1; 10],
        &[2; 20],
        &[0; 10],
    ];
    assert_eq!(heard, exact.concat());
    assert_eq!((said.phase(), more.phase()), (Phase::Ended, Phase::Ended));
    assert_eq!((first.frames(), said.frames()), (15, 30));
}

#[test]
fn what_is_mixed_in_is_heard_over_a_pause_and_waits_for_nothing_of_the_other() {
    let said = whole(&[100; 10], 0);
    let (_, silent) = playout(0);
    silent.mix(Some(Arc::clone(&said)));
    assert_eq!(filled(&silent, 4), [100; 4], "before any music");
    let music = whole(&[i16::MAX; 40], 0);
    music.mix(Some(Arc::clone(&said)));
    music.set_paused(true);
    assert_eq!(filled(&music, 4), [100; 4]);
    music.set_paused(false);
    assert_eq!(filled(&music, 4), [i16::MAX; 4], "clipped");
    assert_eq!((music.frames(), said.frames()), (4, 10));
    assert_eq!(said.phase(), Phase::Ended);
}

#[test]
fn a_fill_gives_nothing_of_it_beyond_the_last_frame_where_the_next_playout_goes_on() {
    let (music, said) = (whole(&[10; 6], 0), whole(&[1; 30], 0));
    music.mix(Some(Arc::clone(&said)));
    assert_eq!(filled(&music, 4), [11; 4]);
    assert_eq!(filled(&music, 4), [11; 2]);
    assert_eq!(filled(&music, 4), []);
    assert_eq!(filled(&said, 4), [1; 4]);
    assert_eq!(said.frames(), 10);
}

#[test]
fn a_playout_that_closes_fades_it_out_and_holds_it_at_the_very_sample() {
    let (music, said) = (whole(&[0; 400], 4), whole(&[8000; 400], 4));
    let output = Output::default();
    output.play(Arc::clone(&music));
    music.mix(Some(Arc::clone(&said)));
    let mut out = [0; 16];
    output.call(&mut out, SOON);
    music.stop(2);
    output.call(&mut out, SOON);
    assert_eq!(samples_of(&out), [6000, 4000, 2000, 0, 0, 0, 0, 0]);
    output.call(&mut out, SOON);
    assert_eq!((samples_of(&out), said.frames()), (vec![0; 8], 12));
    assert_eq!(filled(&said, 6), [2000, 4000, 6000, 8000, 8000, 8000]);
}

#[test]
fn a_callback_waits_for_no_lock_of_what_is_mixed_in_and_another_format_is_refused() {
    let (music, said) = (whole(&[10; 8], 0), whole(&[1; 8], 0));
    assert!(music.mix(Some(Arc::clone(&said))));
    let heard = music.with_all_locks(|| filled(&music, 4));
    assert_eq!(heard, [10; 4], "without it");
    assert_eq!(filled(&music, 4), [11; 4]);
    let pipe = Arc::new(Pipe::new(1 << 13, 0, 1 << 12, NoWake).unwrap());
    let settings = PlayoutSettings {
        sample: Sample::F32,
        frame_bytes: NonZeroU32::new(4).unwrap(),
        ..settings(0, 0)
    };
    assert!(!music.mix(Some(Arc::new(Playout::new(pipe, settings)))));
    assert!(music.mix(None));
}

#[test]
fn a_clock_in_place_of_a_device_keeps_its_schedule_and_makes_up_for_at_most_three_periods() {
    let ms = Duration::from_millis;
    assert_eq!(next_call(ms(80), ms(80), ms(40)), ms(120));
    assert_eq!(
        next_call(ms(80), ms(119), ms(40)),
        ms(120),
        "late, without drift"
    );
    assert_eq!(next_call(ms(80), ms(200), ms(40)), ms(120), "three are due");
    let mut due = next_call(ms(80), ms(1000), ms(40));
    let mut made_up = 0;
    while due <= ms(1000) {
        due = next_call(due, ms(1000), ms(40));
        made_up += 1;
    }
    assert_eq!((made_up, due), (3, ms(1040)), "the device paused meanwhile");
}

#[test]
fn a_device_that_calls_later_than_what_it_holds_has_dropped_out() {
    let ms = Duration::from_millis;
    let (pipe, playout) = playout(0);
    let output = Output::default();
    output.set_depth(ms(100));
    output.play(Arc::clone(&playout));
    write(&pipe, &[1; 1000]);
    playout.release();
    let mut out = vec![0; 2 * 40];
    let mut now = ms(5000);
    let mut call_after = |wait: u64| {
        now += ms(wait);
        let is_news = output.call(&mut out, now);
        (is_news, playout.device_underruns())
    };
    assert_eq!(call_after(0).1, 0);
    assert_eq!(call_after(1400).1, 0, "it started late");
    for wait in [40, 40, 95, 0, 40] {
        assert_eq!(call_after(wait).1, 0, "in time, if barely");
    }
    assert_eq!(call_after(110), (true, 1), "its owner is told");
    for wait in [0, 0, 40, 40] {
        assert_eq!(call_after(wait), (false, 1), "full again");
    }
    for _ in 0..8 {
        assert_eq!(call_after(44).1, 1, "a clock that is slower than ours");
    }
    playout.set_paused(true);
    call_after(40);
    assert_eq!(call_after(500).1, 1, "silence has no drop-outs");
    let (pipe, uncounted) = self::playout(0);
    write(&pipe, &[1; 1000]);
    uncounted.release();
    let output = Output::default();
    output.play(Arc::clone(&uncounted));
    for at in [0, 500, 1000] {
        output.call(&mut out, ms(at));
    }
    assert_eq!(
        uncounted.device_underruns(),
        0,
        "a clock in place of a device"
    );
}
