//! Pages of Ogg: any bytes, and the same bytes in pieces, give the same pages and bounded packets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use playhead_core::ogg::{PACKET_MAX_BYTES, Packets, Page, Pages};

fn pages_of(data: &[u8], size: usize) -> Vec<Page> {
    let (mut pages, mut found) = (Pages::new(0), Vec::new());
    for piece in data.chunks(size) {
        pages.push(piece);
        found.extend(std::iter::from_fn(|| pages.next_page()));
    }
    pages.finish();
    found.extend(std::iter::from_fn(|| pages.next_page()));
    found
}

fuzz_target!(|data: &[u8]| {
    let size = 1 + data.first().map_or(0, |&byte| usize::from(byte));
    let whole = pages_of(data, usize::MAX);
    assert_eq!(whole, pages_of(data, size));
    let (mut packets, mut end) = (Packets::default(), 0);
    for page in &whole {
        assert!(page.offset >= end && page.end() <= data.len() as u64);
        end = page.end();
        let joined = packets.push(page);
        assert!(joined.iter().all(|packet| packet.len() <= PACKET_MAX_BYTES));
    }
});
