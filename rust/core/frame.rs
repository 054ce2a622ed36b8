//! Reads the structure of a JSON-RPC message from its bytes, in one pass, without building a tree.
//!
//! A page is one long base64 string in a small message. A parser would copy that string, and check every
//! character of it, before anyone could decode it. The scan finds its place instead: the caller parses the
//! [envelope](Frame::envelope), which is the message without it, and decodes the string where it lies.
//! The same pass counts the nesting and the number of values, which a parser does not limit.
//!
//! Theory of operation. Outside strings each byte is looked at; inside, `memchr` jumps to the next quote or
//! backslash. A stack of [`Place`]s says which of the few known objects and lists encloses the current byte;
//! [`Place::child`] is the whole table. A key counts by its meaning, so `"bl\u006fb"` is `blob`.
//!
//! The rules:
//! * Any bytes have counts. For JSON they are those of a parser. For other bytes they bound the values that a
//!   parser builds before it finds the fault: even after a string without an end, brackets and commas count.
//! * A blob is the value at exactly `result.contents[i].blob`, `result.content[i].data` or
//!   `result.content[i].resource.blob` of a result, as long as [`BLOB_MIN_BYTES`], and only of the ASCII
//!   characters that stand for themselves in JSON. So the envelope is JSON if and only if the message is, and
//!   a string that is not base64 is the decoder's to refuse, at the same index as ever.
//! * Parsers disagree about an object that repeats a key. If an object that encloses a blob repeats a known
//!   key, the frame has no blobs, and the parser reads the whole message.
//! * A frame has the id if it is written plainly: an integer of 64 bits, or a string without escapes.

use std::iter::once;
use std::ops::Range;

use memchr::{memchr2, memmem};

/// The length of the shortest blob: copying a shorter string costs less than a view of it.
pub const BLOB_MIN_BYTES: usize = 1024;

/// The length of the longest string that counts as an id.
pub const ID_MAX_BYTES: usize = 256;

/// The kind of a message, by its keys in this order: `method` (with or without `id`), `result`, `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It has a method and an id.
    Request,
    /// It has a method and no id.
    Notification,
    /// It answers a request.
    Result,
    /// It refuses a request.
    Error,
}

/// An id that is written plainly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Id {
    /// An integer.
    Integer(i64),
    /// The place of a string's characters, between its quotes.
    Text(Range<usize>),
}

/// The field that holds a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `result.contents[item].blob`
    ContentsBlob,
    /// `result.content[item].data`
    ContentData,
    /// `result.content[item].resource.blob`
    ResourceBlob,
}

/// A long string that is taken out of the envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The field that holds it.
    pub field: Field,
    /// Its index in the list.
    pub item: usize,
    /// Its characters, between its quotes.
    pub span: Range<usize>,
}

/// The structure of a message.
///
/// ```
/// use playhead_core::frame::{Frame, Kind};
///
/// let blob = "QUJD".repeat(256);
/// let message = format!(r#"{{"id":7,"result":{{"contents":[{{"uri":"demo:/a","blob":"{blob}"}}]}}}}"#);
/// let frame = Frame::scan(message.as_bytes());
/// assert_eq!((frame.kind, frame.depth, frame.values), (Some(Kind::Result), 4, 6));
/// assert_eq!(message[frame.blobs[0].span.clone()], blob);
/// let envelope = frame.envelope(message.as_bytes());
/// assert_eq!(envelope, br#"{"id":7,"result":{"contents":[{"uri":"demo:/a","blob":""}]}}"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its kind; `None` if no key decides.
    pub kind: Option<Kind>,
    /// Its id; `None` if it has none, or one that is not written plainly.
    pub id: Option<Id>,
    /// The deepest nesting of its objects and lists.
    pub depth: usize,
    /// The number of its values: one for each opening bracket and each comma.
    pub values: usize,
    /// The blobs in the order in which they appear.
    pub blobs: Vec<Blob>,
}

impl Frame {
    /// Scans a message.
    #[must_use]
    pub fn scan(data: &[u8]) -> Self {
        let mut scanner = Scanner::new(data);
        scanner.run();
        scanner.finish()
    }

    /// `data`, the message that was scanned, with an empty string in place of each blob.
    #[must_use]
    pub fn envelope(&self, data: &[u8]) -> Vec<u8> {
        let mut envelope = Vec::with_capacity(data.len().saturating_sub(self.blob_bytes()));
        for part in self.parts(data) {
            envelope.extend_from_slice(part);
        }
        envelope
    }

