"""One media while it plays: its reader, its decoder's thread, its feed, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from functools import partial

import trio

from playhead.errors import PlayheadError
from playhead.playback.decoder import PcmDecoder
from playhead.playback.feed import PcmFeed
from playhead.playback.pump import Pump
from playhead.playback.sinks import Sink
from playhead.playback.state import ItemEnd, ItemError, ItemStart, PlayerEvent
from playhead.playback.threads import join, run_thread
from playhead.stream.source import BlockingReader, Media

ITEM_ERRORS = (PlayheadError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""What makes an item fail. Anything else that a media or a sink raises is a bug and ends the player.
(`TimeoutError` is an `OSError`.)"""


class Outcome(Enum):
    ACTIVE = "active"
    ENDED = "ended"
    STOPPED = "stopped"
    FAILED = "failed"


class Item:
    """One playing of one media; `run` is its task, everything else is called from other tasks."""

    def __init__(
        self,
        media: Media,
        *,
        sink: Sink,
        sink_lock: trio.Lock,
        gate_bytes: int,
        gain: float,
        index: int,
        tell: Callable[[PlayerEvent], None],
        on_change: Callable[[], None],
        on_decoded: Callable[[], None],
        on_finished: Callable[[Item], None],
    ) -> None:
        """`on_decoded`: nothing more is read for it, though its last sound is still to come. `on_finished`:
        it is over, and its media is closed. Both are called in the trio thread."""
        self.media = media
        self.index = index
        self.feed: PcmFeed | None = None
        self.duration_seconds: float | None = None
        self.error: Exception | None = None
        self.outcome = Outcome.ACTIVE
        self.paused = False
        self.finished = trio.Event()
        self._started_at = time.perf_counter()
        self._sink = sink
        self._sink_lock = sink_lock
        self._gate_bytes = gate_bytes
        self._gain = gain
        self._tell = tell
        self._on_change = on_change
        self._on_decoded = on_decoded
        self._on_finished = on_finished
        self.decoded = False
        self.stopping = False
        self._turn = trio.Event()
        self._scope = trio.CancelScope()
        self._understood = trio.Event()
        self._decoder_ended: trio.Event | None = None
        self._token = trio.lowlevel.current_trio_token()

    # --- what other tasks do -------------------------------------------------------------------------

    def begin(self) -> None:
        """It is its turn: until then it is read and decoded, and neither sounds nor tells anything."""
        if not self._turn.is_set():
            self._started_at = time.perf_counter()
            self._turn.set()

    def stop(self) -> None:
        """Silence now; `finished` is set soon after."""
        self.stopping = True
        self._close_feed()
        self._scope.cancel()

    def set_paused(self, paused: bool, /) -> None:
        self.paused = paused
        if self.feed is not None:
            self.feed.set_paused(paused)

    def set_gain(self, gain: float) -> None:
        self._gain = gain
        if self.feed is not None:
            self.feed.set_gain(gain)

    @property
    def frames(self) -> int:
        return 0 if self.feed is None else self.feed.frames

    @property
    def first_audio_seconds(self) -> float | None:
        if self.feed is None or self.feed.first_sound_at is None:
            return None
        return self.feed.first_sound_at - self._started_at

    # --- its task ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Play to the end, a failure or `stop()`. Raises nothing that belongs to the item."""
        try:
            with self._scope:
                try:
                    await self._play()
                except ITEM_ERRORS as error:  # from opening or closing the media
                    self._fail(error)
                await self._turn.wait()  # what failed early is told in its turn
                self.outcome = Outcome.ENDED
        finally:
            self._close_feed()
            self._conclude()

    async def _play(self) -> None:
        try:
            async with self.media.open() as reader, trio.open_nursery() as nursery:
                self._decoder_ended = trio.Event()
                nursery.start_soon(self._decode, reader, self._decoder_ended)
                await self._understood.wait()
                if self.feed is not None:
                    await self._sound(self.feed)
                    nursery.cancel_scope.cancel()  # a sink that failed leaves a decoder behind
        finally:
            # A thread that waits for bytes wakes only when the reader is closed: after the context.
            if self._decoder_ended is not None:
                await join(self._decoder_ended)

    async def _decode(self, reader: BlockingReader, ended: trio.Event) -> None:
        pump = Pump(self.media, reader, gate_bytes=self._gate_bytes)
        try:
            await run_thread(
                partial(pump.run, self._make_feed),
                wake=self._close_feed,
                ended=ended,
                join_seconds=0,
            )
        except ITEM_ERRORS as error:
            self._fail(error)
        finally:
            self._understood.set()
        self.decoded = True
        self._on_decoded()

    async def _sound(self, feed: PcmFeed) -> None:
        await self._turn.wait()
        self._tell(
            ItemStart(
                index=self.index,
                title=self.media.title,
                uri=self.media.uri,
                format=feed.format,
                duration_seconds=self.duration_seconds,
            )
        )
        try:
            async with self._sink_lock:
                await self._sink.play(feed)
            if feed.failure is not None:  # a callback cannot raise it: the sound just ends early
                self._fail(feed.failure)
        except ITEM_ERRORS as error:
            self._fail(error)
            self._close_feed()

    def _make_feed(self, decoder: PcmDecoder) -> PcmFeed:
        """In the decoder's thread, once the stream is understood."""
        feed = PcmFeed(decoder.format, token=self._token, gain=self._gain, on_change=self._on_change)
        self.duration_seconds = decoder.duration_seconds
        self.feed = feed
        # Whoever called between the two lines before and here saw no feed: say it again.
        self._token.run_sync_soon(self._introduce)
        if self.stopping:
            feed.close()
        return feed

    def _introduce(self) -> None:
        self.set_gain(self._gain)
        self.set_paused(self.paused)
        self._understood.set()

    def _close_feed(self) -> None:
        if self.feed is not None:
            self.feed.close()

    def _fail(self, error: Exception) -> None:
        if self.error is None and not self.stopping:
            self.error = error

    def _conclude(self) -> None:
        index, title = self.index, self.media.title
        if self.error is not None:
            self.outcome = Outcome.FAILED
        elif self.outcome is Outcome.ACTIVE:
            self.outcome = Outcome.STOPPED
        if not self._turn.is_set():
            pass  # stopped before anybody heard of it
        elif self.error is not None:
            self._tell(ItemError(index=index, title=title, frames=self.frames, error=self.error))
        else:
            stopped = self.outcome is Outcome.STOPPED
            self._tell(ItemEnd(index=index, title=title, frames=self.frames, stopped=stopped))
        self.finished.set()
        self._on_finished(self)
