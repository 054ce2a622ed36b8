"""Status lines while a stream waits, and the warning about a wrong size."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
import trio.testing

from playhead.agent.commands.chat_view import ChatView, show_waiting
from playhead.agent.events import AudioResumed, AudioWaiting
from playhead.cli.listening import stream_report, waiting_lines, warn_of_server
from playhead.cli.terminal import Terminal
from playhead.errors import ConnectionLostError, PlayheadError
from playhead.playback import NullSink, Player
from playhead.stream.answer import Page
from playhead.stream.options import StreamEvent, StreamOptions, StreamResumed, StreamWaiting
from playhead.stream.reader import open_stream
from playhead.testing.media import ScriptedMedia, ScriptedReader
from tests.servers.wave import wave_header

DATA = bytes(range(256)) * 8


def waiting(error: PlayheadError | None) -> StreamWaiting:
    return StreamWaiting(seconds=3.2, offset=7, last_error=error, patience_seconds=60.0)


def said(capsys: pytest.CaptureFixture[str], *events: StreamWaiting | StreamResumed) -> list[str]:
    say = waiting_lines(Terminal(json_output=False), "radio\x1b")
    for event in events:
        say(event)
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_waiting_is_one_line_with_the_reason_and_what_decides(capsys: pytest.CaptureFixture[str]) -> None:
    error = ConnectionLostError("it ended\nand said a lot")
    (line,) = said(capsys, waiting(error))
    assert line == ("waiting for radio\\x1b, no data for 3 s: it ended…; giving up after 60 s (--patience)")


def test_an_answer_that_has_begun_is_given_up_after_its_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    begun = StreamWaiting(seconds=3.2, offset=7, last_error=None, patience_seconds=31.04, ended_by="timeout")
    (line,) = said(capsys, begun)
    assert line == "waiting for radio\\x1b, no data for 3 s; giving up after 31 s (--timeout)"


def test_a_long_reason_is_cut_and_none_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = said(capsys, waiting(ConnectionLostError("x" * 5000)))
    assert len(line) < 400
    (line,) = said(capsys, waiting(None))
    assert line == "waiting for radio\\x1b, no data for 3 s; giving up after 60 s (--patience)"


def test_the_end_of_the_wait_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, StreamResumed(seconds=12.4)) == ["radio\\x1b is back after 12 s"]


def test_a_chat_says_that_audio_waits_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    view = ChatView(Terminal(json_output=False), verbose=False)
    view(AudioWaiting(round=1, title="Owls\x1b", seconds=3.2, last_error="cut\nhere", patience_seconds=60.0))
    view(AudioWaiting(round=1, title="", seconds=3.2, last_error=None, patience_seconds=60.0))
    view(AudioResumed(round=1, title="Owls", seconds=12.4))
    assert capsys.readouterr().err.splitlines() == [
        "Owls\\x1b: no data for 3 s: cut…; giving up after 60 s",
        "audio: no data for 3 s; giving up after 60 s",
        "Owls goes on after 12 s",
    ]


async def test_after_a_turn_the_player_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    async with Player(NullSink(real_time=False)) as player, trio.open_nursery() as nursery:
        nursery.start_soon(show_waiting, player, Terminal(json_output=False))
        await trio.testing.wait_all_tasks_blocked()
        media = ScriptedMedia(reader=_Waits(wave_header(1000) + bytes(956)), title="Owls")
        await player.play(media)
        await player.wait_finished()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert capsys.readouterr().err.splitlines() == [
        "Owls: no data for 3 s; giving up after 60 s",
        "Owls goes on after 12 s",
    ]


class _Waits(ScriptedReader):
    """Waits as soon as it is watched."""

    def watch(self, on_event: Callable[[StreamEvent], None]) -> None:
        on_event(waiting(None))
        on_event(StreamResumed(seconds=12.4))


@pytest.mark.parametrize(
    ("announced", "warning"),
    [(2048, ""), (1000, "warning: the announced size of 1000 bytes is wrong, the resource has 2048\n")],
)
async def test_a_wrong_size_is_one_warning_beside_json_too(
    announced: int, warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def read_range(start: int, end: int) -> Page:
        part = DATA[start:end]
        return Page(blobs=(part,) if part else ())

    async with open_stream(read_range, options=StreamOptions(size_bytes=announced)) as stream:
        assert await stream.read_all() == DATA
        warn_of_server(stream.statistics(), Terminal(json_output=True))
        assert stream_report(stream.statistics())["size_was_wrong"] is bool(warning)
    assert capsys.readouterr() == ("", warning)


async def test_ranges_that_are_ignored_from_some_byte_on_are_one_warning_beside_json_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = random.Random(3).randbytes(60_000)

    async def read_range(start: int, end: int) -> Page:
        return Page(blobs=(data if start >= 24_576 else data[start:end],))

    async with open_stream(read_range, options=StreamOptions(size_bytes=len(data))) as stream:
        assert await stream.read_all() == data
        warn_of_server(stream.statistics(), Terminal(json_output=True))
        assert stream_report(stream.statistics())["ranges_ignored_from"] == 24_576
    assert capsys.readouterr() == (
        "",
        "warning: expected ranges to be honoured, got the whole resource in answer to the range from byte"
        " 24576 on; no byte was lost, but tell the server's author\n",
    )
