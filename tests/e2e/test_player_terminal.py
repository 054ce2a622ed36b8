"""`playhead play` and `demo` at a terminal: keys, progress, and a terminal that is restored."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.e2e.command import AUDIO_SERVER, playhead
from tests.e2e.typist import Typist, at_keyboard
from tests.servers.wave import wave_header

SCREEN = "xterm-256color"
IN_REAL_TIME = ("--sink", "null", "--real-time")
CTRL_C, CTRL_Z, DOWN, RIGHT, LEFT = "\x03", "\x1a", "\x1b[B", "\x1b[C", "\x1b[D"
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def song(tmp_path: Path) -> Path:
    """Ten minutes and a second of silence in a sparse file."""
    size = 601 * 44_100 * 4
    (library := tmp_path / "library").mkdir()
    path = library / "song\x1b[5m.wav"
    path.write_bytes(wave_header(size))
    os.truncate(path, path.stat().st_size + size)
    return path


def lines(person: Typist) -> list[str]:
    return [SEQUENCE.sub("", line) for line in re.split(r"\r?\n|\r", person.screen)]


@pytest.mark.parametrize("columns", [80, 40])
async def test_keys_control_the_player_and_its_state_is_shown(
    columns: int, song: Path, tmp_path: Path
) -> None:
    async with at_keyboard("play", song, *IN_REAL_TIME, cwd=tmp_path, columns=columns, term=SCREEN) as person:
        await person.see("space pause")
        await person.see("song\\x1b[5m")
        await person.see("━")
        await person.see("10:0")
        await person.see("playing · ")
        assert not person.echoes
        person.press(" ")
        await person.see("paused · ")
        person.press(" ")
        await person.see("playing · ")
        if columns == 80:
            person.press(DOWN + DOWN[:1])
            await person.see("volume 95")
            person.press(DOWN[1:])
            await person.see("volume 90")
        person.press("q")
        await person.see("played 0")
        assert await person.end() == 0
        assert person.echoes
    assert max(map(len, lines(person))) <= columns
    assert "\x1b[5m" not in person.screen


@pytest.mark.parametrize("columns", [80, 40])
async def test_arrows_seek_and_are_understood_in_any_pieces(columns: int, song: Path, tmp_path: Path) -> None:
    async with at_keyboard("play", song, *IN_REAL_TIME, cwd=tmp_path, columns=columns, term=SCREEN) as person:
        await person.see("playing · ")
        person.press(" ")
        await person.see("paused · ")
        person.press(LEFT * 100)
        await person.see("\n0:00 ")
        for key in RIGHT * 12:
            person.press(key)
        await person.see("\n1:00 ")
        person.press(LEFT + LEFT)
        await person.see("\n0:50 ")
        person.press("q")
        assert await person.end() == 0


@pytest.mark.parametrize(("ending", "code"), [("Ctrl-C", 130), ("SIGTERM", 143), ("SIGHUP", 129), ("n", 0)])
async def test_the_terminal_is_restored_however_the_command_ends(
    ending: str, code: int, song: Path, tmp_path: Path
) -> None:
    if ending == "SIGHUP" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        pytest.skip("SIGHUP is ignored here, as under nohup, and so it is by the command")
    async with at_keyboard("play", song, *IN_REAL_TIME, cwd=tmp_path, term=SCREEN) as person:
        await person.see("playing · ")
        assert not person.echoes
        if ending.startswith("SIG"):
            person.send_signal(signal.Signals[ending])
        else:
            person.press(CTRL_C if ending == "Ctrl-C" else ending)
        assert await person.end() == code
        assert person.echoes
        assert person.screen.rindex("\x1b[?25h") > person.screen.rindex("\x1b[?25l"), "the cursor is shown"


async def test_the_terminal_is_restored_by_a_second_signal_that_ends_at_once(
    song: Path, tmp_path: Path
) -> None:
    async with at_keyboard("play", song, *IN_REAL_TIME, cwd=tmp_path, term=SCREEN) as person:
        await person.see("playing · ")
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            person.send_signal(number)
        assert await person.end() in (130, 143)
        assert person.echoes


async def test_the_terminal_is_restored_after_the_server_crashed(song: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    once = f"test ! -e {started} || exit 1; echo $$ > {started}"  # it can't be started again
    server = f"sh -c '{once}; exec {AUDIO_SERVER} --library {song.parent}'"
    words = ("musicPlayer", "query=song", *IN_REAL_TIME, "--capacity", "256KiB", "--patience", "0.5")
    async with at_keyboard("play", server, *words, cwd=tmp_path, term=SCREEN) as person:
        await person.see("playing · ")
        assert not person.echoes
        os.kill(int(started.read_text()), signal.SIGKILL)
        await person.see("error: ")
        assert await person.end() in (1, 3)
        assert person.echoes


async def test_a_key_during_the_demo_makes_no_false_comparison(tmp_path: Path) -> None:
    async with at_keyboard("demo", *IN_REAL_TIME, cwd=tmp_path, term=SCREEN) as person:
        await person.see("playing · ")
        person.press("q")
        await person.see("underruns")
        assert await person.end() == 0
        assert "local decode" not in person.screen


async def test_what_is_typed_meanwhile_does_not_reach_the_shell(song: Path, tmp_path: Path) -> None:
    async with at_keyboard("play", song, *IN_REAL_TIME, cwd=tmp_path, term=SCREEN) as person:
        await person.see("playing · ")
        person.press("xyz")
        person.press(CTRL_Z)  # there is no shell to continue us: ignored
        person.press(" ")
        await person.see("paused · ")
        assert not person.echoes
        person.press("q")
        assert await person.end() == 0
    assert "xyz" not in person.screen


def test_in_a_pipe_nothing_is_drawn_and_no_key_is_read(tmp_path: Path) -> None:
    path = tmp_path / "short.wav"
    path.write_bytes(wave_header(4410) + bytes(4410))
    done = playhead("play", path, "--sink", "null", stdin=b"qqq")
    assert (done.code, done.stdout, done.stderr) == (0, b"", "played 0.1 s, underruns 0\n")
