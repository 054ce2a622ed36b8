//! Ogg Vorbis: bytes in, interleaved 16-bit PCM out. The packets are decoded by the crate `symphonia-codec-vorbis`;
//! the pages, the limits and the trims are here.
//!
//! Theory of operation. The pages of one logical stream give three header packets, then audio. A packet overlaps with
//! the one before it, so the first one gives no audio, and a decoder that starts anywhere converges with the second.
//! Times are stated by pages only: each states the time of its end. So the time of the first frame is known once its
//! page was decoded, and until then the audio of that page is held back.
//!
//! The rules:
//! * "Not yet" is a value. Any chunking of the bytes gives the same samples.
//! * The time of the last page of a stream cuts its last packet (RFC 3533 leaves it to the codec; Vorbis I, section
//!   A.2). If the time of the first page is less than the length of its audio, the beginning is cut, as in libvorbis.
//! * A stream that follows another one (a chain, as in radio and concatenated files) continues the audio if it has the
//!   same rate and channels.
//! * A damaged page is skipped, as by every Ogg decoder. A packet that cannot be decoded is an error, and so is a
//!   panic of the crate, which ends its decoder.
//! * Memory and time: headers are refused before anything is allocated for them (see [`vorbis_setup`]), so a
//!   decoder holds below 64 MiB; the streams of a chain must have audio (see [`LINKS_PER_SECOND`]).

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use symphonia_codec_vorbis::VorbisDecoder;
use symphonia_core::audio::{Audio, AudioBuffer, GenericAudioBufferRef};
use symphonia_core::codecs::audio::well_known::CODEC_ID_VORBIS;
use symphonia_core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia_core::packet::PacketRef;
use symphonia_core::units::{Duration, Timestamp};

use crate::dither::{SCALE, round_to_pcm16};
use crate::ogg::{PACKET_MAX_BYTES, Packets, Page, Pages};
use crate::vorbis_setup;

/// Channels that Vorbis gives an order (Vorbis I, section 4.3.9).
pub const CHANNELS_MAX: u8 = 8;
/// The highest rate of all formats.
pub const RATE_MAX_HZ: u32 = 384_000;
/// Streams of a chain for each second of audio at most, after the first [`LINKS_FREE`].
pub const LINKS_PER_SECOND: u32 = 20;
/// Streams of a chain that need no audio.
pub const LINKS_FREE: u64 = 16;

const IDENT: &[u8] = b"\x01vorbis";
const COMMENTS: &[u8] = b"\x03vorbis";
const SETUP: &[u8] = b"\x05vorbis";
const IDENT_BYTES: usize = 30;

/// The reason why a stream is not decoded, or not any further: its bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A header is damaged.
    #[error("expected Ogg Vorbis, got a damaged {0} header")]
    Header(&'static str),
    /// A header asks for more than is decoded.
    #[error(
        "expected Vorbis with {what} of 1 to {most}, got {got}: the header is damaged or hostile"
    )]
    Limit {
        /// The field.
        what: &'static str,
        /// The value.
        got: u64,
        /// The limit.
        most: u64,
    },
    /// A packet of audio is damaged.
    #[error("the Ogg Vorbis decoder failed at the page at byte {offset}: the bytes are damaged")]
    Packet {
        /// The offset of its page in the stream.
        offset: u64,
    },
    /// The next stream of a chain has another rate or other channels.
    #[error(
        "expected the next stream of the Ogg file to have {} Hz and {} channels as before, got {} Hz and {}; play the \
         parts one by one",
        before.0, before.1, after.0, after.1
    )]
    Format {
        /// Rate and channels so far.
        before: (u32, u8),
        /// Rate and channels of the next stream.
        after: (u32, u8),
    },
    /// A chain of streams with next to no audio.
    #[error(
        "expected an Ogg file of streams with audio, got {0} streams with next to none: it is damaged"
    )]
    Links(u32),
}

/// The rate and channels of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Frames per second.
    pub rate_hz: u32,
    /// Channels, in the order of WAV and FFmpeg.
    pub channels: u8,
    /// The encoder's announced rate; 0 without one.
    pub nominal_bytes_per_second: u32,
}

/// The part of the logical stream that is expected next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The beginning of one with Vorbis.
    #[default]
    Begin,
    Comments,
    Setup,
    Audio,
}

