"""The server's two documents, and any message held against the first.

`schema.json` (JSON Schema 2020-12) says what may go over the server's WebSocket, in both directions and in
every revision; `openapi.yaml` (OpenAPI 3.1) describes its HTTP side. Whether a message is right is the
schema's own word; `departures.py` only puts into words why one is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, NoReturn, cast

from jsonschema import Draft202012Validator

from playhead.content.findings import Finding
from playhead.errors import UsageError
from playhead.servers.template.departures import Explainer, label_of

_SPACE: Final = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a text, and where it stands."""

    number: int
    """The first is 1."""
    line: int
    """Of its first character in the text; the first is 1."""
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFinding:
    """One thing that is wrong with one message."""

    message: int
    line: int
    label: str
    """What kind of message it is, such as `tools/call request, id 3`."""
    finding: Finding

    def __str__(self) -> str:
        return f"line {self.line}, {self.label}: {self.finding}"


def schema_text() -> str:
    """`schema.json` as it is shipped."""
    return _read("schema.json")


def openapi_text() -> str:
    """`openapi.yaml` as it is shipped."""
    return _read("openapi.yaml")


def message_schema() -> dict[str, Any]:
    """The schema of every message, for any JSON Schema library; a new dict at each call."""
    return cast("dict[str, Any]", json.loads(schema_text()))


def read_messages(text: str) -> list[Message]:
    """The messages of a text: one JSON value, a JSON array of messages, or JSON values one after another
    (JSON lines).

    A value that is an array is a list of messages only where nothing follows it; in JSON lines it is one
    message, and a wrong one: MCP has no batches.

    Raises:
        UsageError: the text is not JSON (with line and column), or has no message.
    """
    text = text.removeprefix("\ufeff")
    try:
        found = list(_values(text, _skip_space(text, 0)))
        if len(found) == 1 and isinstance(found[0][1], list):
            found = list(_items(text, found[0][0] + 1))
    except RecursionError:
        raise UsageError("expected JSON, came some that is nested too deep to read") from None
    if not found:
        raise UsageError("expected at least one message, came none")
    messages: list[Message] = []
    line, last = 1, 0
    for number, (start, value) in enumerate(found, 1):
        line += text.count("\n", last, start)
        last = start
        messages.append(Message(number=number, line=line, value=value))
    return messages


def validate_messages(text: str) -> list[MessageFinding]:
    """What is wrong with the messages of a text (as `read_messages` takes it); empty where nothing is.

    Each message is judged on its own: whether a result fits its request is not looked at.

    Raises:
        UsageError: as `read_messages`.
    """
    return find_departures(read_messages(text))


def find_departures(messages: list[Message]) -> list[MessageFinding]:
    """What is wrong with messages that were read; empty where nothing is, at most about a hundred each."""
    schema = message_schema()
    validator = Draft202012Validator(schema)
    explainer = Explainer(schema)
    return [
        MessageFinding(
            message=message.number, line=message.line, label=label_of(message.value), finding=finding
        )
        for message in messages
        if not validator.is_valid(message.value)
        for finding in explainer.findings(message.value)
    ]


def _read(name: str) -> str:
    return files("playhead.servers.template").joinpath(name).read_text("utf-8")


def _no_constant(name: str) -> NoReturn:
    raise UsageError(f"expected JSON, came {name}, which JSON does not have")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _values(text: str, at: int) -> Iterator[tuple[int, object]]:
    """Each value and where it begins."""
    while at < len(text):
        value, end = _value(text, at)
        yield at, value
        at = _skip_space(text, end)


def _items(text: str, at: int) -> Iterator[tuple[int, object]]:
    """The items of an array that is known to be well formed; `at` is behind its bracket."""
    at = _skip_space(text, at)
    while text[at] != "]":
        value, end = _value(text, at)
        yield at, value
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)


def _value(text: str, at: int) -> tuple[object, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{where}: expected JSON, came something else ({error.msg})") from None
    except ValueError as error:  # an integer of more digits than Python reads
        line = text.count("\n", 0, at) + 1
        raise UsageError(f"line {line}: expected JSON that can be read ({error})") from None


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
