//! Decoded audio between a decoder's thread and a sink: the start gate, pause, volume, seeks, and the counts.
//!
//! ```text
//!  decoder's thread ── wait_room, write, release, seek ──▶ pipe ──▶ fill  a device's callback: never blocks
//!  player           ── set_paused, set_gain, stop ───────▶ flags    take  a sink's own thread: blocks
//! ```
//! One phase decides what the three may do:
//!
//! ```text
//!  FILLING ──enough──▶ READY ──a callback got audio──▶ PLAYING ──nothing was left──▶ DRY
//!                       │ ▲                                                           │
//!                       │ └────────────────────────── enough ─────────────────────────┘
//!                       └──a thread got audio──▶ DRAINING             the last frame ──▶ ENDED
//!  a seek: any of them but the last ──▶ FILLING
//! ```
//! Audio that ran dry is held back until enough is in hand again: one pause instead of many short ones. A sink
//! with its own thread takes audio as fast as it is decoded and always waits for more, so it never runs dry.
//!
//! A seek ([`Playout::seek`]) leaves a cut in the pipe, see `cut.rs`: the sink fades out the audio before the cut,
//! skips the rest up to it, and fades in the audio after it. Neither side waits for the other.
//!
//! Another playout, the overlay, may be mixed in ([`Playout::mix`]): an announcement over music. The overlay plays as
//! if it had the device for itself, with its own fades, seeks and counts. If the playout below it is closed, the
//! overlay pauses.
//!
//! A device calls [`Output::call`] from a thread with real-time priority. Everything below that call
//! takes no lock, allocates nothing and does not panic: the phase and the settings are atomics, a change of
//! phase is one compare-and-swap by the table, and the state of the ramps belongs to the one caller. The lints
//! below refuse unchecked indexes; `tests/playout_callback.rs` counts allocations and holds every lock. The
//! only lock here is the one that `take` sleeps on, which no callback touches.
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    reason = "a panic in a device's callback ends the process"
)]

mod cut;
mod heard;
mod level;
mod mix;
mod output;

use std::num::NonZeroU32;
use std::ops::ControlFlow::{self, Break, Continue};
// Not those of `crate::sync`: these counters and flags order nothing, so they are relaxed and hidden from loom.
use std::sync::atomic::{
    AtomicBool as Flag, AtomicU32 as Word, AtomicU64 as Counter, Ordering::Relaxed,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use self::output::{Output, next_call};

use self::cut::{Cut, Cuts, Pending};
use self::heard::Heard;
use self::level::{Fade, Level};
use self::mix::Mixed;
use crate::error::Error;
use crate::gain::Sample;
use crate::pipe::{Outcome, Pipe, State, Wake};
use crate::sync::{AtomicBool, AtomicU8, Condvar, Mutex, Ordering, lock, wait_while};

/// The phase of a playout; [`Phase::after`] has its transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Held back: not enough in hand to start.
    Filling = 0,
    /// Enough is in hand; the sink has not taken any of it yet.
    Ready = 1,
    /// A device's callback takes audio in real time.
    Playing = 2,
    /// A sink's own thread takes audio as fast as it is decoded.
    Draining = 3,
    /// Held back: a callback found nothing, and not enough is in hand to continue.
    Dry = 4,
    /// The sink has taken the last frame.
    Ended = 5,
    /// The player stopped.
    Closed = 6,
}

/// An event of a playout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Enough is in hand, or no more follows.
    Enough,
    /// A callback got audio.
    Filled,
    /// A sink's own thread got audio.
    Taken,
    /// A callback found nothing, and it is not the end.
    Empty,
    /// The sink has taken the last frame.
    Last,
    /// The audio in hand is void.
    Seek,
    /// The player stopped.
    Close,
}

