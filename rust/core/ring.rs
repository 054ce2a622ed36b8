//! A bounded window onto an endless sequence of bytes: the byte at absolute offset `o` lives at `o & mask`.
//!
//! ```text
//!       kept_from   head       tail            window end = kept_from + capacity
//!  dropped  │ behind │ readable  │ gap ▓▓island▓▓ gap │ does not fit yet
//! ──────────┴────────┴───────────┴───────────────────┴───────────────▶ offset
//! ```
//! A page that arrives out of order decodes to its final place, without a reorder buffer or a
//! move. Memory is the capacity, whatever the length of the stream, and it is touched only as far as
//! it is used.
//!
//! All `unsafe` of the core is here. It rests on two rules about who may touch which byte:
//! 1. **The writer** (there is one [`Writer`]; its methods take `&mut self`) writes only to bytes of
//!    `[tail, kept_from + capacity)` that are not in an island, and reads only bytes that it wrote.
//! 2. **The reader** reads only `[head, tail)`, and only inside a [`ReadGuard`]. A `ReadGuard` is exclusive:
//!    one bit of `role` says that one is held. Moving the reader ([`Writer::seek`]) takes the same bit.
//!
//! `kept_from` is `max(floor, head - behind)`, and only the writer knows it. The head moves in two ways: a
//! read moves it up, and a seek moves it to any place in `[kept_from, tail]`, which first saves `kept_from`
//! as the floor. So `kept_from` never falls and never exceeds the head until the ring is emptied, and three
//! things follow. No byte of `[kept_from, tail)` was overwritten, because its place belongs to an offset one
//! capacity above it, past the window's end; so a seek back shows the reader the bytes that were there. The
//! writer stays out of what the reader reads, now and after any seek inside what is kept. And a range that
//! fitted once fits until the ring is emptied, so a page in flight survives such a seek.
//!
//! `tail` is released after the bytes below it were written and acquired before they are read; `head` is
//! released after the bytes below it were read and acquired before their places are written again. A seek
//! back lets bytes be read a second time, but only bytes whose places are not written before the head has
//! passed them again. Under loom each byte has a mark that is touched with the byte, so a missing order is a
//! reported race.
//!
//! Precedent: the two-index ring of crossbeam's and rtrb's SPSC queues, with positions kept absolute.

use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::Arc;

use memmap2::{MmapMut, MmapRaw};

use crate::error::Error;
use crate::payload::Payload;
use crate::ranges::RangeSet;
use crate::sync::{AtomicU8, AtomicU64, Ordering, yield_now};

/// The largest capacity, 1 TiB: far above any use, and low enough that no sum of offsets overflows.
pub const CAPACITY_MAX_BYTES: u64 = 1 << 40;

/// The largest absolute offset of a stream, 4 EiB, so that no sum of offsets overflows.
pub const OFFSET_MAX: u64 = 1 << 62;

/// `role`: there is a reader; a second one is refused.
const CLAIMED: u8 = 1;
/// `role`: `[head, tail)` is being read from, or moved.
const GUARDED: u8 = 2;

/// The shared part of a ring. Made by [`Ring::new`] together with its only [`Writer`].
///
/// ```
/// use playhead_core::{payload::Payload, ring::Ring};
///
/// let (ring, mut writer) = Ring::new(16, 0, 0)?;
/// writer.write(4, Payload::Text(b"bW9yZQ=="))?; // "more": an island beyond a gap
/// assert_eq!(ring.tail(), 0);
/// writer.write(0, Payload::Bytes(b"once"))?; // closes the gap
/// assert_eq!(ring.tail(), 8);
///
/// let mut out = [0; 8];
/// let mut claim = ring.claim().expect("there is no other reader");
/// let guard = claim.guard().expect("nobody moves the reader");
/// assert_eq!(guard.copy(&mut out), (8, 0));
/// assert_eq!(&out, b"oncemore");
/// # Ok::<(), playhead_core::error::Error>(())
/// ```
#[derive(Debug)]
pub struct Ring {
    /// Mapped for the ring alone, not from the heap: pages are taken when they are first written, and given back to
    /// the system with the ring. (glibc keeps freed blocks of this size, 20 MiB after two hundred plays.)
    bytes: MmapRaw,
    #[cfg(loom)]
    marks: Box<[loom::cell::UnsafeCell<()>]>,
    mask: u64,
    behind: u64,
    head: AtomicU64,
    tail: AtomicU64,
    role: AtomicU8,
}