/// The time of the next frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Timing {
    /// Unknown until the first page of the logical stream has ended. Its audio is held back.
    #[default]
    Start,
    /// Unknown until the page at which decoding restarted has ended. Its audio is held back.
    Held,
    At(i64),
}

/// A packet of audio; the last one of its page has the page's time.
struct Packet {
    data: Vec<u8>,
    page_offset: u64,
    is_last: bool,
    granule: Option<i64>,
    /// True for the last packet of its logical stream.
    ends: bool,
}

/// The decoder of a file or live stream.
#[derive(Default)]
pub struct Vorbis {
    pages: Pages,
    packets: Packets,
    phase: Phase,
    serial: u32,
    /// The packets of the headers: identification and setup.
    headers: [Vec<u8>; 2],
    format: Option<Format>,
    decoder: Option<VorbisDecoder>,
    /// The offset of the first stream's audio, its serial number and headers: to seek in it.
    first: Option<(u64, u32, [Vec<u8>; 2])>,
    links: u32,
    /// True after the first stream of a chain.
    is_later_link: bool,
    queue: VecDeque<Packet>,
    timing: Timing,
    start: Option<i64>,
    pending: Vec<i16>,
    pcm: Vec<i16>,
    frames: u64,
    packet_bytes: u64,
    lost_frames: u64,
    page_bytes: usize,
    is_over: bool,
    fault: Option<Fault>,
}

