"""The two documents of the server, and the check of messages against the first one.

`schema.json` (JSON Schema 2020-12) describes every message that may go over the server's WebSocket, in both
directions and in every protocol version; `openapi.yaml` (OpenAPI 3.1) describes its HTTP side.

The schema is a tree of `oneOf`. For an invalid message a validator reports the errors of every branch, but
its author meant one of them, so the findings are those of the branch that fits best. `best_match` of
`jsonschema.exceptions` has the same idea with two differences: it compares single errors (to it, a branch
with two missing members is as near as one with a wrong letter), and it returns one error where a message may
have several.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, groupby, islice
from typing import Any, Final, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from playhead.content.findings import Finding, Notes, kind_of, step
from playhead.content.formats import number, quoted
from playhead.errors import UsageError
from playhead.escaping import did_you_mean
from playhead.strict_json import STRICT_DECODER

_SPACE: Final = " \t\r\n"
_TAGS: Final = frozenset({"method", "type", "mode"})
"""The members whose constant values distinguish the branches of a `oneOf`."""
_BOUNDS: Final = {
    "minItems": "a number of items of at least",
    "maxItems": "a number of items of at most",
    "minimum": "at least",
    "maximum": "at most",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a document, and its place."""

    number: int
    """The number of the message in the document, from 1."""
    line: int
    """The line of the message's first character, from 1."""
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFinding:
    """A fault of a message."""

    message: int
    line: int
    label: str
    """The kind of message, such as `tools/call request, id 3`."""
    finding: Finding

    def __str__(self) -> str:
        return f"line {self.line}, {self.label}: {self.finding}"


def schema_text() -> str:
    """Return the text of the shipped `schema.json`."""
    return _read("schema.json")


def openapi_text() -> str:
    """Return the text of the shipped `openapi.yaml`."""
    return _read("openapi.yaml")


def message_schema() -> dict[str, Any]:
    """Return the schema of every message, for any JSON Schema library; a new dict at each call."""
    return cast("dict[str, Any]", json.loads(schema_text()))


def read_messages(text: str) -> list[Message]:
    """Read one JSON value, a JSON array of messages, or JSON values one after another (JSON lines).

    An array is a list of messages only if nothing follows it. In JSON lines it is one invalid message,
    because MCP has no batches.

    Raises:
        UsageError: `text` is not JSON (with line and column), or has no message.
    """
    text = text.removeprefix("\ufeff")
    try:
        values = list(_values(text, _skip_space(text, 0)))
        if len(values) == 1 and isinstance(values[0][1], list):
            values = list(_items(text, values[0][0] + 1))
    except RecursionError:
        raise UsageError("expected JSON, got a value that is nested too deep to read") from None
    if not values:
        raise UsageError("expected at least one message, got none")
    messages: list[Message] = []
    line, last = 1, 0
    for count, (start, value) in enumerate(values, 1):
        line += text.count("\n", last, start)
        last = start
        messages.append(Message(number=count, line=line, value=value))
    return messages


def validate_messages(text: str) -> list[MessageFinding]:
    """Check the messages of `text` (as `read_messages` reads it) and return their faults.

    Each message is checked on its own; a result is not compared with its request.

    Raises:
        UsageError: as `read_messages`.
    """
    return find_departures(read_messages(text))


def find_departures(messages: list[Message]) -> list[MessageFinding]:
    """Return the faults of messages, at most about a hundred per message."""
    schema = message_schema()
    validator = Draft202012Validator(schema)
    return [
        MessageFinding(
            message=message.number, line=message.line, label=_label(message.value), finding=finding
        )
        for message in messages
        for finding in _Findings(schema["$defs"]).of(validator, message.value)
    ]


def _read(name: str) -> str:
    return files("playhead.servers.template").joinpath(name).read_text("utf-8")


def _values(text: str, at: int) -> Iterator[tuple[int, object]]:
    """Iterate over the values and their offsets."""
    while at < len(text):
        value, end = _value(text, at)
        yield at, value
        at = _skip_space(text, end)


def _items(text: str, at: int) -> Iterator[tuple[int, object]]:
    """Iterate over the items of a well-formed array and their offsets. `at` is the offset after its
    bracket."""
    at = _skip_space(text, at)
    while text[at] != "]":
        value, end = _value(text, at)
        yield at, value
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)


