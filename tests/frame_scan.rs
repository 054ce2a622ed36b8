//! The scan of a message against slow versions that cannot be wrong: a parser that builds the whole tree, and
//! counts over a copy of the bytes without strings.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::ops::Range;

use playhead_core::frame::{BLOB_MIN_BYTES, Blob, Field, Frame, Id, Kind, text_bytes};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
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
fn check(data: &[u8]) {
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

/// A string token: short or as long as a blob, plain or not.
fn token() -> impl Strategy<Value = String> {
    let long = "QUJD".repeat(BLOB_MIN_BYTES / 4);
    let ends = [
        "",
        "=",
        "\\n",
        "\\\\",
        "\\\"",
        "é",
        "\u{1f600}",
        "\\ud83d\\ude00",
        "\\u4e2d",
        "{[,",
        "*",
        "\u{7f}",
    ];
    (
        0..3_usize,
        prop::sample::select(ends.to_vec()),
        any::<bool>(),
    )
        .prop_map(move |(size, end, first)| {
            let body = match size {
                0 => "",
                1 => long.get(1..).unwrap(),
                _ => &long,
            };
            if first {
                format!("\"{end}{body}\"")
            } else {
                format!("\"{body}{end}\"")
            }
        })
}

fn key() -> impl Strategy<Value = String> {
    let keys = [
        "id",
        "method",
        "result",
        "error",
        "contents",
        "content",
        "blob",
        "data",
        "resource",
        "other",
        "",
        "bl\\u006fb",
        "\\u0072esult",
        "\\u0044ata",
        "d\\u0061t\\u0061",
        "blob\\n",
        "\\u00e9",
        "bl\\/ob",
    ];
    prop::sample::select(keys.to_vec()).prop_map(|key| format!("\"{key}\""))
}

fn value() -> impl Strategy<Value = String> {
    let scalars = [
        "7",
        "-0",
        "7.0",
        "1e3",
        "123456789012345678901",
        "null",
        "true",
        "\"7\"",
        "\"a\\u0062\"",
    ];
    let leaf = prop_oneof![
        prop::sample::select(scalars.to_vec()).prop_map(String::from),
        token()
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let members = prop::collection::vec((key(), inner.clone()), 0..4).prop_map(object);
        let items = prop::collection::vec(inner, 0..4)
            .prop_map(|items| format!("[ {}]", items.join(" , ")));
        prop_oneof![members, items]
    })
}

fn object(members: Vec<(String, String)>) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(key, value)| format!("{key} :{value}"))
        .collect();
    format!("{{{}\n}}", members.join(","))
}

/// Mostly what a server sends: an answer whose lists hold blobs, with something wrong here and there.
fn answer() -> impl Strategy<Value = String> {
    let extra = || prop::collection::vec((key(), value()), 0..2);
    let item = || {
        (token(), token(), extra(), 0..4_u8).prop_map(|(blob, text, extra, which)| {
            let mut members = vec![("\"text\"".to_owned(), text)];
            match which {
                0 => members.push(("\"blob\"".to_owned(), blob)),
                1 => members.push(("\"data\"".to_owned(), blob)),
                2 => members.push((
                    "\"resource\"".to_owned(),
                    object(vec![("\"blob\"".to_owned(), blob)]),
                )),
                _ => {}
            }
            members.extend(extra);
            object(members)
        })
    };
    let list = || {
        prop::collection::vec(prop_oneof![8 => item(), 1 => value()], 0..4)
            .prop_map(|items| format!("[{}]", items.join(",")))
    };
    (list(), list(), extra(), extra(), value()).prop_map(
        |(contents, content, inside, outside, id)| {
            let mut result = vec![
                ("\"contents\"".to_owned(), contents),
                ("\"content\"".to_owned(), content),
            ];
            result.extend(inside);
            let mut message = vec![
                ("\"id\"".to_owned(), id),
                ("\"result\"".to_owned(), object(result)),
            ];
            message.extend(outside);
            object(message)
        },
    )
}

