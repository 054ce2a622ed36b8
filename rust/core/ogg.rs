//! Ogg (RFC 3533): bytes in, pages and packets out. The decoder, the search for a time and the checker read it here.
//!
//! The rules:
//! * "Not yet" is `None`. Any chunking of the bytes gives the same pages at the same offsets.
//! * Only a page with the right CRC counts. Other bytes are skipped; the offset of the next page shows how many.
//! * Memory: [`Pages`] holds less than a page and the last chunk, [`Packets`] a packet of [`PACKET_MAX_BYTES`].
//! * Time: false pages may begin every four bytes and be 64 KiB long each. For each byte that is skipped, at most
//!   [`WASTE_RATIO`] bytes are checked in vain; beyond that, possible beginnings are skipped unchecked.

use memchr::memmem;

/// The longest page: 255 segments of 255 bytes.
pub const PAGE_MAX_BYTES: usize = HEADER_BYTES + 255 + 255 * 255;
/// Bytes of a packet that are kept; the rest is dropped. Comments with pictures are longer, audio is not.
pub const PACKET_MAX_BYTES: usize = 1 << 20;
/// Bytes that may be checked in vain for each byte that is skipped.
pub const WASTE_RATIO: usize = 8;
const WASTE_MAX_BYTES: usize = 1 << 20;

const HEADER_BYTES: usize = 27;
const CAPTURE: &[u8] = b"OggS";
const CONTINUED: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;

/// One page with the right checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its place in the stream.
    pub offset: u64,
    /// It begins with the rest of a packet.
    pub is_continued: bool,
    /// The first page of its logical stream.
    pub is_first: bool,
    /// The last page of its logical stream.
    pub is_last: bool,
    /// Time of the end of the last packet that ends here, in the codec's units; `None` if none does.
    pub granule: Option<i64>,
    /// Its logical stream.
    pub serial: u32,
    /// Its number in the logical stream.
    pub number: u32,
    segments: usize,
    raw: Vec<u8>,
}

impl Page {
    /// Reads the page that `raw` is; `None` if it is not one, or damaged.
    fn parse(raw: &[u8], offset: u64) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*raw.get(at..)?.first_chunk()?));
        if word(22)? != checksum(raw) {
            return None;
        }
        let flags = *raw.get(5)?;
        let granule = i64::from_le_bytes(*raw.get(6..)?.first_chunk()?);
        Some(Self {
            offset,
            is_continued: flags & CONTINUED != 0,
            is_first: flags & FIRST != 0,
            is_last: flags & LAST != 0,
            granule: (granule >= 0).then_some(granule),
            serial: word(14)?,
            number: word(18)?,
            segments: usize::from(*raw.get(26)?),
            raw: raw.to_vec(),
        })
    }

    /// Its size, header included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.raw.len()
    }

    /// One past its last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.raw.len() as u64
    }

    /// The packets and parts of packets, each with true if it ends here.
    pub fn parts(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let (head, mut body) = self.raw.split_at(HEADER_BYTES + self.segments);
        let lacing = head.get(HEADER_BYTES..).unwrap_or_default();
        lacing
            .chunk_by(|&before, _| before == 255)
            .map(move |segments| {
                let len = segments.iter().map(|&len| usize::from(len)).sum();
                let (part, rest) = body.split_at(body.len().min(len));
                body = rest;
                (part, segments.last() != Some(&255))
            })
    }
}

/// Finds the pages of a stream.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    buffer: Vec<u8>,
    /// The place in `buffer` of the next byte to look at, which is at `offset` of the stream.
    at: usize,
    offset: u64,
    /// Bytes that were checked in vain, less the allowance for bytes skipped since.
    wasted: usize,
    is_over: bool,
}

impl Pages {
    /// A reader of the bytes from `offset` of the stream on.
    #[must_use]
    pub fn new(offset: u64) -> Self {
        Self {
            offset,
            ..Self::default()
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Ends the stream: a page that is cut short is not waited for.
    pub fn finish(&mut self) {
        self.is_over = true;
    }

    /// The offset of the first byte that was neither read as part of a page nor skipped.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next page; `None` before more bytes are pushed.
    pub fn next_page(&mut self) -> Option<Page> {
        loop {
            let rest = self.buffer.get(self.at..).unwrap_or_default();
            let Some(start) = memmem::find(rest, CAPTURE) else {
                let maybe = CAPTURE.len() - 1;
                self.skip(rest.len().saturating_sub(maybe));
                return None;
            };
            self.skip(start);
            let rest = self.buffer.get(self.at..).unwrap_or_default();
            let len = match page_bytes(rest) {
                None if !self.is_over => return None,
                Some(len) if self.wasted + len <= WASTE_MAX_BYTES => len,
                _ => 0,
            };
            match rest.get(..len) {
                None if !self.is_over => return None,
                None => {}
                Some(raw) => {
                    if let Some(page) = Page::parse(raw, self.offset) {
                        self.advance(len);
                        return Some(page);
                    }
                    self.wasted += len;
                }
            }
            self.skip(CAPTURE.len());
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.wasted = self.wasted.saturating_sub(bytes * WASTE_RATIO);
        self.advance(bytes);
    }

    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += bytes as u64;
    }
}

/// The size of the page that begins here, by its header; 0 for another version.
fn page_bytes(bytes: &[u8]) -> Option<usize> {
    let version = *bytes.get(4)?;
    if version != 0 {
        return Some(0);
    }
    let segments = usize::from(*bytes.get(HEADER_BYTES - 1)?);
    let lacing = bytes.get(HEADER_BYTES..HEADER_BYTES + segments)?;
    let body: usize = lacing.iter().map(|&len| usize::from(len)).sum();
    Some(HEADER_BYTES + segments + body)
}

/// Joins the packets of one logical stream.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    /// The beginning of a packet that continues on the next page.
    open: Option<Vec<u8>>,
    /// The number of the next page.
    number: Option<u32>,
}

impl Packets {
    /// Returns the packets that end on `page`, the next one of the logical stream. A packet is dropped if its beginning
    /// or its middle is missing, and truncated to [`PACKET_MAX_BYTES`].
    pub fn push(&mut self, page: &Page) -> Vec<Vec<u8>> {
        let follows = self.number.is_none_or(|number| number == page.number);
        let beginning = self.open.take().filter(|_| follows && page.is_continued);
        self.number = Some(page.number.wrapping_add(1));
        let mut is_rest = page.is_continued && beginning.is_none();
        let mut packet = beginning.unwrap_or_default();
        let mut whole = Vec::new();
        for (part, ends) in page.parts() {
            let room = PACKET_MAX_BYTES.saturating_sub(packet.len());
            packet.extend_from_slice(part.get(..room).unwrap_or(part));
            let part = std::mem::take(&mut packet);
            match (is_rest, ends) {
                (false, true) => whole.push(part),
                (false, false) => self.open = Some(part),
                (true, _) => is_rest = !ends,
            }
        }
        whole
    }
}

/// CRC-32 of a page whose own field counts as zero: polynomial 0x04C11DB7, most significant bit first, from 0.
#[must_use]
pub fn checksum(page: &[u8]) -> u32 {
    let (before, rest) = page.split_at(page.len().min(22));
    let after = rest.get(4..).unwrap_or_default();
    before
        .iter()
        .chain(&[0; 4])
        .chain(after)
        .fold(0, |crc, &byte| {
            let index = usize::from((crc >> 24) as u8 ^ byte);
            (crc << 8) ^ CRC.get(index).copied().unwrap_or_default()
        })
}

static CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};
