//! Ogg pages and Vorbis: any chunking gives the same, damage is skipped or refused, and limits come first.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use playhead_core::ogg::{PACKET_MAX_BYTES, PAGE_MAX_BYTES, Packets, Page, Pages, checksum};
use playhead_core::vorbis::{Fault, Vorbis};
use proptest::prelude::*;

fn chord() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/chord.ogg")).unwrap()
}

/// Feeds `data` in pieces of the given sizes, over and over.
fn pages_of(data: &[u8], sizes: &[usize]) -> Vec<Page> {
    let (mut pages, mut found, mut rest) = (Pages::new(0), Vec::new(), data);
    for size in sizes.iter().cycle() {
        let (piece, after) = rest.split_at(rest.len().min(*size));
        rest = after;
        pages.push(piece);
        if rest.is_empty() {
            pages.finish();
        }
        found.extend(std::iter::from_fn(|| pages.next_page()));
        if rest.is_empty() {
            break;
        }
    }
    found
}

fn decode(data: &[u8], sizes: &[usize]) -> (Vec<i16>, Option<Fault>) {
    let (mut vorbis, mut pcm, mut rest) = (Vorbis::default(), Vec::new(), data);
    for size in sizes.iter().cycle() {
        loop {
            match vorbis.decode(1000) {
                Ok(None) => break,
                Ok(Some(piece)) if piece.is_empty() => return (pcm, None),
                Ok(Some(piece)) => pcm.extend(piece),
                Err(fault) => return (pcm, Some(fault)),
            }
        }
        let (piece, after) = rest.split_at(rest.len().min(*size));
        rest = after;
        vorbis.push(piece);
        if piece.is_empty() {
            vorbis.finish();
        }
    }
    unreachable!("sizes cycle")
}

/// A page with one whole packet.
fn page(serial: u32, number: u32, flags: u8, granule: i64, packet: &[u8]) -> Vec<u8> {
    let mut lacing = vec![255u8; packet.len() / 255];
    lacing.push((packet.len() % 255) as u8);
    let mut page = [b"OggS\0".as_slice(), &[flags], &granule.to_le_bytes()].concat();
    page.extend(serial.to_le_bytes());
    page.extend(number.to_le_bytes());
    page.extend([0; 4]);
    page.push(lacing.len() as u8);
    page.extend(lacing);
    page.extend(packet);
    seal(&mut page);
    page
}

fn seal(page: &mut [u8]) {
    let crc = checksum(page).to_le_bytes();
    page[22..26].copy_from_slice(&crc);
}

fn headers(data: &[u8]) -> [Vec<u8>; 3] {
    let mut packets = Packets::default();
    let pages = pages_of(data, &[usize::MAX]);
    let all: Vec<_> = pages.iter().flat_map(|page| packets.push(page)).collect();
    all[..3].to_vec().try_into().unwrap()
}

#[test]
fn pages_and_packets_are_those_of_the_file() {
    let data = chord();
    let pages = pages_of(&data, &[usize::MAX]);
    assert_eq!(pages.len(), 6);
    assert_eq!(pages[5].end(), data.len() as u64);
    assert_eq!(pages[5].granule, Some(144_000));
    assert!(pages[0].is_first && pages[5].is_last);
    assert!(headers(&data)[2].starts_with(b"\x05vorbis"));
}

