//! Errors of the byte path, as comparable values with the place and the remedy.
//!
//! The bindings have the table from these to the classes of `playhead.errors`.

use std::fmt;

use crate::base64::Base64Error;

/// The reason why a call on a pipe or a ring was refused. A refused call changes nothing.
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
        /// The oldest byte kept.
        low: u64,
        /// One past the last byte that fits.
        high: u64,
    },
    /// A byte that is still held arrived again with another value (the peer's fault).
    Contradiction {
        /// Absolute offset of the first byte that differs.
        offset: u64,
    },
    /// The pipe was closed or aborted (the caller's fault).
    Closed,
    /// A second reader reads while the first one does (the caller's fault).
    Busy,
    /// A capacity of 0 or above [`crate::ring::CAPACITY_MAX_BYTES`].
    Capacity {
        /// The requested value.
        bytes: u64,
    },
    /// The bytes behind the reader fill the capacity, so that nothing could be written (the caller's fault).
    Behind {
        /// The requested value.
        bytes: u64,
        /// The capacity in bytes.
        capacity: u64,
    },
    /// An offset above [`crate::ring::OFFSET_MAX`].
    Offset {
        /// The requested value.
        offset: u64,
    },
    /// A wait for more room than the ring has.
    Room {
        /// The requested value.
        bytes: u64,
        /// The bytes that fit ahead of the reader.
        ahead: u64,
    },
    /// The system has no memory for the ring.
    Memory {
        /// The requested value.
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
                 or wait until it has advanced"
            ),
            Self::Contradiction { offset } => write!(
                f,
                "byte {offset} arrived twice with different values: the server contradicts itself; the \
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
                "capacity_bytes: expected 1 to {}, got {bytes}",
                crate::ring::CAPACITY_MAX_BYTES
            ),
            Self::Behind { bytes, capacity } => write!(
                f,
                "expected behind_bytes below the capacity of {capacity}, got {bytes}; keep less behind the \
                 reader, or make a larger pipe"
            ),
            Self::Offset { offset } => write!(
                f,
                "offset: expected 0 to {}, got {offset}",
                crate::ring::OFFSET_MAX
            ),
            Self::Room { bytes, ahead } => write!(
                f,
                "{bytes} bytes will never be free in a pipe with room for {ahead} ahead of its reader; wait \
                 for less, or make a larger pipe"
            ),
            Self::Memory { bytes } => {
                write!(f, "no memory for a pipe of {bytes} bytes; ask for less")
            }
        }
    }
}

impl std::error::Error for Error {}
