"""The player at the terminal: three lines at any width, with foreign titles made safe."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from playhead.cli.listening import PlayerView
from playhead.cli.terminal import seconds_of
from playhead.playback.state import PlayerState, Status
from playhead.stream.options import StreamStatistics

NOW = PlayerState(
    status=Status.PLAYING,
    title="First Light",
    position_seconds=42.0,
    duration_seconds=190.0,
    buffered_seconds=0.4,
    stream_bytes_per_second=16_000.0,
    volume=80,
)


def drawn(view: PlayerView, *, columns: int) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=columns, force_terminal=True, color_system="truecolor").print(view)
    plain = Console(file=io.StringIO(), width=columns)
    with plain.capture() as captured:
        plain.print(view)
    assert output.getvalue().count("\n") == 3
    return captured.get().splitlines()


@pytest.mark.parametrize(
    ("columns", "details"),
    [
        (80, "playing · 10.4 s buffered · 128 kbit/s · volume 80"),
        (40, "playing · 10.4 s buffered · 128 kbit/s …"),
    ],
)
def test_title_position_bar_duration_and_buffers_fit(columns: int, details: str) -> None:
    lines = drawn(PlayerView(now=NOW, buffered_bytes=160_000), columns=columns)
    position, bar, duration = lines[1].split()
    assert (lines[0], position, duration, lines[2]) == ("First Light", "0:42", "3:10", details)
    assert set(bar) <= set("━╸")
    assert len(bar) == pytest.approx((columns - 10) * 42 / 190, abs=1)
    assert len(lines[1]) == columns


@pytest.mark.parametrize("columns", [80, 40, 10])
def test_long_and_foreign_titles_take_one_line_and_are_escaped(columns: int) -> None:
    title = "\x1b]0;owned\x07" + "好" * 100 + "\n\u202e"
    lines = drawn(PlayerView(now=replace(NOW, title=title), of_all=" (1 of 2)"), columns=columns)
    assert len(lines) == 3
    assert lines[0].startswith("\\x1b]0;"[: columns - 1])
    assert "\x1b" not in "".join(lines)
    assert lines[0].endswith("…")


def test_each_number_of_the_stream_has_a_name() -> None:
    stream = SimpleNamespace(
        bandwidth_bytes_per_second=1_250_000.0, bytes=219_475, reads=SimpleNamespace(cache_bytes=102_400)
    )
    view = PlayerView(now=NOW, stream=cast("StreamStatistics", stream))
    assert drawn(view, columns=120)[2].partition("volume 80 · ")[2] == (
        "link 1.2 MiB/s · 214.3 KiB read · 100.0 KiB from the cache"
    )


def test_a_position_that_is_estimated_is_marked() -> None:
    lines = drawn(PlayerView(now=replace(NOW, position_is_exact=False)), columns=40)
    assert lines[1].startswith("~0:42 ━")


def test_what_is_unknown_is_left_out() -> None:
    now = PlayerState(status=Status.BUFFERING)
    assert drawn(PlayerView(now=now), columns=80) == [
        "audio",
        "0:00",
        "buffering · 0.0 s buffered · volume 100",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("7.5", 7.5),
        ("1:30", 90.0),
        ("0:00:07", 7.0),
        ("1:02:03.5", 3723.5),
        ("", None),
        ("-1", None),
        ("1:", None),
        ("1:2:3:4", None),
        ("١", None),
        ("nan", None),
    ],
)
def test_a_time_is_written_as_it_is_shown(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds
