"""The expectations file: calls to make, and their expected answers. A check can draft such a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import regex

from playhead.check.results import Json, Report, TestResult, successful_requests
from playhead.errors import ConfigError
from playhead.escaping import is_hidden
from playhead.extras import require_extra

PROPOSED: Final = "proposed arguments"
"""Names the tests with arguments that a model proposed and that were not sent."""
_STRICT: Final = {"extra": "forbid", "strict": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall:
    """One call with arguments known to be valid."""

    __pydantic_config__: ClassVar = _STRICT

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False
    """True if the result must be an error (`isError`)."""
    error_code: int | None = None
    """The code of the JSON-RPC error that is expected instead of a result."""
    content_types: tuple[str, ...] | None = None
    """The types of the content blocks, in order: `text`, `image`, …; None accepts any."""
    patterns: tuple[str, ...] = ()
    """Regular expressions; each must match somewhere in the text of the result."""
    max_latency_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """An expectations file."""

    __pydantic_config__: ClassVar = _STRICT

    calls: tuple[ExpectedCall, ...] = ()

    def of_tool(self, name: str) -> tuple[ExpectedCall, ...]:
        """Return the calls of one tool, in the order of the file."""
        return tuple(call for call in self.calls if call.tool == name)


def load_expectations(path: Path) -> Expectations:
    """Read the expectations file at `path`: JSON if its name ends in `.json`, else TOML.

    Raises `ConfigError`, with the file and the key path.
    """
    from playhead.config.document import read_document

    return read_expectations(read_document(path, advice="write one with [[calls]]"), where=str(path))


def read_expectations(raw: object, *, where: str) -> Expectations:
    """Read the expectations from a parsed file; `where` is its name in messages. Raises `ConfigError`."""
    from playhead.config.document import check_values, place
    from playhead.config.tables import validate  # pydantic is slow to load

    check_values(raw, where)
    if isinstance(raw, dict) and isinstance(raw.get("calls"), list):
        calls = [_without_nulls(call) if isinstance(call, dict) else call for call in raw["calls"]]
        raw = {**raw, "calls": calls}
    expectations = validate(Expectations, raw, path=where)
    for index, call in enumerate(expectations.calls):
        at = ("calls", index)
        if not call.tool:
            raise ConfigError(f"{place(where, at)}: the key 'tool' is empty; name the tool to call")
        if call.max_latency_ms is not None and call.max_latency_ms <= 0:
            raise ConfigError(
                f"{place(where, (*at, 'max_latency_ms'))}: expected a number above 0,"
                f" got {call.max_latency_ms}"
            )
        for name in ("is_error", "content_types", "patterns"):
            if call.error_code is not None and getattr(call, name):
                raise ConfigError(
                    f"{place(where, (*at, name))}: cannot be combined with error_code: an error has no result"
                )
        for number, pattern in enumerate(call.patterns):
            try:
                regex.compile(pattern)
            except (regex.error, OverflowError, RecursionError, MemoryError) as error:
                raise ConfigError(
                    f"{place(where, (*at, 'patterns', number))}: expected a regular expression, got"
                    f" {pattern[:100]!r} ({error})"
                ) from None
    return expectations


def _without_nulls(call: dict[str, Any]) -> dict[str, Any]:
    """Treat null as an absent setting, except for `arguments`."""
    return {key: value for key, value in call.items() if value is not None or key == "arguments"}


# --- the draft -----------------------------------------------------------------------------------------

_DRAFTED_CALLS: Final = 2
"""Limits the drafted calls per tool: usually one with the least arguments and one with all of them."""
_PATTERN_CHARS: Final = 60
_LATENCY_FACTOR: Final = 10
_HEAD: Final = """\
# Drafted from the answers to a check. Edit it: keep the calls that matter, replace generated arguments by
# typical ones, remove the "#" of what must stay true, and add calls that must fail (is_error = true).
"""


def draft_expectations(report: Report, *, as_json: bool = False) -> str:
    """Draft an expectations file from the answers in `report`, in TOML with comments or in JSON.

    It has the first successful calls of each tool, with the types of their content. Comments in TOML suggest
    a pattern and a latency for each call, the calls that a model proposed and that were not made, and a call
    to complete for each other tool without a successful one.
    A check with the unedited file passes, unless the answers of a tool vary from call to call. Raises
    `UsageError` for TOML without the extra `check`.
    """
    if not as_json:
        require_extra("check", "drafts of expectations in TOML")
    calls: dict[str, list[tuple[ExpectedCall, TestResult]]] = {name: [] for name in report.tools}
    for test in successful_requests(report.tests, "tools/call"):
        drafted = calls.setdefault(test.tool or "", [])
        call = _draft_call(test, as_json=as_json)
        is_new = all(call != each for each, _ in drafted)
        if call is not None and is_new and len(drafted) < _DRAFTED_CALLS:
            drafted.append((call, test))
    if as_json:
        drafts = [_fields(call) for each in calls.values() for call, _ in each]
        return json.dumps({"calls": drafts}, indent=2) + "\n"
    parts = [_HEAD]
    for name, drafted in calls.items():
        parts += ["\n".join(_toml_call(call, test)) + "\n" for call, test in drafted]
        parts += _toml_comments(report, name, drafted=bool(drafted))
    return "\n".join(parts)


def _draft_call(test: TestResult, *, as_json: bool) -> ExpectedCall | None:
    """Return the call of a successful test; None if a file can't represent its arguments."""
    assert isinstance(test.input, Mapping), "a successful request has complete parameters"
    arguments = test.input.get("arguments", {})
    if not isinstance(arguments, Mapping) or not _is_writable(arguments, toml=not as_json):
        return None
    blocks = test.output.get("content") if isinstance(test.output, Mapping) else None
    types: list[str] = []
    for block in blocks if isinstance(blocks, list | tuple) else (None,):
        kind = block.get("type") if isinstance(block, Mapping) else None
        if not isinstance(kind, str) or not _is_writable(kind):
            return ExpectedCall(tool=test.tool or "", arguments=arguments)  # the answer was truncated
        types.append(kind)
    return ExpectedCall(tool=test.tool or "", arguments=arguments, content_types=tuple(types))