def _value(text: str, at: int) -> tuple[object, int]:
    try:
        return STRICT_DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UsageError(f"{where}: expected JSON ({error.msg})") from None
    except ValueError as error:  # a number that is not JSON, or too large
        line = text.count("\n", 0, at) + 1
        raise UsageError(f"line {line}: expected JSON that can be read ({error})") from None


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _label(message: object) -> str:
    """Name the kind of a message, as far as it is recognisable: `tools/call request, id 3`."""
    if not isinstance(message, dict):
        return "message"
    if "method" in message:
        method = message["method"]
        name = f"{_plain(method)} " if isinstance(method, str) else ""
        kind = name + ("request" if "id" in message else "notification")
    else:
        kind = next((member for member in ("error", "result") if member in message), "message")
    identifier = message.get("id")
    known = isinstance(identifier, str | int | float) and not isinstance(identifier, bool)
    return f"{kind}, id {_got(identifier)}" if known else kind


class _Findings:
    """The findings about a message."""

    def __init__(self, defs: Mapping[str, Mapping[str, Any]]) -> None:
        self._defs = defs
        self._notes = Notes()

    def of(self, validator: Draft202012Validator, message: object) -> list[Finding]:
        if isinstance(message, list):
            batch = "an array (a batch, which MCP does not have)"
            self._notes.add("$", expected="one message, which is an object", got=batch)
        else:
            self._explain(validator.iter_errors(message), "$")
        return self._notes.all()

    def _explain(self, errors: Iterable[ValidationError], path: str) -> None:
        for error in errors:
            if self._notes.full:
                return
            place = path
            for key in error.relative_path:  # within a oneOf, the path is relative to the value of the oneOf
                place = step(place, key)
            if error.validator in ("oneOf", "anyOf"):
                self._explain_branch(error, place)
            elif error.validator != "type" or {"const", "enum"}.isdisjoint(error.schema):
                self._explain_error(error, place)  # the error of a constant says more than that of its type

    def _explain_branch(self, error: ValidationError, path: str) -> None:
        """Report the errors of the branch that fits best, or list the branches if several fit alike."""
        branches = _branches(error)
        value = error.instance
        if not branches:
            names = _either([_name(branch) for branch in error.validator_value])
            self._notes.add(path, expected=f"exactly one of {names}", got="a value that fits several")
            return
        errors = [each for branch in branches.values() for each in branch]
        wrong_types = [each.validator_value for each in errors if _wrong_type(each)]
        if len(wrong_types) == len(branches):
            kinds = [kind for each in wrong_types for kind in ([each] if isinstance(each, str) else each)]
            self._notes.add(path, expected=_a_type(list(dict.fromkeys(kinds))), got=kind_of(value))
            return
        tags = {index: tag for index, branch in branches.items() if (tag := _wrong_tag(branch)) is not None}
        if len(tags) == len(branches):
            tag = next(iter(tags.values()))
            wrong = [each for each in errors if _is_tag(each)]
            expected = _choice(list(dict.fromkeys(each.validator_value for each in wrong)), value[tag])
            self._notes.add(step(path, tag), expected=expected, got=_got(value[tag]))
            return
        misfits = {index: _misfit(branch) for index, branch in branches.items() if index not in tags}
        nearest = [index for index, misfit in misfits.items() if misfit == min(misfits.values())]
        if len(nearest) == 1:
            self._explain(branches[nearest[0]], path)
        else:
            names = _either([_name(error.validator_value[index]) for index in nearest])
            got = f"an object with {_listed(value)}" if value and isinstance(value, dict) else kind_of(value)
            self._notes.add(path, expected=names, got=got)

    def _explain_error(self, error: ValidationError, path: str) -> None:
        value, wanted, schema = error.instance, error.validator_value, error.schema
        match error.validator:
            case "required" | "dependentRequired":
                # One error for each missing member; jsonschema names it only in its message.
                for name in wanted if isinstance(wanted, list) else chain.from_iterable(wanted.values()):
                    if name not in value and error.message.startswith(f"{name!r} is"):
                        expected = self._described(schema.get("properties", {}).get(name, {}))
                        self._notes.add(step(path, name), expected=expected, got="nothing")
            case "additionalProperties":
                known = [str(name) for name in schema["properties"]]
                for name in _unknown(error):
                    expected = _near(f"no member but {', '.join(known)}", name, known)
                    self._notes.add(step(path, name), expected=expected, got=kind_of(value[name]))
            case "const" | "enum":
                values = [wanted] if error.validator == "const" else wanted
                self._notes.add(path, expected=_choice(values, value), got=_got(value))
            case "type":
                self._notes.add(
                    path,
                    expected=_a_type(wanted),
                    got=_got(value) if isinstance(value, float) else kind_of(value),
                )
            case "pattern":
                expected = f"{schema.get('title', 'a string')}: {schema.get('description', wanted)}"
                self._notes.add(path, expected=expected.partition(". ")[0].rstrip("."), got=_got(value))
            case "minItems" | "maxItems" | "minimum" | "maximum":
                got = f"{len(value)} items" if isinstance(value, list) else _got(value)
                self._notes.add(path, expected=f"{_BOUNDS[error.validator]} {wanted}", got=got)
            case "uniqueItems":
                self._notes.add(path, expected="items that differ", got="equal ones")
            case _:
                self._notes.add(path, expected=f"{error.validator} {wanted!r:.80}", got=_got(value))

    def _described(self, schema: Mapping[str, Any]) -> str:
        """Describe a missing member in a few words."""
        while "$ref" in schema:
            schema = self._defs[schema["$ref"].rpartition("/")[2]]
        if "const" in schema:
            return _got(schema["const"])
        kind = schema.get("type", "object" if "oneOf" in schema else None)
        return "a value" if kind is None else _a_type(kind)


