//! A naive model of the pipe: every byte of the resource that was ever given, in a plain vector. Tests draw steps for
//! it, and so does a fuzzer (tests/fuzz).
//!
//! Rings of 16 bytes over a resource of 96, so that pages cross the seam, come out of order, overlap, repeat and
//! contradict all the time.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use playhead_core::error::Error;
use playhead_core::payload::Payload;
use playhead_core::pipe::{Outcome, Pipe, Wake};

pub const CAPACITY: u64 = 16;
pub const LENGTH: u64 = 96;
pub const STEPS: usize = 80;

pub struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}

    fn wait_while(&self, _timeout: Option<Duration>, waiting: &mut dyn FnMut() -> bool) -> bool {
        !waiting()
    }
}

pub type TestPipe = Pipe<NoWake, &'static str>;

/// The resource: what the byte at an offset is.
fn byte_at(offset: u64) -> u8 {
    (offset * 37 + 11) as u8
}

pub fn page(start: u64, len: u64) -> Vec<u8> {
    (start..start + len).map(byte_at).collect()
}

#[derive(Clone, Debug)]
pub enum Step {
    Write {
        start: u64,
        len: u64,
        is_text: bool,
    },
    /// A page whose byte `at` (modulo its length) is not the resource's.
    WriteWrong {
        start: u64,
        len: u64,
        at: u64,
    },
    /// A text whose symbol `at` (modulo its length) is none.
    WriteBroken {
        start: u64,
        len: u64,
        at: usize,
    },
    Read {
        at_most: usize,
        is_blocking: bool,
    },
    Seek(u64),
    /// Back by so many bytes, which are kept or not.
    SeekBack(u64),
    Close,
}

/// Near the reader, where most writes belong; the rest of the range is for the refusals.
fn near(head: u64, start: u64) -> u64 {
    if start.is_multiple_of(4) {
        start
    } else {
        (head + start % (CAPACITY + 4)).saturating_sub(4)
    }
}

#[derive(Debug)]
struct Model {
    head: u64,
    behind: u64,
    /// The oldest byte kept.
    kept_from: u64,
    held: Vec<Option<u8>>,
    is_closed: bool,
}

impl Model {
    fn new(start: u64, behind: u64) -> Self {
        Self {
            head: start,
            behind,
            kept_from: start,
            // Each step may move the reader on by a ring.
            held: vec![None; (LENGTH + (STEPS as u64 + 2) * (CAPACITY + 4)) as usize],
            is_closed: false,
        }
    }

    fn tail(&self) -> u64 {
        (self.head..)
            .find(|&offset| self.held[offset as usize].is_none())
            .unwrap()
    }

    fn write(&mut self, start: u64, bytes: &[u8]) -> Result<u64, Error> {
        if self.is_closed {
            return Err(Error::Closed);
        }
        let end = start + bytes.len() as u64;
        let high = self.kept_from + CAPACITY;
        if end > high {
            return Err(Error::Window {
                start,
                end,
                low: self.kept_from,
                high,
            });
        }
        for (offset, byte) in (start..).zip(bytes) {
            if self.held[offset as usize].is_some_and(|held| held != *byte) {
                return Err(Error::Contradiction { offset });
            }
        }
        for (offset, byte) in (start..)
            .zip(bytes)
            .filter(|(offset, _)| *offset >= self.kept_from)
        {
            self.held[offset as usize] = Some(*byte);
        }
        Ok(bytes.len() as u64)
    }

    fn read(&mut self, at_most: usize) -> Vec<u8> {
        let end = self.tail().min(self.head + at_most as u64);
        let bytes = (self.head..end)
            .filter_map(|offset| self.held[offset as usize])
            .collect();
        self.move_to(end);
        bytes
    }

    /// Moves the reader to a byte that is held, or to the tail.
    fn move_to(&mut self, offset: u64) {
        self.head = offset;
        self.kept_from = self.kept_from.max(offset.saturating_sub(self.behind));
        self.held[..self.kept_from as usize].fill(None);
    }

    fn seek(&mut self, offset: u64) {
        if (self.kept_from..=self.tail()).contains(&offset) {
            self.move_to(offset);
        } else {
            self.held.fill(None);
            self.is_closed = false;
            (self.head, self.kept_from) = (offset, offset);
        }
    }
}

pub fn read(pipe: &TestPipe, at_most: usize, is_blocking: bool) -> (Vec<u8>, &'static str) {
    let mut out = vec![0; at_most];
    let outcome = if is_blocking {
        pipe.read(&mut out, Some(Duration::ZERO))
    } else {
        pipe.read_nowait(&mut out)
    };
    let (len, what) = match outcome.unwrap() {
        Outcome::Bytes(len) => (len, "bytes"),
        Outcome::NotYet => (0, "not yet"),
        Outcome::End => (0, "end"),
        Outcome::Broken(error) => (0, *error),
    };
    out.truncate(len);
    (out, what)
}

/// Takes the steps with a pipe and with the model, and compares them after each.
pub fn run(start: u64, behind: u64, steps: impl IntoIterator<Item = Step>) {
    let pipe = TestPipe::new(CAPACITY, start, behind, NoWake).unwrap();
    let mut model = Model::new(start, behind);
    for step in steps {
        match step {
            Step::Write {
                start,
                len,
                is_text,
            } => {
                let start = near(model.head, start);
                let bytes = page(start, len);
                let text = STANDARD.encode(&bytes);
                let payload = if is_text {
                    Payload::Text(text.as_bytes())
                } else {
                    Payload::Bytes(&bytes)
                };
                assert_eq!(pipe.write(start, payload), model.write(start, &bytes));
            }
            Step::WriteWrong { start, len, at } => {
                let start = near(model.head, start);
                let mut bytes = page(start, len);
                bytes[(at % len) as usize] ^= 1;
                // Where nothing is held yet a wrong byte can't be told, so only the others are tried.
                let is_held = model.held[(start + at % len) as usize].is_some();
                if is_held || model.is_closed || start + len > model.kept_from + CAPACITY {
                    let text = STANDARD.encode(&bytes);
                    assert_eq!(
                        pipe.write(start, Payload::Text(text.as_bytes())),
                        model.write(start, &bytes)
                    );
                }
            }
            Step::WriteBroken { start, len, at } => {
                let start = near(model.head, start);
                let mut text = STANDARD.encode(page(start, len)).into_bytes();
                let at = at % text.len();
                text[at] = b'*';
                let refused = pipe.write(start, Payload::Text(&text)).is_err();
                assert!(refused);
            }
            Step::Read {
                at_most,
                is_blocking,
            } => {
                let expected = model.read(at_most);
                let what = match (at_most, expected.len(), model.is_closed) {
                    (0, _, _) | (_, 1.., _) => "bytes",
                    (_, 0, true) => "end",
                    (_, 0, false) => "not yet",
                };
                assert_eq!(read(&pipe, at_most, is_blocking), (expected, what));
            }
            Step::Seek(offset) => {
                model.seek(offset);
                pipe.seek(offset).unwrap();
            }
            Step::SeekBack(bytes) => {
                let offset = model.head.saturating_sub(bytes);
                model.seek(offset);
                pipe.seek(offset).unwrap();
            }
            Step::Close => {
                model.is_closed = true;
                pipe.close();
            }
        }
        assert_eq!((pipe.head(), pipe.tail()), (model.head, model.tail()));
        assert_eq!(pipe.kept_from(), model.kept_from);
    }
}
