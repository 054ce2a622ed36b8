//! Ogg Vorbis: any bytes, whose pages are given the right checksums first, so that damage reaches the decoder.
#![no_main]

use libfuzzer_sys::fuzz_target;
use playhead_core::ogg::checksum;
use playhead_core::vorbis::Vorbis;

/// Puts the right checksum into everything that begins like a page.
fn seal(data: &mut [u8]) {
    let mut at = 0;
    while let Some(page) = data.get_mut(at..).filter(|page| page.len() > 27) {
        if !page.starts_with(b"OggS") {
            at += 1;
            continue;
        }
        let segments = usize::from(page[26]);
        let lacing = page.iter().skip(27).take(segments);
        let len = 27 + segments + lacing.map(|&len| usize::from(len)).sum::<usize>();
        if let Some(page) = page.get_mut(..len) {
            let crc = checksum(page).to_le_bytes();
            page[22..26].copy_from_slice(&crc);
        }
        at += len;
    }
}

fuzz_target!(|data: &[u8]| {
    let mut data = data.to_vec();
    seal(&mut data);
    let mut vorbis = Vorbis::default();
    for piece in data.chunks(4096).chain([&[][..]]) {
        vorbis.push(piece);
        if piece.is_empty() {
            vorbis.finish();
        }
        loop {
            match vorbis.decode(4096) {
                Ok(Some(pcm)) if !pcm.is_empty() => {}
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }
});
