"""Why the schema rejects a message, in words for whoever wrote it.

The schema is a tree of `oneOf`, and its own account of a wrong message is every branch that it is not. A
reader means one of them: the message says by `method`, `type` or the members it has which one, and only what
is wrong in that branch is told. Where no branch is meant, the finding lists what there is to choose from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from playhead.content.findings import Finding, Notes, kind_of, step
from playhead.content.formats import number, quoted

Schema = Mapping[str, Any]

_A_TYPE: Final = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_IN_EVERY_RESULT: Final = frozenset({"_meta", "resultType", "ttlMs", "cacheScope", "nextCursor"})
"""Members that tell no result from another."""
_BOUNDS: Final = {
    "minItems": "a number of items of at least",
    "maxItems": "a number of items of at most",
    "minimum": "at least",
    "maximum": "at most",
}
_MANY: Final = 3
"""Branches up to which the nearest one is told even where nothing points to it."""


def label_of(message: object) -> str:
    """What kind of message it is, as far as it says: `tools/call request, id 3`."""
    if not isinstance(message, dict):
        return "message"
    kind = "message"
    if "method" in message:
        method = message["method"]
        name = f"{_plain(method)} " if isinstance(method, str) else ""
        kind = name + ("request" if "id" in message else "notification")
    elif "error" in message:
        kind = "error"
    elif "result" in message:
        kind = "result"
    identifier = message.get("id")
    if isinstance(identifier, str):
        return f"{kind}, id {quoted(identifier)}"
    if isinstance(identifier, int | float) and not isinstance(identifier, bool):
        return f"{kind}, id {number(identifier)}"
    return kind


class Explainer:
    """Puts into words what `schema` has against a message."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._validator = Draft202012Validator(schema)
        self._defs: Mapping[str, Schema] = schema["$defs"]
        self._requests = self._methods("Request")
        self._notifications = self._methods("Notification")

    def findings(self, message: object) -> list[Finding]:
        """At least one, for a message that the schema rejects."""
        notes = Notes()
        if not isinstance(message, dict):
            came = "an array (a batch, which MCP does not have)" if isinstance(message, list) else None
            notes.add("$", expected="one message, which is an object", came=came or kind_of(message))
            return notes.all()
        kind = self._kind(message)
        if kind is None:
            came = f"an object with {_listed(message)}" if message else "an empty object"
            notes.add("$", expected="method (a request or a notification), result or error", came=came)
            return notes.all()
        branch = kind
        if isinstance(method := message.get("method"), str):
            branch = (self._requests if kind == "Request" else self._notifications).get(method, kind)
        self._tell(notes, self._errors(message, branch), "$")
        if not notes.all():
            notes.add(
                "$", expected="exactly one kind of message", came="one that can be read in several ways"
            )
        return notes.all()

    def _methods(self, kind: str) -> dict[str, str]:
        names = [branch["$ref"].rpartition("/")[2] for branch in self._defs[kind]["oneOf"]]
        return {self._defs[name]["properties"]["method"]["const"]: name for name in names}

    def _kind(self, message: Mapping[str, object]) -> str | None:
        if "method" in message:
            method = message["method"]
            if isinstance(method, str) and method in self._requests:
                return "Request"
            if isinstance(method, str) and method in self._notifications:
                return "Notification"
            return "Request" if "id" in message else "Notification"
        if "error" in message:
            return "Failure"
        return "Success" if "result" in message else None

    def _errors(self, value: object, name: str) -> list[ValidationError]:
        return list(self._validator.evolve(schema=self._defs[name]).iter_errors(value))

    def _tell(self, notes: Notes, errors: Iterable[ValidationError], path: str) -> None:
        for error in errors:
            if notes.full:
                return
            place = path
            for key in error.relative_path:
                place = step(place, key)
            if error.validator == "type" and not {"const", "enum"}.isdisjoint(error.schema):
                continue  # the constant says it better
            if error.validator in ("oneOf", "anyOf"):
                self._tell_branch(notes, error, place)
            else:
                self._tell_plain(notes, error, place)

    def _tell_branch(self, notes: Notes, error: ValidationError, path: str) -> None:
        branches = [self._resolved(branch) for branch in error.validator_value]
        value = error.instance
        if not error.context:
            titles = [str(branch.get("title", "?")) for branch in branches]
            notes.add(path, expected=f"exactly one of {_either(titles)}", came="what fits several of them")
            return
        chosen = self._chosen(notes, branches, value, path)
        if chosen is not None:
            # The paths of a context are relative to the value that the oneOf is about.
            self._tell(
                notes, [part for part in error.context if part.relative_schema_path[0] == chosen], path
            )

    def _chosen(self, notes: Notes, branches: Sequence[Schema], value: object, path: str) -> int | None:
        """The branch that `value` means, or None after a finding that says what there is."""
        if not isinstance(value, dict) or not any(_is_object(branch) for branch in branches):
            kinds = list(dict.fromkeys(str(branch.get("type", "object")) for branch in branches))
            fitting = [
                at
                for at, kind in enumerate(branches)
                if _a_type(kind.get("type", "object")) == kind_of(value)
            ]
            if fitting:
                return fitting[0]
            notes.add(path, expected=_a_type(kinds), came=kind_of(value))
            return None
        if tag := _tag(branches):
            values = [branch["properties"][tag]["const"] for branch in branches]
            if tag in value and value[tag] in values:
                return values.index(value[tag])
            if tag in value or all(tag in branch.get("required", ()) for branch in branches):
                expected, came = (
                    _choice(values, value.get(tag)),
                    _came(value[tag]) if tag in value else "nothing",
                )
                notes.add(step(path, tag), expected=expected, came=came)
                return None
        ranks = [_rank(branch, value) for branch in branches]
        best = max(range(len(branches)), key=ranks.__getitem__)
        if ranks[best][0] == 0 and len(branches) > _MANY:
            known = [str(branch["required"][0]) for branch in branches if _telling(branch)]
            came = f"an object with {_listed(value)}" if value else "an empty object"
            notes.add(path, expected=f"nothing but _meta, or {_either(known)}", came=came)
            return None
        return best

    def _tell_plain(self, notes: Notes, error: ValidationError, path: str) -> None:
        value, wanted, schema = error.instance, error.validator_value, error.schema
        match error.validator:
            case "required":
                for name in wanted:
                    if name not in value and f"{name!r} is" in error.message:
                        expected = self._described(schema.get("properties", {}).get(name, {}))
                        notes.add(step(path, name), expected=expected, came="nothing")
            case "additionalProperties":
                known = [str(name) for name in schema["properties"]]
                for name in [name for name in value if name not in known]:
                    near = get_close_matches(str(name), known, n=1)
                    hint = f" ({near[0]} is meant?)" if near else ""
                    expected = f"no member but {', '.join(known)}{hint}"
                    notes.add(step(path, name), expected=expected, came=kind_of(value[name]))
            case "dependentRequired":
                for name, others in wanted.items():
                    for other in others if name in value else ():
                        if other not in value and f"{other!r} is" in error.message:
                            notes.add(step(path, other), expected=f"one, as {name} is there", came="nothing")
            case "const":
                notes.add(path, expected=_constant(wanted), came=_came(value))
            case "enum":
                notes.add(path, expected=_choice(wanted, value), came=_came(value))
            case "type":
                came = _came(value) if isinstance(value, float) else kind_of(value)
                notes.add(path, expected=_a_type(wanted), came=came)
            case "pattern":
                said = schema.get("title", "a string")
                expected = f"{said}: {schema.get('description', wanted)}".partition(". ")[0].rstrip(".")
                notes.add(path, expected=expected, came=_came(value))
            case "minItems" | "maxItems" | "minimum" | "maximum":
                came = f"{len(value)} items" if isinstance(value, list) else _came(value)
                notes.add(path, expected=f"{_BOUNDS[error.validator]} {wanted}", came=came)
            case "uniqueItems":
                notes.add(path, expected="items that differ", came="some twice")
            case _:
                notes.add(path, expected=f"{error.validator} {wanted}", came=_came(value))

    def _described(self, schema: Schema) -> str:
        """What a missing member would be, in few words."""
        schema = self._resolved(schema)
        if "const" in schema:
            return _constant(schema["const"])
        kind = schema.get("type", "object" if "oneOf" in schema else None)
        return "one" if kind is None else _a_type(kind)

    def _resolved(self, branch: Schema) -> Schema:
        while "$ref" in branch:
            branch = self._defs[branch["$ref"].rpartition("/")[2]]
        return branch


