//! The byte path of playhead, without I/O, without Python and without threads of its own.
//!
//! ```text
//!  base64 text of a page, at offset o                     bytes, in order
//!        │ payload                                              ▲
//!        │   base64: strict, SIMD, error offsets                │ read (blocks) · read_nowait (no lock)
//!        ▼                                                      │
//!      ring: byte o lives at o & mask ── ranges: islands ─────▶ pipe: end, break, waiting, waking
//!        ▲
//!        └── which range next: planner (pure; time is an argument)
//! ```

pub mod base64;
pub mod error;
pub mod gain;
pub mod payload;
pub mod pipe;
pub mod planner;
pub mod ranges;
pub mod ring;
mod sync;
