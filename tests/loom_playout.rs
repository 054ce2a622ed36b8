//! The shipped playout under loom: a decoder, a sink and a player in every order.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom --test loom_playout`
//!
//! A lost wake-up shows as a deadlock. Frames of one byte, rings of one or two.
#![cfg(loom)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed model is a panic"
)]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use playhead_core::error::Error;
use playhead_core::gain::Sample;
use playhead_core::payload::Payload;
use playhead_core::pipe::{Pipe, Wake};
use playhead_core::playout::{Phase, Playout, PlayoutSettings};

/// An eventfd: a token that stays until it is taken.
#[derive(Default)]
struct Fd {
    is_set: Mutex<bool>,
    set: Condvar,
}

impl Wake for Fd {
    fn wake(&self) {
        *self.is_set.lock().unwrap() = true;
        self.set.notify_one();
    }

    fn wait_while(&self, timeout: Option<Duration>, waiting: &mut dyn FnMut() -> bool) -> bool {
        while waiting() {
            if timeout.is_some() {
                return false; // no time passes here, and the only timeout is 0
            }
            let mut is_set = self.is_set.lock().unwrap();
            while !*is_set {
                is_set = self.set.wait(is_set).unwrap();
            }
            *is_set = false;
        }
        true
    }
}

type LoomPlayout = Playout<Fd, ()>;

fn playout(capacity_bytes: u64) -> (Arc<Pipe<Fd, ()>>, Arc<LoomPlayout>) {
    let pipe = Arc::new(Pipe::new(capacity_bytes, 0, 0, Fd::default()).unwrap());
    let settings = PlayoutSettings {
        sample: Sample::S16,
        frame_bytes: NonZeroU32::new(1).unwrap(),
        rate_hz: NonZeroU32::new(1000).unwrap(),
        gain: 1.0,
        fade_frames: 0,
        seek_fade_frames: 0,
        spare_bytes: 0,
    };
    let playout = Arc::new(Playout::new(Arc::clone(&pipe), settings));
    (pipe, playout)
}

/// Works with the playout in a thread of its own.
fn beside<T: 'static>(
    playout: &Arc<LoomPlayout>,
    work: impl FnOnce(&LoomPlayout) -> T + 'static,
) -> thread::JoinHandle<T> {
    let playout = Arc::clone(playout);
    thread::spawn(move || work(&playout))
}

fn fill(playout: &LoomPlayout) -> usize {
    playout.fill(&mut [0], Duration::ZERO).audio_bytes
}

fn take(playout: &LoomPlayout) -> Result<Option<usize>, Error> {
    playout.take(&mut [0], || Duration::ZERO)
}

#[test]
fn a_callback_that_races_with_the_end_still_gets_every_frame() {
    loom::model(|| {
        let (pipe, playout) = playout(1);
        let callback = beside(&playout, fill);
        playout.release();
        pipe.write(0, Payload::Bytes(&[7])).unwrap();
        pipe.close();
        playout.release();
        let mut taken = callback.join().unwrap();
        for _ in 0..3 {
            taken += fill(&playout);
        }
        assert_eq!((taken, playout.phase()), (1, Phase::Ended));
    });
}

#[test]
fn a_thread_at_the_gate_is_woken_by_each_thing_that_opens_it() {
    loom::model(|| {
        let (pipe, playout) = playout(1);
        pipe.write(0, Payload::Bytes(&[7])).unwrap();
        playout.set_paused(true);
        let taker = beside(&playout, take);
        playout.release();
        playout.set_paused(false);
        assert_eq!(taker.join().unwrap(), Ok(Some(1)));
    });
}

#[test]
fn a_thread_that_waits_at_the_gate_or_for_audio_is_woken_by_close() {
    for released in [false, true] {
        loom::model(move || {
            let (_pipe, playout) = playout(1);
            if released {
                playout.release();
            }
            let taker = beside(&playout, take);
            playout.close();
            assert_eq!(taker.join().unwrap(), Err(Error::Closed));
        });
    }
}

#[test]
fn a_seek_that_races_with_a_callback_lets_no_void_frame_through_after_it() {
    loom::model(|| {
        let (pipe, playout) = playout(2);
        pipe.write(0, Payload::Bytes(&[1])).unwrap();
        playout.release();
        let callback = beside(&playout, fill);
        assert!(playout.seek(100));
        pipe.write(1, Payload::Bytes(&[2])).unwrap();
        playout.release();
        callback.join().unwrap();
        playout.release(); // as after each write: the callback may have been dry in between
        for _ in 0..2 {
            fill(&playout);
        }
        // The old frame may have been taken before the seek, never after it; the new one is frame 100.
        assert_eq!(playout.position(), 101);
        assert_eq!(pipe.head(), 2);
    });
}

#[test]
fn a_thread_at_the_gate_makes_room_for_the_audio_after_a_seek() {
    loom::model(|| {
        let (pipe, playout) = playout(1);
        pipe.write(0, Payload::Bytes(&[1])).unwrap();
        let taker = beside(&playout, take);
        assert!(playout.seek(100));
        assert_eq!(pipe.wait_room(1, None), Ok(true));
        pipe.write(1, Payload::Bytes(&[2])).unwrap();
        playout.release();
        assert_eq!(taker.join().unwrap(), Ok(Some(1)));
        assert_eq!(playout.position(), 101);
    });
}

#[test]
fn an_interrupted_writer_stops_waiting_for_room() {
    loom::model(|| {
        let (pipe, playout) = playout(1);
        pipe.write(0, Payload::Bytes(&[1])).unwrap();
        playout.release();
        let writer = beside(&playout, |playout| playout.wait_room(1));
        playout.interrupt();
        assert_eq!(writer.join().unwrap(), Ok(false));
    });
}
