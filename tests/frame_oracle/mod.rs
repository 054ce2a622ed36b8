//! Slow versions of the scan of a message that cannot be wrong: a parser that builds the whole tree, and counts over a
//! copy of the bytes without strings. Tests draw messages for them, and so does a fuzzer (tests/fuzz).

use std::ops::Range;

use playhead_core::frame::{BLOB_MIN_BYTES, Blob, Field, Frame, Id, Kind, text_bytes};
use serde_json::Value;

/// A value, with what a parser usually forgets: the place of each string, and keys that are repeated.
enum Node {
    Object(Vec<(String, Node)>),
    List(Vec<Node>),
    Text { span: Range<usize>, meaning: String },
    Other(String),
}

/// Parses JSON that is known to be valid, one byte after the other.
struct Parser<'a> {
    data: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn skip_space(&mut self) -> u8 {
        while self.data[self.at].is_ascii_whitespace() {
            self.at += 1;
        }
        self.data[self.at]
    }

    fn string(&mut self) -> (Range<usize>, String) {
        let start = self.at;
        self.at += 1;
        while self.data[self.at] != b'"' {
            self.at += if self.data[self.at] == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        let meaning = serde_json::from_slice(&self.data[start..self.at]).unwrap();
        (start + 1..self.at - 1, meaning)
    }

    fn node(&mut self) -> Node {
        match self.skip_space() {
            b'{' => {
                let mut members = Vec::new();
                self.at += 1;
                while self.skip_space() != b'}' {
                    let (_, key) = self.string();
                    assert_eq!(self.skip_space(), b':');
                    self.at += 1;
                    members.push((key, self.node()));
                    self.at += usize::from(self.skip_space() == b',');
                }
                self.at += 1;
                Node::Object(members)
            }
            b'[' => {
                let mut items = Vec::new();
                self.at += 1;
                while self.skip_space() != b']' {
                    items.push(self.node());
                    self.at += usize::from(self.skip_space() == b',');
                }
                self.at += 1;
                Node::List(items)
            }
            b'"' => {
                let (span, meaning) = self.string();
                Node::Text { span, meaning }
            }
            _ => {
                let start = self.at;
                while !matches!(
                    self.data.get(self.at),
                    None | Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r')
                ) {
                    self.at += 1;
                }
                Node::Other(String::from_utf8(self.data[start..self.at].to_vec()).unwrap())
            }
        }
    }
}

const NAMES: [&str; 9] = [
    "id", "method", "result", "error", "contents", "content", "blob", "data", "resource",
];

/// The members of an object; `repeats` is set if it has a known name twice.
fn members<'a>(node: &'a Node, repeats: &mut bool) -> &'a [(String, Node)] {
    let Node::Object(members) = node else {
        return &[];
    };
    for name in NAMES {
        *repeats |= members.iter().filter(|(key, _)| key == name).count() > 1;
    }
    members
}

fn under<'a>(members: &'a [(String, Node)], name: &str) -> impl Iterator<Item = &'a Node> {
    members
        .iter()
        .filter(move |(key, _)| key == name)
        .map(|(_, node)| node)
}

fn items(node: &Node) -> &[Node] {
    match node {
        Node::List(items) => items,
        _ => &[],
    }
}

fn blobs_of(data: &[u8], message: &Node) -> Vec<Blob> {
    let mut found = Vec::new();
    let mut repeats = false;
    let mut take = |field, item, node: &Node| {
        if let Node::Text { span, meaning } = node
            && span.len() >= BLOB_MIN_BYTES
            && meaning.len() == span.len()
            && data[span.clone()]
                .iter()
                .all(|byte| (0x20..0x80).contains(byte))
        {
            let span = span.clone();
            found.push(Blob { field, item, span });
        }
    };
    for result in under(members(message, &mut repeats), "result") {
        let result = members(result, &mut repeats);
        for (index, item) in
            under(result, "contents").flat_map(|list| items(list).iter().enumerate())
        {
            under(members(item, &mut repeats), "blob")
                .for_each(|blob| take(Field::ContentsBlob, index, blob));
        }
        for (index, item) in
            under(result, "content").flat_map(|list| items(list).iter().enumerate())
        {
            let item = members(item, &mut repeats);
            under(item, "data").for_each(|data| take(Field::ContentData, index, data));
            for resource in under(item, "resource") {
                under(members(resource, &mut repeats), "blob")
                    .for_each(|blob| take(Field::ResourceBlob, index, blob));
            }
        }
    }
    found.sort_by_key(|blob| blob.span.start);
    if repeats { Vec::new() } else { found }
}

