"""The ranges of an output that are on disk."""

from __future__ import annotations

from playhead.config.outputs import Extent


def test_an_extent_joins_what_touches_and_knows_its_gaps() -> None:
    extent = Extent()
    assert (extent.missing(3), extent.end, extent.total) == (((0, 3),), 0, 0)
    for start, end in [(10, 20), (30, 40), (20, 30), (50, 60), (5, 12)]:
        extent.add(start, end)
    assert extent.missing(70) == ((0, 5), (40, 50), (60, 70))
    assert extent.missing(45) == ((0, 5), (40, 45))
    assert (extent.end, extent.total) == (60, 45)