impl Vorbis {
    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pages.push(bytes);
    }

    /// Ends the stream: no more bytes follow.
    pub fn finish(&mut self) {
        self.is_over = true;
        self.pages.finish();
    }

    /// The format; `None` before the headers were read.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// The offset of the first stream's audio, and its serial number; `None` before its headers were read.
    #[must_use]
    pub fn audio(&self) -> Option<(u64, u32)> {
        self.first.as_ref().map(|first| (first.0, first.1))
    }

    /// The time, as pages state it, of the first frame since the beginning or the last `restart`; `None` before it.
    #[must_use]
    pub fn start(&self) -> Option<i64> {
        self.start
    }

    /// The packets' bytes and the frames that were decoded since the beginning or the last `restart`.
    #[must_use]
    pub fn decoded(&self) -> (u64, u64) {
        (self.packet_bytes, self.frames)
    }

    /// The frames that the pages' times count since the beginning or the last `restart`, and that were not decoded:
    /// their pages are damaged or missing.
    #[must_use]
    pub fn lost_frames(&self) -> u64 {
        self.lost_frames
    }

    /// Returns whether the last page of the newest logical stream was read.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Begin
    }

    /// The size of the newest page.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Decodes up to `frames`, and returns their interleaved samples: none at the end, `None` if more bytes are needed
    /// first.
    ///
    /// # Errors
    /// A [`Fault`] of the bytes, after the audio before it. It stays until `restart`.
    pub fn decode(&mut self, frames: usize) -> Result<Option<Vec<i16>>, Fault> {
        let frames = frames.max(1);
        let mut is_done = false;
        while self.pcm.len() / self.channels() < frames && self.fault.is_none() {
            let step = if let Some(packet) = self.queue.pop_front() {
                self.decode_packet(packet)
            } else if let Some(page) = self.pages.next_page() {
                self.take_page(&page)
            } else {
                is_done = self.is_over;
                break;
            };
            self.fault = step.err();
        }
        if is_done || self.fault.is_some() {
            self.pcm.append(&mut self.pending);
        }
        let wanted = frames.saturating_mul(self.channels());
        let pcm: Vec<_> = self.pcm.drain(..wanted.min(self.pcm.len())).collect();
        match &self.fault {
            Some(fault) if pcm.is_empty() => Err(fault.clone()),
            _ => Ok((is_done || !pcm.is_empty()).then_some(pcm)),
        }
    }

    /// Continues at a page of the first stream's audio, at `offset`; nothing before it is needed.
    ///
    /// # Errors
    /// [`Fault::Header`] before the headers were read.
    pub fn restart(&mut self, offset: u64) -> Result<(), Fault> {
        let (audio_offset, serial, headers) = self.first.clone().ok_or(Fault::Header("setup"))?;
        let decoder = match self.decoder.take() {
            Some(mut decoder) if !self.is_later_link => {
                decoder.reset();
                decoder
            }
            _ => new_decoder(&headers)?,
        };
        *self = Self {
            pages: Pages::new(offset),
            phase: Phase::Audio,
            serial,
            format: self.format,
            decoder: Some(decoder),
            first: self.first.take(),
            links: 1,
            timing: if offset == audio_offset {
                Timing::Start
            } else {
                Timing::Held
            },
            page_bytes: self.page_bytes,
            ..Self::default()
        };
        Ok(())
    }

    fn channels(&self) -> usize {
        self.format.map_or(1, |format| usize::from(format.channels))
    }

    fn take_page(&mut self, page: &Page) -> Result<(), Fault> {
        self.page_bytes = page.bytes();
        let begins = page.is_first && page.parts().any(|(part, _)| part.starts_with(IDENT));
        if begins && matches!(self.phase, Phase::Begin | Phase::Audio) {
            self.begin_link(page.serial)?;
        } else if page.serial != self.serial || self.phase == Phase::Begin {
            return Ok(());
        }
        let packets = self.packets.push(page);
        let last = packets.len().wrapping_sub(1);
        for (index, data) in packets.into_iter().enumerate() {
            let is_last = index == last;
            match self.phase {
                Phase::Begin => {
                    self.headers[0] = data;
                    self.phase = Phase::Comments;
                }
                Phase::Comments if data.starts_with(COMMENTS) => self.phase = Phase::Setup,
                Phase::Comments => return Err(Fault::Header("comment")),
                Phase::Setup => {
                    self.headers[1] = data;
                    self.open(page.end())?;
                }
                Phase::Audio => self.queue.push_back(Packet {
                    data,
                    page_offset: page.offset,
                    is_last,
                    granule: page.granule.filter(|_| is_last),
                    ends: page.is_last && is_last,
                }),
            }
        }
        if page.is_last {
            match self.phase {
                Phase::Audio => self.phase = Phase::Begin,
                _ => return Err(Fault::Header("setup")),
            }
        }
        Ok(())
    }

    fn begin_link(&mut self, serial: u32) -> Result<(), Fault> {
        self.pcm.append(&mut self.pending);
        self.links += 1;
        let rate_hz = self.format.map_or(1, |format| format.rate_hz);
        let allowed = LINKS_FREE + self.frames / u64::from(rate_hz / LINKS_PER_SECOND).max(1);
        if u64::from(self.links) > allowed {
            return Err(Fault::Links(self.links));
        }
        self.phase = Phase::Begin;
        self.serial = serial;
        self.packets = Packets::default();
        self.timing = Timing::Start;
        Ok(())
    }

    /// Opens the decoder for the headers of a logical stream, whose audio begins at `offset`.
    fn open(&mut self, offset: u64) -> Result<(), Fault> {
        let format = read_format(&self.headers[0])?;
        if let Some(before) = self.format
            && (before.rate_hz, before.channels) != (format.rate_hz, format.channels)
        {
            return Err(Fault::Format {
                before: (before.rate_hz, before.channels),
                after: (format.rate_hz, format.channels),
            });
        }
        self.decoder = None; // frees its memory before the next decoder allocates
        self.decoder = Some(new_decoder(&self.headers)?);
        self.format.get_or_insert(format);
        self.is_later_link = self.first.is_some();
        let headers = &mut self.headers;
        self.first
            .get_or_insert_with(|| (offset, self.serial, std::mem::take(headers)));
        self.phase = Phase::Audio;
        Ok(())
    }

    fn decode_packet(&mut self, packet: Packet) -> Result<(), Fault> {
        let channels = self.channels();
        let out = match self.timing {
            Timing::At(_) => &mut self.pcm,
            Timing::Start | Timing::Held => &mut self.pending,
        };
        let before = out.len();
        // Empty packets and further headers are not audio (Vorbis I, sections 4.3 and A.2).
        if packet.data.first().is_some_and(|first| first & 1 == 0) {
            let decoder = self.decoder.as_mut().ok_or(Fault::Header("setup"))?;
            let decoded = guarded(|| {
                let data = PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, &packet.data);
                match decoder.decode_ref(&data) {
                    Ok(GenericAudioBufferRef::F32(audio)) => {
                        interleave(audio, out);
                        true
                    }
                    _ => false,
                }
            });
            if decoded != Some(true) {
                self.decoder = None;
                return Err(Fault::Packet {
                    offset: packet.page_offset,
                });
            }
        }
        let frames = (out.len() - before) / channels;
        self.frames += frames as u64;
        self.packet_bytes += packet.data.len() as u64;
        match (self.timing, packet.granule) {
            (Timing::Start | Timing::Held, granule) => {
                if packet.is_last {
                    self.settle(granule, packet.ends);
                }
            }
            (Timing::At(time), None) => {
                self.timing = Timing::At(time.saturating_add(frames as i64));
            }
            (Timing::At(time), Some(granule)) => {
                let excess = time.saturating_add(frames as i64).saturating_sub(granule);
                if packet.ends && excess > 0 {
                    let cut = frames.min(usize::try_from(excess).unwrap_or(frames));
                    self.pcm.truncate(self.pcm.len() - cut * channels);
                }
                self.lost_frames += u64::try_from(-excess).unwrap_or(0);
                self.timing = Timing::At(granule);
            }
        }
        Ok(())
    }

    /// Releases the pending audio of a page that ended, at the time `granule`.
    fn settle(&mut self, granule: Option<i64>, ends: bool) {
        let channels = self.channels();
        let count = self.pending.len() / channels;
        let end = granule.unwrap_or(count as i64);
        let mut start = end - count as i64;
        if self.timing == Timing::Start && (ends || start < 0) {
            let excess = count.min(usize::try_from(-start).unwrap_or(0)) * channels;
            if ends {
                self.pending.truncate(self.pending.len() - excess);
            } else {
                self.pending.drain(..excess);
            }
            start = 0;
        }
        if !self.is_later_link {
            self.start.get_or_insert(start);
        }
        self.pcm.append(&mut self.pending);
        self.timing = Timing::At(end);
    }
}