#[test]
fn any_pieces_give_the_same_pages_and_the_same_samples() {
    let data = [b"OggS noise".as_slice(), &chord(), b"OggS\0 trailing"].concat();
    let (pages, pcm) = (pages_of(&data, &[usize::MAX]), decode(&data, &[usize::MAX]));
    assert_eq!((pages.len(), pcm.0.len(), &pcm.1), (6, 288_000, &None));
    for sizes in [&[1][..], &[27], &[4096], &[1, 70_000, 3]] {
        assert!(pages_of(&data, sizes) == pages);
        assert!(decode(&data, sizes) == pcm);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn random_pieces_of_damaged_bytes_give_the_same_pages(
        sizes in prop::collection::vec(1usize..9000, 1..20),
        damage in prop::collection::vec((0usize..46_000, any::<u8>()), 0..20),
    ) {
        let mut data = chord();
        for (at, byte) in damage {
            data[at] = byte;
        }
        prop_assert!(pages_of(&data, &sizes) == pages_of(&data, &[usize::MAX]));
    }
}

#[test]
fn a_flipped_bit_costs_its_page_and_no_other() {
    let data = chord();
    let pages = pages_of(&data, &[usize::MAX]);
    for at in (0..data.len()).step_by(97) {
        let mut damaged = data.clone();
        damaged[at] ^= 0x10;
        let left = pages_of(&damaged, &[usize::MAX]);
        assert_eq!(left.len(), pages.len() - 1);
        assert!(left.iter().all(|page| pages.contains(page)));
    }
}

#[test]
fn false_beginnings_of_pages_cost_little_and_hide_one_page_at_most() {
    // Each of these claims 64 KiB, which would be summed up for every 32 bytes.
    let fake = [b"OggS\0".as_slice(), &[255; 27]].concat();
    let data = [fake.repeat(1 << 16), chord()].concat();
    assert!(pages_of(&data, &[1 << 16]).len() >= 5);
}

#[test]
fn a_packet_without_its_beginning_is_dropped_and_a_long_one_is_cut() {
    let page = |number: u32, flags: u8, bytes: usize, last: u8| {
        let mut raw = [b"OggS\0".as_slice(), &[flags], &[0; 12]].concat();
        raw.extend(number.to_le_bytes());
        raw.extend([0, 0, 0, 0, (bytes / 255 + 1).min(255) as u8]);
        raw.extend(vec![255; 254]);
        raw.push(last);
        raw.extend(vec![0; bytes]);
        seal(&mut raw);
        pages_of(&raw, &[PAGE_MAX_BYTES]).remove(0)
    };
    let middle = |number| page(number, 1, 255 * 255, 255);
    let end = |number| page(number, 1, 254 * 255 + 7, 7);
    let mut packets = Packets::default();
    assert_eq!(
        packets.push(&end(5)),
        Vec::<Vec<u8>>::new(),
        "its beginning is missing"
    );
    assert_eq!(
        packets.push(&page(6, 0, 255 * 255, 255)),
        Vec::<Vec<u8>>::new()
    );
    assert_eq!(packets.push(&end(7))[0].len(), 509 * 255 + 7);
    packets.push(&page(8, 0, 255 * 255, 255));
    assert_eq!(
        packets.push(&end(10)),
        Vec::<Vec<u8>>::new(),
        "its middle is missing"
    );
    packets.push(&page(11, 0, 255 * 255, 255));
    for number in 12..40 {
        packets.push(&middle(number));
    }
    assert_eq!(packets.push(&end(40))[0].len(), PACKET_MAX_BYTES);
}

#[test]
fn a_chain_continues_the_audio_if_its_format_does() {
    let data = chord();
    let (once, _) = decode(&data, &[4096]);
    let (pcm, fault) = decode(&data.repeat(3), &[4096]);
    assert!((pcm, fault) == (once.repeat(3), None));
    let [mut ident, comments, setup] = headers(&data);
    ident[12..16].copy_from_slice(&44_100u32.to_le_bytes());
    let other = [
        page(9, 0, 2, 0, &ident),
        page(9, 1, 0, 0, &comments),
        page(9, 2, 0, 0, &setup),
    ]
    .concat();
    let (pcm, fault) = decode(&[data.clone(), other].concat(), &[4096]);
    assert!(pcm == once);
    assert_eq!(
        fault,
        Some(Fault::Format {
            before: (48_000, 2),
            after: (44_100, 2)
        })
    );
    let silent = [data.clone(), data[..3400].repeat(400)].concat();
    assert!(matches!(decode(&silent, &[4096]).1, Some(Fault::Links(_))));
}

#[test]
fn a_decoder_continues_at_any_page_with_equal_samples() {
    let data = chord();
    let (pcm, _) = decode(&data, &[usize::MAX]);
    let mut vorbis = Vorbis::default();
    vorbis.push(&data);
    assert_eq!(vorbis.decode(1), Ok(Some(pcm[..2].to_vec())));
    for page in &pages_of(&data, &[usize::MAX])[2..5] {
        vorbis.restart(page.offset).unwrap();
        vorbis.push(&data[page.offset as usize..]);
        vorbis.finish();
        let mut got = Vec::new();
        while let Some(piece) = vorbis
            .decode(4096)
            .unwrap()
            .filter(|piece| !piece.is_empty())
        {
            got.extend(piece);
        }
        let from = usize::try_from(vorbis.start().unwrap()).unwrap() * 2;
        assert!(got == pcm[from..]);
        assert!(page.offset == 3400 || from > 0);
    }
}

/// A setup header whose codebook states so many entries of so many dimensions, in a dozen bytes.
fn setup_with_codebooks(count: usize, entries: u32, dimensions: u16) -> Vec<u8> {
    let mut setup = b"\x05vorbis".to_vec();
    setup.push((count - 1) as u8);
    for _ in 0..count {
        setup.extend(b"BCV");
        setup.extend(dimensions.to_le_bytes());
        setup.extend(&entries.to_le_bytes()[..3]);
        setup.extend([0; 20]);
    }
    setup
}

#[test]
fn headers_beyond_a_limit_are_refused_before_anything_is_allocated() {
    let [ident, comments, setup] = headers(&chord());
    let with = |at: usize, bytes: &[u8]| {
        let mut ident = ident.clone();
        ident[at..at + bytes.len()].copy_from_slice(bytes);
        ident
    };
    let cases = [
        (with(11, &[9]), setup.clone(), "channels"),
        (with(11, &[0]), setup.clone(), "channels"),
        (with(12, &u32::MAX.to_le_bytes()), setup.clone(), "a rate"),
        (
            ident.clone(),
            setup_with_codebooks(1, (1 << 17) + 1, 1),
            "entries",
        ),
        (
            ident.clone(),
            setup_with_codebooks(1, 1 << 17, 32),
            "values",
        ),
        (with(28, &[0xff]), setup.clone(), "setup header"),
        (ident.clone(), setup[..200].to_vec(), "setup header"),
        (
            ident.clone(),
            vec![5; PACKET_MAX_BYTES / 20],
            "setup header",
        ),
    ];
    for (ident, setup, word) in cases {
        let data = [
            page(1, 0, 2, 0, &ident),
            page(1, 1, 0, 0, &comments),
            page(1, 2, 0, 0, &setup),
        ]
        .concat();
        let (pcm, fault) = decode(&data, &[100]);
        assert_eq!(pcm, []);
        assert!(fault.unwrap().to_string().contains(word), "{word}");
    }
}
