"""A live source: what the form of an endless stream knows about the bytes that it appends.

    form (trio) ── begin_part, set_title ──▶ LiveSource ◀── read, next_part ── decoder (its thread)

The bytes of a radio that was connected again, or of HLS after a change of its encoding, are not one file:
they are parts, and each needs a new decoder. A part ends for the decoder as a file does; `next_part` leads to
the one after it. Titles are reported when the decoder gets to their place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from playhead.errors import SeekError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from playhead.stream.options import StreamEvent


TimeSeek = Callable[[float], tuple[float, float] | None]
"""Moves a form to a time; see `Reader.seek_time`."""


@dataclass(slots=True)
class LinkRate:
    """The rate of the newest HLS segment, for the choice of the next stream's variant."""

    bits_per_second: float | None = None


class LiveSource:
    """The parts and titles of one stream. The form writes them before the bytes that they are about."""

    def __init__(
        self,
        *,
        has_own_patience: bool = False,
        seek: TimeSeek | None,
        reconnect: Callable[[], None] = lambda: None,
    ) -> None:
        """`has_own_patience`: the form decides when it gives up, not the stream. `seek` may raise
        `SeekError`; None if the server keeps no audio: `reconnect` has the next read connect again, which
        leads to the newest audio."""
        self.has_own_patience = has_own_patience
        self._reconnect = reconnect
        self._seek = seek
        self.requests = self.reconnects = 0
        """The requests of the form, and of them a radio's connections after its first."""
        self.duration_seconds: float | None = None
        """The duration, once nothing will be appended any more."""
        self.in_hand_seconds: Callable[[], float] | None = None
        """Returns the audio that the player has; None without a player."""
        self.notify: Callable[[StreamEvent], None] = lambda event: None
        self.position = 0
        """Offset of the next byte for the decoder."""
        self._begin = 0
        """The offset at which reading began, anew with each seek: a part begins there anyway."""
        self._starts: deque[int] = deque()
        """The offsets of the parts after the present one."""
        self._titles: deque[tuple[int, str]] = deque()
        self._title: str | None = None
        self._rest = b""
        """Bytes of the next part that were read with the last of this one."""

    # --- the form, in the trio thread --------------------------------------------------------------------

    def begin_part(self, offset: int) -> None:
        """The bytes from `offset` on need a new decoder."""
        if offset > (self._starts[-1] if self._starts else self._begin):
            self._starts.append(offset)

    def set_title(self, offset: int, title: str) -> None:
        """The audio from `offset` on has this title. A repeated one is not reported."""
        if title and (not self._titles or title != self._titles[-1][1]):
            self._titles.append((offset, title))

    def check_seek(self, seconds: float) -> None:
        """Raise `SeekError` for a time that the server does not keep. A player asks before it interrupts a
        decoder, which could not go on."""
        if self._seek is None and seconds < inf:
            raise SeekError(
                "expected a stream whose server keeps its audio, got a radio, which is heard as it is sent; "
                "let it play"
            )

    def seek(self, seconds: float) -> tuple[float, float] | None:
        """See `Reader.seek_time`. The read that is under way is cancelled afterwards."""
        self.check_seek(seconds)
        if self._seek is not None:
            return self._seek(seconds)
        self._reconnect()
        return None

    def sought(self, offset: int) -> None:
        """Forget what lies before `offset`, where a seek goes on. No thread may read meanwhile."""
        self._titles.clear()
        self.moved(offset)

    def moved(self, offset: int) -> None:
        """Forget the parts before `offset`, up to which a task has read. No thread may read meanwhile."""
        self._starts.clear()
        self._rest, self.position = b"", offset
        self._begin = offset

    # --- the decoder, in its thread ------------------------------------------------------------------------

    @property
    def rest_bytes(self) -> int:
        return len(self._rest)

    def next_part(self) -> bool:
        """Begin the part at the position. Returns False if there is none: the stream is at its end."""
        if not self._ends_here():
            return False
        self._starts.popleft()
        return True

    def read(self, buffer: Buffer, read: Callable[[Buffer], int]) -> int:
        """Read with `read` up to the end of the part, where 0 is returned until `next_part`. A real end is 0,
        too."""
        with memoryview(buffer).cast("B") as view:
            if self._ends_here():
                return 0
            if self._rest:
                count = min(len(view), len(self._rest))
                view[:count], self._rest = self._rest[:count], self._rest[count:]
            else:
                count = read(view)
            # A part may have begun while `read` waited.
            if self._starts and self._starts[0] < self.position + count:
                part = self._starts[0] - self.position
                self._rest = bytes(view[part:count]) + self._rest
                count = part
        self.position += count
        return count

    def titles(self) -> list[str]:
        """Return the titles that the position has passed since the last call."""
        passed: list[str] = []
        while self._titles and self._titles[0][0] <= self.position:
            _, title = self._titles.popleft()
            if title != self._title:
                self._title = title
                passed.append(title)
        return passed

    def _ends_here(self) -> bool:
        return bool(self._starts) and self._starts[0] <= self.position