def _is_writable(value: Json, *, toml: bool = False) -> bool:
    """True if the file can hold `value`, and `load_expectations` accepts it."""
    from playhead.config.document import check_values

    try:
        check_values(value, "draft")
        if toml:
            _toml(value)
    except (ConfigError, ValueError):  # TOML has no null
        return False
    return True


def _fields(call: ExpectedCall) -> dict[str, Json]:
    fields: dict[str, Json] = {"tool": call.tool, "arguments": dict(call.arguments)}
    return fields if call.content_types is None else fields | {"content_types": list(call.content_types)}


def _toml_call(call: ExpectedCall, test: TestResult) -> Iterator[str]:
    yield "[[calls]]"
    for key, value in _fields(call).items():
        yield f"{key} = {_toml(value)}"
    text = _first_text(test.output)
    if text:
        yield f"# patterns = {_toml([regex.escape(text, literal_spaces=True)])}"
    if test.latency_ms is not None:
        yield f"# max_latency_ms = {max(100, round(test.latency_ms * _LATENCY_FACTOR, -2)):.0f}"


def _toml_comments(report: Report, tool: str, *, drafted: bool) -> Iterator[str]:
    """Draft, as comments, the proposed calls that were not made, or else one to complete if none is
    `drafted`."""
    tests = [test for test in report.tests if test.tool == tool and test.method == "tools/call"]
    calls = [(test, test.input.get("arguments", {})) for test in tests if isinstance(test.input, Mapping)]
    calls = [(test, it) for test, it in calls if isinstance(it, Mapping) and _is_writable(it, toml=True)]
    skipped = [(f"Not called: {test.error}", it) for test, it in calls if test.title == PROPOSED]
    if not skipped and not drafted and calls:
        head = f"{_toml(tool)} answered none of the tried arguments with a result. Give it some that work:"
        skipped = [(head, calls[0][1])]
    for head, arguments in skipped:
        yield f"# {head}\n# [[calls]]\n# tool = {_toml(tool)}\n# arguments = {_toml(arguments)}\n"


def _first_text(output: Json) -> str | None:
    """Return the beginning of the first line of text in a result."""
    blocks = output.get("content") if isinstance(output, Mapping) else None
    for block in blocks if isinstance(blocks, list | tuple) else ():
        text = block.get("text") if isinstance(block, Mapping) else None
        if isinstance(text, str) and _is_writable(text) and text.strip():
            return text.strip().splitlines()[0][:_PATTERN_CHARS]
    return None


def _toml(value: Json) -> str:
    """Format a value on one line. Hidden characters are escaped, since people review the file."""
    import tomlkit

    line = tomlkit.array()
    line.append(value)
    text = line.as_string()[1:-1]  # without the brackets of the array, whose items are all on its line
    return "".join(f"\\U{ord(char):08x}" if is_hidden(char) else char for char in text)
