//! The scan of a message: any bytes against the slow versions of tests/frame_oracle.
//!
//! A blob has at least 1024 characters, which a fuzzer would not write: after an odd first byte, each 0x01 (which JSON
//! does not have) stands for so many.
#![no_main]

#[path = "../frame_oracle/mod.rs"]
mod frame_oracle;

use libfuzzer_sys::fuzz_target;
use playhead_core::frame::BLOB_MIN_BYTES;

fuzz_target!(|data: &[u8]| {
    let Some((how, data)) = data.split_first() else {
        return;
    };
    if how % 2 == 0 {
        frame_oracle::check(data);
        return;
    }
    let mut message = Vec::new();
    for byte in data {
        match byte {
            1 => message.resize(message.len() + BLOB_MIN_BYTES, b'A'),
            byte => message.push(*byte),
        }
    }
    frame_oracle::check(&message);
});
