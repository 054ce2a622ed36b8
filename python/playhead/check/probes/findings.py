"""Validate objects of listings, reads and prompts against the shapes of the MCP schema.

The tables and rules are those for results of tools (`content.validation`): a link and a listed resource have
the same fields, an embedded resource and the contents of a read the same type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from playhead.content import Finding, validate_tool_response
from playhead.content.findings import Notes, kind_of
from playhead.content.formats import number, quoted
from playhead.content.revisions import LATEST, REVISIONS
from playhead.content.validation import ANNOTATIONS, BLOCKS, Field, check_fields

_META: Final = Field(name="_meta", kind="object")
_RESOURCE: Final = (
    *(field for field in BLOCKS["resource_link"] if field.name != "type"),
    Field(name="annotations", kind="object"),
    _META,
)
_TEMPLATE: Final = (
    Field(name="uriTemplate", required=True),
    *(field for field in _RESOURCE if field.name not in ("uri", "size")),
)
_PROMPT: Final = (
    Field(name="name", required=True),
    Field(name="title"),
    Field(name="description"),
    Field(name="arguments", kind="array"),
    Field(name="icons", kind="array"),
    _META,
)
_ARGUMENT: Final = (
    Field(name="name", required=True),
    Field(name="title"),
    Field(name="description"),
    Field(name="required", kind="boolean"),
)
_SHOWN: Final = 5


def resource_findings(path: str, raw: object) -> list[Finding]:
    """Validate one item of `resources/list`."""
    notes = Notes()
    if (item := _object(notes, path, raw)) is not None:
        check_fields(notes, path, item, _RESOURCE)
        size = item.get("size")
        if isinstance(size, int | float) and size < 0:
            notes.add(f"{path}.size", expected="0 or more", came=number(size))
        _annotations(notes, path, item)
    return notes.all()


def template_findings(path: str, raw: object) -> list[Finding]:
    """Validate one item of `resources/templates/list`; the template itself is not parsed."""
    notes = Notes()
    if (item := _object(notes, path, raw)) is not None:
        check_fields(notes, path, item, _TEMPLATE)
        _annotations(notes, path, item)
    return notes.all()


def prompt_findings(path: str, raw: object) -> list[Finding]:
    """Validate one item of `prompts/list`."""
    notes = Notes()
    if (item := _object(notes, path, raw)) is not None:
        check_fields(notes, path, item, _PROMPT)
        arguments = item.get("arguments")
        for index, argument in enumerate(arguments if isinstance(arguments, list) else ()):
            place = f"{path}.arguments[{index}]"
            if (fields := _object(notes, place, argument)) is not None:
                check_fields(notes, place, fields, _ARGUMENT)
    return notes.all()


def contents_findings(path: str, raw: object, revision: str) -> list[Finding]:
    """Validate one item of the result of `resources/read`."""
    return _within({"type": "resource", "resource": raw}, "$.content[0].resource", path, revision)


def block_findings(path: str, raw: object, revision: str) -> list[Finding]:
    """Validate the content of a prompt message."""
    return _within(raw, "$.content[0]", path, revision)


def summarize(findings: Sequence[Finding]) -> str:
    """Format the first few findings for a message."""
    more = f"; and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
    return "; ".join(str(finding) for finding in findings[:_SHOWN]) + more


def _within(block: object, inner: str, path: str, revision: str) -> list[Finding]:
    result = {"content": [block], "resultType": "complete"}
    known = revision if revision in REVISIONS else LATEST
    return [
        Finding(path=path + item.path.removeprefix(inner), expected=item.expected, came=item.came)
        for item in validate_tool_response(result, known)
        if item.path.startswith(inner)
    ]


def _object(notes: Notes, path: str, raw: object) -> Mapping[str, object] | None:
    if isinstance(raw, dict):
        return raw
    notes.add(path, expected="an object", came=kind_of(raw))
    return None


def _annotations(notes: Notes, path: str, item: Mapping[str, object]) -> None:
    annotations = item.get("annotations")
    if not isinstance(annotations, dict):
        return
    check_fields(notes, f"{path}.annotations", annotations, ANNOTATIONS)
    priority = annotations.get("priority")
    if isinstance(priority, int | float) and not isinstance(priority, bool) and not 0 <= priority <= 1:
        notes.add(f"{path}.annotations.priority", expected="a number from 0 to 1", came=number(priority))
    audience = annotations.get("audience")
    for index, role in enumerate(audience if isinstance(audience, list) else ()):
        if role not in ("user", "assistant"):
            got = quoted(role) if isinstance(role, str) else kind_of(role)
            notes.add(f"{path}.annotations.audience[{index}]", expected="user or assistant", came=got)
