//! What a pipe counted. Plain counters: they order nothing, so they are relaxed and unknown to loom.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A moment's figures of a pipe. Each is exact; together they may be a few nanoseconds apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeStatistics {
    /// Bytes stored, each once.
    pub bytes_written: u64,
    /// Bytes that came again: below the reader, or held already (and then compared).
    pub bytes_repeated: u64,
    /// Writes accepted.
    pub writes: u64,
    /// Bytes handed to the reader.
    pub bytes_read: u64,
    /// Reads that gave bytes.
    pub reads: u64,
    /// Blocking reads that found nothing and had to wait.
    pub reader_waits: u64,
    /// Wakes sent to a writer that had asked for one.
    pub writer_wakes: u64,
    /// The most bytes held at once, islands beyond a gap included.
    pub peak_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    bytes_written: AtomicU64,
    bytes_repeated: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    reads: AtomicU64,
    reader_waits: AtomicU64,
    writer_wakes: AtomicU64,
    peak_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn wrote(&self, stored: u64, repeated: u64, held: u64) {
        self.writes.fetch_add(1, Relaxed);
        self.bytes_written.fetch_add(stored, Relaxed);
        self.bytes_repeated.fetch_add(repeated, Relaxed);
        self.peak_bytes.fetch_max(held, Relaxed);
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.reads.fetch_add(1, Relaxed);
        self.bytes_read.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn reader_waited(&self) {
        self.reader_waits.fetch_add(1, Relaxed);
    }

    pub(crate) fn woke_writer(&self) {
        self.writer_wakes.fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> PipeStatistics {
        PipeStatistics {
            bytes_written: self.bytes_written.load(Relaxed),
            bytes_repeated: self.bytes_repeated.load(Relaxed),
            writes: self.writes.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            reads: self.reads.load(Relaxed),
            reader_waits: self.reader_waits.load(Relaxed),
            writer_wakes: self.writer_wakes.load(Relaxed),
            peak_bytes: self.peak_bytes.load(Relaxed),
        }
    }
}
