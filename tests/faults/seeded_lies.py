"""A lying server for each seed: where, when, how often, and in which form it lies, and how it is read.

    python -m tests.faults.seeded_lies 17 204      # what these seeds draw, and what comes of them

Even seeds are gentle: they tell so few lies that the file has to be read whole. Odd ones may do anything at
once; then the file is whole, lawfully ended, or a typed error.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeVar

from playhead.stream.options import StreamOptions
from tests.faults.lies import EXACT, FORMS, LAWFUL, SIZINGS, TYPED, announced
from tests.faults.moody_reads import complaint_in_process
from tests.faults.verdicts import STREAM_MAX_BYTES, Cell
from tests.servers.moods import Change, Content, FalseEnd, Fault, FaultKind, Mood, Stall, Whole

CONTENTS: Final[tuple[Content, ...]] = ("zeros", "period-256", "period-4096", "silence", "done-tail")
T = TypeVar("T")

FIRST_PAGE_BYTES: Final = 8192
"""A false end at offset 0 is a refusal of the form, and there is only one form here."""

KINDS: Final[tuple[FaultKind, ...]] = ("-32603", "503", "429")


def draw(seed: int) -> tuple[Cell, StreamOptions]:
    """The cell of a seed, and the options it is read with."""
    dice = random.Random(seed)
    gentle = seed % 2 == 0
    sizing = dice.choice(SIZINGS)
    size_bytes = dice.randrange(20_000, 1_200_000)
    if not gentle:
        size_bytes = dice.choice([dice.randrange(7, 20_000), size_bytes])
    lies_max = 2 if sizing in {"right", "too large"} else 1
    mood = Mood(
        size_bytes=size_bytes,
        seed=seed,
        content="random" if dice.random() < 0.5 else dice.choice(CONTENTS),
        announced_bytes=announced(size_bytes, sizing),
        cap_bytes=dice.choice([None, None, None, dice.randrange(2000, 70_000)]),
        delay_seconds=dice.choice([0.0, 0.02, 0.2]),
        jitter_seconds=dice.choice([0.0, 0.01, 0.3]),
        serial=dice.random() < 0.15,
    )
    if gentle:
        lie = FalseEnd(
            at=dice.randrange(FIRST_PAGE_BYTES, size_bytes),
            form=dice.choice(FORMS),
            times=dice.randint(1, lies_max),
        )
        mood = replace(mood, false_ends=(lie,))
    else:
        mood = _harsher(mood, dice)
    options = StreamOptions(
        in_flight=dice.choice([1, 2, 4, 8, 16]),
        page_bytes=dice.choice([20_000, 102_400, 102_400]),
        capacity_bytes=dice.choice([None, 65_536, 1 << 20]),
        max_bytes=STREAM_MAX_BYTES,
    )
    right = LAWFUL | TYPED
    if gentle:  # at a size that is too small one false end is enough
        right = LAWFUL if sizing == "too small" else EXACT
    return Cell(mood=mood, right=right, lies=gentle), options


def _harsher(mood: Mood, dice: random.Random) -> Mood:
    size = mood.size_bytes
    return replace(
        mood,
        false_ends=tuple(_false_ends(dice, size)),
        whole=_maybe(
            dice,
            0.3,
            Whole(at=dice.randrange(size), every=dice.randint(1, 9), times=dice.choice([1, 2, 3, None])),
        ),
        change=_maybe(
            dice, 0.15, Change(size_bytes=dice.randrange(1, 2 * size), after_reads=dice.randint(1, 12))
        ),
        own_page_bytes=_maybe(dice, 0.15, dice.randrange(2000, 200_000)),
        extra_bytes=int(dice.random() < 0.15),
        fault=_maybe(dice, 0.3, Fault(kind=dice.choice(KINDS), every=dice.randint(5, 30))),
        stall=_maybe(dice, 0.2, Stall(at_seconds=dice.random(), seconds=dice.random() * 20)),
    )


def _maybe(dice: random.Random, share: float, value: T) -> T | None:
    return value if dice.random() < share else None


def _false_ends(dice: random.Random, size: int) -> Iterator[FalseEnd]:
    for _ in range(dice.randint(0, 3)):
        since = dice.choice([0.0, dice.random()])
        yield FalseEnd(
            at=dice.randrange(size),
            form=dice.choice(FORMS),
            times=dice.choice([1, 2, 3, None]),
            hole_bytes=dice.choice([None, dice.randrange(1, 100_000)]),
            since_seconds=since,
            until_seconds=since + dice.choice([0.05, 0.3, 2.0]),
        )


def name_of(seed: int) -> str:
    """The seed with what it draws, for a message."""
    cell, options = draw(seed)
    default = Mood()
    drawn = {
        name: getattr(cell.mood, name)
        for name in Mood.__dataclass_fields__
        if getattr(cell.mood, name) != getattr(default, name)
    }
    return f"seed {seed} (in flight {options.in_flight}, pages {options.page_bytes}, {drawn})"


def main(seeds: list[int]) -> None:
    for seed in seeds:
        name = name_of(seed)
        print(complaint_in_process(name, *draw(seed)) or f"right: {name}")


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]])
