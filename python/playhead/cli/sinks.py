"""The sinks that `--sink` names: one table, for its help, its check and the sinks themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from playhead.cli.parameters import file_to_write
from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.playback import Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The settings of every sink; each uses those that concern it."""

    path: Path
    """The `FILE` of `--sink`."""
    real_time: bool
    device: str | None


def _device(settings: SinkSettings) -> Sink:
    from playhead.playback import DeviceSink

    return DeviceSink(device=settings.device)


def _null(settings: SinkSettings) -> Sink:
    from playhead.playback import NullSink

    return NullSink(real_time=settings.real_time)


def _wave(settings: SinkSettings) -> Sink:
    from playhead.playback import WaveSink

    return WaveSink(settings.path)


def _pcm(settings: SinkSettings) -> Sink:
    from playhead.playback import PcmSink

    return PcmSink(settings.path)


def _frames(settings: SinkSettings) -> Sink:
    from playhead.playback import FrameFileSink

    return FrameFileSink(settings.path)


def _opus_frames(settings: SinkSettings) -> Sink:
    from playhead.playback import FrameCodec, FrameFileSink

    return FrameFileSink(settings.path, codec=FrameCodec.OPUS)


SINKS: Final[Mapping[str, Callable[[SinkSettings], Sink]]] = {
    "device": _device,
    "null": _null,
    "wave:FILE": _wave,
    "pcm:FILE": _pcm,
    "frames:FILE": _frames,
    "frames+opus:FILE": _opus_frames,
}
"""The forms of `--sink`, each with the function that imports and makes its sink.

The table is not in `playback.sinks`, because the import of that package takes longer than the start of most
commands, whose help and checks need the names only.
"""
_FORMS: Final = f"{', '.join([*SINKS][:-1])} or {[*SINKS][-1]}"
_RESULT: Final = "the result of this command"

SinkName = Annotated[
    str | None,
    typer.Option(
        "--sink",
        metavar="SINK",
        help=f"Where to play: {_FORMS}. PCM is bare 16-bit samples, and pcm:- is stdout; frames are of 60 ms,"
        " in real time.",
    ),
]


def make_sink(
    text: str | None, *, real_time: bool, stdout_has: str = _RESULT, device: str | None = None
) -> Sink:
    """Make the sink that `--sink` names, by default the audio device, which `--device` may name.

    Raises as `check_sink`. A missing device is reported when it is opened (`NoDeviceError`).
    """
    form, path = check_sink(text, stdout_has=stdout_has)
    return SINKS[form](SinkSettings(path=path, real_time=real_time, device=device))


def check_sink(text: str | None, *, stdout_has: str = _RESULT) -> tuple[str, Path]:
    """Return the form of `--sink` in `SINKS`, and its file, if any, without importing the sink.

    `stdout_has` is what the command prints to stdout, empty if nothing. Raises `UsageError` for an unknown
    name, a file that cannot be written, or `pcm:-` if stdout is not free or a terminal.
    """
    name, colon, path = (text or "device").partition(":")
    form = f"{name}:FILE" if colon else name
    if form not in SINKS or (colon and not path):
        raise UsageError(f"--sink: expected {_FORMS}, got {text!r}")
    if not colon:
        return form, Path()
    if (name, path) == ("pcm", "-"):
        if stdout_has:
            raise UsageError(f"--sink pcm:- needs stdout, which has {stdout_has}; use --sink pcm:FILE")
        if sys.stdout.isatty():
            raise UsageError(
                "--sink pcm:-: samples are not printed on a terminal; pipe them, or use pcm:FILE"
            )
        return form, Path("-")
    return form, file_to_write(Path(path), option=f"--sink {name}")