def _branches(error: ValidationError) -> dict[int, list[ValidationError]]:
    """Group the errors of a `oneOf` by the index of their branch."""
    groups = groupby(error.context, key=lambda each: each.relative_schema_path[0])
    return {index: list(group) for index, group in groups}


def _misfit(branch: Iterable[ValidationError]) -> float:
    """Measure the distance of a value from a branch. Missing and unknown members count fully, deeper errors
    hardly."""
    misfit, deeper = 0.0, 0.0
    for error in branch:
        if _is_tag(error):
            misfit += 1.5
        elif error.relative_path:
            deeper = 0.5
        elif error.validator == "additionalProperties":
            misfit += len(_unknown(error))
        elif error.validator == "oneOf" and error.context:
            misfit += min(map(_misfit, _branches(error).values()))
        else:
            misfit += 1
    return misfit + deeper


def _is_tag(error: ValidationError) -> bool:
    """Return True for a wrong constant of a member that distinguishes branches."""
    return error.validator == "const" and len(error.relative_path) == 1 and error.relative_path[0] in _TAGS


def _wrong_tag(branch: Iterable[ValidationError]) -> str | None:
    return next((str(error.relative_path[0]) for error in branch if _is_tag(error)), None)


def _wrong_type(error: ValidationError) -> bool:
    return error.validator == "type" and not error.relative_path


def _unknown(error: ValidationError) -> list[str]:
    return [name for name in error.instance if name not in error.schema.get("properties", {})]


def _name(branch: Mapping[str, Any]) -> str:
    return str(branch.get("title") or branch.get("$ref", "one of them").rpartition("/")[2])


def _a_type(kinds: str | Sequence[str]) -> str:
    articles = {"null": "", "integer": "an ", "object": "an ", "array": "an "}
    return _either(
        [articles.get(kind, "a ") + kind for kind in ([kinds] if isinstance(kinds, str) else kinds)]
    )


def _choice(values: Sequence[object], got: object) -> str:
    names = [str(value) for value in values]
    return _got(values[0]) if len(values) == 1 else _near(f"one of {', '.join(names)}", got, names)


def _near(expected: str, got: object, names: Sequence[str]) -> str:
    hint = did_you_mean(got, names, show=str) if isinstance(got, str) else ""
    return f"{expected} ({hint})" if hint else expected


def _got(value: object) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return kind_of(value)


def _listed(names: Iterable[object]) -> str:
    shown = [_plain(str(name)) for name in islice(names, 8)]
    return ", ".join(shown[:7]) + (", …" if len(shown) > 7 else "")


def _plain(name: str) -> str:
    return name if name.isascii() and name.isprintable() and len(name) <= 60 else quoted(name)


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
