"""Arguments and options shared by several commands, and the parsers of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from playhead.config.servers import RangeStrategyName
from playhead.errors import NoDeviceError, UsageError
from playhead.escaping import did_you_mean
from playhead.stream.saving import is_device
from playhead.strict_json import parse_json

if TYPE_CHECKING:
    from playhead.content.schema_shapes import Shape

_MIN_LIKENESS: Final = 0.5
"""The least similarity (0 to 1) between a typed value and the value that a hint suggests. `shall` and
`should` are similar enough."""
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
ModelUrl = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="Another URL of the model's API, e.g. a local one."),
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
Cache = Annotated[
    str | None,
    typer.Option(
        "--cache",
        metavar="DIR|URL",
        help="Share what was read: a directory, or a Valkey such as valkey://HOST. [default: the server's]",
    ),
]
AllowOrigins = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin",
        metavar="ORIGIN",
        help="Play URLs of this origin although its address is not public, e.g. http://127.0.0.1:7860;"
        " repeatable.",
    ),
]
AllowPaths = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-path",
        metavar="DIR",
        help="Play files below this directory whose paths a server on this machine names; repeatable.",
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
        help="Arguments of the tool; values as its schema has them, lists and objects as JSON.",
        show_default=False,
    ),
]
ArgsJson = Annotated[
    str | None, typer.Option("--args", metavar="JSON", help="All arguments of the tool, as a JSON object.")
]

_STRATEGIES: Final = get_args(RangeStrategyName)


def _strategies_beginning_with(incomplete: str) -> list[str]:
    return [name for name in _STRATEGIES if name.startswith(incomplete)]


Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help=f"How ranges are requested: {', '.join(_STRATEGIES[:-1])} or {_STRATEGIES[-1]}."
        " [default: each that the server offers, until one works]",
        autocompletion=_strategies_beginning_with,
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
Live = Annotated[
    bool,
    typer.Option("--live", help="The resource still grows: its present end is not its end."),
]
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
    return {name: _json_or_text(text) for name, text in _split_pairs(pairs, option=option).items()}


def _split_pairs(pairs: Sequence[str] | None, *, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{option}: expected key=value, got {pair!r}")
        if key in found:
            raise UsageError(f"{option}: {key!r} is given twice; give a list as JSON, e.g. {key}='[1, 2]'")
        found[key] = value
    return found


def _json_or_text(text: str) -> Any:
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return text


@dataclass(frozen=True, slots=True)
class GivenArguments:
    """The arguments of a tool as the user typed them: the strings of `key=value` pairs, or the values of
    `--args`."""

    texts: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.texts or self.values)

    def for_tool(self, tool: str, schema: object, *, force: bool = False, advice: str = "") -> dict[str, Any]:
        """Return the arguments with the types of the tool's input schema; a `schema` of None is unknown.

        The text of a pair is JSON if the schema is unknown or allows that value. Otherwise it is a string if
        the schema allows that: a string property takes `1` as "1". The server decides about a value that fits
        neither.

        Raises `UsageError` for a name that the schema does not list, unless the schema allows additional
        properties or `force` is set; the message ends with `advice`.
        """
        properties, is_open = _listed_properties(schema)
        if not (is_open or force):
            for name in (*self.texts, *self.values):
                if name not in properties:
                    raise UsageError(_unlisted_argument(tool, name, tuple(properties)) + advice)
        typed = {name: _typed_value(text, properties.get(name, ())) for name, text in self.texts.items()}
        return {**self.values, **typed}


def _unlisted_argument(tool: str, name: str, known: Sequence[str]) -> str:
    by_case = {it.casefold(): it for it in reversed(known)}
    listed = f"it takes {', '.join(map(repr, known)) or 'no arguments'}"
    hint = did_you_mean(name.casefold(), by_case, listed, show=lambda it: repr(by_case[it]))
    return f"tool {tool!r} has no argument {name!r}; {hint}"


def _listed_properties(schema: object) -> tuple[dict[str, list[Shape]], bool]:
    """Return the alternatives of each property that `schema` lists, and True if it allows others.

    Any name is allowed without a list of properties, and if the schema is too intricate to tell.
    """
    from playhead.content.schema_shapes import MAX_ALTERNATIVES, NoValueError, Shapes

    if not isinstance(schema, Mapping):
        return {}, True
    shapes = Shapes(schema)
    alternatives: dict[str, list[Shape]] = {}
    try:
        roots = shapes.of(schema)
        for root in roots:
            properties = root.get("properties")
            for name, inner in properties.items() if isinstance(properties, dict) else ():
                alternatives.setdefault(name, []).extend(shapes.of(inner))
    except NoValueError:
        return {}, True
    has_list = any("properties" in root or root.get("additionalProperties") is False for root in roots)
    is_incomplete = len(roots) >= MAX_ALTERNATIVES or bool(shapes.unresolved)
    is_closed = has_list and not is_incomplete and not any(map(_allows_others, roots))
    return alternatives, not is_closed


def _allows_others(root: Shape) -> bool:
    for key in ("additionalProperties", "unevaluatedProperties"):
        value = root.get(key)
        if value is not None and value is not False:
            return True
    return bool(root.get("patternProperties") or root.get("dependentSchemas"))


_JSON_TYPES: Final[Mapping[type, str]] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def _typed_value(text: str, shapes: Sequence[Shape]) -> Any:
    """Return the value of `text` for a property with these alternatives. Without any, every value fits."""
    value = _json_or_text(text)
    candidates = [value, text]
    if text.lower() in ("true", "false"):
        candidates.append(text.lower() == "true")
    for fits in (_is_allowed, _has_type):  # first a value that the schema lists, then one of its type
        for candidate in candidates:
            if not shapes or any(fits(candidate, shape) for shape in shapes):
                return candidate
    return value


def _is_allowed(value: object, shape: Shape) -> bool:
    from playhead.content.schema_shapes import same

    fixed = [shape["const"]] if "const" in shape else shape.get("enum")
    if isinstance(fixed, list) and not any(same(value, it) for it in fixed):
        return False
    return _has_type(value, shape)


def _has_type(value: object, shape: Shape) -> bool:
    from playhead.content.schema_shapes import types_of

    types = types_of(shape)
    fixed = [shape["const"]] if "const" in shape else shape.get("enum")
    if not types and isinstance(fixed, list):
        types = [_JSON_TYPES[type(it)] for it in fixed]
    kinds = {_JSON_TYPES[type(value)]}
    if "integer" in kinds or (isinstance(value, float) and value.is_integer()):
        kinds |= {"integer", "number"}
    return not types or not kinds.isdisjoint(types)


def parse_arguments(pairs: Sequence[str] | None, whole: str | None) -> GivenArguments:
    """Parse a tool's arguments from `key=value` pairs or from `--args`, never both."""
    if whole is None:
        return GivenArguments(texts=_split_pairs(pairs, option="arguments"))
    if pairs:
        raise UsageError("expected key=value arguments or --args, got both")
    try:
        value = parse_json(whole)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--args: expected a JSON object, got {whole!r} ({error})") from error
    if not isinstance(value, dict):
        raise UsageError(f"--args: expected a JSON object, got {type(value).__name__}: {whole!r}")
    return GivenArguments(values=value)


