"""The arguments and options that several commands share, each defined once, and how their texts are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from playhead.errors import UsageError

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
        "--config", metavar="FILE", help="The mcpServers file. [default: ./mcp.json, then the user's]"
    ),
]
ToolConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--tool-config",
        metavar="FILE",
        help="The tool configuration. [default: ./playhead-tools.toml, then the user's]",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout at the end.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.001,
        metavar="SECONDS",
        help="How long one answer may take, from its last byte; the handshake too.",
    ),
]
Pairs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Arguments of the tool: JSON where the value parses, else a string.",
        show_default=False,
    ),
]
ArgsJson = Annotated[
    str | None, typer.Option("--args", metavar="JSON", help="The tool's arguments whole, as a JSON object.")
]
SinkName = Annotated[
    str | None, typer.Option("--sink", metavar="device|null|wave:FILE", help="Where the sound goes.")
]
Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="The range form: uri-template, arguments, meta or whole. [default: chosen]",
    ),
]
PageSize = Annotated[
    str | None, typer.Option("--page-size", metavar="SIZE", help="The largest page, e.g. 100KiB or 1MiB.")
]
InFlight = Annotated[int | None, typer.Option("--in-flight", min=1, max=64, help="Reads in flight at most.")]
Capacity = Annotated[str | None, typer.Option("--capacity", metavar="SIZE", help="Bytes read ahead at most.")]
Extra = Annotated[
    list[str] | None,
    typer.Option(
        "--arg", metavar="KEY=VALUE", help="An extra argument of each ranged read (may be repeated)."
    ),
]
Size = Annotated[
    str | None, typer.Option("--size", metavar="SIZE", help="The resource's size, where it is known.")
]
MaxBytes = Annotated[
    str | None, typer.Option("--max-bytes", metavar="SIZE", help="Give up on a stream longer than this.")
]

_UNITS = {"": 1, "b": 1, "k": 1024, "kib": 1024, "kb": 1000, "m": 1024**2, "mib": 1024**2, "mb": 10**6}
_UNITS |= {"g": 1024**3, "gib": 1024**3, "gb": 10**9}


def parse_size(text: str, *, option: str) -> int:
    """Read `102400`, `100KiB`, `1M` (binary) or `1MB` (decimal) as a positive number of bytes."""
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
    """Read `key=value` texts: the value is JSON where it parses, a string otherwise."""
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
    """A tool's arguments, from `key=value` texts or from `--args`, never from both."""
    if whole is None:
        return parse_pairs(pairs, option="arguments")
    if pairs:
        raise UsageError("give the arguments as key=value or as --args, not both")
    try:
        value = json.loads(whole)
    except ValueError as error:
        raise UsageError(f"--args: expected a JSON object, got {whole!r} ({error})") from error
    if not isinstance(value, dict):
        raise UsageError(f"--args: expected a JSON object, got {type(value).__name__}: {whole!r}")
    return value
