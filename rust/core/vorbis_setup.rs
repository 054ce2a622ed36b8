//! The setup header of Vorbis (Vorbis I, section 4.2.4), read for its limits and its couplings before the crate
//! `symphonia-codec-vorbis` allocates for it.
//!
//! The crate, in 0.6.1, undoes the couplings of channels from the first to the last. The encoder coupled them in that
//! order, so it must be from the last to the first (section 4.3.5), which differs where one channel is in two of them:
//! in files of three and more channels. [`prepare`] reverses the list.
//!
//! If the partitions of a residue do not fill its last class word, the crate overwrites the classes of the next channel
//! with those of the padding. [`prepare`] rounds the partitions up: encoders pad with class 0, and if that class has no
//! books, the padding takes no bits and adds nothing.

use crate::vorbis::{Fault, within};

/// Entries of all codebooks: each takes up to 256 bytes, as code words and tables.
pub const CODEBOOK_ENTRIES_MAX: u64 = 1 << 17;
/// Values of all codebooks, of 4 bytes each. A header of 100 bytes may state a thousand times as many.
pub const CODEBOOK_VALUES_MAX: u64 = 1 << 21;

/// Returns the header as the crate needs it.
///
/// # Errors
/// [`Fault::Limit`] for codebooks beyond a limit, [`Fault::Header`] for a header that ends early or is invalid.
pub fn prepare(setup: &[u8], channels: u8) -> Result<Vec<u8>, Fault> {
    let mut reader = Reader {
        data: setup,
        at: 0,
        entries: 0,
        values: 0,
        dimensions: Vec::new(),
        changes: Vec::new(),
    };
    reader.header(usize::from(channels))?;
    let mut changed = setup.to_vec();
    for (at, width, value) in reader.changes {
        for bit in 0..width {
            if let Some(byte) = changed.get_mut((at + bit) / 8) {
                let mask = 1 << ((at + bit) % 8);
                *byte = *byte & !mask | if value >> bit & 1 == 1 { mask } else { 0 };
            }
        }
    }
    Ok(changed)
}

const DAMAGED: Fault = Fault::Header("setup");

/// Reads fields from the least significant bit on.
struct Reader<'a> {
    data: &'a [u8],
    at: usize,
    entries: u64,
    values: u64,
    /// The dimensions of the codebooks.
    dimensions: Vec<usize>,
    /// The fields to change: the place and the width in bits, and the value.
    changes: Vec<(usize, usize, usize)>,
}

