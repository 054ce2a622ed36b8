//! The byte path of playhead, without I/O, without Python and without threads of its own.
//!
//! ```text
//!  frame of a message: its structure, and where its blobs lie
//!        │ span of a blob
//!        ▼
//!  base64 text of a page, at offset o                     bytes, in order
//!        │ payload                                              ▲
//!        │   base64: strict, SIMD, error offsets                │ read (blocks) · read_nowait (no lock)
//!        ▼                                                      │
//!      ring: byte o lives at o & mask ── ranges: islands ─────▶ pipe: end, break, waiting, waking
//!        ▲
//!        └── which range next: planner (pure; time is an argument)
//!
//!  bytes of an Ogg file ──▶ ogg: pages, packets ──▶ vorbis: PCM
//!
//!  PCM of a decoder ──▶ pipe ──▶ playout: gate, pause, volume ──▶ a device's callback, or a sink's thread
//! ```

pub mod base64;
pub mod dither;
pub mod error;
pub mod frame;
pub mod gain;
pub mod ogg;
pub mod payload;
pub mod pipe;
pub mod planner;
pub mod playout;
pub mod ranges;
pub mod ring;
mod sync;
pub mod vorbis;
pub mod vorbis_setup;