impl Phase {
    /// The phase after `event`, or `None` if it changes nothing.
    #[must_use]
    pub const fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Filling | Self::Dry, Event::Enough) => Some(Self::Ready),
            (Self::Ready, Event::Filled) => Some(Self::Playing),
            (Self::Ready, Event::Taken) => Some(Self::Draining),
            (Self::Ready | Self::Playing, Event::Empty) => Some(Self::Dry),
            (Self::Ready | Self::Playing | Self::Draining, Event::Last) => Some(Self::Ended),
            (Self::Closed, _) => None,
            (_, Event::Close) => Some(Self::Closed),
            (_, Event::Seek) if !self.is_over() => Some(Self::Filling),
            _ => None,
        }
    }

    /// Audio is held back, until [`Playout::release`].
    #[must_use]
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Filling | Self::Dry)
    }

    const fn is_audible(self) -> bool {
        matches!(self, Self::Ready | Self::Playing)
    }

    /// No more audio follows.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Closed)
    }

    const fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Filling,
            1 => Self::Ready,
            2 => Self::Playing,
            3 => Self::Draining,
            4 => Self::Dry,
            5 => Self::Ended,
            _ => Self::Closed,
        }
    }
}

/// The result of [`Playout::fill`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes of audio; the rest of the period is silence.
    pub audio_bytes: usize,
    /// The phase changed, or the mixed-in playout's phase.
    pub moved: bool,
}

/// The format of a playout, and its volume.
#[derive(Clone, Copy, Debug)]
pub struct PlayoutSettings {
    /// The samples.
    pub sample: Sample,
    /// Bytes of one frame: a sample per channel.
    pub frame_bytes: NonZeroU32,
    /// Frames per second.
    pub rate_hz: NonZeroU32,
    /// The gain to begin with; see [`Playout::set_gain`].
    pub gain: f32,
    /// Frames of the fade before a pause and after it.
    pub fade_frames: u32,
    /// Frames of the fade before a seek and after it.
    pub seek_fade_frames: u32,
    /// Room in the pipe that is kept for the first audio after a seek, while the sink has not skipped the old.
    pub spare_bytes: u64,
}

/// The longest wait for a sink to skip void audio. A device takes a period, and skips, every 20 to 60 ms.
const CUT_WAIT: Duration = Duration::from_millis(100);
/// `first_audio`: nothing was taken yet.
const NEVER: u64 = u64::MAX;
/// `stop_frames`: no stop was requested.
const NO_STOP: u32 = u32::MAX;

/// Audio of one item between one decoder and one sink.
pub struct Playout<W, E> {
    pipe: Arc<Pipe<W, E>>,
    settings: PlayoutSettings,
    phase: AtomicU8,
    paused: AtomicBool,
    /// Frames over which to fade out and close.
    stop_frames: Word,
    /// True while the decoder's thread is in `wait_room`, where it does not look at the phase.
    writer_waits: AtomicBool,
    /// True if the decoder's thread must leave `wait_room`.
    interrupted: AtomicBool,
    /// True if the sink's thread must leave `take`.
    take_interrupted: AtomicBool,
    level: Level,
    cuts: Cuts,
    /// True if the last frame taken was audio, of this playout or of the one before it.
    sounding: Flag,
    /// True if a seek muted the level, so that the next audio fades in.
    was_cut: Flag,
    frames: Counter,
    position: Counter,
    underruns: Counter,
    device_underruns: Counter,
    /// Nanoseconds; see [`Self::first_audio`].
    first_audio: Counter,
    heard: Heard,
    next: OnceLock<Arc<Self>>,
    withdrawn: Flag,
    /// True once the sink has taken the last frame, even if the phase is `Closed` now.
    complete: Flag,
    followed: Flag,
    overlay: Mixed<W, E>,
    gate: Mutex<()>,
    gate_opened: Condvar,
}