    /// [`text_bytes`] of `data`, the message that was scanned; its blobs are ASCII and not read again.
    #[must_use]
    pub fn text_bytes(&self, data: &[u8]) -> usize {
        let width = self.parts(data).map(width).max().unwrap_or(1);
        let outside: usize = match width {
            1 => self.parts(data).map(<[u8]>::len).sum(),
            _ => self.parts(data).map(characters).sum(),
        };
        (outside + self.blob_bytes()) * width
    }

    /// The message before, between and after the blobs.
    fn parts<'a>(&'a self, data: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let starts = once(0).chain(self.blobs.iter().map(|blob| blob.span.end));
        let ends = self.blobs.iter().map(|blob| blob.span.start);
        starts
            .zip(ends.chain(once(data.len())))
            .map(|(start, end)| data.get(start..end).unwrap_or_default())
    }

    fn blob_bytes(&self) -> usize {
        self.blobs.iter().map(|blob| blob.span.len()).sum()
    }
}

/// The bytes that the text of `data` may take in memory, where its widest character sets the width of all.
///
/// Python keeps a string in one, two or four bytes per character: one emoji makes four of each.
#[must_use]
pub fn text_bytes(data: &[u8]) -> usize {
    match width(data) {
        1 => data.len(),
        width => characters(data) * width,
    }
}

/// The bytes of each character in memory. No escape lies on both sides of a blob: it has quotes around it.
fn width(data: &[u8]) -> usize {
    let has_escapes = memmem::find(data, b"\\u").is_some();
    if data.is_ascii() && !has_escapes {
        1
    } else if data.iter().any(|&byte| byte >= 0xf0) || (has_escapes && has_surrogate(data)) {
        4
    } else {
        2
    }
}

fn characters(data: &[u8]) -> usize {
    data.iter().filter(|&&byte| byte & 0xc0 != 0x80).count()
}

