//! The scan of a message against slow versions that cannot be wrong (frame_oracle/mod.rs).
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod frame_oracle;

use frame_oracle::check;
use playhead_core::frame::{BLOB_MIN_BYTES, Frame};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

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
