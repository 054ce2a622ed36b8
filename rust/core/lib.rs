//! The byte path of playhead, without I/O, without Python and without threads of its own.
//!
//! ```text
//! base64 text of a page ──base64──▶ ring (byte o lives at o & mask) ──pipe──▶ one blocking reader
//!                                     ▲ which range next: planner (pure; time is an argument)
//! ```

pub mod planner;
pub mod ranges;
