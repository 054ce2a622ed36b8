//! A ring with an end, a break, and waiting: the source of a decoder thread or an audio callback.
//!
//! ```text
//!  writer (trio task or thread)                     reader (decoder thread, or audio callback)
//!   write ── under the lock ── tail ─▶ notify ─────▶ read          blocks on a condvar
//!   arm, wait_room ◀──────── wake ◀── armed? ◀────── read_nowait   no lock, no allocation
//! ```
//! Everything a writer or an owner does (write, seek, close, abort) happens under one lock, so those calls
//! are ordered. The reader takes that lock only when it is about to wait, and decides to wait under it, so no
//! write falls between the check and the wait. Reading itself never takes it.
//!
//! The one handshake without a lock is "there is room again, or it is over". The writer sets `armed` and then
//! checks the head and the state; the others change one of them and then check `armed`. A full fence between
//! the two steps on both sides prevents that both check too early (Dekker's argument), so a wake is never lost.
//!
//! A waiting writer *thread* sleeps on the [`Wake`], not on a condvar: the audio callback that frees the room
//! must not take the lock that a condvar needs. The wake is a token that stays until it is taken, so one
//! mechanism, with one proof, serves both the trio task and the thread.

use std::sync::atomic::{AtomicU64 as Counter, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::Error;
use crate::payload::Payload;
use crate::ring::{ReadGuard, Ring, Writer};
use crate::sync::{
    AtomicU8, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, fence, lock, wait_while,
};

/// Counters of a pipe. They order nothing, so they are relaxed and hidden from loom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeStatistics {
    /// Bytes handed to the reader.
    pub bytes_read: u64,
    /// Blocking reads that found nothing and had to wait.
    pub reader_waits: u64,
}

/// Wakes a writer that waits for room: a token that stays until it is taken, like an eventfd.
pub trait Wake: Send + Sync {
    /// Leaves a token. Called from an audio callback, so it takes no contended lock, allocates nothing and
    /// never blocks.
    fn wake(&self);

    /// Blocks until `waiting` returns false, or for at most `timeout`; returns whether `waiting` returned false.
    /// `waiting` is called first, and again after every token, which is taken *before* the call.
    fn wait_while(&self, timeout: Option<Duration>, waiting: &mut dyn FnMut() -> bool) -> bool;
}

/// The state of a stream; [`State::after`] has its transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// More bytes may arrive.
    Open = 0,
    /// The stream ends at the tail.
    Ended = 1,
    /// The stream breaks off at the tail, with an error.
    Broken = 2,
}

/// An event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// [`Pipe::close`].
    Close,
    /// [`Pipe::abort`].
    Abort,
    /// [`Pipe::seek`] to an offset that is not kept: the bytes there are missing, so an ended stream is open
    /// again.
    Refill,
    /// [`Pipe::reopen`]: more bytes follow after all.
    Reopen,
}

impl State {
    /// The state after `event`, or `None` if it changes nothing. The first of close and abort wins.
    #[must_use]
    pub const fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Open, Event::Close) => Some(Self::Ended),
            (Self::Open, Event::Abort) => Some(Self::Broken),
            (Self::Ended, Event::Refill | Event::Reopen) => Some(Self::Open),
            (Self::Open, Event::Refill | Event::Reopen)
            | (Self::Ended, Event::Close | Event::Abort)
            | (Self::Broken, _) => None,
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

/// The result of a read. "Not yet" is a value: from a blocking read it means that the timeout passed.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<'p, E> {
    /// The number of bytes, at least one unless the buffer was empty.
    Bytes(usize),
    /// Nothing is readable, and the stream continues.
    NotYet,
    /// The stream has ended, and every byte of it was read.
    End,
    /// The stream broke, and every byte before the break was read.
    Broken(&'p E),
}

/// `armed`: no wake is asked for.
const NOT_ARMED: u64 = u64::MAX;

struct Ledger {
    writer: Writer,
    reader_waits: bool,
    /// True if [`Pipe::interrupt`] was called, and neither a waiting read nor a seek has consumed it.
    interrupted: bool,
}

