"""Keys, read from a terminal's bytes.

The parser has no I/O and no clock, and any chunking of the bytes gives the same keys. So a lone Escape does
nothing, because only a timer could tell it from the start of an arrow's sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final


class Key(Enum):
    PAUSE = auto()
    BACK = auto()
    FORWARD = auto()
    LOUDER = auto()
    QUIETER = auto()
    NEXT = auto()
    PREVIOUS = auto()
    LIVE = auto()
    QUIT = auto()


_KEY_BY_BYTE: Final[Mapping[int, Key]] = MappingProxyType(
    {
        ord(" "): Key.PAUSE,
        ord("n"): Key.NEXT,
        ord("N"): Key.NEXT,
        ord("p"): Key.PREVIOUS,
        ord("P"): Key.PREVIOUS,
        ord("l"): Key.LIVE,
        ord("L"): Key.LIVE,
        ord("q"): Key.QUIT,
        ord("Q"): Key.QUIT,
    }
)

_ARROW_BY_FINAL_BYTE: Final[Mapping[int, Key]] = MappingProxyType(
    {ord("A"): Key.LOUDER, ord("B"): Key.QUIETER, ord("C"): Key.FORWARD, ord("D"): Key.BACK}
)

_ESCAPE: Final = 0x1B

_INTRODUCERS: Final = frozenset(b"[O")

_PARAMETER_BYTES: Final = range(0x20, 0x40)

_FINAL_BYTES: Final = range(0x40, 0x7F)


class _Place(Enum):
    """The parser's place in a sequence."""

    OUTSIDE = auto()
    ESCAPED = auto()
    """Escape was read."""
    INSIDE = auto()
    """`Escape [` (ECMA-48's CSI) or `Escape O` (SS3, of a keypad in application mode) was read."""


class KeyParser:
    """Reads keys from a terminal's bytes.

    A sequence is `Escape [` or `Escape O`, any parameters (0x20 to 0x3F) and a final byte (0x40 to 0x7E), as
    in ECMA-48, section 5.4. The parser skips sequences other than arrows, and ignores the parameters of an
    arrow. A byte that cannot continue a sequence ends it, and is read as a key by itself.
    """

    def __init__(self) -> None:
        self._place = _Place.OUTSIDE

    def feed(self, data: bytes) -> Iterator[Key]:
        """Return the keys that these bytes complete."""
        for byte in data:
            key = self._next(byte)
            if key is not None:
                yield key

    def _next(self, byte: int) -> Key | None:
        place, self._place = self._place, _Place.OUTSIDE
        if byte == _ESCAPE:
            self._place = _Place.ESCAPED
            return None
        if place is _Place.ESCAPED and byte in _INTRODUCERS:
            self._place = _Place.INSIDE
            return None
        if place is _Place.INSIDE and byte in _PARAMETER_BYTES:
            self._place = _Place.INSIDE
            return None
        if place is _Place.INSIDE and byte in _FINAL_BYTES:
            return _ARROW_BY_FINAL_BYTE.get(byte)
        return _KEY_BY_BYTE.get(byte)
