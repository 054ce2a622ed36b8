"""What the player plays next: a list and a place in it. Knows no clock, no task and no sound.

Played items stay, so that `previous` finds them, until their room is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

from playhead.errors import UsageError
from playhead.stream.source import Media

QUEUE_ITEMS = 10_000
"""As many as one tool result may hold blocks (`Limits.result_items`), so any result can be queued whole."""
RESTART_SECONDS = 3.0
"""Further into an item than this, `previous` restarts it. The precedent is Android's media3
(`DEFAULT_MAX_SEEK_TO_PREVIOUS_POSITION_MS` = 3000), whose number CD players had before."""


class Queue:
    """Items in the order they play. `index` is the current one's, None until the first has begun."""

    def __init__(self) -> None:
        self._items: list[Media] = []
        self.index: int | None = None

    def __len__(self) -> int:
        return len(self._items)

    @property
    def current(self) -> Media | None:
        return None if self.index is None else self._items[self.index]

    @property
    def following(self) -> Media | None:
        """What `forward` would go to; None at the end."""
        following = self._following
        return self._items[following] if following < len(self._items) else None

    def replace(self, items: tuple[Media, ...]) -> None:
        """Forget what was there; nothing is current. `items` as from `as_items`."""
        self._items = list(items)
        self.index = None

    def append(self, items: tuple[Media, ...]) -> int:
        """Put `items` at the end. Returns how many played ones were forgotten at the front to make room.

        Raises `UsageError`, and changes nothing, where more than `QUEUE_ITEMS` are current or still to come.
        """
        forgotten = max(0, len(self._items) + len(items) - QUEUE_ITEMS)
        if forgotten > (self.index or 0):
            waiting = len(self._items) - (self.index or 0)
            raise UsageError(
                f"enqueue: a queue holds {QUEUE_ITEMS} items; {waiting} are not over, and {len(items)} more"
                " are too many: enqueue them later"
            )
        if forgotten and self.index is not None:
            del self._items[:forgotten]
            self.index -= forgotten
        self._items.extend(items)
        return forgotten

    def forward(self) -> bool:
        """Go to the next item; False, and no move, where there is none."""
        if self.following is None:
            return False
        self.index = self._following
        return True

    def back(self, *, position_seconds: float) -> bool:
        """Go where `previous` leads from this far into the current item; False where nothing was begun.

        That is the current item's own start where it is more than `RESTART_SECONDS` in, or is the first.
        """
        if self.index is None:
            return False
        if position_seconds <= RESTART_SECONDS and self.index > 0:
            self.index -= 1
        return True

    @property
    def _following(self) -> int:
        return 0 if self.index is None else self.index + 1


def as_items(what: Media | Iterable[Media], *, call: str) -> tuple[Media, ...]:
    """One media or many, as a tuple. Raises `UsageError` for anything else, and for more than `QUEUE_ITEMS`.

    `call` is the name of the player's method, for the message.
    """
    if isinstance(what, Media):
        return (what,)
    given: Iterable[object] = (what,)
    with suppress(TypeError):  # not even an iterable
        given = iter(what)
    items: list[Media] = []
    for item in islice(given, QUEUE_ITEMS + 1):
        if not isinstance(item, Media):
            raise UsageError(
                f"{call}: expected a media (a link of a result, session.media(uri) or FileMedia(path)) or"
                f" several of them, got a {type(item).__name__}"
            )
        items.append(item)
    if len(items) > QUEUE_ITEMS:
        raise UsageError(f"{call}: a queue holds {QUEUE_ITEMS} items, got more: play them in parts")
    return tuple(items)
