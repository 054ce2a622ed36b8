"""Locators: they find the place in a stream from which to decode a time.

A locator sees every byte that its decoder reads, so it knows the headers. It reads further bytes itself when
it searches. It returns a `Landing`. A fresh decoder reads the landing's prefix, and then the stream from its
offset; it delivers PCM from the landing's frame on, which is at or before the wanted one. The frames between
are decoded and dropped.

A format whose pages or frames state their time (FLAC, Ogg) is searched by interpolation (`seek_search`). MPEG
audio and ADTS state none, so their frames are counted while they are read (`frame_index`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource
    from playhead.playback.formats import SampleFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """A place to start a decoder; see this file's header."""

    offset: int
    frame: int
    """The PCM frame that the decoder delivers first; negative if it delivers frames before the beginning."""
    prefix: bytes = b""
    is_exact: bool = True
    """True if `frame` is known, False if it is estimated."""


class Locator(Protocol):
    """Finds landings in the stream of one decoder. Only the decoder's thread uses it."""

    @property
    def sample(self) -> SampleFormat | None:
        """The samples to decode to: floats for more than 16 bits. None until the headers are read."""
        ...

    @property
    def end_frame(self) -> int | None:
        """The number of frames of the whole stream, if its headers state it."""
        ...

    @property
    def bytes_per_second(self) -> float | None:
        """The rate of the stream, if its headers state it."""
        ...

    @property
    def bytes_per_frame(self) -> float | None:
        """The size of a PCM frame by which `locate` estimates a place, if any."""
        ...

    def feed(self, offset: int, data: bytes) -> None:
        """Take the bytes that the decoder reads at `offset`."""
        ...

    def locate(self, frame: int, source: DecoderSource, *, bytes_per_frame: float) -> Landing:
        """Find the landing for `frame`; this may `restart` and read the source.

        `bytes_per_frame` is the mean so far. Raises `SeekError` if the headers do not allow to find it, and
        the stream's error.
        """
        ...
