//! base64 and writes to the ring: text against a decoder that works bit by bit, and steps of a writer and a reader
//! against the model of tests/pipe_model.
#![no_main]

#[path = "../base64_oracle/mod.rs"]
mod base64_oracle;
#[path = "../pipe_model/mod.rs"]
mod pipe_model;

use base64_oracle::oracle;
use libfuzzer_sys::fuzz_target;
use pipe_model::{CAPACITY, LENGTH, STEPS, Step, run};
use playhead_core::base64::{check, decode_split, decoded_len, find_fault};

/// Decodes `text` into two slices, as the ring does at its seam: the same bytes or the same fault as in one, and the
/// bytes of the oracle.
fn decode(text: &[u8], seam: usize) {
    let expected = oracle(text);
    assert_eq!(check(text).is_ok(), expected.is_some());
    let fault = find_fault(text);
    assert_eq!(fault.is_none(), expected.is_some());
    assert_eq!(check(text).err(), fault);
    let Ok(len) = decoded_len(text) else {
        assert!(expected.is_none());
        return;
    };
    for seam in [0, seam.min(len), len] {
        let (mut first, mut second) = (vec![0; seam], vec![0; len - seam]);
        match (decode_split(text, &mut first, &mut second), &expected) {
            (Ok(()), Some(bytes)) => assert_eq!([first, second].concat(), *bytes),
            (Err(error), None) => assert_eq!(Some(error), fault),
            (decoded, expected) => panic!("{decoded:?}, and the oracle says {expected:?}"),
        }
    }
}

fn steps(data: &[u8]) -> impl Iterator<Item = Step> + '_ {
    data.chunks_exact(4).take(STEPS).map(|code| {
        let start = u64::from(code[1]) % LENGTH;
        let len = u64::from(code[2]) % (CAPACITY + 3);
        let at = u64::from(code[3]);
        match code[0] % 16 {
            0..6 => Step::Write {
                start,
                len,
                is_text: at % 2 == 1,
            },
            6 => Step::WriteWrong {
                start,
                len: len.clamp(1, CAPACITY),
                at,
            },
            7 => Step::WriteBroken {
                start,
                len: len.clamp(1, CAPACITY),
                at: code[3].into(),
            },
            8..13 => Step::Read {
                at_most: usize::from(code[2] % 20),
                is_blocking: at % 2 == 1,
            },
            13 => Step::Seek(start),
            14 => Step::SeekBack(len.min(CAPACITY - 1)),
            _ => Step::Close,
        }
    })
}

fuzz_target!(|data: &[u8]| {
    let [how, seam, data @ ..] = data else {
        return;
    };
    if how % 2 == 0 {
        decode(data, usize::from(*seam));
    } else {
        run(
            u64::from(*how) % LENGTH,
            u64::from(*seam) % CAPACITY,
            steps(data),
        );
    }
});