def unusable_value(error: typer.BadParameter) -> str:
    """Describe a value that an option or argument doesn't accept, and the values that it does."""
    from pydantic import ValidationError

    if not isinstance(error.__cause__, ValidationError):
        return error.message
    fault = error.__cause__.errors(include_url=False)[0]
    text, bounds = str(fault["input"]), fault.get("ctx", {})
    # A private attribute of typer's. Without it, the message is typer's own.
    choices = getattr(getattr(error.param, "type_descriptor", None), "choices", None)
    if choices:
        names = [str(choice) for choice in choices]
        hint = did_you_mean(text.lower(), names, lead="; ", show=str, likeness=_MIN_LIKENESS)
        return f"expected {', '.join(names[:-1])} or {names[-1]}, got {text!r}{hint}"
    match fault["type"]:
        case "int_parsing" | "int_from_float":
            expected = "expected an integer"
        case "float_parsing":
            expected = "expected a number"
        case "greater_than_equal":
            expected = f"expected at least {bounds['ge']}"
        case "less_than_equal":
            expected = f"expected at most {bounds['le']}"
        case _:
            expected = fault["msg"].removeprefix("Value error, ")
    return f"{expected}, got {text!r}"


def file_to_write(path: Path, *, option: str) -> Path:
    """Check that `path` can be written as a file, before the first request to a server."""
    if path.is_dir():
        raise UsageError(f"{option}: expected a file, got the directory {path}; add a file name")
    is_device(path)  # raises for files that must not be replaced
    if not path.parent.is_dir():
        raise UsageError(f"{option}: can't write {path}: the directory {path.parent} does not exist")
    return path


async def has_device() -> bool:
    """Return True if an audio device can be opened. It makes no sound, and can take a second."""
    from playhead.playback.formats import PcmFormat
    from playhead.playback.sinks.device import Device, opened

    try:
        async with opened(Device(PcmFormat(rate_hz=44_100, channels=2))):
            return True
    except NoDeviceError:
        return False
