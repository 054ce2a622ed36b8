//! A decoder that works bit by bit: slow, and readable beside the RFC. The fast one is held against it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648, section 4, to the letter and bit by bit; `None` for anything else.
pub fn oracle(text: &[u8]) -> Option<Vec<u8>> {
    let symbols = text
        .iter()
        .position(|&byte| byte == b'=')
        .unwrap_or(text.len());
    let padding = &text[symbols..];
    if !text.len().is_multiple_of(4)
        || padding.len() > 2
        || padding.iter().any(|&byte| byte != b'=')
    {
        return None;
    }
    let mut bits = Vec::new();
    for symbol in &text[..symbols] {
        let value = ALPHABET.iter().position(|of| of == symbol)?;
        bits.extend((0..6).rev().map(|bit| value >> bit & 1));
    }
    let bytes = bits.chunks_exact(8);
    if bytes.remainder().contains(&1) {
        return None;
    }
    Some(
        bytes
            .map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | *bit as u8))
            .collect(),
    )
}