/// One writer and one reader with a bounded ring between them. `E` is the error that [`Pipe::abort`] passes on.
///
/// ```
/// use std::time::Duration;
/// use playhead_core::payload::Payload;
/// use playhead_core::pipe::{Outcome, Pipe, Wake};
///
/// struct NeverWaits; // this writer asks for no wake
/// impl Wake for NeverWaits {
///     fn wake(&self) {}
///     fn wait_while(&self, _: Option<Duration>, waiting: &mut dyn FnMut() -> bool) -> bool {
///         !waiting()
///     }
/// }
///
/// let pipe: Pipe<_, &str> = Pipe::new(1024, 0, 0, NeverWaits)?;
/// let mut out = [0; 8];
/// assert_eq!(pipe.read_nowait(&mut out)?, Outcome::NotYet);
/// pipe.write(0, Payload::Text(b"YXVkaW8="))?;
/// pipe.abort("connection lost");
/// assert_eq!(pipe.read(&mut out, None)?, Outcome::Bytes(5));
/// assert_eq!(&out[..5], b"audio");
/// assert_eq!(pipe.read(&mut out, None)?, Outcome::Broken(&"connection lost"));
/// # Ok::<(), playhead_core::error::Error>(())
/// ```
pub struct Pipe<W, E> {
    ring: Arc<Ring>,
    ledger: Mutex<Ledger>,
    arrived: Condvar,
    state: AtomicU8,
    /// The number of readable bytes at which the writer wants a wake, or [`NOT_ARMED`].
    armed: AtomicU64,
    wake: W,
    error: OnceLock<E>,
    bytes_read: Counter,
    reader_waits: Counter,
}

impl<W: Wake, E> Pipe<W, E> {
    /// A pipe of at least `capacity_bytes` (rounded up to a power of two) whose first byte is at `start`, and
    /// which keeps up to `behind_bytes` behind the reader.
    ///
    /// # Errors
    /// As [`Ring::new`].
    pub fn new(capacity_bytes: u64, start: u64, behind_bytes: u64, wake: W) -> Result<Self, Error> {
        let (ring, writer) = Ring::new(capacity_bytes, start, behind_bytes)?;
        Ok(Self {
            ring,
            ledger: Mutex::new(Ledger {
                writer,
                reader_waits: false,
                interrupted: false,
            }),
            arrived: Condvar::new(),
            state: AtomicU8::new(State::Open as u8),
            armed: AtomicU64::new(NOT_ARMED),
            wake,
            error: OnceLock::new(),
            bytes_read: Counter::new(0),
            reader_waits: Counter::new(0),
        })
    }