fn kind_of(message: &Node) -> Option<Kind> {
    let Node::Object(members) = message else {
        return None;
    };
    let has = |name| under(members, name).next().is_some();
    match () {
        () if has("method") && has("id") => Some(Kind::Request),
        () if has("method") => Some(Kind::Notification),
        () if has("result") => Some(Kind::Result),
        () if has("error") => Some(Kind::Error),
        () => None,
    }
}

fn id_of(data: &[u8], message: &Node) -> Option<Id> {
    let Node::Object(members) = message else {
        return None;
    };
    match under(members, "id").last()? {
        Node::Other(token) => token.parse().ok().map(Id::Integer),
        Node::Text { span, .. } => {
            let is_plain = span.len() <= 256 && !data[span.clone()].contains(&b'\\');
            is_plain.then(|| Id::Text(span.clone()))
        }
        _ => None,
    }
}

/// Depth and values: first without escaped characters, then without strings, then the brackets and commas.
fn counts_of(data: &[u8]) -> (usize, usize) {
    let mut bare = Vec::new();
    let mut rest = data;
    while let [byte, after @ ..] = rest {
        rest = match after {
            [b'"' | b'\\', after @ ..] if *byte == b'\\' => after,
            _ => {
                bare.push(*byte);
                after
            }
        };
    }
    // A quote without another one behind it opens nothing.
    let parts: Vec<&[u8]> = bare.split(|&byte| byte == b'"').collect();
    let is_even = parts.len().is_multiple_of(2);
    let (mut depth, mut depth_max, mut opened, mut closed, mut commas) = (0_i64, 0, 0, 0, 0);
    for (index, part) in parts.iter().enumerate() {
        let is_string = index % 2 == 1 && !(is_even && index + 1 == parts.len());
        for byte in part.iter().filter(|_| !is_string) {
            match byte {
                b'{' | b'[' => (opened, depth) = (opened + 1, depth + 1),
                b'}' | b']' => (closed, depth) = (closed + 1, depth - 1),
                b',' => commas += 1,
                _ => {}
            }
            depth_max = depth_max.max(depth);
        }
    }
    (
        usize::try_from(depth_max).unwrap(),
        closed.max(opened + commas),
    )
}

fn text_bytes_of(text: &str) -> usize {
    let units: Vec<u32> = text.chars().map(u32::from).collect();
    let has_escapes = text.contains("\\u");
    if text.is_ascii() && !has_escapes {
        return text.len();
    }
    let lower = text.to_lowercase();
    let has_pair = ["\\ud8", "\\ud9", "\\uda", "\\udb"].iter().any(|half| {
        lower
            .match_indices(half)
            .any(|(at, _)| text[at..].starts_with("\\u"))
    });
    let is_wide = has_pair || units.iter().any(|&unit| unit > 0xffff);
    units.len() * if is_wide { 4 } else { 2 }
}

/// Every law that holds for any bytes.
pub fn check(data: &[u8]) {
    let frame = Frame::scan(data);
    assert_eq!((frame.depth, frame.values), counts_of(data));
    for blob in &frame.blobs {
        assert!(data[blob.span.clone()].len() >= BLOB_MIN_BYTES);
    }
    if let Ok(text) = str::from_utf8(data) {
        assert_eq!(text_bytes(data), text_bytes_of(text));
        assert_eq!(frame.text_bytes(data), text_bytes_of(text));
    }
    // Of objects that repeat a key, serde keeps the last, as the other parsers here.
    let envelope = frame.envelope(data);
    let whole = serde_json::from_slice::<Value>(data);
    let small = serde_json::from_slice::<Value>(&envelope);
    assert_eq!(whole.is_ok(), small.is_ok());
    let (Ok(whole), Ok(mut small)) = (whole, small) else {
        return;
    };
    let message = Parser { data, at: 0 }.node();
    assert_eq!(frame.kind, kind_of(&message));
    assert_eq!(frame.id, id_of(data, &message));
    let expected = if frame.kind == Some(Kind::Result) {
        blobs_of(data, &message)
    } else {
        Vec::new()
    };
    assert_eq!(frame.blobs, expected);
    // Put back, the blobs make the message whole again.
    for blob in &frame.blobs {
        let result = &mut small["result"];
        let place = match blob.field {
            Field::ContentsBlob => &mut result["contents"][blob.item]["blob"],
            Field::ContentData => &mut result["content"][blob.item]["data"],
            Field::ResourceBlob => &mut result["content"][blob.item]["resource"]["blob"],
        };
        assert_eq!(*place, Value::from(""));
        *place = Value::from(str::from_utf8(&data[blob.span.clone()]).unwrap());
    }
    assert_eq!(small, whole);
}
