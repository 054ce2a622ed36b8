//! The shipped pipe under loom: every order in which its atomics, locks and wake-ups can fall.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom --test loom_pipe`
//!
//! A lost wake-up shows as a deadlock, a missing order as a race on a byte's mark or as a wrong byte. Each
//! model is the smallest that fails when the line it guards is taken out of ring.rs or pipe.rs; its name says
//! which promise that is. Rings of one or two bytes, so that every write reuses a place.
#![cfg(loom)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed model is a panic"
)]

use std::sync::Arc;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use playhead_core::error::Error;
use playhead_core::payload::Payload;
use playhead_core::pipe::{Outcome, Pipe, Wake};

/// An eventfd: a token that stays until it is taken.
struct Token {
    is_there: Mutex<bool>,
    came: Condvar,
}

impl Wake for Token {
    fn wake(&self) {
        *self.is_there.lock().unwrap() = true;
        self.came.notify_one();
    }

    fn wait_while(&self, _timeout: Option<Duration>, waiting: &mut dyn FnMut() -> bool) -> bool {
        while waiting() {
            let mut is_there = self.is_there.lock().unwrap();
            while !*is_there {
                is_there = self.came.wait(is_there).unwrap();
            }
            *is_there = false;
        }
        true
    }
}

type LoomPipe = Pipe<Token, &'static str>;

fn pipe(capacity_bytes: u64) -> Arc<LoomPipe> {
    pipe_with_history(capacity_bytes, 0)
}

fn pipe_with_history(capacity_bytes: u64, behind_bytes: u64) -> Arc<LoomPipe> {
    let token = Token {
        is_there: Mutex::new(false),
        came: Condvar::new(),
    };
    Arc::new(Pipe::new(capacity_bytes, 0, behind_bytes, token).unwrap())
}

/// Works with the pipe in a thread of its own.
fn beside<T: 'static>(
    pipe: &Arc<LoomPipe>,
    work: impl FnOnce(&LoomPipe) -> T + 'static,
) -> thread::JoinHandle<T> {
    let pipe = Arc::clone(pipe);
    thread::spawn(move || work(&pipe))
}

fn write(pipe: &LoomPipe, offset: u64, bytes: &[u8]) -> Result<u64, Error> {
    pipe.write(offset, Payload::Bytes(bytes))
}

/// A blocking read of one byte.
fn read(pipe: &LoomPipe) -> Result<u8, &'static str> {
    let mut out = [0];
    match pipe.read(&mut out, None).unwrap() {
        Outcome::Bytes(1) => Ok(out[0]),
        Outcome::End => Err("end"),
        Outcome::Broken(error) => Err(error),
        other => panic!("a blocking read gave {other:?}"),
    }
}

/// The result of a read: the bytes, or a word.
fn look(pipe: &LoomPipe, at_most: usize) -> Result<Vec<u8>, &'static str> {
    let mut out = vec![0; at_most];
    match pipe.read_nowait(&mut out) {
        Ok(Outcome::Bytes(len)) => Ok(out[..len].to_vec()),
        Ok(Outcome::NotYet) => Err("not yet"),
        Ok(Outcome::End) => Err("end"),
        Ok(Outcome::Broken(error)) => Err(error),
        Err(error) => {
            assert_eq!(error, Error::Busy);
            Err("busy")
        }
    }
}

// --- bytes are seen whole, and their places are reused only after they were read ------------------------

fn looks_while_a_byte_is_written(and_then: impl Fn(&LoomPipe) + Send + Sync + Copy + 'static) {
    loom::model(move || {
        let pipe = pipe(1);
        let reader = beside(&pipe, |pipe| look(pipe, 1));
        write(&pipe, 0, &[7]).unwrap();
        and_then(&pipe);
        let seen = reader.join().unwrap();
        assert!(seen == Ok(vec![7]) || seen == Err("not yet"), "{seen:?}");
    });
}

#[test]
fn a_byte_is_in_place_before_a_reader_without_a_lock_sees_it() {
    looks_while_a_byte_is_written(|_| ());
}

#[test]
fn a_place_is_written_again_only_after_its_byte_was_read() {
    loom::model(|| {
        let pipe = pipe(1);
        write(&pipe, 0, &[7]).unwrap();
        let reader = beside(&pipe, |pipe| look(pipe, 1));
        let second = write(&pipe, 1, &[8]);
        assert_eq!(reader.join().unwrap(), Ok(vec![7]));
        match second {
            Ok(_) => assert_eq!(look(&pipe, 1), Ok(vec![8])),
            Err(error) => assert!(matches!(error, Error::Window { .. }), "{error}"),
        }
    });
}

