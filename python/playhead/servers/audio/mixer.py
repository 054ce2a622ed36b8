"""Mixers, which control the volume of the system, or only remember a number."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import trio

from playhead.errors import NoDeviceError, PlaybackError

COMMAND_SECONDS = 5.0
"""Limits a mixer command. It ends within milliseconds, or waits for a sound server that is not running."""

COMMANDS: Mapping[str, Callable[[int], list[str]]] = {
    "wpctl": lambda percent: ["set-volume", "@DEFAULT_AUDIO_SINK@", f"{percent}%"],
    "pactl": lambda percent: ["set-sink-volume", "@DEFAULT_SINK@", f"{percent}%"],
    "amixer": lambda percent: ["-q", "sset", "Master", f"{percent}%"],
    "osascript": lambda percent: ["-e", f"set volume output volume {percent}"],
}
"""The commands of PipeWire, PulseAudio, ALSA and macOS, in the order in which they are tried."""
RUNTIME_VARIABLE: Final = "XDG_RUNTIME_DIR"
RUNTIME_DIRECTORIES: Final = Path("/run/user")
"""The directory in which systemd and elogind make the runtime directory of each user id (XDG Base Directory
Specification)."""


class Mixer(Protocol):
    """A control of the volume."""

    async def set_volume(self, percent: int) -> str:
        """Set the volume, 0 to 100, and return a few words about the means.

        Raises:
            NoDeviceError: this machine has no mixer.
            PlaybackError: the mixer failed, or did not answer in time.
        """
        ...


class MemoryMixer:
    """A mixer that only remembers the volume, for demos, tests and machines without audio."""

    def __init__(self) -> None:
        self.percent: int | None = None

    async def set_volume(self, percent: int) -> str:
        """Remember `percent`."""
        await trio.lowlevel.checkpoint()
        self.percent = percent
        return "remembered, no mixer is used"


class SystemMixer:
    """The first mixer command that is installed and works."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        find: Callable[[str], str | None] = shutil.which,
        runtime_directories: Path = RUNTIME_DIRECTORIES,
    ) -> None:
        """`environment` is the environment of the commands; None is this process's own, unchanged.

        wpctl and pactl find the sound server in `XDG_RUNTIME_DIR`, which a client may omit when it starts a
        server. So the mixer adds the variable if the user's directory exists.
        """
        self._find = find
        self._environment = environment
        self._runtime_directory = runtime_directories / str(os.getuid())

    async def set_volume(self, percent: int) -> str:
        """Run one mixer command after the other, without a shell, until one succeeds. Cancellation kills the
        command. Raises as `Mixer`."""
        failures: list[str] = []
        for name, arguments in COMMANDS.items():
            if (path := self._find(name)) is None:
                continue
            try:
                await _run_command([path, *arguments(percent)], environment=self._mixer_environment())
            except PlaybackError as error:
                failures.append(str(error))
            else:
                return f"through {name}"
        if failures:
            raise PlaybackError("; ".join(failures))
        raise NoDeviceError(
            f"no mixer is installed (looked for {', '.join(COMMANDS)}); "
            "install one, or start the server with --mixer memory"
        )

    def _mixer_environment(self) -> Mapping[str, str] | None:
        variables = self._environment
        if variables is None or variables.get(RUNTIME_VARIABLE) or not self._runtime_directory.is_dir():
            return variables
        return {**variables, RUNTIME_VARIABLE: str(self._runtime_directory)}


async def _run_command(argv: list[str], *, environment: Mapping[str, str] | None) -> None:
    with trio.move_on_after(COMMAND_SECONDS) as scope:
        try:
            process = await trio.run_process(
                argv, stdin=b"", capture_stdout=True, capture_stderr=True, check=False, env=environment
            )
        except OSError as error:  # this command can't run; try the next one
            raise PlaybackError(f"{argv[0]} cannot be run: {error.strerror}") from error
        if process.returncode != 0:
            message = process.stderr.decode("utf-8", "replace").strip()[:500] or "no message"
            raise PlaybackError(f"{argv[0]} failed with exit code {process.returncode}: {message}")
    if scope.cancelled_caught:
        raise PlaybackError(f"{argv[0]} did not answer within {COMMAND_SECONDS:g} s")
