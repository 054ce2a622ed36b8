//! The errors of the byte path, as comparable values with their place and remedy.
//!
//! The bindings have the table from these to the classes of `playhead.errors`.

use crate::base64::Base64Error;
use crate::ring::{CAPACITY_MAX_BYTES, OFFSET_MAX};

/// The reason why a call on a pipe or a ring was refused. A refused call changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The page's text is not strict base64 (the peer's fault).
    #[error(transparent)]
    Base64(#[from] Base64Error),
    /// The write reaches past what the ring can hold before the reader moves on (the caller's fault).
    #[error(
        "bytes {start}..{end} do not fit: the pipe holds {low}..{high}; write nearer to the reader, or wait until it \
         has advanced"
    )]
    Window {
        /// First byte of the write.
        start: u64,
        /// One past its last byte.
        end: u64,
        /// Offset of the oldest byte in the pipe.
        low: u64,
        /// One past the last byte that fits.
        high: u64,
    },
    /// A byte that is still held arrived again with another value (the peer's fault).
    #[error(
        "byte {offset} arrived twice with different values: the server contradicts itself; the resource may have \
         changed while it was read, so read it again from the start"
    )]
    Contradiction {
        /// Absolute offset of the first byte that differs.
        offset: u64,
    },
    /// The pipe was closed or aborted (the caller's fault).
    #[error("the pipe is closed: nothing can be written after close() or abort(); open a new one")]
    Closed,
    /// A second reader reads while the first one does (the caller's fault).
    #[error("another thread is reading from this pipe; a pipe has one reader at a time")]
    Busy,
    /// A capacity of 0 or above [`crate::ring::CAPACITY_MAX_BYTES`].
    #[error("capacity_bytes: expected 1 to {CAPACITY_MAX_BYTES}, got {bytes}")]
    Capacity {
        /// The requested value.
        bytes: u64,
    },
    /// The bytes behind the reader would fill the capacity, so nothing could be written (the caller's fault).
    #[error(
        "expected behind_bytes below the capacity of {capacity}, got {bytes}; keep less behind the reader, or make a \
         larger pipe"
    )]
    Behind {
        /// The requested value.
        bytes: u64,
        /// The capacity in bytes.
        capacity: u64,
    },
    /// An offset above [`crate::ring::OFFSET_MAX`].
    #[error("offset: expected 0 to {OFFSET_MAX}, got {offset}")]
    Offset {
        /// The requested value.
        offset: u64,
    },
    /// A wait for more room than the ring has.
    #[error(
        "{bytes} bytes will never be free in a pipe with room for {ahead} ahead of its reader; wait for less, or make \
         a larger pipe"
    )]
    Room {
        /// The requested value.
        bytes: u64,
        /// The bytes that fit ahead of the reader.
        ahead: u64,
    },
    /// The system has no memory for the ring.
    #[error("no memory for a pipe of {bytes} bytes; ask for less")]
    Memory {
        /// The requested value.
        bytes: u64,
    },
}