#[test]
fn an_interrupt_ends_a_wait_whenever_it_falls() {
    loom::model(|| {
        let pipe = pipe(1);
        let reader = beside(&pipe, |pipe| {
            let mut out = [0];
            matches!(pipe.read(&mut out, None), Ok(Outcome::NotYet))
        });
        pipe.interrupt();
        assert!(reader.join().unwrap());
    });
}

#[test]
fn an_interrupt_beside_a_write_ends_one_wait_and_no_byte_is_lost() {
    loom::model(|| {
        let pipe = pipe(1);
        let reader = beside(&pipe, |pipe| {
            let mut out = [0];
            let mut waits = [false; 2];
            for waited_in_vain in &mut waits {
                *waited_in_vain = matches!(pipe.read(&mut out, None), Ok(Outcome::NotYet));
            }
            (out, waits)
        });
        write(&pipe, 0, &[7]).unwrap();
        pipe.interrupt();
        let (out, waits) = reader.join().unwrap();
        assert_eq!(out, [7]);
        assert_ne!(waits[0], waits[1]);
    });
}

#[test]
fn an_end_is_seen_only_after_the_bytes_before_it() {
    looks_while_a_byte_is_written(LoomPipe::close);
}

#[test]
fn a_break_is_seen_only_after_the_good_bytes_before_it() {
    looks_while_a_byte_is_written(|pipe| pipe.abort("broken"));
}

// --- a blocked reader is woken ------------------------------------------------------------------------

fn a_blocked_read_gives(
    expected: Result<u8, &'static str>,
    after: impl Fn(&LoomPipe) + Send + Sync + Copy + 'static,
) {
    loom::model(move || {
        let pipe = pipe(1);
        let reader = beside(&pipe, read);
        after(&pipe);
        assert_eq!(reader.join().unwrap(), expected);
    });
}

#[test]
fn a_blocked_reader_is_woken_by_a_write() {
    a_blocked_read_gives(Ok(7), |pipe| _ = write(pipe, 0, &[7]).unwrap());
}

#[test]
fn a_blocked_reader_is_woken_by_the_write_that_closes_a_gap() {
    loom::model(|| {
        let pipe = pipe(2);
        let reader = beside(&pipe, |pipe| (read(pipe), read(pipe)));
        write(&pipe, 1, &[8]).unwrap();
        write(&pipe, 0, &[7]).unwrap();
        assert_eq!(reader.join().unwrap(), (Ok(7), Ok(8)));
    });
}

#[test]
fn a_blocked_reader_is_woken_by_close() {
    a_blocked_read_gives(Err("end"), LoomPipe::close);
}

#[test]
fn a_blocked_reader_is_woken_by_abort() {
    a_blocked_read_gives(Err("broken"), |pipe| pipe.abort("broken"));
}

#[test]
fn a_reader_that_a_seek_sent_back_to_wait_is_woken_again() {
    loom::model(|| {
        let pipe = pipe(1);
        let reader = beside(&pipe, read);
        write(&pipe, 0, &[7]).unwrap();
        pipe.seek(4).unwrap();
        write(&pipe, 4, &[9]).unwrap();
        let byte = reader.join().unwrap();
        assert!(byte == Ok(7) || byte == Ok(9), "{byte:?}");
    });
}

// --- a waiting writer is woken ------------------------------------------------------------------------

fn waits_for_room_until(free: impl Fn(&LoomPipe) + Send + Sync + Copy + 'static) {
    loom::model(move || {
        let pipe = pipe(1);
        write(&pipe, 0, &[7]).unwrap();
        let writer = beside(&pipe, |pipe| {
            if pipe.wait_room(1, None) == Ok(true) {
                write(pipe, pipe.tail(), &[8]).unwrap();
            }
        });
        free(&pipe);
        writer.join().unwrap();
    });
}

#[test]
fn a_writer_that_waits_for_room_is_woken_by_a_read_without_a_lock() {
    waits_for_room_until(|pipe| assert_eq!(look(pipe, 1), Ok(vec![7])));
}

#[test]
fn a_writer_that_waits_for_room_is_woken_by_a_blocking_read() {
    waits_for_room_until(|pipe| assert_eq!(read(pipe), Ok(7)));
}

#[test]
fn a_writer_that_waits_for_room_is_woken_by_a_seek() {
    waits_for_room_until(|pipe| pipe.seek(4).unwrap());
}

