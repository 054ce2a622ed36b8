//! Payload of a page: base64 text as received, or plain bytes (PCM). It is borrowed until it is in the ring.

use std::borrow::Cow;

use crate::base64::{Base64Error, decode, decode_split, decoded_len};

/// The data of one write to the ring.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Strict base64, decoded directly into the ring.
    Text(&'a [u8]),
    /// Bytes, copied into the ring.
    Bytes(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// The decoded length in bytes.
    ///
    /// # Errors
    /// [`Base64Error`] if the text has a length that no base64 text has.
    pub fn len_bytes(self) -> Result<u64, Base64Error> {
        match self {
            Self::Text(text) => decoded_len(text),
            Self::Bytes(bytes) => Ok(bytes.len()),
        }
        .map(|len| len as u64)
    }

    /// Fills `first`, then `second`. Together they must be exactly as long as the decoded payload.
    pub(crate) fn place(self, first: &mut [u8], second: &mut [u8]) -> Result<(), Base64Error> {
        match self {
            Self::Text(text) => decode_split(text, first, second),
            Self::Bytes(bytes) => {
                if let Some((left, right)) = bytes.split_at_checked(first.len()) {
                    first.copy_from_slice(left);
                    second.copy_from_slice(right);
                }
                Ok(())
            }
        }
    }

    /// The decoded bytes in one piece, for the rare write that is compared with stored bytes.
    pub(crate) fn bytes(self) -> Result<Cow<'a, [u8]>, Base64Error> {
        match self {
            Self::Text(text) => {
                let mut bytes = vec![0; decoded_len(text)?];
                decode(text, &mut bytes)?;
                Ok(Cow::Owned(bytes))
            }
            Self::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
        }
    }
}
