"""The queue of the player: a list and a position in it. Pure.

Played items stay, for `previous`, until their room is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

from playhead.errors import UsageError
from playhead.playback.state import Repeat
from playhead.stream.source import Playable

QUEUE_ITEMS = 10_000
"""Limits the queue to the blocks of one tool result (`Limits.result_items`), so any result can be queued
whole."""
RESTART_SECONDS = 3.0
"""Further into an item than this, `previous` restarts it. The precedent is Android's media3
(`DEFAULT_MAX_SEEK_TO_PREVIOUS_POSITION_MS` = 3000), and CD players before it."""


class Queue:
    """Items in playing order. `index` is the current item's, None until the first has started."""

    def __init__(self) -> None:
        self._items: list[Playable] = []
        self.index: int | None = None
        self.repeat = Repeat.OFF

    def __len__(self) -> int:
        return len(self._items)

    @property
    def current(self) -> Playable | None:
        return None if self.index is None else self._items[self.index]

    @property
    def following(self) -> Playable | None:
        """The item that plays after the end of the current one; None at the end."""
        following = self.following_index()
        return None if following is None else self._items[following]

    def following_index(self, *, by_call: bool = False) -> int | None:
        """Return the index that `forward` goes to; None at the end."""
        if self.repeat is Repeat.ONE and self.index is not None and not by_call:
            return self.index
        following = 0 if self.index is None else self.index + 1
        if following < len(self._items):
            return following
        return 0 if self.repeat is Repeat.ALL and self._items else None

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(item.title for item in self._items)

    def replace(self, items: tuple[Playable, ...]) -> None:
        """Replace all items; then none is current."""
        self._items = list(items)
        self.index = None

    def append(self, items: tuple[Playable, ...]) -> int:
        """Append `items`. Returns how many played ones were dropped at the front to make room.

        Raises `UsageError`, and changes nothing, if more than `QUEUE_ITEMS` would be current or waiting.
        """
        dropped = max(0, len(self._items) + len(items) - QUEUE_ITEMS)
        if dropped > (self.index or 0):
            waiting = len(self._items) - (self.index or 0)
            raise UsageError(
                f"enqueue: expected at most {QUEUE_ITEMS} items, got {len(items)} more than the {waiting} "
                "that wait: enqueue them later"
            )
        if dropped and self.index is not None:
            del self._items[:dropped]
            self.index -= dropped
        self._items.extend(items)
        return dropped

    def insert(self, items: tuple[Playable, ...], index: int) -> None:
        """Insert `items` before the item at `index`; the current item stays the current one.

        Raises `UsageError`, and changes nothing, for an index beyond the queue and past `QUEUE_ITEMS` in all.
        """
        if not 0 <= index <= len(self._items):
            raise UsageError(f"insert: expected an index from 0 to {len(self._items)}, got {index}")
        if len(self._items) + len(items) > QUEUE_ITEMS:
            raise UsageError(
                f"insert: expected at most {QUEUE_ITEMS} items, got {len(items)} more than the "
                f"{len(self._items)} of the queue: remove some first"
            )
        self._items[index:index] = items
        if self.index is not None and index <= self.index:
            self.index += len(items)

    def remove(self, index: int) -> None:
        """Remove the item at `index`. If it is the current one, the item before it becomes current.

        Raises `UsageError`, and changes nothing, for an index outside the queue.
        """
        self.check("remove", index)
        del self._items[index]
        if self.index is not None and index <= self.index:
            self.index = self.index - 1 if self.index else None

    def check(self, call: str, index: int) -> None:
        """Raise `UsageError` for an `index` outside the queue."""
        if not 0 <= index < len(self._items):
            last = len(self._items) - 1
            expected = f"an index from 0 to {last}" if self._items else "items in the queue, which is empty"
            raise UsageError(f"{call}: expected {expected}, got {index}")

    def forward(self, *, by_call: bool = False) -> bool:
        """Go to the next item; returns False if there is none."""
        following = self.following_index(by_call=by_call)
        if following is not None:
            self.index = following
        return following is not None

    def back(self, *, position_seconds: float) -> bool:
        """Go to the item that `previous` plays at this position; returns False if nothing was started.

        More than `RESTART_SECONDS` into an item, or at the first one, it is the current item itself.
        """
        if self.index is None:
            return False
        if position_seconds <= RESTART_SECONDS and self.index > 0:
            self.index -= 1
        return True


def as_items(media: Playable | Iterable[Playable], *, call: str) -> tuple[Playable, ...]:
    """Return one playable, or several, as a tuple.

    Raises `UsageError` for anything else, for none, and for more than `QUEUE_ITEMS`. `call` is the name of
    the player's method, for the message.
    """
    if isinstance(media, Playable):
        return (media,)
    candidates: Iterable[object] = (media,)
    with suppress(TypeError):  # not iterable: reported below
        candidates = iter(media)
    items: list[Playable] = []
    for item in islice(candidates, QUEUE_ITEMS + 1):
        if not isinstance(item, Playable):
            raise UsageError(
                f"{call}: expected a playable (a link of a result, session.media(uri) or FileMedia(path)) or"
                f" several of them, got a {type(item).__name__}"
            )
        items.append(item)
    if not items:
        raise UsageError(f"{call}: expected one playable or more, got none; `stop` ends what plays")
    if len(items) > QUEUE_ITEMS:
        raise UsageError(f"{call}: expected at most {QUEUE_ITEMS} items, got more: play them in parts")
    return tuple(items)
