//! Everything that the byte path refuses, as values: comparable, with the place, and with what to do.
//!
//! The bindings hold the one table from these to the classes of `playhead.errors`.

use std::fmt;

use crate::base64::Base64Error;

/// Why a call on a pipe or a ring was refused. Nothing has changed when one of these comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The page's text is not strict base64 (the peer's fault).
    Base64(Base64Error),
    /// The write reaches past what the ring can hold before the reader moves on (the caller's fault).
    Window {
        /// First byte of the write.
        start: u64,
        /// One past its last byte.
        end: u64,
        /// The next byte that will be read.
        low: u64,
        /// One past the last byte that fits.
        high: u64,
    },
    /// A byte that is still held came again with another value (the peer's fault).
    Contradiction {
        /// Absolute offset of the first byte that differs.
        offset: u64,
    },
    /// The pipe was closed or aborted (the caller's fault).
    Closed,
    /// A second reader came while one is reading (the caller's fault).
    Busy,
    /// A capacity of 0 or above [`crate::ring::CAPACITY_MAX_BYTES`].
    Capacity {
        /// What was asked for.
        bytes: u64,
    },
    /// An offset above [`crate::ring::OFFSET_MAX`].
    Offset {
        /// What was asked for.
        offset: u64,
    },
    /// More room is waited for than the ring can ever have.
    Room {
        /// What was asked for.
        bytes: u64,
        /// What the ring holds.
        capacity: u64,
    },
    /// The system has no memory for the ring.
    Memory {
        /// What was asked for.
        bytes: u64,
    },
}

impl From<Base64Error> for Error {
    fn from(error: Base64Error) -> Self {
        Self::Base64(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base64(error) => error.fmt(f),
            Self::Window {
                start,
                end,
                low,
                high,
            } => write!(
                f,
                "bytes {start}..{end} do not fit: the pipe holds {low}..{high}; write nearer to the reader, \
                 or wait until it has moved on"
            ),
            Self::Contradiction { offset } => write!(
                f,
                "byte {offset} came twice with different values: the server contradicts itself; the \
                 resource may have changed while it was read, so read it again from the start"
            ),
            Self::Closed => write!(
                f,
                "the pipe is closed: nothing can be written after close() or abort(); open a new one"
            ),
            Self::Busy => write!(
                f,
                "another thread is reading from this pipe; a pipe has one reader at a time"
            ),
            Self::Capacity { bytes } => write!(
                f,
                "a capacity of {bytes} bytes is not possible; ask for 1 to {}",
                crate::ring::CAPACITY_MAX_BYTES
            ),
            Self::Offset { offset } => write!(
                f,
                "offset {offset} is not possible; ask for 0 to {}",
                crate::ring::OFFSET_MAX
            ),
            Self::Room { bytes, capacity } => write!(
                f,
                "{bytes} bytes will never be free in a pipe of {capacity}; wait for less, or make a larger pipe"
            ),
            Self::Memory { bytes } => {
                write!(f, "no memory for a pipe of {bytes} bytes; ask for less")
            }
        }
    }
}

impl std::error::Error for Error {}
