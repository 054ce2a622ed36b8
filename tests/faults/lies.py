"""The table of lies: what a moody resource does, and which outcomes of reading it are right.

`cells(sizing)` is the table for one way of announcing the size; `verdicts.py` names the outcomes.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from tests.faults.verdicts import Cell
from tests.servers.moods import Change, Content, EndForm, FalseEnd, Mood, Whole

Sizing = Literal["right", "none", "too small", "too large"]
SIZINGS: Final = get_args(Sizing)

SIZE_BYTES: Final = (1 << 20) + 4321
PLACES: Final = {"early": 9000, "middle": 500_000, "late": SIZE_BYTES - 3000}
HOLES: Final = {"early": 9000, "middle": 500_000, "late": SIZE_BYTES - 30_000}
FORMS: Final[tuple[EndForm, ...]] = ("empty-list", "empty-blob", "done", "416")


EXACT: Final = frozenset({"exact"})
LAWFUL: Final = frozenset({"exact", "lawful"})
CONTRADICTION: Final = frozenset({"ContradictionError"})
TYPED: Final = frozenset({"exact", "typed error"})


def announced(size_bytes: int, sizing: Sizing) -> int | None:
    match sizing:
        case "right":
            return size_bytes
        case "none":
            return None
        case "too small":
            return size_bytes * 7 // 10
        case "too large":
            return size_bytes * 13 // 10 + 1


def cells(sizing: Sizing) -> dict[str, Cell]:
    """Every cell with the size announced like that, by its name."""
    table: dict[str, Cell] = {}
    size = announced(SIZE_BYTES, sizing)
    guarded = sizing in {"right", "too large"}
    for form in FORMS:
        for place, at in PLACES.items():
            for times, how in ((1, "once"), (2, "twice")):
                lie = FalseEnd(at=at, form=form, times=times)
                # A claim at the announced size ends a stream. The read there is in flight with those of the
                # middle, and in real time it may be the one that is lied to.
                is_at_size = sizing == "too small" and place == "middle"
                is_exact = guarded or (times == 1 and not is_at_size)
                table[f"false end, {place}, {form}, {how}"] = Cell(
                    mood=_mood(announced_bytes=size, false_ends=(lie,)),
                    right=EXACT if is_exact else LAWFUL,
                )
        for place, at in HOLES.items():
            strict = place != "late" or sizing == "right"
            lie = FalseEnd(at=at, form=form, times=None, hole_bytes=4096)
            table[f"false end, {place}, {form}, for ever"] = Cell(
                mood=_mood(announced_bytes=size, false_ends=(lie,)),
                right=CONTRADICTION if strict else CONTRADICTION | {"lawful"},
            )
        lie = FalseEnd(at=PLACES["middle"], form=form, times=None, hole_bytes=SIZE_BYTES)
        table[f"nothing past the middle, {form}"] = Cell(
            mood=_mood(announced_bytes=size, false_ends=(lie,)), right=frozenset({"lawful"})
        )
        table[f"false end, middle, {form}, twice, one in flight"] = Cell(
            mood=_mood(announced_bytes=size, false_ends=(FalseEnd(at=PLACES["middle"], form=form, times=2),)),
            right=EXACT if guarded else LAWFUL,
            in_flight=1,
        )
    table |= _wholes(size)
    table |= _changes(size)
    table |= _pages(size, guarded=guarded)
    for code in ("-32602", "-32603"):
        table[f"{code} past the end"] = Cell(
            mood=_mood(announced_bytes=size, end=code), right=EXACT, lies=False
        )
    table |= _small_files(sizing)
    return table


def _mood(
    *,
    announced_bytes: int | None,
    size_bytes: int = SIZE_BYTES,
    content: Content = "random",
    end: EndForm = "empty-blob",
    false_ends: tuple[FalseEnd, ...] = (),
    whole: Whole | None = None,
    change: Change | None = None,
    cap_bytes: int | None = None,
    own_page_bytes: int | None = None,
    extra_bytes: int = 0,
) -> Mood:
    """A mood whose answers take 10 to 15 ms, so that several are in flight."""
    return Mood(
        size_bytes=size_bytes,
        content=content,
        announced_bytes=announced_bytes,
        end=end,
        false_ends=false_ends,
        whole=whole,
        change=change,
        cap_bytes=cap_bytes,
        own_page_bytes=own_page_bytes,
        extra_bytes=extra_bytes,
        delay_seconds=0.01,
        jitter_seconds=0.005,
    )


def _wholes(size: int | None) -> dict[str, Cell]:
    places = {
        "first": Whole(times=1),
        "middle": Whole(at=PLACES["middle"], times=1),
        "tail": Whole(at=PLACES["late"], times=1),
        "one in three": Whole(every=3),
        "from the middle on": Whole(at=PLACES["middle"]),
        "always": Whole(),
    }
    contents: tuple[Content, ...] = ("random", "zeros", "period-256", "period-4096", "silence")
    return {
        f"whole file, {place}, {content}, {in_flight or 'many'} in flight": Cell(
            mood=_mood(announced_bytes=size, content=content, whole=whole),
            # After a first page as it should be, the announced length identifies the whole file.
            right=EXACT if size == SIZE_BYTES and whole.at else TYPED,
            in_flight=in_flight,
        )
        for place, whole in places.items()
        for content in contents
        for in_flight in (None, 1)
        if in_flight is None or content in {"random", "silence"}
    }


def _changes(size: int | None) -> dict[str, Cell]:
    sizes = {"shrinks": 600_000, "shrinks to what was read": 9000, "grows": 1_500_000}
    return {
        f"{how} after {reads} reads": Cell(
            mood=_mood(announced_bytes=size, change=Change(size_bytes=to, after_reads=reads)),
            right=TYPED | ({"lawful"} if to < SIZE_BYTES else frozenset()),
            lies=False,
        )
        for how, to in sizes.items()
        for reads in (1, 6, 10)
    }


def _pages(size: int | None, *, guarded: bool) -> dict[str, Cell]:
    """Servers with their own ideas of a page, honest and with one false end."""
    table: dict[str, Cell] = {}
    for lies, false_ends in ((False, ()), (True, (FalseEnd(at=PLACES["middle"]),))):
        with_lie = ", one false end" if lies else ""
        right = (TYPED if guarded else TYPED | LAWFUL) if lies else EXACT
        for name, mood in {
            "capped at 8 KiB": _mood(announced_bytes=size, cap_bytes=8192, false_ends=false_ends),
            "capped at 64 KiB": _mood(announced_bytes=size, cap_bytes=65_536, false_ends=false_ends),
            "own pages of 40,000": _mood(announced_bytes=size, own_page_bytes=40_000, false_ends=false_ends),
            "own pages of 300,001": _mood(
                announced_bytes=size, own_page_bytes=300_001, false_ends=false_ends
            ),
            "inclusive end": _mood(announced_bytes=size, extra_bytes=1, false_ends=false_ends),
        }.items():
            table[name + with_lie] = Cell(mood=mood, right=right, lies=lies)
    return table


def _small_files(sizing: Sizing) -> dict[str, Cell]:
    table: dict[str, Cell] = {}
    for content in get_args(Content):
        for size_bytes in (0, 1, 6, 4095, 8192 + 6, 8192 + 16_384 + 6, SIZE_BYTES):
            if content == "done-tail" and size_bytes <= 6 and sizing != "right":
                continue  # a file that is `[DONE]` and says no size is an empty one
            for end in FORMS if size_bytes < SIZE_BYTES else ("empty-blob",):
                mood = _mood(
                    announced_bytes=announced(size_bytes, sizing),
                    size_bytes=size_bytes,
                    content=content,
                    end=end,
                )
                table[f"{content}, {size_bytes} bytes, {end}"] = Cell(mood=mood, right=EXACT, lies=False)
    return table
