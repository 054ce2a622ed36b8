"""Sets the volume of the system, or only remembers it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Protocol

import trio

from playhead.errors import NoDeviceError, PlaybackError

COMMAND_SECONDS = 5.0
"""A mixer answers in milliseconds, or waits for a sound server that is not there."""

COMMANDS: Mapping[str, Callable[[int], list[str]]] = {
    "wpctl": lambda percent: ["set-volume", "@DEFAULT_AUDIO_SINK@", f"{percent}%"],
    "pactl": lambda percent: ["set-sink-volume", "@DEFAULT_SINK@", f"{percent}%"],
    "amixer": lambda percent: ["-q", "sset", "Master", f"{percent}%"],
    "osascript": lambda percent: ["-e", f"set volume output volume {percent}"],
}
"""PipeWire, PulseAudio, ALSA, macOS: in the order in which they are looked for."""


class Mixer(Protocol):
    """Something that has a volume."""

    async def set_volume(self, percent: int) -> str:
        """Sets the volume, 0 to 100, and says in a few words where.

        Raises:
            NoDeviceError: there is no mixer here.
            PlaybackError: the mixer refused, or gave no answer in time.
        """
        ...


class MemoryMixer:
    """Keeps the number and touches nothing: for demos, tests and machines without sound."""

    def __init__(self) -> None:
        self.percent: int | None = None

    async def set_volume(self, percent: int) -> str:
        """Remembers `percent`."""
        await trio.lowlevel.checkpoint()
        self.percent = percent
        return "remembered, no mixer is used"


class SystemMixer:
    """The first mixer command that is installed."""

    def __init__(self, *, find: Callable[[str], str | None] = shutil.which) -> None:
        self._find = find

    async def set_volume(self, percent: int) -> str:
        """Runs the mixer's command, without a shell; cancelling kills the command. Raises as `Mixer`."""
        for name, arguments in COMMANDS.items():
            if (path := self._find(name)) is not None:
                await _run([path, *arguments(percent)])
                return f"through {name}"
        raise NoDeviceError(
            f"no mixer is installed here (looked for {', '.join(COMMANDS)}); "
            "install one, or start the server with --mixer memory"
        )


async def _run(argv: list[str]) -> None:
    with trio.move_on_after(COMMAND_SECONDS) as scope:
        done = await trio.run_process(argv, stdin=b"", capture_stdout=True, capture_stderr=True, check=False)
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip()[:500]
            raise PlaybackError(f"{argv[0]} failed with exit code {done.returncode}: {said or 'no message'}")
    if scope.cancelled_caught:
        raise PlaybackError(f"{argv[0]} gave no answer within {COMMAND_SECONDS:g} s")
