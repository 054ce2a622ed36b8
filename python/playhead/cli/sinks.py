"""The sinks that `--sink` names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from playhead.cli.parameters import file_to_write
from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.playback import Sink


SINKS: Final = ("device", "null", "wave:FILE", "pcm:FILE", "frames:FILE", "frames+opus:FILE")
"""The forms of `--sink`. Help and checks need only these names. `make_sink` imports the sinks, which takes
longer than the start of most commands."""
_FORMS: Final = f"{', '.join(SINKS[:-1])} or {SINKS[-1]}"
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
    from playhead import playback as to

    match form:
        case "device":
            return to.DeviceSink(device=device)
        case "null":
            return to.NullSink(real_time=real_time)
        case "wave:FILE":
            return to.WaveSink(path)
        case "pcm:FILE":
            return to.PcmSink(path)
        case _:
            codec = to.FrameCodec.OPUS if form == "frames+opus:FILE" else to.FrameCodec.PCM
            return to.FrameFileSink(path, codec=codec)


def check_sink(text: str | None, *, stdout_has: str = _RESULT) -> tuple[str, Path]:
    """Return the form of `--sink` in `SINKS`, and its file, if any, without importing the sink.

    `stdout_has` describes what the command prints to stdout; it is empty for nothing. Raises `UsageError` for
    an unknown form, a file that cannot be written, or `pcm:-` if stdout is not free or a terminal.
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
