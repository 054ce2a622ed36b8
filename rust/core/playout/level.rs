//! The level of a playout: volume, duck and fade, three gains that change linearly, multiplied.
//!
//! `volume` and `duck` are set from any thread, each in one word, so that a callback never sees half of a change.
//! Everything else is the state of the one sink that takes audio, and atomic only because the sink may change its
//! thread.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32 as Word, AtomicU64 as Counter, Ordering::Relaxed};

use crate::gain::{Sample, scale};

/// A fade to one end or the other, whose whole length is `frames`.
#[derive(Clone, Copy)]
pub(super) enum Fade {
    In { frames: u32 },
    Out { frames: u32 },
}

pub(super) struct Level {
    sample: Sample,
    frame_bytes: NonZeroU32,
    pub(super) volume: Ramp,
    pub(super) duck: Ramp,
    /// Bits of the fade's gain: 0.0 is silence.
    fade: Word,
}

impl Level {
    pub(super) fn new(sample: Sample, frame_bytes: NonZeroU32, gain: f32) -> Self {
        Self {
            sample,
            frame_bytes,
            volume: Ramp::new(gain),
            duck: Ramp::new(1.0),
            fade: Word::new(1f32.to_bits()),
        }
    }

    /// Continues the gains of another playout, even in the middle of a ramp.
    pub(super) fn continue_from(&self, before: &Self) {
        self.volume.continue_from(&before.volume);
        self.duck.continue_from(&before.duck);
        self.fade.store(before.fade.load(Relaxed), Relaxed);
    }

    pub(super) fn frames_of(&self, audio_bytes: usize) -> u32 {
        u32::try_from(audio_bytes).unwrap_or(u32::MAX) / self.frame_bytes
    }

    /// Goes to full volume at once.
    pub(super) fn skip_fade(&self) {
        self.fade.store(1f32.to_bits(), Relaxed);
    }

    /// Goes to silence at once: the next audio fades in.
    pub(super) fn mute(&self) {
        self.fade.store(0f32.to_bits(), Relaxed);
    }

    /// The bytes of audio that a fade to silence still takes.
    pub(super) fn fade_out_bytes(&self, frames: u32) -> usize {
        let fade = f32::from_bits(self.fade.load(Relaxed));
        (fade * frames as f32).round() as usize * self.frame_bytes.get() as usize
    }

    /// Scales `audio`, whole frames, in runs in which all gains are linear.
    pub(super) fn apply(&self, audio: &mut [u8], fade: Fade) {
        let mut volume = self.volume.line();
        let mut duck = self.duck.line();
        let mut fade = {
            let (goal, frames) = match fade {
                Fade::In { frames } => (1.0, frames),
                Fade::Out { frames } => (0.0, frames),
            };
            let gain = f32::from_bits(self.fade.load(Relaxed));
            let left = ((goal - gain).abs() * frames as f32).round() as u32;
            Line { gain, goal, left }.settled()
        };
        let mut rest = audio;
        loop {
            let mut run = self.frames_of(rest.len());
            for line in [volume, duck, fade] {
                if line.left > 0 {
                    run = run.min(line.left);
                }
            }
            let run_bytes = run as usize * self.frame_bytes.get() as usize;
            let Some((piece, after)) = rest.split_at_mut_checked(run_bytes) else {
                break;
            };
            if piece.is_empty() {
                break;
            }
            let start = product(volume, duck, fade);
            (volume, duck, fade) = (volume.after(run), duck.after(run), fade.after(run));
            scale(piece, self.sample, start, product(volume, duck, fade));
            rest = after;
        }
        self.volume.store(volume);
        self.duck.store(duck);
        self.fade.store(fade.gain.to_bits(), Relaxed);
    }
}

fn product(volume: Line, duck: Line, fade: Line) -> f64 {
    f64::from(volume.gain) * f64::from(duck.gain) * f64::from(fade.gain)
}

/// A gain that changes evenly from `gain` to `goal` over `left` frames.
#[derive(Clone, Copy)]
struct Line {
    gain: f32,
    goal: f32,
    left: u32,
}

impl Line {
    const fn settled(self) -> Self {
        match self.left {
            0 => Self {
                gain: self.goal,
                ..self
            },
            _ => self,
        }
    }

    fn after(self, frames: u32) -> Self {
        let part = frames as f32 / self.left.max(1) as f32;
        Self {
            gain: self.gain + (self.goal - self.gain) * part,
            left: self.left.saturating_sub(frames),
            ..self
        }
        .settled()
    }
}

/// A gain that follows a target evenly, from whatever it is when the target is set.
pub(super) struct Ramp {
    /// A gain (the upper half, the bits of an `f32`) and the frames over which to reach it.
    target: Counter,
    /// The target that the sink has begun to follow.
    followed: Counter,
    /// Frames left until the target is reached.
    left: Word,
    /// Bits of the gain of the last frame taken.
    gain: Word,
}

impl Ramp {
    const fn new(gain: f32) -> Self {
        let target = packed(gain, 0);
        Self {
            target: Counter::new(target),
            followed: Counter::new(target),
            left: Word::new(0),
            gain: Word::new(gain.to_bits()),
        }
    }

    /// Sets the target; from any thread.
    pub(super) fn set(&self, gain: f32, frames: u32) {
        self.target.store(packed(gain, frames), Relaxed);
    }

    fn continue_from(&self, before: &Self) {
        self.target.store(before.target.load(Relaxed), Relaxed);
        self.followed.store(before.followed.load(Relaxed), Relaxed);
        self.left.store(before.left.load(Relaxed), Relaxed);
        self.gain.store(before.gain.load(Relaxed), Relaxed);
    }

    fn line(&self) -> Line {
        let target = self.target.load(Relaxed);
        if self.followed.swap(target, Relaxed) != target {
            self.left.store(target as u32, Relaxed);
        }
        Line {
            gain: f32::from_bits(self.gain.load(Relaxed)),
            goal: f32::from_bits((target >> 32) as u32),
            left: self.left.load(Relaxed),
        }
        .settled()
    }

    fn store(&self, line: Line) {
        self.gain.store(line.gain.to_bits(), Relaxed);
        self.left.store(line.left, Relaxed);
    }
}

const fn packed(gain: f32, frames: u32) -> u64 {
    (gain.to_bits() as u64) << 32 | frames as u64
}