// SAFETY: the marks are reached only under the two rules of this file's header, which keep a byte that is
// written apart from every other access to it.
#[cfg(loom)]
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of at least `capacity_bytes` (rounded up to a power of two) that begins at offset `start` and
    /// keeps `behind_bytes` behind the reader.
    ///
    /// # Errors
    /// [`Error::Capacity`], [`Error::Behind`], [`Error::Offset`], or [`Error::Memory`] when the system has
    /// none.
    pub fn new(
        capacity_bytes: u64,
        start: u64,
        behind_bytes: u64,
    ) -> Result<(Arc<Self>, Writer), Error> {
        if !(1..=CAPACITY_MAX_BYTES).contains(&capacity_bytes) {
            return Err(Error::Capacity {
                bytes: capacity_bytes,
            });
        }
        check_offset(start)?;
        let capacity = capacity_bytes.next_power_of_two();
        if behind_bytes >= capacity {
            return Err(Error::Behind {
                bytes: behind_bytes,
                capacity,
            });
        }
        let no_memory = Error::Memory { bytes: capacity };
        let len = usize::try_from(capacity).map_err(|_| no_memory)?;
        let ring = Arc::new(Self {
            bytes: MmapMut::map_anon(len).map_err(|_| no_memory)?.into(),
            #[cfg(loom)]
            marks: (0..len).map(|_| loom::cell::UnsafeCell::new(())).collect(),
            mask: capacity - 1,
            behind: behind_bytes,
            head: AtomicU64::new(start),
            tail: AtomicU64::new(start),
            role: AtomicU8::new(0),
        });
        let writer = Writer {
            ring: Arc::clone(&ring),
            floor: start,
            islands: RangeSet::new(),
        };
        Ok((ring, writer))
    }

    /// The capacity in bytes.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// The bytes that fit ahead of the reader: the capacity less what is kept behind it.
    #[must_use]
    pub const fn ahead(&self) -> u64 {
        self.capacity() - self.behind
    }

    /// The next byte to be read. Acquires what the reader did before it moved here.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// The end of the readable bytes. Acquires the bytes below it.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Becomes the reader until the claim is dropped; `None` while there is another one.
    ///
    /// Relaxed is enough: the bit only excludes. Guards order what one reader leaves to the next, through the
    /// same atomic.
    pub fn claim(&self) -> Option<Claim<'_>> {
        let before = self.role.fetch_or(CLAIMED, Ordering::Relaxed);
        // Made lazily: dropping a claim that failed would release the claim of another reader.
        (before & CLAIMED == 0).then(|| Claim { ring: self })
    }

    fn guard(&self) -> Option<ReadGuard<'_>> {
        let before = self.role.fetch_or(GUARDED, Ordering::Acquire);
        (before & GUARDED == 0).then(|| ReadGuard { ring: self })
    }

    /// The one or two stretches of memory in which `range` lies. It is at most a capacity long.
    fn stretches(&self, range: &Range<u64>) -> (Range<usize>, Range<usize>) {
        let len = (range.end - range.start) as usize;
        let start = (range.start & self.mask) as usize;
        let first_len = len.min(self.bytes.len() - start);
        (start..start + first_len, 0..len - first_len)
    }

    /// # Safety
    /// While the slices live nobody writes to a byte of `range`, which is at most a capacity long.
    unsafe fn slices(&self, range: Range<u64>) -> (&[u8], &[u8]) {
        let (first, second) = self.stretches(&range);
        #[cfg(loom)]
        for at in first.clone().chain(second.clone()) {
            self.marks[at].with(|_| ());
        }
        let base = self.bytes.as_ptr();
        // SAFETY: `stretches` gives places inside the allocation, `u8` has no invalid value, the memory is
        // zeroed at allocation, and the caller guarantees that nobody writes.
        unsafe {
            (
                from_raw_parts(base.add(first.start), first.len()),
                from_raw_parts(base, second.len()),
            )
        }
    }

    /// # Safety
    /// While the slices live nobody else reads or writes a byte of `range`, which is at most a capacity long.
    #[allow(
        clippy::mut_from_ref,
        reason = "exclusive by the caller's promise; this is what the cells are for"
    )]
    unsafe fn slices_mut(&self, range: Range<u64>) -> (&mut [u8], &mut [u8]) {
        let (first, second) = self.stretches(&range);
        #[cfg(loom)]
        for at in first.clone().chain(second.clone()) {
            self.marks[at].with_mut(|_| ());
        }
        let base = self.bytes.as_mut_ptr();
        // SAFETY: as in `slices`. The two stretches do not overlap, because the range is at most a capacity
        // long; writing through the pointer is allowed, because the memory is mapped for writing and is no Rust object.
        unsafe {
            (
                from_raw_parts_mut(base.add(first.start), first.len()),
                from_raw_parts_mut(base, second.len()),
            )
        }
    }
}

