"""The two documents of the server, and the check of messages against the first one.

`schema.json` (JSON Schema 2020-12) describes every message that may go over the server's WebSocket, in both
directions and in every protocol version; `openapi.yaml` (OpenAPI 3.1) describes its HTTP side.

The schema is a tree of `oneOf`. For an invalid message a validator reports the errors of every branch. But
the author of the message meant one branch, so this module reports the errors of the branch that fits best.
`best_match` of `jsonschema.exceptions` has the same idea and is not used, for two reasons: it compares single
errors (to it, a branch with two missing members is as near as one with a wrong letter), and it returns one
error where a message may have several.
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
_BOUND_WORDS: Final = {
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
        values = list(_values_with_offsets(text, _skip_space(text, 0)))
        if len(values) == 1 and isinstance(values[0][1], list):
            values = list(_array_items(text, values[0][0] + 1))
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


def _values_with_offsets(text: str, at: int) -> Iterator[tuple[int, object]]:
    """Iterate over the JSON values from the offset `at`, each with its own offset."""
    while at < len(text):
        value, end = _parse_value(text, at)
        yield at, value
        at = _skip_space(text, end)


def _array_items(text: str, at: int) -> Iterator[tuple[int, object]]:
    """Iterate over the items of a valid array and their offsets, from `at`, after its bracket, on."""
    at = _skip_space(text, at)
    while text[at] != "]":
        value, end = _parse_value(text, at)
        yield at, value
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)


def _parse_value(text: str, at: int) -> tuple[object, int]:
    """Return the JSON value at `at`, and the offset of its end."""
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
        name = f"{_shown_name(method)} " if isinstance(method, str) else ""
        kind = name + ("request" if "id" in message else "notification")
    else:
        kind = next((member for member in ("error", "result") if member in message), "message")
    identifier = message.get("id")
    known = isinstance(identifier, str | int | float) and not isinstance(identifier, bool)
    return f"{kind}, id {_shown_value(identifier)}" if known else kind


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
        errors = list(chain.from_iterable(branches.values()))
        wrong_types = [each.validator_value for each in errors if _is_wrong_type(each)]
        wrong_tags = {
            index: tag for index, branch in branches.items() if (tag := _wrong_tag(branch)) is not None
        }
        if not branches:
            names = _joined_by_or([_branch_name(branch) for branch in error.validator_value])
            self._notes.add(path, expected=f"exactly one of {names}", got="a value that fits several")
        elif len(wrong_types) == len(branches):
            kinds = dict.fromkeys(kind for each in wrong_types for kind in _as_list(each))
            self._notes.add(path, expected=_type_names(list(kinds)), got=kind_of(error.instance))
        elif len(wrong_tags) == len(branches):
            tag = next(iter(wrong_tags.values()))
            got = error.instance[tag]
            constants = dict.fromkeys(each.validator_value for each in errors if _is_wrong_tag(each))
            expected = _expected_values(list(constants), got)
            self._notes.add(step(path, tag), expected=expected, got=_shown_value(got))
        else:
            fitting_tags = {index: branch for index, branch in branches.items() if index not in wrong_tags}
            self._explain_nearest(fitting_tags, error, path)

    def _explain_nearest(
        self, branches: Mapping[int, list[ValidationError]], error: ValidationError, path: str
    ) -> None:
        distances = {index: _distance(branch) for index, branch in branches.items()}
        least = min(distances.values())
        nearest = [index for index, distance in distances.items() if distance == least]
        if len(nearest) == 1:
            self._explain(branches[nearest[0]], path)
            return
        value = error.instance
        got = f"an object with {_shown_names(value)}" if value and isinstance(value, dict) else kind_of(value)
        names = _joined_by_or([_branch_name(error.validator_value[index]) for index in nearest])
        self._notes.add(path, expected=names, got=got)

    def _explain_error(self, error: ValidationError, path: str) -> None:
        value, wanted, schema = error.instance, error.validator_value, error.schema
        match error.validator:
            case "required" | "dependentRequired":
                # One error for each missing member; jsonschema names it only in its message.
                for name in wanted if isinstance(wanted, list) else chain.from_iterable(wanted.values()):
                    if name not in value and error.message.startswith(f"{name!r} is"):
                        expected = self._describe_schema(schema.get("properties", {}).get(name, {}))
                        self._notes.add(step(path, name), expected=expected, got="nothing")
            case "additionalProperties":
                known = [str(name) for name in schema["properties"]]
                for name in _unknown_members(error):
                    expected = _with_hint(f"no member but {', '.join(known)}", name, known)
                    self._notes.add(step(path, name), expected=expected, got=kind_of(value[name]))
            case "const" | "enum":
                values = [wanted] if error.validator == "const" else wanted
                self._notes.add(path, expected=_expected_values(values, value), got=_shown_value(value))
            case "type":
                self._notes.add(
                    path,
                    expected=_type_names(wanted),
                    got=_shown_value(value) if isinstance(value, float) else kind_of(value),
                )
            case "pattern":
                expected = f"{schema.get('title', 'a string')}: {schema.get('description', wanted)}"
                self._notes.add(
                    path, expected=expected.partition(". ")[0].rstrip("."), got=_shown_value(value)
                )
            case "minItems" | "maxItems" | "minimum" | "maximum":
                got = f"{len(value)} items" if isinstance(value, list) else _shown_value(value)
                self._notes.add(path, expected=f"{_BOUND_WORDS[error.validator]} {wanted}", got=got)
            case "uniqueItems":
                self._notes.add(path, expected="items that differ", got="equal ones")
            case _:
                self._notes.add(path, expected=f"{error.validator} {wanted!r:.80}", got=_shown_value(value))

    def _describe_schema(self, schema: Mapping[str, Any]) -> str:
        """Describe the value that `schema` expects, in a few words."""
        while "$ref" in schema:
            schema = self._defs[schema["$ref"].rpartition("/")[2]]
        if "const" in schema:
            return _shown_value(schema["const"])
        kind = schema.get("type", "object" if "oneOf" in schema else None)
        return "a value" if kind is None else _type_names(kind)


def _branches(error: ValidationError) -> dict[int, list[ValidationError]]:
    """Group the errors of a `oneOf` by the index of their branch."""
    groups = groupby(error.context, key=lambda each: each.relative_schema_path[0])
    return {index: list(group) for index, group in groups}


def _distance(branch: Iterable[ValidationError]) -> float:
    """Measure the distance of a value from a branch.

    A missing or unknown member counts 1, and all errors inside of members together count a half: they leave
    the branch recognisable.
    """
    distance, inside_members = 0.0, 0.0
    for error in branch:
        if _is_wrong_tag(error):
            distance += 1.5
        elif error.relative_path:
            inside_members = 0.5
        elif error.validator == "additionalProperties":
            distance += len(_unknown_members(error))
        elif error.validator == "oneOf" and error.context:
            distance += min(map(_distance, _branches(error).values()))
        else:
            distance += 1
    return distance + inside_members


def _is_wrong_tag(error: ValidationError) -> bool:
    """Return True for a wrong constant of a member that distinguishes branches."""
    return error.validator == "const" and len(error.relative_path) == 1 and error.relative_path[0] in _TAGS


def _wrong_tag(branch: Iterable[ValidationError]) -> str | None:
    return next((str(error.relative_path[0]) for error in branch if _is_wrong_tag(error)), None)


def _is_wrong_type(error: ValidationError) -> bool:
    return error.validator == "type" and not error.relative_path


def _unknown_members(error: ValidationError) -> list[str]:
    return [name for name in error.instance if name not in error.schema.get("properties", {})]


def _branch_name(branch: Mapping[str, Any]) -> str:
    return str(branch.get("title") or branch.get("$ref", "one of them").rpartition("/")[2])


def _type_names(kinds: str | Sequence[str]) -> str:
    articles = {"null": "", "integer": "an ", "object": "an ", "array": "an "}
    return _joined_by_or([articles.get(kind, "a ") + kind for kind in _as_list(kinds)])


def _as_list(kinds: str | Sequence[str]) -> Sequence[str]:
    return [kinds] if isinstance(kinds, str) else kinds


def _expected_values(values: Sequence[object], got: object) -> str:
    if len(values) == 1:
        return _shown_value(values[0])
    names = [str(value) for value in values]
    return _with_hint(f"one of {', '.join(names)}", got, names)


def _with_hint(expected: str, got: object, names: Sequence[str]) -> str:
    hint = did_you_mean(got, names, show=str) if isinstance(got, str) else ""
    return f"{expected} ({hint})" if hint else expected


def _shown_value(value: object) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return kind_of(value)


def _shown_names(names: Iterable[object]) -> str:
    shown = [_shown_name(str(name)) for name in islice(names, 8)]
    return ", ".join(shown[:7]) + (", …" if len(shown) > 7 else "")


def _shown_name(name: str) -> str:
    return name if name.isascii() and name.isprintable() and len(name) <= 60 else quoted(name)


def _joined_by_or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