impl Reader<'_> {
    #[inline(never)] // it has 40 callers
    fn take(&mut self, bits: usize) -> Result<usize, Fault> {
        let at = self.at;
        self.skip(bits)?;
        Ok((at..at + bits).rev().fold(0, |value, at| {
            let byte = self.data.get(at / 8).copied().unwrap_or(0);
            value << 1 | usize::from(byte >> (at % 8) & 1)
        }))
    }

    fn skip(&mut self, bits: usize) -> Result<(), Fault> {
        self.at = self.at.checked_add(bits).ok_or(DAMAGED)?;
        if self.at > self.data.len() * 8 {
            return Err(DAMAGED);
        }
        Ok(())
    }

    fn header(&mut self, channels: usize) -> Result<(), Fault> {
        self.skip(7 * 8)?;
        for _ in 0..=self.take(8)? {
            self.codebook()?;
        }
        for _ in 0..=self.take(6)? {
            self.skip(16)?;
        }
        for _ in 0..=self.take(6)? {
            self.floor()?;
        }
        for _ in 0..=self.take(6)? {
            self.residue()?;
        }
        for _ in 0..=self.take(6)? {
            self.mapping(channels)?;
        }
        Ok(())
    }

    fn codebook(&mut self) -> Result<(), Fault> {
        if self.take(24)? != 0x56_43_42 {
            return Err(DAMAGED);
        }
        let (dimensions, entries) = (self.take(16)?, self.take(24)?);
        self.dimensions.push(dimensions);
        self.entries += entries as u64;
        self.values += entries as u64 * dimensions as u64;
        within("codebook entries", self.entries, 0..=CODEBOOK_ENTRIES_MAX)?;
        within("codebook values", self.values, 0..=CODEBOOK_VALUES_MAX)?;
        if self.take(1)? == 1 {
            self.skip(5)?;
            let mut entry = 0;
            while entry < entries {
                entry += self.take(width_of(entries - entry))?;
            }
        } else if self.take(1)? == 1 {
            for _ in 0..entries {
                let is_used = self.take(1)?;
                self.skip(5 * is_used)?;
            }
        } else {
            self.skip(5 * entries)?;
        }
        let lookup = self.take(4)?;
        if lookup > 0 {
            self.skip(64)?;
            let bits = self.take(4)? + 1;
            let values = match lookup {
                1 => root(entries, dimensions),
                _ => entries * dimensions,
            };
            self.skip(1 + bits * values)?;
        }
        Ok(())
    }

    fn floor(&mut self) -> Result<(), Fault> {
        if self.take(16)? == 0 {
            self.skip(8 + 16 + 16 + 6 + 8)?;
            let books = self.take(4)? + 1;
            return self.skip(8 * books);
        }
        let parts = self.take(5)?;
        let classes: Vec<_> = (0..parts).map(|_| self.take(4)).collect::<Result<_, _>>()?;
        let mut dimensions = Vec::new();
        for _ in 0..classes.iter().max().map_or(0, |most| most + 1) {
            dimensions.push(self.take(3)? + 1);
            let subclasses = self.take(2)?;
            self.skip(8 * (usize::from(subclasses > 0) + (1 << subclasses)))?;
        }
        self.skip(2)?;
        let bits = self.take(4)?;
        let points: usize = classes
            .iter()
            .filter_map(|&class| dimensions.get(class))
            .sum();
        self.skip(bits * points)
    }

    fn residue(&mut self) -> Result<(), Fault> {
        let kind = self.take(16)?;
        let begin = self.take(24)?;
        let end_at = self.at;
        let end = self.take(24)?;
        let partition = self.take(24)? + 1;
        let classes = self.take(6)? + 1;
        let book = self.take(8)?;
        let mut books = Vec::new();
        for _ in 0..classes {
            let low = self.take(3)?.count_ones();
            let high = if self.take(1)? == 1 {
                self.take(5)?.count_ones()
            } else {
                0
            };
            books.push(low + high);
        }
        let word = *self.dimensions.get(book).ok_or(DAMAGED)?;
        let partitions = end.saturating_sub(begin) / partition;
        let whole = partitions.checked_next_multiple_of(word).ok_or(DAMAGED)?;
        let rounded = begin + whole * partition;
        if kind < 2 && books.first() == Some(&0) && partitions % word != 0 && rounded < 1 << 24 {
            self.changes.push((end_at, 24, rounded));
        }
        self.skip(8 * books.iter().sum::<u32>() as usize)
    }

    fn mapping(&mut self, channels: usize) -> Result<(), Fault> {
        self.skip(16)?;
        let submaps = if self.take(1)? == 1 {
            self.take(4)? + 1
        } else {
            1
        };
        if self.take(1)? == 1 {
            let steps = self.take(8)? + 1;
            let width = 2 * width_of(channels - 1);
            let first = self.at;
            for step in (0..steps).rev() {
                let coupling = self.take(width)?;
                self.changes.push((first + step * width, width, coupling));
            }
        }
        self.skip(2 + if submaps > 1 { 4 * channels } else { 0 } + 24 * submaps)
    }
}

/// The bits of `value`.
fn width_of(value: usize) -> usize {
    (usize::BITS - value.leading_zeros()) as usize
}

/// The greatest number whose power of `dimensions` is at most `entries`.
fn root(entries: usize, dimensions: usize) -> usize {
    let power = |base: usize| base.checked_pow(u32::try_from(dimensions).unwrap_or(u32::MAX));
    (1..=entries)
        .take_while(|&base| power(base).is_some_and(|power| power <= entries && dimensions > 0))
        .last()
        .unwrap_or(0)
}
