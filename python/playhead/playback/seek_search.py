"""The search for a place by its time, in a stream whose pages or frames state their time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from playhead.playback.decoder_source import DecoderSource

_Found = TypeVar("_Found")

NEAR_BYTES = 24 * 1024
"""The distance before the wanted place at which a search ends. A place this near arrives with the first pages
of new reads, so decoding from there costs less than the round trip of another look. Each such look doubles
the distance."""
_MOST_LOOKS = 16
"""Limits the looks of a search. Usually five are enough; in a damaged stream a search would not end."""
LOOK_BYTES = 8 * 1024
"""The bytes in which to look first for a page or frame: as many as the first page of new reads. They double
until one is found."""
MOST_LOOK_BYTES = 256 * 1024
"""The most bytes in which to look. No page, and no FLAC frame in practice, is longer than half of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPoint:
    """A place at which decoding may start: byte `offset`. The first output is PCM frame `frame` or later."""

    offset: int
    frame: int


def search(
    frame: int,
    source: DecoderSource,
    *,
    low: SeekPoint,
    high: SeekPoint | None,
    bytes_per_frame: float,
    look: Callable[[int], SeekPoint | None],
    unit_bytes: int = 0,
) -> SeekPoint:
    """Return a point near `frame`, at or before it.

    `low` is a known point at or before `frame`, and `high` one after it (the end), if any is known. `look`
    reads the source at an offset and returns the first point from there on, or None; inside `free_range` it
    costs no round trip. `bytes_per_frame` is an estimate, and `unit_bytes` a large distance between points.
    """
    free = source.free_range
    bound = source.size_bytes if high is None else high.offset  # the wanted point is before this offset
    near = NEAR_BYTES + 2 * unit_bytes
    over_frames = 0  # the distance from `frame` to the point of the last look, if that was behind `frame`
    for _look in range(_MOST_LOOKS):
        if high is not None and high.frame > low.frame:
            bytes_per_frame = (high.offset - low.offset) / (high.frame - low.frame)
        distance = int((frame - low.frame) * bytes_per_frame)
        if distance <= near or (bound is not None and bound - low.offset <= near):
            break
        if high is not None and over_frames:
            # If the bit rate falls between `low` and `high`, interpolation leads too far again, usually by
            # less than half as much.
            distance -= min(int(over_frames * bytes_per_frame / 2), 2 * near)
        aim = low.offset + max(distance - near // 2, near // 2)
        if bound is not None:
            aim = min(aim, max(bound - near, (low.offset + bound) // 2))
        aim = _near_bytes_in_hand(free, aim, low.offset + near // 2, bound)
        if not free[0] <= aim <= free[1]:
            near *= 2  # the more round trips, the less another one is worth
        point = look(aim)
        if point is not None and point.frame <= frame:
            bytes_per_frame = (point.offset - low.offset) / max(1, point.frame - low.frame)
            low = point
            over_frames = 0
        else:
            over_frames = 0 if point is None else point.frame - frame
            bound = aim
            high = point
            if point is None:
                bytes_per_frame /= 2  # past the end, by an estimate that is too high
    return low


def _near_bytes_in_hand(free: tuple[int, int], aim: int, least: int, bound: int | None) -> int:
    """Return `aim`, or the edge of the bytes in hand if `aim` is outside them. A look at the edge is free,
    and shows the bit rate up to there. Encoders need not announce a rate, so the first aim may be far off."""
    first, last = free[0], free[1] - NEAR_BYTES
    if last < aim and max(first, least) < last and (bound is None or last < bound):
        return last
    if aim < first < last and least < first and (bound is None or first < bound):
        return first
    return aim


def look_for(source: DecoderSource, offset: int, find: Callable[[bytes], _Found | None]) -> _Found | None:
    """Read from `offset` on until `find` returns something, and return it; None at the end of the stream, or
    after `MOST_LOOK_BYTES`."""
    source.restart(offset)
    window = LOOK_BYTES
    while True:
        data = source.peek(window)
        match = find(data)
        if match is not None or len(data) < window or window >= MOST_LOOK_BYTES:
            return match
        window *= 2
