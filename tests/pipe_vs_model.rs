//! The pipe against a naive model (pipe_model/mod.rs), its limits, and its second reader.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test is a panic"
)]

mod pipe_model;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pipe_model::{CAPACITY, LENGTH, NoWake, STEPS, Step, TestPipe, page, read, run};
use playhead_core::error::Error;
use playhead_core::payload::Payload;
use playhead_core::pipe::{Outcome, Pipe, Wake};
use proptest::prelude::*;

#[derive(Default)]
struct CountedWake(AtomicU64);

impl Wake for CountedWake {
    fn wake(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn wait_while(&self, _timeout: Option<Duration>, waiting: &mut dyn FnMut() -> bool) -> bool {
        !waiting()
    }
}

fn step() -> impl Strategy<Value = Step> {
    let start = 0..LENGTH;
    let len = 0..=CAPACITY + 2;
    prop_oneof![
        12 => (start.clone(), len.clone(), any::<bool>())
            .prop_map(|(start, len, is_text)| Step::Write { start, len, is_text }),
        2 => (start.clone(), 1..=CAPACITY, 0..CAPACITY)
            .prop_map(|(start, len, at)| Step::WriteWrong { start, len, at }),
        2 => (start.clone(), 1..=CAPACITY, any::<usize>())
            .prop_map(|(start, len, at)| Step::WriteBroken { start, len, at }),
        8 => (0..20_usize, any::<bool>())
            .prop_map(|(at_most, is_blocking)| Step::Read { at_most, is_blocking }),
        1 => start.prop_map(Step::Seek),
        2 => (0..CAPACITY).prop_map(Step::SeekBack),
        1 => Just(Step::Close),
    ]
}

proptest! {
    #[test]
    fn a_pipe_answers_like_a_vector_of_every_byte(
        start in 0..LENGTH,
        behind in 0..CAPACITY,
        steps in prop::collection::vec(step(), 0..STEPS),
    ) {
        run(start, behind, steps);
    }

    #[test]
    fn whole_bytewise_and_random_chunks_give_the_same_bytes(
        cuts in prop::collection::vec(1..30_usize, 1..20),
        writes in prop::collection::vec(1..=CAPACITY, 1..20),
    ) {
        let expected = page(0, LENGTH);
        for chunks in [vec![LENGTH as usize], vec![1], cuts] {
            let pipe = TestPipe::new(CAPACITY, 0, 0, NoWake).unwrap();
            let mut sizes = chunks.iter().cycle();
            let mut lens = writes.iter().cycle();
            let mut got = Vec::new();
            loop {
                let tail = pipe.tail();
                let len = (*lens.next().unwrap()).min(LENGTH - tail).min(pipe.head() + CAPACITY - tail);
                if tail < LENGTH {
                    let text = STANDARD.encode(page(tail, len));
                    prop_assert_eq!(pipe.write(tail, Payload::Text(text.as_bytes())), Ok(len));
                } else {
                    pipe.close();
                }
                match read(&pipe, *sizes.next().unwrap(), true) {
                    (_, "end") => break,
                    (bytes, _) => got.extend(bytes),
                }
            }
            prop_assert_eq!(&got, &expected);
        }
    }

    #[test]
    fn a_text_that_fails_leaves_nothing_behind(held in 0..8_u64, at in 0..16_usize) {
        // The page overlaps what is held, so this goes the way that compares; with `held` 0, straight.
        let pipe = TestPipe::new(CAPACITY, 0, 0, NoWake).unwrap();
        pipe.write(0, Payload::Bytes(&page(0, held))).unwrap();
        let mut text = STANDARD.encode(page(0, 12)).into_bytes();
        text[at] = b'*';
        let fault = playhead_core::base64::find_fault(&text).unwrap();
        prop_assert_eq!(pipe.write(0, Payload::Text(&text)), Err(Error::Base64(fault)));
        prop_assert_eq!(pipe.tail(), held);
        prop_assert_eq!(pipe.write(0, Payload::Bytes(&page(0, 12))), Ok(12));
        prop_assert_eq!(read(&pipe, 16, false).0, page(0, 12));
    }
}

#[test]
fn the_bytes_that_were_read_are_counted_once() {
    let pipe = TestPipe::new(CAPACITY, 0, 0, NoWake).unwrap();
    pipe.write(0, Payload::Bytes(&page(0, 4))).unwrap();
    pipe.write(8, Payload::Bytes(&page(8, 4))).unwrap();
    pipe.write(2, Payload::Bytes(&page(2, 8))).unwrap();
    assert_eq!(read(&pipe, 16, false).0, page(0, 12));
    pipe.write(10, Payload::Bytes(&page(10, 2))).unwrap();
    assert_eq!(pipe.statistics().bytes_read, 12);
}

#[test]
fn limits_are_refused_and_not_met_with_a_panic() {
    let new = |capacity, start, behind| {
        TestPipe::new(capacity, start, behind, NoWake).map(|pipe| (pipe.capacity(), pipe.ahead()))
    };
    assert_eq!(new(0, 0, 0), Err(Error::Capacity { bytes: 0 }));
    assert_eq!(
        new(u64::MAX, 0, 0),
        Err(Error::Capacity { bytes: u64::MAX })
    );
    assert_eq!(new(9, u64::MAX, 0), Err(Error::Offset { offset: u64::MAX }));
    assert_eq!(new(9, 1 << 62, 0), Ok((16, 16)));
    assert_eq!(new(9, 0, 15), Ok((16, 1)));
    let (bytes, capacity) = (16, 16);
    assert_eq!(new(9, 0, 16), Err(Error::Behind { bytes, capacity }));
    let pipe = TestPipe::new(CAPACITY, 0, 0, NoWake).unwrap();
    let window = Error::Window {
        start: u64::MAX,
        end: u64::MAX,
        low: 0,
        high: CAPACITY,
    };
    assert_eq!(pipe.write(u64::MAX, Payload::Bytes(b"ab")), Err(window));
    assert_eq!(pipe.seek(u64::MAX), Err(Error::Offset { offset: u64::MAX }));
    assert_eq!(
        pipe.wait_room(CAPACITY + 1, None),
        Err(Error::Room {
            bytes: 17,
            ahead: CAPACITY
        })
    );
    assert!(pipe.arm(u64::MAX));
}

#[test]
fn a_page_in_flight_still_fits_after_a_seek_back_inside_what_is_kept() {
    let pipe = TestPipe::new(CAPACITY, 0, 4, NoWake).unwrap();
    pipe.write(0, Payload::Bytes(&page(0, 16))).unwrap();
    assert_eq!(read(&pipe, 8, false).0, page(0, 8));
    let in_flight = pipe.head() + pipe.ahead() - 4;
    pipe.seek(4).unwrap();
    assert_eq!(
        pipe.write(in_flight, Payload::Bytes(&page(in_flight, 4))),
        Ok(4)
    );
    assert_eq!(read(&pipe, 20, false).0, page(4, 16));
}

#[test]
fn a_second_reader_is_refused_as_often_as_it_comes_and_nothing_is_lost() {
    let pipe = TestPipe::new(CAPACITY, 0, 0, NoWake).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut out = [0; 4];
            // A limit only so that a failure here is a failure and not a test that hangs.
            pipe.read(&mut out, Some(Duration::from_secs(20)))
                .map(|_| out)
        });
        while pipe.statistics().reader_waits == 0 {
            std::thread::yield_now();
        }
        for _ in 0..3 {
            assert_eq!(pipe.read_nowait(&mut [0]), Err(Error::Busy));
            assert_eq!(pipe.read(&mut [0], Some(Duration::ZERO)), Err(Error::Busy));
        }
        pipe.write(0, Payload::Bytes(&page(0, 4))).unwrap();
        assert_eq!(first.join().unwrap().unwrap().to_vec(), page(0, 4));
    });
    assert_eq!(pipe.read_nowait(&mut [0]), Ok(Outcome::NotYet));
}

#[test]
fn a_blocking_read_that_times_out_leaves_the_pipe_as_it_was() {
    let pipe =
        Pipe::<CountedWake, &'static str>::new(CAPACITY, 0, 0, CountedWake::default()).unwrap();
    assert_eq!(
        pipe.read(&mut [0; 4], Some(Duration::from_millis(1))),
        Ok(Outcome::NotYet)
    );
    assert_eq!(pipe.wait_room(CAPACITY, Some(Duration::ZERO)), Ok(true));
    pipe.write(0, Payload::Bytes(&page(0, 4))).unwrap();
    assert_eq!(pipe.wait_room(CAPACITY, Some(Duration::ZERO)), Ok(false));
    let mut out = [0; 4];
    assert_eq!(pipe.read(&mut out, None), Ok(Outcome::Bytes(4)));
    assert_eq!(out.to_vec(), page(0, 4));
    // The request that timed out was withdrawn: the read sent no wake.
    assert_eq!(pipe.wake().0.load(Relaxed), 0);
}