/// An escaped high surrogate: the first half of a character of four bytes.
fn has_surrogate(data: &[u8]) -> bool {
    memmem::find_iter(data, b"\\u").any(|at| {
        matches!(
            data.get(at + 2..at + 4),
            Some([b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B'])
        )
    })
}

/// A known key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Id,
    Method,
    Result,
    Error,
    Contents,
    Content,
    Blob,
    Data,
    Resource,
    Other,
}

const NAMES: [(&[u8], Name); 9] = [
    (b"id", Name::Id),
    (b"method", Name::Method),
    (b"result", Name::Result),
    (b"error", Name::Error),
    (b"contents", Name::Contents),
    (b"content", Name::Content),
    (b"blob", Name::Blob),
    (b"data", Name::Data),
    (b"resource", Name::Resource),
];

impl Name {
    fn of(key: &[u8], is_plain: bool) -> Self {
        NAMES
            .iter()
            .find(|(name, _)| {
                if is_plain {
                    key == *name
                } else {
                    spells(key, name)
                }
            })
            .map_or(Self::Other, |&(_, name)| name)
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Returns whether a key with escapes spells `name`. Names have letters only, so `\u00xx` is the only escape.
fn spells(mut key: &[u8], name: &[u8]) -> bool {
    for &letter in name {
        let (character, rest) = match key {
            [b'\\', b'u', hex @ ..] => match hex.split_at_checked(4) {
                Some((digits, rest)) => (
                    str::from_utf8(digits)
                        .ok()
                        .and_then(|digits| u32::from_str_radix(digits, 16).ok()),
                    rest,
                ),
                None => return false,
            },
            [byte, rest @ ..] => (Some(u32::from(*byte)), rest),
            [] => return false,
        };
        if character != Some(u32::from(letter)) {
            return false;
        }
        key = rest;
    }
    key.is_empty()
}

/// The object or list that encloses a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before or after the message.
    Outside,
    Message,
    Result,
    Contents,
    ContentsItem,
    Content,
    ContentItem,
    Resource,
    Other,
}

impl Place {
    /// The place that `bracket` opens under `key`.
    const fn child(self, key: Name, bracket: u8) -> Self {
        match (self, key, bracket) {
            (Self::Outside, _, b'{') => Self::Message,
            (Self::Message, Name::Result, b'{') => Self::Result,
            (Self::Result, Name::Contents, b'[') => Self::Contents,
            (Self::Result, Name::Content, b'[') => Self::Content,
            (Self::Contents, _, b'{') => Self::ContentsItem,
            (Self::Content, _, b'{') => Self::ContentItem,
            (Self::ContentItem, Name::Resource, b'{') => Self::Resource,
            _ => Self::Other,
        }
    }

    /// The field of the blob that a string under `key` is, if it is one.
    const fn field(self, key: Name) -> Option<Field> {
        match (self, key) {
            (Self::ContentsItem, Name::Blob) => Some(Field::ContentsBlob),
            (Self::ContentItem, Name::Data) => Some(Field::ContentData),
            (Self::Resource, Name::Blob) => Some(Field::ResourceBlob),
            _ => None,
        }
    }

    const fn is_list(self) -> bool {
        matches!(self, Self::Contents | Self::Content)
    }

    /// Returns whether this is an object whose keys matter.
    const fn has_names(self) -> bool {
        matches!(
            self,
            Self::Message | Self::Result | Self::ContentsItem | Self::ContentItem | Self::Resource
        )
    }
}

/// The levels at which a place can be known: outside, and five from the message down to a resource.
const LEVELS: usize = 6;

#[derive(Clone, Copy)]
struct Level {
    place: Place,
    /// The known names among its keys, as bits.
    seen: u16,
}

struct Scanner<'a> {
    data: &'a [u8],
    at: usize,
    /// Below 0 if more brackets were closed than opened.
    depth: isize,
    depth_max: isize,
    opened: usize,
    closed: usize,
    commas: usize,
    levels: [Level; LEVELS],
    /// The key of the value that is next, once its colon was read.
    key: Name,
    after_colon: bool,
    /// The index in the list of contents.
    item: usize,
    repeats: bool,
    id: Option<Id>,
    blobs: Vec<Blob>,
}

impl<'a> Scanner<'a> {
    fn new(data: &'a [u8]) -> Self {
        let outside = Level {
            place: Place::Outside,
            seen: 0,
        };
        Self {
            data,
            at: 0,
            depth: 0,
            depth_max: 0,
            opened: 0,
            closed: 0,
            commas: 0,
            levels: [outside; LEVELS],
            key: Name::Other,
            after_colon: false,
            item: 0,
            repeats: false,
            id: None,
            blobs: Vec::new(),
        }
    }

    fn run(&mut self) {
        while let Some(&byte) = self.data.get(self.at) {
            match byte {
                b'"' => {
                    self.string();
                    continue;
                }
                b'{' | b'[' => self.open(byte),
                b'}' | b']' => self.close(),
                b',' => self.comma(),
                b':' => self.after_colon = true,
                // Outside a string a backslash is not JSON; it escapes a quote there, too.
                b'\\' if matches!(self.data.get(self.at + 1), Some(b'"' | b'\\')) => self.at += 1,
                b'-' | b'0'..=b'9' => self.number(),
                _ => {}
            }
            self.at += 1;
        }
    }

    fn finish(self) -> Frame {
        let seen = self.levels.get(1).map_or(0, |message| message.seen);
        let has = |name: Name| seen & name.bit() != 0;
        let kind = match () {
            () if has(Name::Method) && has(Name::Id) => Some(Kind::Request),
            () if has(Name::Method) => Some(Kind::Notification),
            () if has(Name::Result) => Some(Kind::Result),
            () if has(Name::Error) => Some(Kind::Error),
            () => None,
        };
        let has_blobs = kind == Some(Kind::Result) && !self.repeats;
        Frame {
            kind,
            id: self.id,
            depth: usize::try_from(self.depth_max).unwrap_or(0),
            values: self.closed.max(self.opened + self.commas),
            blobs: if has_blobs { self.blobs } else { Vec::new() },
        }
    }

    fn level(&mut self) -> Option<&mut Level> {
        usize::try_from(self.depth)
            .ok()
            .and_then(|depth| self.levels.get_mut(depth))
    }

    fn place(&mut self) -> Place {
        self.level().map_or(Place::Other, |level| level.place)
    }

    fn open(&mut self, bracket: u8) {
        let key = self.key;
        let place = self.place().child(key, bracket);
        self.opened += 1;
        self.depth += 1;
        self.depth_max = self.depth_max.max(self.depth);
        if self.depth > 0
            && let Some(level) = self.level()
        {
            *level = Level { place, seen: 0 };
        }
        if place.is_list() {
            self.item = 0;
        }
        self.next_key();
    }

    fn close(&mut self) {
        self.closed += 1;
        self.depth -= 1;
        self.depth_max = self.depth_max.max(self.depth);
        self.next_key();
    }

    fn comma(&mut self) {
        self.commas += 1;
        if self.place().is_list() {
            self.item += 1;
        }
        self.next_key();
    }

    const fn next_key(&mut self) {
        self.key = Name::Other;
        self.after_colon = false;
    }

    /// Reads a string, from its quote on.
    fn string(&mut self) {
        let start = self.at + 1;
        let Some((end, is_plain)) = self.end_of_string(start) else {
            self.unfinished(start);
            return;
        };
        self.at = end + 1;
        let place = self.place();
        if !place.has_names() {
            return;
        }
        let text = self.data.get(start..end).unwrap_or_default();
        if !self.after_colon {
            self.key = Name::of(text, is_plain);
            self.note_key();
        } else if place == Place::Message && self.key == Name::Id {
            let is_id = is_plain && text.len() <= ID_MAX_BYTES && str::from_utf8(text).is_ok();
            self.id = is_id.then_some(Id::Text(start..end));
        } else if let Some(field) = place.field(self.key)
            && is_plain
            && text.len() >= BLOB_MIN_BYTES
            && is_printable_ascii(text)
        {
            self.blobs.push(Blob {
                field,
                item: self.item,
                span: start..end,
            });
        }
    }

    fn note_key(&mut self) {
        let name = self.key;
        if name == Name::Other {
            return;
        }
        if let Some(level) = self.level() {
            let is_repeated = level.seen & name.bit() != 0;
            level.seen |= name.bit();
            self.repeats |= is_repeated;
        }
        if name == Name::Id && self.place() == Place::Message {
            self.id = None;
        }
    }

    /// The place of the closing quote, and whether nothing before it is escaped.
    fn end_of_string(&self, start: usize) -> Option<(usize, bool)> {
        /// Keys are short: a call of `memchr` costs more than these bytes.
        const NEAR: usize = 16;
        let (mut at, mut is_plain) = (start, true);
        loop {
            let near = self.data.get(at..)?;
            let step = near
                .iter()
                .take(NEAR)
                .position(|&byte| matches!(byte, b'"' | b'\\'))
                .or_else(|| Some(NEAR + memchr2(b'"', b'\\', near.get(NEAR..)?)?))?;
            at += step;
            if self.data.get(at) == Some(&b'"') {
                return Some((at, is_plain));
            }
            is_plain = false;
            at += 2;
        }
    }

    /// Reads a string without an end, which is not JSON. The bytes after its quote are counted as structure.
    fn unfinished(&mut self, start: usize) {
        self.at = self.data.len();
        for &byte in self.data.get(start..).unwrap_or_default() {
            match byte {
                b'{' | b'[' => self.open(byte),
                b'}' | b']' => self.close(),
                b',' => self.comma(),
                _ => {}
            }
        }
    }

    /// Reads a number, from its first byte on, and stays on its last.
    fn number(&mut self) {
        let rest = self.data.get(self.at..).unwrap_or_default();
        let len = rest
            .iter()
            .position(|byte| !matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'))
            .unwrap_or(rest.len());
        let is_id = self.after_colon && self.key == Name::Id && self.place() == Place::Message;
        if is_id && let Some(text) = rest.get(..len) {
            self.id = integer(text).map(Id::Integer);
        }
        self.at += len.saturating_sub(1);
    }
}

/// An integer as JSON writes it; `None` for any other number.
fn integer(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-").unwrap_or(text) {
        [b'0', _, ..] | [b'+', ..] => None,
        _ => str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// Returns whether each byte stands for itself in a JSON string, apart from quotes and backslashes.
fn is_printable_ascii(text: &[u8]) -> bool {
    // Without an early exit the compiler compares a whole register of bytes at once.
    let all = |chunk: &[u8]| {
        chunk
            .iter()
            .fold(true, |all, &byte| all & (0x20..0x80).contains(&byte))
    };
    text.chunks(4096).all(all)
}