#[test]
fn a_writer_that_waits_for_room_is_woken_by_close() {
    waits_for_room_until(LoomPipe::close);
}

#[test]
fn a_writer_that_waits_for_room_is_woken_by_abort() {
    waits_for_room_until(|pipe| pipe.abort("broken"));
}

// --- a seek and a copy keep out of each other's way ------------------------------------------------------

#[test]
fn a_seek_waits_for_the_copy_that_is_running() {
    loom::model(|| {
        let pipe = pipe(2);
        write(&pipe, 0, &[1, 2]).unwrap();
        let reader = beside(&pipe, |pipe| look(pipe, 2));
        pipe.seek(4).unwrap();
        write(&pipe, 4, &[5, 6]).unwrap();
        let seen = reader.join().unwrap();
        let allowed = [Ok(vec![1, 2]), Ok(vec![5, 6]), Err("not yet")];
        assert!(allowed.contains(&seen), "{seen:?}");
    });
}

#[test]
fn a_seek_away_from_an_end_never_shows_that_end() {
    loom::model(|| {
        let pipe = pipe(1);
        write(&pipe, 0, &[7]).unwrap();
        pipe.close();
        let reader = beside(&pipe, |pipe| look(pipe, 1));
        pipe.seek(4).unwrap();
        let seen = reader.join().unwrap();
        assert!(seen == Ok(vec![7]) || seen == Err("not yet"), "{seen:?}");
    });
}

// --- what is kept behind the reader ----------------------------------------------------------------------

#[test]
fn a_place_behind_the_reader_is_written_again_only_after_it_is_no_longer_kept() {
    loom::model(|| {
        let pipe = pipe_with_history(2, 1);
        write(&pipe, 0, &[7, 8]).unwrap();
        let reader = beside(&pipe, |pipe| (look(pipe, 1), look(pipe, 1)));
        let third = write(&pipe, 2, &[9]);
        assert_eq!(reader.join().unwrap(), (Ok(vec![7]), Ok(vec![8])));
        // Byte 1 is the one behind the reader, whether or not the third byte fitted in time.
        pipe.seek(1).unwrap();
        match third {
            Ok(_) => assert_eq!(look(&pipe, 2), Ok(vec![8, 9])),
            Err(error) => {
                assert!(matches!(error, Error::Window { .. }), "{error}");
                assert_eq!(look(&pipe, 2), Ok(vec![8]));
            }
        }
    });
}

#[test]
fn a_reader_that_is_moved_back_reads_the_same_bytes_while_the_writer_goes_on() {
    loom::model(|| {
        let pipe = pipe_with_history(2, 1);
        write(&pipe, 0, &[7, 8]).unwrap();
        assert_eq!(look(&pipe, 2), Ok(vec![7, 8]));
        let reader = beside(&pipe, |pipe| look(pipe, 2));
        pipe.seek(1).unwrap();
        // The window is [1, 3), and it does not move back with the reader.
        write(&pipe, 2, &[9]).unwrap();
        let past = write(&pipe, 3, &[10]);
        let seen = reader.join().unwrap();
        let allowed = [Ok(vec![8]), Ok(vec![8, 9]), Err("not yet")];
        assert!(allowed.contains(&seen), "{seen:?}");
        // Only a reader that has passed byte 2 makes room for byte 3.
        if past.is_ok() {
            assert_eq!(seen, Ok(vec![8, 9]));
        }
    });
}

#[test]
fn a_blocked_reader_is_woken_by_a_seek_back_to_what_is_kept() {
    loom::model(|| {
        let pipe = pipe_with_history(2, 1);
        write(&pipe, 0, &[7]).unwrap();
        assert_eq!(read(&pipe), Ok(7));
        let reader = beside(&pipe, read);
        pipe.seek(0).unwrap();
        assert_eq!(reader.join().unwrap(), Ok(7));
    });
}

// --- one reader -----------------------------------------------------------------------------------------

#[test]
fn two_readers_never_get_the_same_byte() {
    loom::model(|| {
        let pipe = pipe(2);
        write(&pipe, 0, &[1, 2]).unwrap();
        let other = beside(&pipe, |pipe| look(pipe, 1));
        let ours = look(&pipe, 1);
        let mut seen = [ours, other.join().unwrap()];
        seen.sort();
        let (one, two, busy) = (Ok(vec![1]), Ok(vec![2]), Err("busy"));
        assert!(
            seen == [one.clone(), two] || seen == [one, busy],
            "{seen:?}"
        );
    });
}
