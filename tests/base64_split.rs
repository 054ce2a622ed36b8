//! base64 against a slow decoder that cannot be wrong, across every seam, and its errors against the crate's.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test is a panic"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
mod base64_oracle;

use base64_oracle::oracle;
use playhead_core::base64::{
    Base64Error, Base64Kind, check, decode_split, decoded_len, find_fault,
};
use proptest::prelude::*;

/// Decodes as the pipe does: the text into two slices of exactly the right length, `seam` bytes in the first.
fn split(text: &[u8], seam: usize) -> Result<Vec<u8>, Base64Error> {
    let mut out = vec![0; decoded_len(text)?];
    let seam = seam.min(out.len());
    let (first, second) = out.split_at_mut(seam);
    decode_split(text, first, second)?;
    Ok(out)
}

/// Mostly base64: valid text with a few bytes changed, dropped or added, which reaches the rare faults.
fn nearly_base64() -> impl Strategy<Value = Vec<u8>> {
    let edit = (
        any::<prop::sample::Index>(),
        prop::sample::select(b"A=z/*\n\xc3".to_vec()),
        0..3_u8,
    );
    (
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(edit, 0..3),
    )
        .prop_map(|(bytes, edits)| {
            let mut text = STANDARD.encode(bytes).into_bytes();
            for (place, byte, how) in edits {
                let at = place.index(text.len() + 1);
                match how {
                    0 => text.insert(at, byte),
                    1 if at < text.len() => text[at] = byte,
                    _ if at < text.len() => drop(text.remove(at)),
                    _ => {}
                }
            }
            text
        })
}

proptest! {
    #[test]
    fn text_decodes_as_the_rfc_says_wherever_the_seam_falls(text in nearly_base64(), seam in 0..200_usize) {
        prop_assert_eq!(split(&text, seam).ok(), oracle(&text));
    }

    #[test]
    fn a_fault_does_not_depend_on_the_seam(text in nearly_base64(), seam in 0..200_usize) {
        prop_assert_eq!(split(&text, seam).err(), find_fault(&text));
        prop_assert_eq!(find_fault(&text).is_none(), oracle(&text).is_some());
    }

    #[test]
    fn a_fault_has_the_kind_and_the_index_that_the_base64_crate_gives(text in nearly_base64()) {
        let crates = STANDARD.decode(&text).err().map(|error| match error {
            base64::DecodeError::InvalidByte(index, _) => (Base64Kind::Byte, Some(index)),
            base64::DecodeError::InvalidLength(len) => (Base64Kind::Length, Some(len)),
            base64::DecodeError::InvalidLastSymbol { .. } => (Base64Kind::LastSymbol, None),
            _ => (Base64Kind::Padding, None),
        });
        let ours = find_fault(&text).map(|fault| (fault.kind, fault.index));
        match (ours, crates) {
            (Some((kind, _)), Some((crates_kind, None))) => prop_assert_eq!(kind, crates_kind),
            // The crate looks at a lone last byte before all others; ours is the leftmost fault.
            (Some((Base64Kind::Byte, index)), Some((Base64Kind::Byte, Some(last))))
                if last + 1 == text.len() && text.len() % 4 == 1 => prop_assert!(index <= last),
            (ours, crates) => prop_assert_eq!(ours, crates.map(|(kind, index)| (kind, index.unwrap_or_default()))),
        }
    }
}

#[test]
fn every_seam_of_a_text_longer_than_any_vector_register_gives_the_same_bytes() {
    for len in 250..=260_usize {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + 3) as u8).collect();
        let text = STANDARD.encode(&bytes);
        for seam in 0..=len {
            assert_eq!(
                split(text.as_bytes(), seam).unwrap(),
                bytes,
                "seam {seam} of {len}"
            );
        }
    }
}

#[test]
fn every_wrong_byte_is_named_by_its_place() {
    let text = STANDARD.encode([0x5a; 300]).into_bytes();
    for at in 0..text.len() {
        let mut broken = text.clone();
        broken[at] = b'*';
        let fault = Base64Error {
            kind: Base64Kind::Byte,
            index: at,
        };
        for seam in [0, 1, 149, 150, 151, 299, 300] {
            assert_eq!(split(&broken, seam), Err(fault));
        }
    }
}

#[test]
fn each_kind_of_fault_is_told_apart() {
    let cases: [(&str, Base64Kind, usize); 12] = [
        ("A", Base64Kind::Length, 1),
        ("AAAAA", Base64Kind::Length, 5),
        ("AA", Base64Kind::Padding, 2),
        ("AAA", Base64Kind::Padding, 3),
        ("AA=", Base64Kind::Padding, 3),
        ("A===", Base64Kind::Byte, 1),
        ("====", Base64Kind::Byte, 0),
        ("AA=A", Base64Kind::Byte, 2),
        ("AA==AAAA", Base64Kind::Byte, 2),
        ("AAAA=", Base64Kind::Byte, 4),
        ("AB==", Base64Kind::LastSymbol, 1),
        ("AAB=", Base64Kind::LastSymbol, 2),
    ];
    for (text, kind, index) in cases {
        assert_eq!(
            find_fault(text.as_bytes()),
            Some(Base64Error { kind, index }),
            "{text}"
        );
        assert_eq!(
            split(text.as_bytes(), 1),
            Err(Base64Error { kind, index }),
            "{text}"
        );
    }
}

#[test]
fn slices_of_another_length_are_refused() {
    let mut out = [0; 8];
    let fault = Err(Base64Error {
        kind: Base64Kind::Length,
        index: 8,
    });
    for (first, second) in [(0, 0), (5, 0), (7, 0), (2, 3), (4, 4), (3, 4)] {
        let (left, right) = out.split_at_mut(first);
        assert_eq!(
            decode_split(b"AAAAAAAA", left, &mut right[..second]),
            fault,
            "{first} + {second}"
        );
    }
    let (left, right) = out.split_at_mut(4);
    assert_eq!(decode_split(b"AAAAAAAA", left, &mut right[..2]), Ok(()));
}

proptest! {
    #[test]
    fn a_check_is_a_decode_that_keeps_nothing(text in nearly_base64()) {
        prop_assert_eq!(check(&text), split(&text, usize::MAX).map(drop));
    }
}

#[test]
fn a_check_of_a_long_text_finds_the_fault_wherever_it_is() {
    let good = b"QUJD".repeat(10_000);
    assert_eq!(check(&good), Ok(()));
    for at in [0, 8190, 8191, 8192, 16_383, 16_384, 32_767, 39_999] {
        for byte in *b"=*" {
            let mut text = good.clone();
            text[at] = byte;
            assert_eq!(
                check(&text),
                split(&text, usize::MAX).map(drop),
                "{at} {byte}"
            );
        }
    }
    for len in [8191, 8192, 8193, 16_384, 39_999] {
        assert_eq!(
            check(&good[..len]),
            split(&good[..len], usize::MAX).map(drop),
            "{len}"
        );
    }
}