def _is_object(branch: Schema) -> bool:
    return bool(branch.get("type", "object") == "object")


def _tag(branches: Sequence[Schema]) -> str | None:
    """The member by whose constant the branches say what they are."""
    for tag in ("method", "type", "mode"):
        if all("const" in branch.get("properties", {}).get(tag, {}) for branch in branches):
            return tag
    return None


def _telling(branch: Schema) -> bool:
    required = branch.get("required", ())
    return bool(required) and required[0] not in _IN_EVERY_RESULT


def _rank(branch: Schema, value: Mapping[str, object]) -> tuple[int, int, int]:
    """How well the members fit: how many are there that tell this branch, how few are missing or unknown."""
    known = branch.get("properties", {}).keys()
    required = frozenset(branch.get("required", ()))
    telling = (value.keys() & known) - _IN_EVERY_RESULT
    return (2 * len(telling & required) + len(telling - required), -len(required - value.keys()),
            -len(value.keys() - known))  # fmt: skip


def _a_type(kinds: str | Sequence[str]) -> str:
    return _either([_A_TYPE[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds)])


def _constant(value: object) -> str:
    return quoted(value) if isinstance(value, str) else str(value)


def _choice(values: Sequence[object], came: object) -> str:
    names = [str(value) for value in values]
    near = get_close_matches(came, names, n=1) if isinstance(came, str) else []
    return f"one of {', '.join(names)}" + (f" ({near[0]} is meant?)" if near else "")


def _came(value: object) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return kind_of(value)


def _listed(names: Iterable[object]) -> str:
    shown = [_plain(str(name)) for name in _first(names, 8)]
    return ", ".join(shown[:7]) + (", …" if len(shown) > 7 else "")


def _first(names: Iterable[object], count: int) -> Iterator[object]:
    for name, _ in zip(names, range(count), strict=False):
        yield name


def _plain(name: str) -> str:
    return name if name.isascii() and name.isprintable() and len(name) <= 60 else quoted(name)


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
