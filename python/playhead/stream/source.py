"""Interfaces between byte streams and the player: a `Playable` can be opened, a `Reader` reads its bytes.

They let the player accept any source without knowing sessions or planners.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from playhead.errors import SeekError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from playhead.stream.live_source import LiveSource
    from playhead.stream.options import StreamEvent, StreamOptions, StreamStatistics


class Demand(Enum):
    """Urgency of a player's need for bytes. It decides when a stream loses patience with its server."""

    WAITING = "waiting"
    """The player has nothing left: silence until bytes arrive. The default."""
    FED = "fed"
    """The player plays decoded audio: the stream's patience does not run."""
    PAUSED = "paused"
    """The listener paused for as long as they like: patience does not run, and retries are rare."""


class Reader(ABC):
    """Bytes that a thread reads, in order, while they are still arriving.

    Only `readinto` is required. The other methods are for readers that can seek, or read over a network;
    their defaults fit a local file that is read once. All but `set_demand`, `watch` and `interrupt` may be
    called from any thread.
    """

    @property
    def seekable(self) -> bool:
        """True if `seek_from_thread` works."""
        return False

    @abstractmethod
    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        """Block until at least one byte has arrived, and read the available bytes, without waiting to fill
        `buffer`.

        Returns the number of bytes; 0 means the end. Raises `TimeoutError` after `timeout` seconds without a
        byte, and the stream's own error after the good bytes before it.
        """

    @property
    def is_queue(self) -> bool:
        """True if the source hands out each chunk once, while it produces them. Audio starts with the
        first."""
        return False

    def can_seek(self, offset: int) -> bool:
        """Return whether `seek_from_thread(offset)` works and reads no bytes before `offset`."""
        return self.seekable

    def seek_from_thread(self, offset: int) -> None:
        """Continue at `offset`, counted from the reader's first byte. Only if `seekable`."""
        raise NotImplementedError(f"{type(self).__name__} cannot seek")

    @property
    def live(self) -> LiveSource | None:
        """The parts and titles of a live stream, whose `readinto` returns 0 at the end of each part. None for
        another; final once a byte was read."""
        return None

    def seek_time(self, seconds: float) -> tuple[float, float] | None:
        """Continue a live stream at the time `seconds`, or at the nearest that its server has; infinity is
        the newest. Returns the time of the first byte, and the time from which on to play; None if only
        unheard audio was dropped.

        Called from a thread. Raises `SeekError` if it cannot.
        """
        raise SeekError(f"{type(self).__name__} cannot seek")

    @property
    def buffered_range(self) -> tuple[int, int]:
        """The offsets (first, last) within which a seek needs no new read. `(0, 0)` if unknown."""
        return 0, 0

    @property
    def size_bytes(self) -> int | None:
        """The size of the whole, if known: a hint."""
        return None

    @property
    def newest_offset(self) -> int | None:
        """The present end of a live source, which still grows and has no size yet; None for any other."""
        return None

    def joined(self, offset: int) -> int:
        """Return where the bytes go on after those before `offset`: there or, if the server has dropped the
        next ones, at the first that it still has."""
        return offset

    def interrupt(self) -> None:  # noqa: B027  # most readers never wait for long
        """Make a blocked `readinto`, or the next one that would block, raise `TimeoutError`, because a seek
        waits for its thread. Called in the trio thread."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes that can be read without waiting."""
        return 0

    def can_play(self, in_hand_bytes: int, bytes_per_second: float) -> bool:
        """Return whether audio may start, or resume, without a foreseeable stall.

        `in_hand_bytes` counts the bytes buffered here and those that were read but not played yet.
        `bytes_per_second` is the byte rate of the audio.
        """
        return True

    @property
    def sha256(self) -> str | None:
        """The SHA-256 that the source announced for the whole, in hexadecimal, if any. Final once a byte was
        read."""
        return None

    def verify(self) -> None:  # noqa: B027  # most readers have nothing to compare with
        """Compare the bytes with `sha256` if all were read. For a decoder that does not read up to the end.

        Raises `DigestError` if they differ.
        """

    def set_demand(self, demand: Demand) -> None:  # noqa: B027  # most readers have no use for it
        """Report how urgently bytes are needed from now on. Called in the trio thread; idempotent."""

    def set_in_hand(self, in_hand_seconds: Callable[[], float]) -> None:  # noqa: B027  # a file never grows
        """Let the reader call `in_hand_seconds` for the audio that the player has before it needs new bytes.
        A live source is asked for growth before half of it is played. Called in the trio thread."""

    def watch(self, on_event: Callable[[StreamEvent], None]) -> None:  # noqa: B027  # a file never waits
        """Also call `on_event` when the reader waits for bytes, and when they arrive again; see
        `StreamOptions.on_event`. Called in the trio thread."""

    def statistics(self) -> StreamStatistics | None:
        """Return a snapshot of the statistics of the reader's stream; None without one, as for a local
        file."""
        return None


class BytesReader(Reader):
    """A reader of bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def seekable(self) -> bool:
        return True

    @property
    def buffered_range(self) -> tuple[int, int]:
        return 0, len(self._data)

    @property
    def size_bytes(self) -> int | None:
        return len(self._data)

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        with memoryview(buffer).cast("B") as view:
            piece = self._data[self._position : self._position + len(view)]
            view[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def seek_from_thread(self, offset: int) -> None:
        self._position = offset


@runtime_checkable
class Playable(Protocol):
    """Something that can be played. It is opened each time it is played."""

    @property
    def title(self) -> str: ...
    @property
    def mime_type(self) -> str | None: ...
    @property
    def uri(self) -> str | None: ...
    @property
    def size_bytes(self) -> int | None: ...

    def open(self, options: StreamOptions | None = None) -> AbstractAsyncContextManager[Reader]:
        """Start reading; leaving the context stops every read in flight and closes the reader.

        `options` are for playables that are read as a stream; others ignore them.
        """
        ...


class PlayableWrapper:
    """The properties of `inner`; a subclass adds `open`."""

    def __init__(self, inner: Playable) -> None:
        self.inner = inner

    @property
    def title(self) -> str:
        return self.inner.title

    @property
    def mime_type(self) -> str | None:
        return self.inner.mime_type

    @property
    def uri(self) -> str | None:
        return self.inner.uri

    @property
    def size_bytes(self) -> int | None:
        return self.inner.size_bytes