fn check_offset(offset: u64) -> Result<(), Error> {
    if offset > OFFSET_MAX {
        return Err(Error::Offset { offset });
    }
    Ok(())
}

/// The right to read, held by one at a time.
#[derive(Debug)]
pub struct Claim<'r> {
    ring: &'r Ring,
}

impl<'r> Claim<'r> {
    /// Begins to read; `None` while the reader is being moved.
    pub fn guard(&mut self) -> Option<ReadGuard<'r>> {
        self.ring.guard()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.ring.role.fetch_and(!CLAIMED, Ordering::Relaxed);
    }
}

/// Exclusive use of `[head, tail)`: for one copy, or to move the reader.
#[derive(Debug)]
pub struct ReadGuard<'r> {
    ring: &'r Ring,
}

impl ReadGuard<'_> {
    /// Copies as many readable bytes as fit, and moves the head. Returns the bytes copied and the bytes left.
    /// Takes no lock and allocates nothing.
    pub fn copy(self, out: &mut [u8]) -> (usize, u64) {
        let ring = self.ring;
        let head = ring.head.load(Ordering::Relaxed);
        let readable = ring.tail() - head;
        let len = readable.min(out.len() as u64);
        // SAFETY: this is the guard, and the range lies in [head, tail), which the writer leaves alone.
        let (first, second) = unsafe { ring.slices(head..head + len) };
        let (first_out, rest) = out.split_at_mut(first.len());
        first_out.copy_from_slice(first);
        rest[..second.len()].copy_from_slice(second);
        ring.head.store(head + len, Ordering::Release);
        (len as usize, readable - len)
    }

    /// Moves the head by `len` bytes, or to the tail, without a copy. Returns the bytes left.
    pub fn skip(self, len: u64) -> u64 {
        let ring = self.ring;
        let head = ring.head.load(Ordering::Relaxed);
        let readable = ring.tail() - head;
        let len = readable.min(len);
        ring.head.store(head + len, Ordering::Release);
        readable - len
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.ring.role.fetch_and(!GUARDED, Ordering::Release);
    }
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Length of the page, decoded.
    pub len: u64,
    /// The readable bytes grew.
    pub grew: bool,
}

/// The only writer of a ring. Not `Clone`: rule 1 of the header depends on it.
#[derive(Debug)]
pub struct Writer {
    ring: Arc<Ring>,
    /// The offset below which no byte is kept: the start of the ring, or `kept_from` before the last seek.
    floor: u64,
    /// Held bytes beyond the gap that begins at `tail`.
    islands: RangeSet,
}

impl Writer {
    /// The oldest byte kept. Acquires what the reader did before it moved to its place.
    #[must_use]
    pub fn kept_from(&self) -> u64 {
        self.floor
            .max(self.ring.head().saturating_sub(self.ring.behind))
    }

    /// Stores a page at its absolute offset, all of it or, on an error, nothing.
    ///
    /// Bytes that are no longer kept are skipped, bytes still held (behind the reader, too) are compared,
    /// missing ones are stored. A page of which nothing is held is decoded straight into the ring.
    ///
    /// # Errors
    /// In this order: [`Error::Base64`] by the text's length, [`Error::Window`], [`Error::Base64`],
    /// [`Error::Contradiction`].
    pub fn write(&mut self, offset: u64, payload: Payload<'_>) -> Result<Written, Error> {
        let len = payload.len_bytes()?;
        let kept_from = self.kept_from();
        let window = kept_from..kept_from + self.ring.capacity();
        let end = offset.saturating_add(len);
        if end > window.end {
            return Err(Error::Window {
                start: offset,
                end,
                low: window.start,
                high: window.end,
            });
        }
        let tail = self.ring.tail.load(Ordering::Relaxed);
        let is_fresh = offset >= tail && self.islands.held(offset..end).next().is_none();
        if is_fresh {
            // SAFETY: rule 1. The range lies in [tail, kept_from + capacity) and in no island, and this is
            // the writer. Acquiring the head in `kept_from` ordered the reader's copies before this write.
            let (first, second) = unsafe { self.ring.slices_mut(offset..end) };
            payload.place(first, second)?;
        } else {
            self.merge(offset, end, window.start..tail, &payload.bytes()?)?;
        }
        Ok(Written {
            len,
            grew: self.publish(offset..end, tail),
        })
    }

