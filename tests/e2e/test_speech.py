"""Speech with the command: it is heard while it is made, from a link or from the progress of a call."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.command import AUDIO_SERVER, HANG_SECONDS, environment
from tests.tones import sine

RATE_HZ = 22_050
SPEECH = sine(2 * RATE_HZ, RATE_HZ).tobytes()
UNKNOWN_SIZE = 0x7FFF_F000
"""The size of the data that espeak-ng writes into the header of a stream."""
HEADER = struct.pack(
    "<4sI4s4sIHHIIHH4sI",
    *(b"RIFF", UNKNOWN_SIZE + 36, b"WAVE", b"fmt ", 16, 1, 1, RATE_HZ, 2 * RATE_HZ, 2, 16),
    *(b"data", UNKNOWN_SIZE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A program in place of espeak-ng, which makes the second half of its speech when it may."""

    folder: Path

    def install(self) -> None:
        program = self.folder / "espeak-ng"
        halves = [self.folder / name for name in ("first", "second")]
        halves[0].write_bytes(HEADER + SPEECH[: len(SPEECH) // 2])
        halves[1].write_bytes(SPEECH[len(SPEECH) // 2 :])
        os.mkfifo(self.folder / "go on")
        program.write_text(
            f"#!/bin/sh\ncat >/dev/null\ncat '{halves[0]}'\ncat '{self.folder / 'go on'}' '{halves[1]}'\n"
        )
        program.chmod(0o700)

    def go_on(self) -> None:
        """Make the second half. Waits until the program has made the first."""
        (self.folder / "go on").write_bytes(b"")

    @contextmanager
    def command(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the installed command, with this program for its server."""
        path = os.pathsep.join([str(self.folder), os.environ["PATH"]])
        process = subprocess.Popen(
            [Path(sys.executable).with_name("playhead"), *arguments],
            env=environment() | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = Engine(folder=tmp_path)
    engine.install()
    return engine


@pytest.mark.parametrize("wait", ["false", "true"], ids=["a link at once", "a link in the progress"])
def test_play_plays_speech_while_it_is_made(engine: Engine, wait: str) -> None:
    with engine.command(
        "play", AUDIO_SERVER, "speak", "text=Dinner is ready.", f"wait={wait}", "--sink", "pcm:-"
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        half = process.stdout.read(len(SPEECH) // 4)
        engine.go_on()
        rest, errors = process.stdout.read(), process.stderr.read()
        assert process.wait(HANG_SECONDS) == 0, errors
    assert half + rest == SPEECH
    assert b"played 0:02" in errors


def test_call_plays_speech_while_the_call_goes_on_and_once(engine: Engine) -> None:
    sink = engine.folder / "heard.wav"
    with engine.command(
        "call", AUDIO_SERVER, "speak", "text=Dinner is ready.", "wait=true", "--sink", f"wave:{sink}"
    ) as process:
        assert process.stderr is not None
        before = next(line for line in process.stderr if b"playing" in line)
        engine.go_on()
        assert process.stdout is not None
        result, errors = process.stdout.read(), process.stderr.read()
        assert process.wait(HANG_SECONDS) == 0, errors
    assert b"Dinner is ready." in before
    assert b"playing" not in errors
    assert result.decode().startswith("link: Dinner is ready. <speech://")
    with wave.open(str(sink)) as heard:
        assert heard.readframes(3 * RATE_HZ) == SPEECH