/// A message with a few bytes changed, dropped or added.
fn damaged(message: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<u8>> {
    let edit = (
        any::<prop::sample::Index>(),
        prop::sample::select(b"\"\\{}[],:u \n0\xff".to_vec()),
        0..3_u8,
    );
    (message, prop::collection::vec(edit, 1..4)).prop_map(|(message, edits)| {
        let mut data = message.into_bytes();
        for (index, byte, how) in edits {
            let at = index.index(data.len() + 1);
            match how {
                0 => data.insert(at, byte),
                1 if at < data.len() => data[at] = byte,
                _ if at < data.len() => drop(data.remove(at)),
                _ => {}
            }
        }
        data
    })
}

proptest! {
    #[test]
    fn an_answer_is_scanned_as_it_is_parsed(message in answer()) {
        check(message.as_bytes());
    }

    #[test]
    fn any_json_is_scanned_as_it_is_parsed(message in value()) {
        check(message.as_bytes());
    }

    #[test]
    fn what_is_not_quite_json_is_counted_and_never_becomes_json(data in damaged(answer())) {
        check(&data);
    }

    #[test]
    fn any_bytes_are_counted(data in prop::collection::vec(prop::sample::select(b"\"\\\\{}[],:u0 \xff\xf0d8".to_vec()), 0..200)) {
        check(&data);
    }
}

/// The same laws for many more messages, the same ones in every run.
#[test]
#[ignore = "takes a while: make test-all runs it"]
fn the_laws_hold_for_very_many_messages() {
    let config = ProptestConfig {
        cases: 300_000,
        ..ProptestConfig::default()
    };
    let seeded = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, seeded);
    let drawn = prop_oneof![answer().prop_map(String::into_bytes), damaged(answer())];
    runner
        .run(&drawn, |data| {
            check(&data);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_blob_is_taken_from_its_length_on() {
    let frame = |len: usize| {
        let blob = "A".repeat(len);
        Frame::scan(format!(r#"{{"result":{{"contents":[{{"blob":"{blob}"}}]}}}}"#).as_bytes())
    };
    assert_eq!(frame(BLOB_MIN_BYTES - 1).blobs, []);
    assert_eq!(frame(BLOB_MIN_BYTES).blobs.len(), 1);
}

#[test]
fn a_message_in_a_message_has_no_blobs() {
    let blob = "A".repeat(BLOB_MIN_BYTES);
    for message in [
        format!(r#"[{{"result":{{"contents":[{{"blob":"{blob}"}}]}}}}]"#),
        format!(r#"{{"x":{{"result":{{"contents":[{{"blob":"{blob}"}}]}}}}}}"#),
        format!(r#"{{"result":{{"contents":{{"blob":"{blob}"}}}}}}"#),
        format!(r#"{{"result":{{"contents":[[{{"blob":"{blob}"}}]]}}}}"#),
        format!(r#"{{"result":{{"content":[{{"blob":"{blob}"}}]}}}}"#),
        format!(r#"{{"result":{{"contents":[{{"data":"{blob}"}}]}}}}"#),
        format!(r#"{{"result":{{"contents":[{{"resource":{{"blob":"{blob}"}}}}]}}}}"#),
        format!(r#"{{"method":"m","result":{{"contents":[{{"blob":"{blob}"}}]}}}}"#),
        format!(r#"{{"error":{{"contents":[{{"blob":"{blob}"}}]}}}}"#),
        format!(r#"{{"result":{{"contents":[{{"blob":"A","blob":"{blob}"}}]}}}}"#),
        format!(r#"{{"result":{{"contents":[{{"blob":"{blob}","bl\u006fb":7}}]}}}}"#),
        format!(r#"{{"result":{{"contents":[{{"blob":"{blob}"}}]}},"result":{{}}}}"#),
    ] {
        assert_eq!(Frame::scan(message.as_bytes()).blobs, [], "{message}");
        check(message.as_bytes());
    }
}