impl<W: Wake, E> Playout<W, E> {
    /// A playout of the audio written to `pipe`, held back until [`Self::release`].
    #[must_use]
    pub fn new(pipe: Arc<Pipe<W, E>>, settings: PlayoutSettings) -> Self {
        Self {
            pipe,
            settings,
            phase: AtomicU8::new(Phase::Filling as u8),
            paused: AtomicBool::new(false),
            stop_frames: Word::new(NO_STOP),
            writer_waits: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            take_interrupted: AtomicBool::new(false),
            level: Level::new(settings.sample, settings.frame_bytes, settings.gain),
            cuts: Cuts::default(),
            sounding: Flag::new(false),
            was_cut: Flag::new(false),
            frames: Counter::new(0),
            position: Counter::new(0),
            underruns: Counter::new(0),
            device_underruns: Counter::new(0),
            first_audio: Counter::new(NEVER),
            heard: Heard::new(settings.rate_hz),
            next: OnceLock::new(),
            withdrawn: Flag::new(false),
            complete: Flag::new(false),
            followed: Flag::new(false),
            overlay: Mixed::default(),
            gate: Mutex::new(()),
            gate_opened: Condvar::new(),
        }
    }

    /// The phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase::from_u8(self.phase.load(Ordering::Acquire))
    }

    /// The listener paused it, in whatever phase it is.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Frames that the sink has taken, whatever was skipped or repeated by seeks.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames.load(Relaxed)
    }

    /// The playhead: number of the next frame to be taken. After a seek it is at once the frame that was sought.
    #[must_use]
    pub fn position(&self) -> u64 {
        match self.cuts.pending() {
            Pending::Cut(cut) if !self.phase().is_over() => cut.frame,
            _ => self.position.load(Relaxed),
        }
    }

    /// Frames of [`Self::frames`] that have left the device at the time `now`: the device holds those of the last
    /// [`Self::set_delay`]. Without a device's callback all that were taken. Never decreases.
    #[must_use]
    pub fn heard(&self, now: Duration) -> u64 {
        self.heard.at(now, self.frames())
    }

    /// Bytes in hand that the sink will take.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        let from = match self.cuts.pending() {
            Pending::Cut(cut) => cut.at.max(self.pipe.head()),
            _ => self.pipe.head(),
        };
        self.pipe.tail().saturating_sub(from)
    }

    /// Stalls: times that the audio ran dry and continued, of any length. Running dry just before the end does
    /// not count. Counted when the audio continues.
    #[must_use]
    pub fn underruns(&self) -> u64 {
        self.underruns.load(Relaxed)
    }

    /// Drop-outs of the device: calls so late that it had played all the audio it held.
    #[must_use]
    pub fn device_underruns(&self) -> u64 {
        self.device_underruns.load(Relaxed)
    }

    /// The `now` of the call that took the first frame.
    #[must_use]
    pub fn first_audio(&self) -> Option<Duration> {
        let nanos = self.first_audio.load(Relaxed);
        (nanos != NEVER).then(|| Duration::from_nanos(nanos))
    }

    // --- the sink --------------------------------------------------------------------------------------

    /// Fills `out` with audio, and the rest with silence, at the time `now`, and adds the overlay. For one callback at
    /// a time: waits for no lock, allocates nothing, never blocks. While it is held back or paused, only the overlay
    /// plays; after its last frame, not even that.
    pub fn fill(&self, out: &mut [u8], now: Duration) -> Filled {
        let own = self.fill_alone(out, now, false);
        let mixed_bytes = match self.phase() {
            Phase::Ended => own.audio_bytes, // the next playout continues the overlay there
            _ => out.len(),
        };
        let mixed = out
            .get_mut(..mixed_bytes)
            .map(|out| self.add_mixed(out, now))
            .unwrap_or_default();
        Filled {
            audio_bytes: own.audio_bytes.max(mixed.audio_bytes),
            moved: own.moved || mixed.moved,
        }
    }

    /// Fills `out` without the overlay. With `is_held`, as if it were paused.
    fn fill_alone(&self, out: &mut [u8], now: Duration, is_held: bool) -> Filled {
        let mut moved = false;
        if self.phase() == Phase::Dry
            && (self.writer_waits.load(Ordering::Acquire) || self.pipe.state() != State::Open)
        {
            // The decoder's thread checked the phase just before it was dry, and will not check again.
            moved |= self.advance(Event::Enough);
        }
        let mut audio_bytes = 0;
        while let Some(rest) = out.get_mut(audio_bytes..)
            && !rest.is_empty()
        {
            let at = now + self.seconds(audio_bytes);
            let flow = self.fill_piece(rest, at, is_held);
            let (Break(piece) | Continue(piece)) = flow;
            audio_bytes += piece.audio_bytes;
            moved |= piece.moved;
            if flow.is_break() {
                break;
            }
        }
        if let Some(silence) = out.get_mut(audio_bytes..)
            && !silence.is_empty()
        {
            silence.fill(0);
            self.sounding.store(false, Relaxed);
        } else if audio_bytes > 0 {
            self.sounding.store(true, Relaxed);
        }
        Filled { audio_bytes, moved }
    }

    /// Fills the beginning of `out` with audio of the time `at`. Breaks if silence follows for the rest of the period.
    fn fill_piece(
        &self,
        out: &mut [u8],
        at: Duration,
        is_held: bool,
    ) -> ControlFlow<Filled, Filled> {
        let filled = |audio_bytes, moved| Filled { audio_bytes, moved };
        let silence = |moved| Break(filled(0, moved));
        // Read in this order: the tail of an ended state is final, and every cut below the tail is visible.
        let state = self.pipe.state();
        let tail = self.pipe.tail();
        match self.cuts.pending() {
            Pending::None => {}
            Pending::Changing => return silence(false),
            Pending::Cut(cut) => {
                return match self.apply_cut(&cut, out, Some(at)) {
                    (faded_bytes, true) => Continue(filled(faded_bytes, false)),
                    (faded_bytes, false) => Break(filled(faded_bytes, false)),
                };
            }
        }
        let phase = self.phase();
        let fade = self.fade(is_held);
        if !phase.is_audible() {
            return silence(false);
        }
        let sounds = phase == Phase::Playing || self.sounding.load(Relaxed);
        if !sounds && !self.was_cut.load(Relaxed) {
            self.level.skip_fade(); // nothing is heard yet, so there is nothing to fade
        }
        let wanted = match fade {
            Fade::In { .. } => out.len(),
            Fade::Out { frames } if sounds => out.len().min(self.level.fade_out_bytes(frames)),
            Fade::Out { .. } => 0,
        };
        if wanted == 0 {
            return silence(self.stops() && self.advance(Event::Close));
        }
        let read_bytes = match tail.saturating_sub(self.pipe.head()) {
            0 => 0,
            readable => self.read(out, wanted.min(readable as usize)),
        };
        if read_bytes == 0 {
            return silence(self.advance(match state {
                State::Open => Event::Empty,
                State::Ended | State::Broken => Event::Last,
            }));
        }
        if let Some(audio) = out.get_mut(..read_bytes) {
            self.level.apply(audio, fade);
        }
        self.count(read_bytes, Some(at));
        self.was_cut.store(false, Relaxed);
        Continue(filled(read_bytes, self.advance(Event::Filled)))
    }

    /// Blocks a sink's own thread until there is audio, and puts it into `out`. Returns the number of bytes: 0 at the
    /// end, `None` after an [`Self::interrupt_take`]. While it waits at the gate it skips void audio, as a device does:
    /// the audio after a seek needs the room, and the gate opens once that is written.
    ///
    /// # Errors
    /// [`Error::Closed`] after [`Self::close`]; [`Error::Busy`] while another thread takes.
    pub fn take(
        &self,
        out: &mut [u8],
        now: impl FnOnce() -> Duration,
    ) -> Result<Option<usize>, Error> {
        let audio_bytes = loop {
            drop(wait_while(
                &self.gate_opened,
                lock(&self.gate),
                None,
                |()| {
                    let phase = self.phase();
                    phase != Phase::Closed
                        && (phase.is_held() || self.paused())
                        && matches!(self.cuts.pending(), Pending::None)
                        && !self.take_interrupted.load(Ordering::Acquire)
                },
            ));
            if self.phase() == Phase::Closed {
                return Err(Error::Closed);
            }
            if self.take_interrupted.swap(false, Ordering::AcqRel) {
                return Ok(None);
            }
            let state = self.pipe.state();
            let tail = self.pipe.tail();
            match self.cuts.pending() {
                Pending::None => {}
                Pending::Changing => continue, // for a few instructions of the decoder's thread
                Pending::Cut(cut) => match self.apply_cut(&cut, out, None) {
                    (0, _) => continue,
                    (faded_bytes, _) => return Ok(Some(faded_bytes)),
                },
            }
            let readable = tail.saturating_sub(self.pipe.head()) as usize;
            if readable > 0 {
                let wanted = readable.min(out.len());
                match self
                    .pipe
                    .read_nowait(out.get_mut(..wanted).unwrap_or_default())?
                {
                    Outcome::Bytes(len) => break len,
                    Outcome::NotYet | Outcome::End | Outcome::Broken(_) => {}
                }
            } else if state == State::Open {
                self.pipe.wait_readable()?;
            } else if self.advance(Event::Last) || self.phase() == Phase::Ended {
                return Ok(Some(0));
            }
        };
        if self.phase() == Phase::Closed {
            return Err(Error::Closed);
        }
        if let Some(audio) = out.get_mut(..audio_bytes) {
            let frames = self.settings.seek_fade_frames;
            self.level.apply(audio, Fade::In { frames });
        }
        if self.first_audio().is_none() {
            self.begin(now());
        }
        self.count(audio_bytes, None);
        self.was_cut.store(false, Relaxed);
        self.sounding.store(true, Relaxed);
        self.advance(Event::Taken);
        Ok(Some(audio_bytes))
    }

    /// Copies audio that the sink has taken and that is still in the pipe, from `offset` on, as much as fits into
    /// `out`. Returns its length, and the offset at which to continue: audio that a seek made void is omitted. 0 if
    /// nothing more was taken. Call it before each write: up to [`Pipe::ahead`] bytes are taken between two writes.
    pub fn copy_taken(&self, mut offset: u64, out: &mut [u8]) -> (usize, u64) {
        loop {
            let (end, next) = self.cuts.next_taken(offset, self.pipe.head());
            let wanted = end.saturating_sub(offset).min(out.len() as u64) as usize;
            if wanted > 0 {
                let out = out.get_mut(..wanted).unwrap_or_default();
                let copied = self.pipe.copy_behind(offset, out);
                return (copied, offset + copied as u64);
            }
            if next <= offset || out.is_empty() {
                return (0, offset);
            }
            offset = next;
        }
    }

    // --- the decoder -----------------------------------------------------------------------------------

    /// Blocks until `room_bytes` fit. Returns false after [`Self::interrupt`]. While audio is held back it returns
    /// false at once if there is no room; after a seek it first waits up to a tenth of a second for the sink to skip
    /// the void audio, as a device does with its next period.
    ///
    /// # Errors
    /// As [`Pipe::wait_room`].
    pub fn wait_room(&self, room_bytes: u64) -> Result<bool, Error> {
        let room_bytes = match self.cuts.pending() {
            Pending::None => room_bytes.saturating_add(self.settings.spare_bytes),
            Pending::Cut(_) | Pending::Changing => room_bytes,
        };
        if self.pipe.wait_room(room_bytes, Some(Duration::ZERO))? {
            return Ok(true);
        }
        self.writer_waits.store(true, Ordering::SeqCst);
        let is_cut = matches!(self.cuts.pending(), Pending::Cut(_) | Pending::Changing);
        let is_held = self.phase().is_held();
        let is_free = if is_held && !is_cut {
            Ok(false)
        } else {
            let timeout = is_held.then_some(CUT_WAIT);
            self.pipe.wait_room_unless(room_bytes, timeout, || {
                self.interrupted.swap(false, Ordering::AcqRel)
            })
        };
        self.writer_waits.store(false, Ordering::Release);
        is_free
    }

    /// Opens the gate: held audio may be heard. Idempotent; returns whether the phase changed.
    pub fn release(&self) -> bool {
        let moved = self.advance(Event::Enough);
        self.wake_taker();
        moved
    }

    /// Makes all audio written before void, and closes the gate. The audio that is written next begins with `frame`. An
    /// ended pipe is open again. For the thread that writes. Returns false, and changes nothing, if it is too late: the
    /// sink has taken the last frame, or the player stopped.
    pub fn seek(&self, frame: u64) -> bool {
        if self.phase().is_over() {
            return false;
        }
        let was_ended = self.pipe.reopen();
        // The cut first: otherwise a callback between the two steps would be silent without a fade.
        self.cuts.post(self.pipe.tail(), frame);
        let is_open = self.advance(Event::Seek);
        if !is_open && was_ended {
            self.pipe.close();
        }
        self.wake_taker(); // it skips the void audio
        is_open
    }

    // --- the player ------------------------------------------------------------------------------------

    /// Makes one `wait_room`, the current one or the next that would block, return false, because its thread has
    /// something else to do.
    pub fn interrupt(&self) {
        self.interrupted.swap(true, Ordering::AcqRel);
        self.pipe.wake().wake();
    }

    /// Makes one `take`, the current one or the next, return `None`, because other audio may come first. Never called
    /// in a callback.
    pub fn interrupt_take(&self) {
        self.take_interrupted.store(true, Ordering::Release);
        self.wake_taker();
        self.pipe.interrupt();
    }

    /// Pauses, or continues. A callback fades out before the pause, and in after it.
    pub fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
        self.wake_taker();
    }

    /// Changes the gain (0 to 1) evenly over the next `ramp_frames` frames, from whatever it is then.
    pub fn set_gain(&self, gain: f32, ramp_frames: u32) {
        self.level.volume.set(gain, ramp_frames);
    }

    /// Changes a second gain, which is multiplied with the first.
    pub fn set_duck(&self, gain: f32, ramp_frames: u32) {
        self.level.duck.set(gain, ramp_frames);
    }

    /// Audio that the device, and whatever follows it, holds after a callback: see [`Self::heard`].
    pub fn set_delay(&self, delay: Duration) {
        self.heard.set_delay(delay);
    }

    /// Plays `next` after the last frame of this one, in the same callback, with this one's ramps and delay. Both must
    /// have the same format. Returns false if another playout follows already.
    pub fn follow_with(&self, next: Arc<Self>) -> bool {
        next.heard.set_delay(self.heard.delay());
        self.next.set(next).is_ok()
    }

    /// Returns whether a device plays the playout that follows this one.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.followed.load(Relaxed)
    }

    /// Fades out over `fade_frames` and closes, in a callback. Closes at once if no callback plays it. The phase shows
    /// the end: then call [`Self::close`], as after a device that stopped calling.
    pub fn stop(&self, fade_frames: u32) {
        self.stop_frames
            .store(fade_frames.min(NO_STOP - 1), Ordering::Release);
        if self.phase() != Phase::Playing {
            self.close();
        }
    }

    /// Closes a playout that is not played yet: a device skips it, and plays the one that follows.
    pub fn withdraw(&self) {
        self.withdrawn.store(true, Relaxed);
        self.close();
    }

    /// Silences it. A blocked writer and a blocked taker get [`Error::Closed`]. Idempotent; returns whether the
    /// phase changed.
    pub fn close(&self) -> bool {
        let moved = self.advance(Event::Close);
        self.pipe.close();
        self.wake_taker();
        moved
    }

    // ---------------------------------------------------------------------------------------------------

    fn advance(&self, event: Event) -> bool {
        let step = |phase| Phase::from_u8(phase).after(event).map(|next| next as u8);
        let Ok(before) = self
            .phase
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, step)
        else {
            return false;
        };
        if event == Event::Last {
            self.complete.store(true, Relaxed);
        }
        let resumes = Phase::from_u8(before) == Phase::Dry && event == Event::Enough;
        if resumes && self.pipe.tail() > self.pipe.head() {
            self.underruns.fetch_add(1, Relaxed);
        }
        true
    }

    /// Returns whether a device continues with the next playout, if any.
    fn is_passable(&self) -> bool {
        match self.phase() {
            Phase::Ended => true,
            Phase::Closed => self.withdrawn.load(Relaxed) || self.complete.load(Relaxed),
            _ => false,
        }
    }

    /// The fade that a callback applies now.
    fn fade(&self, is_held: bool) -> Fade {
        let pause = self.settings.fade_frames;
        let seek = self.settings.seek_fade_frames;
        match self.stop_frames.load(Ordering::Acquire) {
            NO_STOP if is_held || self.paused() => Fade::Out { frames: pause },
            NO_STOP if self.was_cut.load(Relaxed) => Fade::In { frames: seek },
            NO_STOP => Fade::In { frames: pause },
            frames => Fade::Out { frames },
        }
    }

    fn stops(&self) -> bool {
        self.stop_frames.load(Relaxed) != NO_STOP
    }

    /// Fades the old audio out into `out` if it sounds, skips the rest of it, and moves the playhead. Returns the bytes
    /// of audio, and whether the cut was applied; if not, the next call continues. `at` is the time of a callback.
    fn apply_cut(&self, cut: &Cut, out: &mut [u8], at: Option<Duration>) -> (usize, bool) {
        let frames = self.settings.seek_fade_frames;
        let mut faded_bytes = 0;
        if self.sounding.load(Relaxed) {
            let left_bytes = cut.old_end.saturating_sub(self.pipe.head()) as usize;
            let fade_bytes = self.level.fade_out_bytes(frames).min(left_bytes);
            faded_bytes = self.read(out, fade_bytes);
            if let Some(audio) = out.get_mut(..faded_bytes) {
                self.level.apply(audio, Fade::Out { frames });
            }
            if faded_bytes > 0 {
                self.count(faded_bytes, at);
            }
            if faded_bytes > 0 && faded_bytes < fade_bytes {
                return (faded_bytes, false);
            }
        }
        let from = self.pipe.head();
        self.cuts.skip(from, cut);
        if self.pipe.skip_nowait(cut.at.saturating_sub(from)) != Ok(true) {
            return (faded_bytes, false);
        }
        self.level.mute();
        self.was_cut.store(true, Relaxed);
        self.sounding.store(false, Relaxed);
        self.position.store(cut.frame, Relaxed);
        self.cuts.mark_applied(cut);
        (faded_bytes, true)
    }

    /// Reads up to `wanted` bytes into `out`, without waiting.
    fn read(&self, out: &mut [u8], wanted: usize) -> usize {
        let wanted = wanted.min(out.len());
        match out.get_mut(..wanted).map(|out| self.pipe.read_nowait(out)) {
            Some(Ok(Outcome::Bytes(len))) => len,
            _ => 0,
        }
    }

    fn count(&self, audio_bytes: usize, at: Option<Duration>) {
        let frames = self.frames();
        if let Some(at) = at {
            self.begin(at);
            self.heard.note(at, frames);
        }
        let taken = self.level.frames_of(audio_bytes).into();
        self.position.fetch_add(taken, Relaxed);
        self.frames.store(frames + taken, Relaxed);
    }

    fn begin(&self, now: Duration) {
        if self.first_audio.load(Relaxed) == NEVER {
            let nanos = u64::try_from(now.as_nanos()).unwrap_or(NEVER - 1);
            self.first_audio.store(nanos, Relaxed);
        }
    }

    fn seconds(&self, audio_bytes: usize) -> Duration {
        let frames = u64::from(self.level.frames_of(audio_bytes));
        Duration::from_nanos(frames * 1_000_000_000 / u64::from(self.settings.rate_hz.get()))
    }

    /// Never in a callback: it takes the lock that `take` sleeps on.
    fn wake_taker(&self) {
        drop(lock(&self.gate));
        self.gate_opened.notify_all();
    }

    /// Runs `work` while every lock that a playout or its pipe has is held: for the test that a callback needs
    /// none of them.
    #[doc(hidden)]
    pub fn with_all_locks<R>(&self, work: impl FnOnce() -> R) -> R {
        let _gate = lock(&self.gate);
        self.overlay.with_lock(|| self.pipe.with_lock(work))
    }
}
