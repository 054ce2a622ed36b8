//! A ring, plus an end, a break, and waiting: what a decoder thread or an audio callback reads from.
//!
//! ```text
//!  writer (trio task or thread)                     reader (decoder thread, or audio callback)
//!   write ── under the lock ── tail ─▶ notify ─────▶ read          blocks on a condvar
//!   arm, wait_room ◀──────── wake ◀── armed? ◀────── read_nowait   no lock, no allocation
//! ```
//! Everything a writer or an owner does (write, seek, close, abort) happens under one lock, so those calls
//! order themselves. The reader takes that lock only when it is about to wait, and it decides to wait
//! under it, so a write can't slip in between the look and the wait. Reading itself never takes it.
//!
//! The one handshake without a lock is "there is room again, or it is over". The writer says `armed` and then
//! looks at the head and the state; the others change one of them and then look at `armed`. A full fence
//! between the two steps on both sides makes it impossible that both look too early (Dekker's argument), so a
//! wake is never lost.
//!
//! Why a waiting writer *thread* sleeps on the [`Wake`] and not on a condvar: the audio callback that frees
//! the room must not take the lock that a condvar needs. The wake is a token that stays until it is taken,
//! so one mechanism, with one proof, serves the trio task and the thread alike.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::Error;
use crate::payload::Payload;
use crate::ring::{Ring, Turn, Writer};
use crate::stats::{Counters, PipeStatistics};
use crate::sync::{
    AtomicU8, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, fence, lock, wait_while,
};

/// How a writer is told that there is room: a token that stays until it is taken, like an eventfd.
pub trait Wake: Send + Sync {
    /// Leaves a token. Called from an audio callback: takes no lock that others hold for long, allocates
    /// nothing, never blocks.
    fn wake(&self);

    /// Blocks until `waiting` says no, or for `timeout` in all; returns whether `waiting` said no. It is
    /// asked first, and again after every token taken. An implementation takes the token *before* it asks.
    fn wait_while(&self, timeout: Option<Duration>, waiting: &mut dyn FnMut() -> bool) -> bool;
}

/// What a stream is; see [`State::after`] for its transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Bytes may still come.
    Open = 0,
    /// The stream ends at the tail.
    Ended = 1,
    /// The stream breaks off at the tail, with an error.
    Broken = 2,
}

/// What happens to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// [`Pipe::close`].
    Close,
    /// [`Pipe::abort`].
    Abort,
    /// [`Pipe::seek`] to a place that is not held: the bytes there have yet to come, so an end that was
    /// reached is no longer near.
    Refill,
}

impl State {
    /// The state after `event`, or `None` where it changes nothing. The first of close and abort wins.
    #[must_use]
    pub const fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Open, Event::Close) => Some(Self::Ended),
            (Self::Open, Event::Abort) => Some(Self::Broken),
            (Self::Ended, Event::Refill) => Some(Self::Open),
            (Self::Open, Event::Refill)
            | (Self::Ended, Event::Close | Event::Abort)
            | (Self::Broken, Event::Close | Event::Abort | Event::Refill) => None,
        }
    }

    const fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Open,
            1 => Self::Ended,
            _ => Self::Broken,
        }
    }
}

/// What a read gave. "Not yet" is a value: for a blocking read it means that the time was up.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<'p, E> {
    /// So many bytes, at least one unless the buffer was empty.
    Bytes(usize),
    /// Nothing is there, and the stream goes on.
    NotYet,
    /// The stream is over, and every byte of it was read.
    End,
    /// The stream broke off, and every byte before the break was read.
    Broken(&'p E),
}

/// `armed`: no wake is asked for.
const NOT_ARMED: u64 = u64::MAX;

struct Ledger {
    writer: Writer,
    reader_waits: bool,
}

/// One writer, one reader, a bounded ring between them. `E` is what [`Pipe::abort`] hands to the reader.
pub struct Pipe<W, E> {
    ring: Arc<Ring>,
    ledger: Mutex<Ledger>,
    arrived: Condvar,
    state: AtomicU8,
    /// The writer wants a wake once no more than so many bytes are readable.
    armed: AtomicU64,
    wake: W,
    error: OnceLock<E>,
    counters: Counters,
}