    /// Compares the stored bytes of `[offset, end)` and stores the rest; `contiguous` is `[kept_from, tail)`.
    fn merge(
        &mut self,
        offset: u64,
        end: u64,
        contiguous: Range<u64>,
        page: &[u8],
    ) -> Result<(), Error> {
        let wanted = offset.max(contiguous.start)..end;
        let of_page =
            |run: &Range<u64>| &page[(run.start - offset) as usize..(run.end - offset) as usize];
        let mut runs = self.islands.clone();
        runs.insert(contiguous);
        for run in runs.held(wanted.clone()) {
            // SAFETY: the writer wrote these bytes, and nobody else writes.
            let (first, second) = unsafe { self.ring.slices(run.clone()) };
            let ours = first.iter().chain(second);
            if let Some(at) = ours
                .zip(of_page(&run))
                .position(|(ours, theirs)| ours != theirs)
            {
                return Err(Error::Contradiction {
                    offset: run.start + at as u64,
                });
            }
        }
        for gap in runs.missing(wanted) {
            // SAFETY: rule 1. A gap lies at or past the tail, in no island, below
            // kept_from + capacity.
            let (first, second) = unsafe { self.ring.slices_mut(gap.clone()) };
            let (left, right) = of_page(&gap).split_at(first.len());
            first.copy_from_slice(left);
            second.copy_from_slice(right);
        }
        Ok(())
    }

    /// Copies from `[offset, head)` what fits into `out`, and returns its length; 0 if `offset` is not kept.
    pub fn copy_behind(&mut self, offset: u64, out: &mut [u8]) -> usize {
        let end = self
            .ring
            .head()
            .min(offset.saturating_add(out.len() as u64));
        if offset < self.kept_from() || offset >= end {
            return 0;
        }
        // SAFETY: the writer wrote these bytes, and nobody else writes.
        let (first, second) = unsafe { self.ring.slices(offset..end) };
        let (first_out, rest) = out.split_at_mut(first.len());
        first_out.copy_from_slice(first);
        rest[..second.len()].copy_from_slice(second);
        first.len() + second.len()
    }

    /// Makes `run` readable if it closes the gap at `tail`, or remembers it as an island.
    fn publish(&mut self, run: Range<u64>, tail: u64) -> bool {
        if run.start > tail {
            self.islands.insert(run);
            return false;
        }
        let end = self.islands.contiguous_end(run.end.max(tail));
        self.islands.remove_below(end);
        self.ring.tail.store(end, Ordering::Release);
        end > tail
    }

    /// Moves the reader to `offset`: inside `[kept_from, tail]` nothing is dropped; elsewhere the ring is
    /// emptied and begins there, and `on_empty` is called before a reader can see that. Waits while a copy
    /// is running (a `memcpy` of at most a capacity), so that no byte changes under it.
    ///
    /// # Errors
    /// [`Error::Offset`].
    pub fn seek(&mut self, offset: u64, on_empty: impl FnOnce()) -> Result<(), Error> {
        check_offset(offset)?;
        let ring = Arc::clone(&self.ring);
        let _guard = loop {
            match ring.guard() {
                Some(guard) => break guard,
                None => yield_now(),
            }
        };
        // Under the guard: no read moves the head any more.
        let kept_from = self.kept_from();
        // Relaxed: the reader sees both by its next guard, and only the writer writes them.
        let is_kept = (kept_from..=ring.tail.load(Ordering::Relaxed)).contains(&offset);
        ring.head.store(offset, Ordering::Relaxed);
        if is_kept {
            self.floor = kept_from;
        } else {
            self.floor = offset;
            ring.tail.store(offset, Ordering::Relaxed);
            self.islands.clear();
            on_empty();
        }
        Ok(())
    }
}