    /// The capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.ring.capacity()
    }

    /// The bytes that fit ahead of the reader: the capacity less what is kept behind it.
    #[must_use]
    pub fn ahead(&self) -> u64 {
        self.ring.ahead()
    }

    /// Absolute offset of the oldest byte kept: a seek to any byte from there to the tail drops nothing.
    #[must_use]
    pub fn kept_from(&self) -> u64 {
        lock(&self.ledger).writer.kept_from()
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

    /// The state. Acquires what was written before an end: once the state is final, so is the tail read after it.
    #[must_use]
    pub fn state(&self) -> State {
        State::from_u8(self.state.load(Ordering::Acquire))
    }

    /// The wake of the writer.
    #[must_use]
    pub const fn wake(&self) -> &W {
        &self.wake
    }

    /// The error that the stream was aborted with.
    #[must_use]
    pub fn error(&self) -> Option<&E> {
        self.error.get()
    }

    /// A snapshot of the counters.
    #[must_use]
    pub fn statistics(&self) -> PipeStatistics {
        PipeStatistics {
            bytes_read: self.bytes_read.load(Relaxed),
            reader_waits: self.reader_waits.load(Relaxed),
        }
    }

    // --- the writer ------------------------------------------------------------------------------------

    /// Stores a page at its absolute offset, and returns its length in bytes; see [`Writer::write`].
    ///
    /// # Errors
    /// [`Error::Closed`] after close or abort, and the errors of [`Writer::write`].
    pub fn write(&self, offset: u64, payload: Payload<'_>) -> Result<u64, Error> {
        let mut ledger = lock(&self.ledger);
        if self.state() != State::Open {
            return Err(Error::Closed);
        }
        let written = ledger.writer.write(offset, payload)?;
        if written.grew {
            self.wake_reader(ledger);
        }
        Ok(written.len)
    }

    /// Asks for one wake as soon as no more than `low_bytes` are readable, or the stream ends. Returns
    /// whether that is already the case; the request is then withdrawn.
    pub fn arm(&self, low_bytes: u64) -> bool {
        let _ledger = lock(&self.ledger);
        self.armed
            .store(low_bytes.min(NOT_ARMED - 1), Ordering::Relaxed);
        // Pairs with the fence in `wake_writer`: either this thread sees the change, or the other sees `armed`.
        fence(Ordering::SeqCst);
        let is_low = self.tail().saturating_sub(self.head()) <= low_bytes;
        let is_ready = is_low || self.state() != State::Open;
        if is_ready {
            self.armed.store(NOT_ARMED, Ordering::Relaxed);
        }
        is_ready
    }

    /// Blocks a writing thread until `room_bytes` more fit past the tail; false if `timeout` passes first.
    ///
    /// # Errors
    /// [`Error::Room`] for more than fits ahead of the reader; [`Error::Closed`] once the stream is closed or aborted.
    pub fn wait_room(&self, room_bytes: u64, timeout: Option<Duration>) -> Result<bool, Error> {
        self.wait_room_unless(room_bytes, timeout, || false)
    }

    /// Waits like [`Self::wait_room`], but returns false once `interrupted` returns true, which is called first and
    /// after every token of the [`Wake`].
    ///
    /// # Errors
    /// As [`Self::wait_room`].
    pub fn wait_room_unless(
        &self,
        room_bytes: u64,
        timeout: Option<Duration>,
        mut interrupted: impl FnMut() -> bool,
    ) -> Result<bool, Error> {
        let mut is_interrupted = false;
        let ahead = self.ahead();
        let low_bytes = ahead.checked_sub(room_bytes).ok_or(Error::Room {
            bytes: room_bytes,
            ahead,
        })?;
        let ended = self.wake.wait_while(timeout, &mut || {
            if self.arm(low_bytes) {
                return false;
            }
            is_interrupted = interrupted();
            !is_interrupted
        });
        let is_free = ended && !is_interrupted;
        if !is_free {
            self.armed.store(NOT_ARMED, Ordering::Relaxed);
        }
        if self.state() != State::Open {
            return Err(Error::Closed);
        }
        Ok(is_free)
    }

    /// Moves the reader to `offset`. Inside `[kept_from, tail]` nothing is dropped; elsewhere the ring is
    /// emptied and begins there, and an ended stream is open again. A blocked reader gets the bytes from `offset`:
    /// at once if they are kept, otherwise when they are written.
    ///
    /// # Errors
    /// [`Error::Closed`] after abort; [`Error::Offset`].
    pub fn seek(&self, offset: u64) -> Result<(), Error> {
        let mut ledger = lock(&self.ledger);
        let state = self.state();
        if state == State::Broken {
            return Err(Error::Closed);
        }
        ledger.interrupted = false;
        ledger.writer.seek(offset, || {
            if let Some(next) = state.after(Event::Refill) {
                self.state.store(next as u8, Ordering::Relaxed);
            }
        })?;
        // Bytes kept behind the reader are readable now, without a write.
        self.wake_reader(ledger);
        self.wake_writer(self.tail().saturating_sub(self.head()));
        Ok(())
    }

    /// Ends the wait of a blocked [`Pipe::read`], or else of the next one that would block, as a timeout would, because
    /// its thread has to seek. A [`Pipe::seek`] withdraws the interrupt.
    pub fn interrupt(&self) {
        let mut ledger = lock(&self.ledger);
        ledger.interrupted = true;
        self.wake_reader(ledger);
    }

    /// Opens a closed stream again, so that more can be written. Returns whether it was closed. The reader may have
    /// seen the end before.
    pub fn reopen(&self) -> bool {
        let _ledger = lock(&self.ledger);
        let Some(next) = self.state().after(Event::Reopen) else {
            return false;
        };
        self.state.store(next as u8, Ordering::Release);
        true
    }

    /// Ends the stream at the tail; islands beyond a gap are dropped. Idempotent.
    pub fn close(&self) {
        self.finish(Event::Close, None);
    }

    /// Breaks the stream at the tail: the reader gets `error` after the bytes before it. The first of close and
    /// abort wins.
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

    /// Copies bytes that the reader has passed and that are still kept, from `offset` up to the head, as many as
    /// fit into `out`. Returns their number: 0 if `offset` is the head or is not kept. Use it to hash the bytes that an
    /// audio callback took, outside of the callback.
    pub fn copy_behind(&self, offset: u64, out: &mut [u8]) -> usize {
        lock(&self.ledger).writer.copy_behind(offset, out)
    }

    /// See [`Playout::with_all_locks`](crate::playout::Playout::with_all_locks).
    pub(crate) fn with_lock<R>(&self, work: impl FnOnce() -> R) -> R {
        let _ledger = lock(&self.ledger);
        work()
    }

    // --- the reader ------------------------------------------------------------------------------------

    /// Reads without waiting: takes no lock, allocates nothing, never blocks. For an audio callback.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread reads.
    pub fn read_nowait(&self, out: &mut [u8]) -> Result<Outcome<'_, E>, Error> {
        let mut claim = self.ring.claim().ok_or(Error::Busy)?;
        Ok(match claim.guard() {
            Some(guard) => self.take(guard, out),
            None => Outcome::NotYet,
        })
    }

    /// Drops the next `len` bytes, or all that are readable, without waiting; like [`Self::read_nowait`]. Returns false
    /// while the reader is being moved.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread reads.
    pub fn skip_nowait(&self, len: u64) -> Result<bool, Error> {
        let mut claim = self.ring.claim().ok_or(Error::Busy)?;
        let Some(guard) = claim.guard() else {
            return Ok(false);
        };
        let left_bytes = guard.skip(len);
        self.wake_writer(left_bytes);
        Ok(true)
    }

    /// Blocks until a byte is readable or the stream is over, and reads nothing.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread reads.
    pub fn wait_readable(&self) -> Result<(), Error> {
        let _claim = self.ring.claim().ok_or(Error::Busy)?;
        drop(self.wait_for_bytes(None));
        Ok(())
    }

    /// Reads at least one byte, and blocks until one is readable, never to fill `out`. Returns [`Outcome::NotYet`]
    /// after `timeout`.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread reads, which includes one that is blocked here.
    pub fn read(&self, out: &mut [u8], timeout: Option<Duration>) -> Result<Outcome<'_, E>, Error> {
        let mut claim = self.ring.claim().ok_or(Error::Busy)?;
        if let Some(guard) = claim.guard() {
            let outcome = self.take(guard, out);
            if !matches!(outcome, Outcome::NotYet) {
                return Ok(outcome);
            }
        }
        let ledger = self.wait_for_bytes(timeout);
        // Under the lock nobody moves the reader, so the guard is free; the copy needs no lock.
        let guard = claim.guard();
        drop(ledger);
        Ok(guard.map_or(Outcome::NotYet, |guard| self.take(guard, out)))
    }

    fn wait_for_bytes(&self, timeout: Option<Duration>) -> MutexGuard<'_, Ledger> {
        self.reader_waits.fetch_add(1, Relaxed);
        let mut ledger = wait_while(&self.arrived, lock(&self.ledger), timeout, |ledger| {
            // Checked before every wait: a seek may have emptied the ring after the wake-up.
            ledger.reader_waits =
                self.tail() == self.head() && self.state() == State::Open && !ledger.interrupted;
            ledger.reader_waits
        });
        ledger.reader_waits = false;
        if self.tail() == self.head() && self.state() == State::Open {
            ledger.interrupted = false; // a read with bytes or the end leaves the interrupt to the next wait
        }
        ledger
    }

    fn take(&self, guard: ReadGuard<'_>, out: &mut [u8]) -> Outcome<'_, E> {
        if out.is_empty() {
            return Outcome::Bytes(0);
        }
        // Before the tail is loaded: see `state`.
        let state = self.state();
        let (len, left_bytes) = guard.copy(out);
        if len > 0 {
            self.bytes_read.fetch_add(len as u64, Relaxed);
            self.wake_writer(left_bytes);
            return Outcome::Bytes(len);
        }
        match (state, self.error.get()) {
            (State::Open, _) => Outcome::NotYet,
            (State::Broken, Some(error)) => Outcome::Broken(error),
            (State::Ended | State::Broken, _) => Outcome::End,
        }
    }

    /// Wakes the writer if it is armed and few enough bytes are readable. `readable_bytes` may be out of date, but only
    /// too low: a superfluous wake is harmless.
    fn wake_writer(&self, readable_bytes: u64) {
        // Pairs with the fence in `arm`.
        fence(Ordering::SeqCst);
        let low_bytes = self.armed.load(Ordering::Relaxed);
        if low_bytes != NOT_ARMED
            && readable_bytes <= low_bytes
            && self.armed.swap(NOT_ARMED, Ordering::Relaxed) != NOT_ARMED
        {
            self.wake.wake();
        }
    }
}