impl<W: Wake, E> Pipe<W, E> {
    /// A pipe of at least `capacity_bytes` (rounded up to a power of two) whose first byte is at `start`.
    ///
    /// # Errors
    /// As [`Ring::new`].
    pub fn new(capacity_bytes: u64, start: u64, wake: W) -> Result<Self, Error> {
        let (ring, writer) = Ring::new(capacity_bytes, start)?;
        Ok(Self {
            ring,
            ledger: Mutex::new(Ledger {
                writer,
                reader_waits: false,
            }),
            arrived: Condvar::new(),
            state: AtomicU8::new(State::Open as u8),
            armed: AtomicU64::new(NOT_ARMED),
            wake,
            error: OnceLock::new(),
            counters: Counters::default(),
        })
    }

    /// How many bytes fit.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.ring.capacity()
    }

    /// Absolute offset of the next byte to be read.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.ring.head()
    }

    /// Absolute end of the readable bytes.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.ring.tail()
    }

    /// Acquires what was written before an end: once the state is final, so is the tail seen after it.
    #[must_use]
    pub fn state(&self) -> State {
        State::from_u8(self.state.load(Ordering::Acquire))
    }

    /// What wakes the writer.
    #[must_use]
    pub const fn wake(&self) -> &W {
        &self.wake
    }

    /// What the stream was aborted with.
    #[must_use]
    pub fn error(&self) -> Option<&E> {
        self.error.get()
    }

    /// A moment's figures.
    #[must_use]
    pub fn statistics(&self) -> PipeStatistics {
        self.counters.snapshot()
    }

    // --- the writer ------------------------------------------------------------------------------------

    /// Stores a page at its absolute offset, and returns its length in bytes; see [`Writer::write`].
    ///
    /// # Errors
    /// [`Error::Closed`] after close or abort, and those of [`Writer::write`].
    pub fn write(&self, offset: u64, payload: Payload<'_>) -> Result<u64, Error> {
        let mut ledger = lock(&self.ledger);
        if self.state() != State::Open {
            return Err(Error::Closed);
        }
        let written = ledger.writer.write(offset, payload)?;
        let (len, stored) = (written.len, written.stored);
        self.counters
            .wrote(stored, len - stored, ledger.writer.held_bytes());
        if written.grew {
            self.wake_reader(ledger);
        }
        Ok(len)
    }

    /// Asks for one wake as soon as no more than `low_bytes` are readable, or the stream ends. Returns
    /// whether that is so already; the request is then withdrawn.
    pub fn arm(&self, low_bytes: u64) -> bool {
        let _ledger = lock(&self.ledger);
        self.armed
            .store(low_bytes.min(NOT_ARMED - 1), Ordering::Relaxed);
        // Pairs with the fence in `wake_writer`: either we see what changed, or whoever changed it sees us.
        fence(Ordering::SeqCst);
        let is_low = self.tail().saturating_sub(self.head()) <= low_bytes;
        let is_so = is_low || self.state() != State::Open;
        if is_so {
            self.armed.store(NOT_ARMED, Ordering::Relaxed);
        }
        is_so
    }

    /// For a thread that writes: blocks until `room_bytes` more fit behind the tail; false when `timeout`
    /// is up first.
    ///
    /// # Errors
    /// [`Error::Room`] for more than the capacity; [`Error::Closed`] once the stream is closed or aborted.
    pub fn wait_room(&self, room_bytes: u64, timeout: Option<Duration>) -> Result<bool, Error> {
        let capacity = self.capacity();
        let low_bytes = capacity.checked_sub(room_bytes).ok_or(Error::Room {
            bytes: room_bytes,
            capacity,
        })?;
        let is_free = self.wake.wait_while(timeout, &mut || !self.arm(low_bytes));
        if !is_free {
            self.armed.store(NOT_ARMED, Ordering::Relaxed);
        }
        if self.state() != State::Open {
            return Err(Error::Closed);
        }
        Ok(is_free)
    }

    /// Moves the reader to `offset`. Inside `[head, tail]` the bytes before it are dropped; elsewhere the
    /// ring is emptied and begins there, and a stream that had ended is open again. A reader that is
    /// blocked stays blocked, and gets the bytes from `offset`.
    ///
    /// # Errors
    /// [`Error::Closed`] after abort; [`Error::Offset`].
    pub fn seek(&self, offset: u64) -> Result<(), Error> {
        let mut ledger = lock(&self.ledger);
        let state = self.state();
        if state == State::Broken {
            return Err(Error::Closed);
        }
        ledger.writer.seek(offset, || {
            if let Some(next) = state.after(Event::Refill) {
                self.state.store(next as u8, Ordering::Relaxed);
            }
        })?;
        drop(ledger);
        self.wake_writer(self.tail().saturating_sub(self.head()));
        Ok(())
    }

    /// The stream ends at the tail; islands beyond a gap are forgotten. Idempotent.
    pub fn close(&self) {
        self.finish(Event::Close, None);
    }

    /// The stream breaks off at the tail: the reader gets `error` after the bytes before it. The first of
    /// close and abort wins.
    pub fn abort(&self, error: E) {
        self.finish(Event::Abort, Some(error));
    }

    fn finish(&self, event: Event, error: Option<E>) {
        let ledger = lock(&self.ledger);
        let Some(next) = self.state().after(event) else {
            return;
        };
        if let Some(error) = error {
            // Set once: nothing leads out of `Broken`.
            let _ = self.error.set(error);
        }
        self.state.store(next as u8, Ordering::Release);
        self.wake_reader(ledger);
        self.wake_writer(0);
    }

    fn wake_reader(&self, mut ledger: MutexGuard<'_, Ledger>) {
        let is_waiting = std::mem::take(&mut ledger.reader_waits);
        drop(ledger);
        if is_waiting {
            self.arrived.notify_one();
        }
    }

    // --- the reader ------------------------------------------------------------------------------------

    /// Gives what is there, at once: takes no lock, allocates nothing, never blocks. Made for an audio
    /// callback.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread reads.
    pub fn read_nowait(&self, out: &mut [u8]) -> Result<Outcome<'_, E>, Error> {
        let mut claim = self.ring.claim().ok_or(Error::Busy)?;
        Ok(match claim.turn() {
            Some(turn) => self.take(turn, out),
            None => Outcome::NotYet,
        })
    }

    /// Gives what is there, and blocks while nothing is: never to fill `out`. After `timeout`
    /// [`Outcome::NotYet`].
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread reads, which includes one that is blocked here.
    pub fn read(&self, out: &mut [u8], timeout: Option<Duration>) -> Result<Outcome<'_, E>, Error> {
        let mut claim = self.ring.claim().ok_or(Error::Busy)?;
        if let Some(turn) = claim.turn() {
            let outcome = self.take(turn, out);
            if !matches!(outcome, Outcome::NotYet) {
                return Ok(outcome);
            }
        }
        self.counters.reader_waited();
        let mut ledger = wait_while(&self.arrived, lock(&self.ledger), timeout, |ledger| {
            // Said anew before every wait: a seek may have emptied the ring after the wake-up.
            ledger.reader_waits = self.tail() == self.head() && self.state() == State::Open;
            ledger.reader_waits
        });
        ledger.reader_waits = false;
        // Under the lock nobody is moving the window, so there is a turn to be had; the copy needs no lock.
        let turn = claim.turn();
        drop(ledger);
        Ok(turn.map_or(Outcome::NotYet, |turn| self.take(turn, out)))
    }

    fn take(&self, turn: Turn<'_>, out: &mut [u8]) -> Outcome<'_, E> {
        if out.is_empty() {
            return Outcome::Bytes(0);
        }
        // Before the tail is looked at: see `state`.
        let state = self.state();
        let (len, left_bytes) = turn.copy(out);
        if len > 0 {
            self.counters.read(len as u64);
            self.wake_writer(left_bytes);
            return Outcome::Bytes(len);
        }
        match (state, self.error.get()) {
            (State::Open, _) => Outcome::NotYet,
            (State::Broken, Some(error)) => Outcome::Broken(error),
            (State::Ended | State::Broken, _) => Outcome::End,
        }
    }

    /// Wakes a writer that asked for it. `readable_bytes` may be out of date, if only to the low side: a
    /// wake too many is looked at and forgotten.
    fn wake_writer(&self, readable_bytes: u64) {
        // Pairs with the fence in `arm`.
        fence(Ordering::SeqCst);
        let low_bytes = self.armed.load(Ordering::Relaxed);
        if low_bytes != NOT_ARMED
            && readable_bytes <= low_bytes
            && self.armed.swap(NOT_ARMED, Ordering::Relaxed) != NOT_ARMED
        {
            self.counters.woke_writer();
            self.wake.wake();
        }
    }
}
