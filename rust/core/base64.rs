//! Strict base64 (RFC 4648, section 4, padded) into a place that may lie on both sides of a ring's seam.
//!
//! The `base64` crate's engine does the work: SIMD if the CPU has it (7–8 GB/s measured), scalar otherwise. Input
//! that it refuses is read again, byte by byte, by [`find_fault`]. So an error never depends on the seam or on the
//! engine, and the fast path needs no bookkeeping.
//!
//! The rules, in the order in which a fault is reported (the leftmost wins):
//! * a byte outside the alphabet, or a `=` in place of a symbol: `Byte`, at that byte;
//! * one symbol in the last quad, which encodes no byte: `Length`, at the text's end;
//! * `=` missing from the last quad: `Padding`, at its place;
//! * bits set in the last symbol past the last byte: `LastSymbol`, at that symbol.

use std::sync::LazyLock;

use base64::Engine as _;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use base64::engine::GeneralPurpose as Chosen;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use base64::engine::Simd as Chosen;
use base64::engine::general_purpose::PAD;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static ENGINE: LazyLock<Chosen> = LazyLock::new(|| Chosen::standard(PAD));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static ENGINE: LazyLock<Chosen> = LazyLock::new(|| Chosen::new(&base64::alphabet::STANDARD, PAD));

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base64Kind {
    /// A byte outside the alphabet, or `=` in place of a symbol.
    Byte,
    /// The last quad has one symbol.
    Length,
    /// The last quad lacks `=`.
    Padding,
    /// The last symbol has bits set past the last byte.
    LastSymbol,
}

impl Base64Kind {
    /// The name in Python errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Byte => "byte",
            Self::Length => "length",
            Self::Padding => "padding",
            Self::LastSymbol => "last_symbol",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Byte => "expected a symbol of the standard alphabet, got something else",
            Self::Length => "the text ends after one symbol of a quad",
            Self::Padding => "the text ends without its '=' padding",
            Self::LastSymbol => "the last symbol has bits set past the last byte",
        }
    }
}

/// A fault and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not strict base64 (RFC 4648, section 4, padded): {}, at index {index}; the sender must encode the blob again",
    .kind.description()
)]
pub struct Base64Error {
    /// The kind of the fault.
    pub kind: Base64Kind,
    /// Its place, in bytes from the start of the whole text.
    pub index: usize,
}

/// The number of bytes that `text` decodes to, by its length and its trailing `=` only.
///
/// # Errors
/// The text's first fault, if its length alone shows that it cannot decode.
pub fn decoded_len(text: &[u8]) -> Result<usize, Base64Error> {
    if !text.len().is_multiple_of(4) {
        return Err(fault_of(text));
    }
    let padding = text
        .iter()
        .rev()
        .take(2)
        .take_while(|&&byte| byte == b'=')
        .count();
    Ok(text.len() / 4 * 3 - padding)
}

/// Decodes all of `text` into `first` and then `second`, without a staging copy: at most one quad, the one
/// on the seam, goes through a register. Together they are exactly [`decoded_len`] bytes.
///
/// # Errors
/// The text's first fault; what the slices hold is then undefined. Slices of another length are refused as
/// [`Base64Kind::Length`].
pub fn decode_split(text: &[u8], first: &mut [u8], second: &mut [u8]) -> Result<(), Base64Error> {
    let filled = if second.is_empty() {
        fill(text, first)
    } else {
        fill_split(text, first, second)
    };
    filled.ok_or_else(|| fault_of(text))
}

/// Decodes all of `text` into `out`, which has exactly [`decoded_len`] bytes.
///
/// # Errors
/// As [`decode_split`].
pub fn decode(text: &[u8], out: &mut [u8]) -> Result<(), Base64Error> {
    decode_split(text, out, &mut [])
}

/// Checks `text` as [`decode`] does, into a few KiB that stay in the nearest cache.
///
/// # Errors
/// The text's first fault.
pub fn check(text: &[u8]) -> Result<(), Base64Error> {
    const QUADS: usize = 2048;
    let mut out = [0; 3 * QUADS];
    let mut rest = text;
    while let Some((before, after)) = rest.split_at_checked(4 * QUADS)
        && !after.is_empty()
    {
        // With padding before the end, `before` decodes to less than `out`, and `fill` refuses it.
        fill(before, &mut out).ok_or_else(|| fault_of(text))?;
        rest = after;
    }
    let len = decoded_len(rest).map_err(|_| fault_of(text))?;
    out.get_mut(..len)
        .and_then(|out| fill(rest, out))
        .ok_or_else(|| fault_of(text))
}

/// Decodes into `out`; `None` if the text is refused, or does not fill `out` exactly.
fn fill(text: &[u8], out: &mut [u8]) -> Option<()> {
    let written = ENGINE.decode_slice(text, out).ok()?;
    (written == out.len()).then_some(())
}

fn fill_split(text: &[u8], first: &mut [u8], second: &mut [u8]) -> Option<()> {
    let whole_quads = first.len() / 3;
    let (before, rest) = text.split_at_checked(4 * whole_quads)?;
    let (before_out, seam_out) = first.split_at_mut_checked(3 * whole_quads)?;
    fill(before, before_out)?;
    if seam_out.is_empty() {
        return fill(rest, second);
    }
    let (seam, after) = rest.split_at_checked(4)?;
    let mut quad = [0; 3];
    let written = ENGINE.decode_slice(seam, &mut quad).ok()?;
    let (left, right) = quad.get(..written)?.split_at_checked(seam_out.len())?;
    let (right_out, after_out) = second.split_at_mut_checked(right.len())?;
    seam_out.copy_from_slice(left);
    right_out.copy_from_slice(right);
    // A padded quad in the middle leaves `after_out` longer than `after` decodes to, so it is refused here.
    fill(after, after_out)
}

/// The fault of a refused text. If [`find_fault`] finds none, the slices had the wrong length.
fn fault_of(text: &[u8]) -> Base64Error {
    find_fault(text).unwrap_or(Base64Error {
        kind: Base64Kind::Length,
        index: text.len(),
    })
}

/// Finds the first fault of `text`, byte by byte; `None` if it is strict base64.
#[must_use]
pub fn find_fault(text: &[u8]) -> Option<Base64Error> {
    let fault = |kind, index| Some(Base64Error { kind, index });
    for (quad_index, quad) in text.chunks(4).enumerate() {
        let start = quad_index * 4;
        let is_last = start + 4 >= text.len();
        let symbols = quad
            .iter()
            .take_while(|&&byte| sextet(byte).is_some())
            .count();
        let padding = quad
            .iter()
            .skip(symbols)
            .take_while(|&&byte| byte == b'=')
            .count();
        let Some(last) = symbols.checked_sub(1).and_then(|at| quad.get(at)) else {
            return fault(Base64Kind::Byte, start);
        };
        if symbols == 4 {
            continue;
        }
        if symbols + padding < quad.len() || (padding > 0 && (symbols < 2 || !is_last)) {
            return fault(Base64Kind::Byte, start + symbols);
        }
        if symbols == 1 {
            return fault(Base64Kind::Length, text.len());
        }
        if symbols + padding < 4 {
            return fault(Base64Kind::Padding, text.len());
        }
        let unused_bits = if symbols == 2 { 0b1111 } else { 0b11 };
        if sextet(*last).is_some_and(|bits| bits & unused_bits != 0) {
            return fault(Base64Kind::LastSymbol, start + symbols - 1);
        }
    }
    None
}

const fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}