/// Reads the identification header (Vorbis I, section 4.2.2), within the limits.
fn read_format(ident: &[u8]) -> Result<Format, Fault> {
    let number = |at: usize| {
        let bytes = ident.get(at..).and_then(<[u8]>::first_chunk).copied();
        bytes
            .map(u32::from_le_bytes)
            .ok_or(Fault::Header("identification"))
    };
    let (channels, rate_hz) = (ident.get(11).copied().unwrap_or(0), number(12)?);
    within("channels", channels.into(), 1..=CHANNELS_MAX.into())?;
    within("a rate in Hz", rate_hz.into(), 1..=RATE_MAX_HZ.into())?;
    let nominal_bits = i32::try_from(number(20)?).unwrap_or(0);
    Ok(Format {
        rate_hz,
        channels,
        nominal_bytes_per_second: nominal_bits.unsigned_abs() / 8,
    })
}

pub(crate) fn within(
    what: &'static str,
    got: u64,
    limits: RangeInclusive<u64>,
) -> Result<(), Fault> {
    if !limits.contains(&got) {
        let most = *limits.end();
        return Err(Fault::Limit { what, got, most });
    }
    Ok(())
}

/// Opens the crate's decoder, if the headers are within the limits.
fn new_decoder([ident, setup]: &[Vec<u8>; 2]) -> Result<VorbisDecoder, Fault> {
    if !setup.starts_with(SETUP) || setup.len() >= PACKET_MAX_BYTES {
        return Err(Fault::Header("setup"));
    }
    let setup = vorbis_setup::prepare(setup, read_format(ident)?.channels)?;
    let mut parameters = AudioCodecParameters::new();
    parameters.for_codec(CODEC_ID_VORBIS);
    let ident = ident.get(..IDENT_BYTES).unwrap_or_default();
    parameters.with_extra_data([ident, &setup].concat().into());
    let options = AudioDecoderOptions::default();
    guarded(|| VorbisDecoder::try_new(&parameters, &options).ok())
        .flatten()
        .ok_or(Fault::Header("setup"))
}

/// Appends the frames of `audio`, rounded to 16 bits.
fn interleave(audio: &AudioBuffer<f32>, out: &mut Vec<i16>) {
    let (channels, start) = (audio.num_planes(), out.len());
    out.resize(start + audio.frames() * channels, 0);
    let out = out.get_mut(start..).unwrap_or_default();
    for (channel, plane) in audio.iter_planes().enumerate() {
        let places = out.iter_mut().skip(channel).step_by(channels);
        for (place, sample) in places.zip(plane) {
            *place = round_to_pcm16(sample * SCALE);
        }
    }
}

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; `None` if it panics, which is not printed.
fn guarded<R>(work: impl FnOnce() -> R) -> Option<R> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_GUARDED.get() {
                before(info);
            }
        }));
    });
    IS_GUARDED.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(false);
    result.ok()
}
