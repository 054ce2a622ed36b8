"""Radio: one endless body, connected again when it is lost, without the titles between its audio."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from playhead.client.session.http_range import RangeBody
from playhead.content.audio import AudioFormat, format_of_mime
from playhead.content.coded_frames import CodedFrame, adts_frame, find_frame, mpeg_frame
from playhead.content.icy import IcyPiece, IcySplitter, icy_interval
from playhead.content.ogg_links import OggLinks
from playhead.errors import HttpRefusedError, PlayheadError, StreamBrokenError, TransportError
from playhead.limits import KIB
from playhead.stream.answer import Page
from playhead.stream.live_source import LiveSource

RECONNECTS: Final = 25
"""Connections in a row without audio that end a radio: over a minute, with the pauses between them."""
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
"""The pause before a reconnect doubles from the first to the longest, as between the retries of a page."""
SEARCH_BYTES: Final = 64 * KIB
"""The bytes in which to look for the first frame of a connection, which begins anywhere in one."""
_FRAMES: Final[dict[AudioFormat | None, Callable[[bytes, int], CodedFrame | None]]] = {
    AudioFormat.MP3: mpeg_frame,
    AudioFormat.AAC: adts_frame,
}


class RadioReader:
    """A `ReadRange` that ignores its range: each answer is what the station sends next."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[RangeBody]],
        first: RangeBody,
        *,
        server: str,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`connect` asks for the station anew; `first` is its first answer. `jitter` returns numbers from 0
        to 1, so that listeners who were cut off together do not return together."""
        self.live = LiveSource(has_own_patience=True, seek=None, reconnect=self._leave)
        self.live.requests = 1
        self._connect, self._server, self._jitter = connect, server, jitter
        self._body: RangeBody | None = first
        self._left: list[RangeBody] = []
        """The bodies to be closed."""
        self._connection = _Connection(first)
        self._turn = trio.Lock()
        self._failures = 0
        """The connections in a row without audio."""
        self._loss: PlayheadError | None = None

    async def __call__(self, start: int, end: int) -> Page:
        """Return the next audio, at least one byte.

        Raises `StreamBrokenError` after `RECONNECTS` connections without audio, and for a refusal (403, 404),
        which is final. Cancelled: the connection is lost, and the next call makes another one.
        """
        async with self._turn:  # after a timeout the next call comes before the end of this one
            return await self._next(start)

    async def _next(self, start: int) -> Page:
        while True:
            while self._left:
                await self._left.pop().aclose()
            try:
                body = self._body or await self._reconnect(start)
                chunk = await body.receive()
            except StreamBrokenError:
                raise
            except TransportError as error:
                self._loss = error
                self._lose()
                continue
            except trio.Cancelled:
                if self._body is not None:
                    self._lose()
                raise
            if not chunk:
                self._lose()
            elif audio := self._connection.audio(chunk, start, self.live):
                self._failures = 0
                return Page(blobs=(audio,), mime_type=body.mime_type)

    async def _reconnect(self, start: int) -> RangeBody:
        if self._failures > RECONNECTS:
            raise self._broken(start, f"{RECONNECTS} connections in a row brought no audio")
        if self._failures > 1:
            longest = min(FIRST_PAUSE_SECONDS * 2.0 ** (self._failures - 2), LONGEST_PAUSE_SECONDS)
            await trio.sleep(longest * (0.5 + self._jitter() / 2))
        self.live.requests += 1
        self.live.reconnects += 1
        try:
            self._body = body = await self._connect()
        except HttpRefusedError as error:
            self._loss = error
            raise self._broken(start, "it refuses another connection") from error
        if (body.mime_type or "").lower().startswith("text/"):
            raise TransportError(f"{self._server}: expected audio, got an answer of type {body.mime_type}")
        self._connection = _Connection(body)
        self.live.begin_part(start)
        return body

    def _lose(self) -> None:
        self._failures += 1
        self._leave()

    def _leave(self) -> None:
        """Have the next call close the body and connect again. While the ring is full, no read is under way
        that a seek would cancel."""
        self._left += filter(None, (self._body,))
        self._body = None

    def _broken(self, offset: int, why: str) -> StreamBrokenError:
        loss = "" if self._loss is None else f" ({self._loss})"
        return StreamBrokenError(
            f"{self._server}: expected more of the radio, got none: {why}{loss}; check the station, and play"
            " it again",
            offset=offset,
        )

    async def aclose(self) -> None:
        self._leave()
        for body in self._left:
            await body.aclose()


class _Connection:
    """The decoding of one connection's body: audio without titles, from its first whole frame on."""

    def __init__(self, body: RangeBody) -> None:
        interval = icy_interval(body.headers)
        self._splitter = None if interval is None else IcySplitter(interval)
        self._header = _FRAMES.get(format_of_mime(body.mime_type))
        self._head = b""
        """The bytes so far, while the first frame is looked for."""
        self._links: OggLinks | None = None
        self._is_begun = False

    def audio(self, chunk: bytes, start: int, live: LiveSource) -> bytes:
        """Return the audio in `chunk`, for the offset `start`, and notify `live` of parts and titles."""
        pieces = [IcyPiece(chunk, None)] if self._splitter is None else self._splitter.feed(chunk)
        audio = b""
        for piece in pieces:
            audio += self._aligned(piece.audio)
            if piece.title is not None:
                live.set_title(start + len(audio), piece.title)
        if audio and not self._is_begun:
            self._is_begun = True
            self._links = OggLinks() if audio.startswith(b"OggS") else None
        if self._links is not None:
            audio, links = self._links.feed(audio)
            for link in links:
                if link.title is None:
                    live.begin_part(start + link.place)
                else:
                    live.set_title(start + link.place, link.title)
        return audio

    def _aligned(self, audio: bytes) -> bytes:
        if self._is_begun or self._header is None or not audio:
            return audio
        self._head += audio
        at = find_frame(self._head, self._header)
        if at is None and len(self._head) < SEARCH_BYTES:
            return b""
        self._header, head = None, self._head[at or 0 :]
        self._head = b""
        return head
