"""Views at the terminal: a few lines at any width, with foreign titles made safe."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from rich.console import Console

from playhead.cli.terminal import seconds_of
from playhead.cli.views import CallView, PlayerView, TransferView
from playhead.playback.state import PlayerState, Status
from playhead.stream.options import StreamStatistics
from playhead.stream.reader import RangeStream

NOW = PlayerState(
    status=Status.PLAYING,
    title="First Light",
    position_seconds=42.0,
    duration_seconds=190.0,
    buffered_seconds=0.4,
    stream_bytes_per_second=16_000.0,
    volume=80,
)


def drawn(view: PlayerView | TransferView | CallView, *, columns: int, lines: int = 3) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=columns, force_terminal=True, color_system="truecolor").print(view)
    plain = Console(file=io.StringIO(), width=columns)
    with plain.capture() as captured:
        plain.print(view)
    assert output.getvalue().count("\n") == lines
    return captured.get().splitlines()


@pytest.mark.parametrize(
    ("columns", "details"),
    [
        (80, "playing · 10.4 s buffered · 128 kbit/s · volume 80"),
        (40, "playing · 10.4 s buffered · 128 kbit/s"),
        (37, "playing · 10.4 s buffered"),
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


class Transfer:
    """A stream of which a number of bytes was delivered."""

    n_bytes = 0

    def __init__(self, size: int | None) -> None:
        self._size = size

    def statistics(self) -> SimpleNamespace:
        return SimpleNamespace(
            bytes=self.n_bytes,
            bandwidth_bytes_per_second=19e6,
            size_bytes=self._size,
            end_bytes=None,
            in_flight=3,
            reads=SimpleNamespace(cache_bytes=0),
        )


async def test_the_rate_of_a_transfer_is_that_of_its_last_seconds(autojump_clock: object) -> None:
    stream = Transfer(40 * 2**20)
    view = TransferView(title="slow\x1b", stream=cast("RangeStream", stream))
    assert drawn(view, columns=60)[2] == "reading · 3 in flight"
    for seconds in range(1, 11):
        await trio.sleep(1)
        stream.n_bytes += 2**20 if seconds <= 5 else 3 * 2**20
        lines = drawn(view, columns=60)
    assert lines[0] == "slow\\x1b"
    assert lines[1].split()[0:2] == ["20.0", "MiB"]
    assert lines[1].endswith(" 40.0 MiB")
    assert lines[2] == "3.0 MiB/s · 0:06 left · 3 in flight"


async def test_without_a_size_there_is_no_bar_and_no_time_left(autojump_clock: object) -> None:
    stream = Transfer(None)
    view = TransferView(title="slow", stream=cast("RangeStream", stream))
    drawn(view, columns=60, lines=2)
    await trio.sleep(2)
    stream.n_bytes = 2**20
    assert drawn(view, columns=60, lines=2) == ["slow", "1.0 MiB · 512.0 KiB/s · 3 in flight"]


async def test_a_call_shows_its_time_and_the_progress_that_is_reported(autojump_clock: object) -> None:
    view = CallView(tool="render\x1b")
    await trio.sleep(2)
    assert drawn(view, columns=40, lines=1) == ["calling render\\x1b · 2 s"]
    view.progress, view.message = 3, "rendering\na bar" + "!" * 50
    assert drawn(view, columns=40)[1] == "3"
    view.total = 12
    lines = drawn(view, columns=40)
    assert lines[1].startswith("3 ━━━")
    assert lines[1].endswith(" 12")
    assert lines[2] == r"rendering\na bar" + "!" * 23 + "…"


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


def test_a_live_item_shows_its_present_title_and_no_duration() -> None:
    now = replace(NOW, title="Station", is_live=True, stream_title="Band - Song", duration_seconds=None)
    lines = drawn(PlayerView(now=now), columns=60, lines=4)
    assert lines[:2] == ["Station", "Band - Song"]
    assert lines[2].endswith("live")
