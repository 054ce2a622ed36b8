"""Arguments and options shared by several commands, and the parsers of their values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import trio
import typer

from playhead.errors import NoDeviceError, UsageError
from playhead.stream.saving import is_device

if TYPE_CHECKING:
    from playhead.playback import Sink

_SERVER = typer.Argument(
    metavar="SERVER",
    help="A name from the servers file, an http(s):// or ws(s):// URL, or a command line in quotes.",
    show_default=False,
)
Server = Annotated[str, _SERVER]
ServerOrNone = Annotated[str | None, _SERVER]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The mcpServers file. [default: the user's, and ./mcp.json]"
    ),
]
ToolConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--tool-config",
        metavar="FILE",
        help="The tool configuration. [default: the user's, and ./playhead-tools.toml]",
    ),
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Use the configuration files of the current directory without asking."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout at the end.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.001,
        metavar="SECONDS",
        help="Longest silence within an answer, and in the handshake.",
    ),
]
Patience = Annotated[
    float | None,
    typer.Option(
        "--patience",
        min=0.001,
        metavar="SECONDS",
        help="Longest wait of a stream for its next byte before it fails. [default: 60]",
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option(
        "--deadline",
        min=0.001,
        metavar="SECONDS",
        help="Stop the whole command after this time, with exit code 1.",
    ),
]
Pairs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Arguments of the tool; values are JSON if they parse, else strings.",
        show_default=False,
    ),
]
ArgsJson = Annotated[
    str | None, typer.Option("--args", metavar="JSON", help="All arguments of the tool, as a JSON object.")
]
SinkName = Annotated[
    str | None, typer.Option("--sink", metavar="device|null|wave:FILE", help="Where to play.")
]
Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="How ranges are requested: uri-template, arguments, meta or whole. [default: chosen]",
    ),
]
PageSize = Annotated[
    str | None, typer.Option("--page-size", metavar="SIZE", help="Largest page, e.g. 100KiB or 1MiB.")
]
InFlight = Annotated[
    int | None,
    typer.Option("--in-flight", min=1, max=64, help="Most reads in flight. [default: adaptive]"),
]
Capacity = Annotated[
    str | None, typer.Option("--capacity", metavar="SIZE", help="Read-ahead buffer, e.g. 4MiB.")
]
Extra = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="KEY=VALUE", help="Extra argument of each ranged read; repeatable."),
]
Size = Annotated[str | None, typer.Option("--size", metavar="SIZE", help="Size of the resource, if known.")]
MaxBytes = Annotated[
    str | None, typer.Option("--max-bytes", metavar="SIZE", help="Fail if the stream is longer than this.")
]

_UNITS = {"": 1, "b": 1, "k": 1024, "kib": 1024, "kb": 1000, "m": 1024**2, "mib": 1024**2, "mb": 10**6}
_UNITS |= {"g": 1024**3, "gib": 1024**3, "gb": 10**9}


def parse_size(text: str, *, option: str) -> int:
    """Parse `102400`, `100KiB`, `1M` (binary) or `1MB` (decimal) as a positive number of bytes."""
    number = text.strip().rstrip("bBkKmMgGiI")
    unit = text.strip()[len(number) :].lower()
    try:
        size = int(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        size = 0
    if size <= 0:
        raise UsageError(f"{option}: expected a size such as 102400, 100KiB or 1MiB, got {text!r}")
    return size


def parse_pairs(pairs: Sequence[str] | None, *, option: str) -> dict[str, Any]:
    """Parse `key=value` pairs: a value is JSON if it parses, a string otherwise."""
    found: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{option}: expected key=value, got {pair!r}")
        if key in found:
            raise UsageError(f"{option}: {key!r} is given twice; give a list as JSON, e.g. {key}='[1, 2]'")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def parse_arguments(pairs: Sequence[str] | None, whole: str | None) -> dict[str, Any]:
    """Parse a tool's arguments from `key=value` pairs or from `--args`, never both."""
    if whole is None:
        return parse_pairs(pairs, option="arguments")
    if pairs:
        raise UsageError("expected key=value arguments or --args, got both")
    try:
        value = json.loads(whole)
    except ValueError as error:
        raise UsageError(f"--args: expected a JSON object, got {whole!r} ({error})") from error
    if not isinstance(value, dict):
        raise UsageError(f"--args: expected a JSON object, got {type(value).__name__}: {whole!r}")
    return value


def make_sink(text: str | None, *, real_time: bool) -> Sink:
    """Make the sink that `--sink` names, by default the audio device.

    Raises `UsageError` for an unknown name. A missing device is reported when it is opened (`NoDeviceError`).
    """
    from playhead.playback import DeviceSink, NullSink, WaveSink

    match (text or "device").partition(":"):
        case ("device", "", _):
            return DeviceSink()
        case ("null", "", _):
            return NullSink(real_time=real_time)
        case ("wave", ":", path) if path:
            return WaveSink(file_to_write(Path(path), option="--sink wave"))
        case _:
            raise UsageError(f"--sink: expected device, null or wave:FILE, got {text!r}")


def file_to_write(path: Path, *, option: str) -> Path:
    """Check that `path` can be written as a file, before a server is asked for anything."""
    if path.is_dir():
        raise UsageError(f"{option}: expected a file, got the directory {path}; add a file name")
    is_device(path)  # raises for files that must not be replaced
    if not path.parent.is_dir():
        raise UsageError(f"{option}: can't write {path}: the directory {path.parent} does not exist")
    return path


async def has_device() -> bool:
    """Check that an audio device can be opened. Silent, and in a thread: a probe can take a second."""
    from playhead.playback.formats import PcmFormat
    from playhead.playback.sinks.device import open_device

    try:
        device = await trio.to_thread.run_sync(open_device, PcmFormat(rate_hz=44_100, channels=2))
    except NoDeviceError:
        return False
    await trio.to_thread.run_sync(device.close)
    return True
