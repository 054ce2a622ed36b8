"""The record beside a saved file: which call it came of. One a call; equal results share their file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from playhead.config.outputs.names import DATA_FILE
from playhead.errors import PlayheadError, UsageError

TITLE_CHARS: Final = 1000
"""Titles come from servers; a longer one is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedOutput:
    """One call's saved result."""

    id: str
    """When and which: ids sort by time."""
    path: Path
    """The result itself; several outputs with the same content share it."""
    sidecar_path: Path
    """The record, as JSON."""
    tool_id: str
    arguments: Mapping[str, object] | None = field(repr=False)
    """None where they were too long (`Limits.record_bytes`). They may be private, so `repr` hides them."""
    time: datetime
    mime: str
    sha256: str
    size_bytes: int
    tags: tuple[str, ...] = ()
    title: str | None = None
    metadata: Mapping[str, object] | None = field(default=None, repr=False)
    """The tool configuration's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in the output folder that is no whole record."""

    path: Path
    reason: str


class BrokenRecordError(PlayheadError):
    """A record that cannot be read; listing turns it into a `Problem`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What is known of an output before its bytes are."""

    tool_id: str
    arguments: Mapping[str, object] | None
    time: datetime
    mime: str
    tags: tuple[str, ...]
    title: str | None
    metadata: Mapping[str, object] | None


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags without repetition, in order. Raises `UsageError` for what is no list of texts."""
    if isinstance(tags, str):
        raise UsageError(f"tags: expected a list of texts, came the text {tags!r}; write [{tags!r}]")
    found = tuple(dict.fromkeys(tags))
    for tag in found:
        came: object = tag
        if not isinstance(came, str):
            raise UsageError(f"tags: expected texts, came a {type(came).__name__}")
    return found


def check_time(time: datetime) -> datetime:
    """`time` in UTC. Raises `UsageError` without a zone, and for years that no clock shows."""
    if time.tzinfo is None or not 1970 <= time.year <= 9000:
        raise UsageError(
            f"time: expected a time with a zone, such as datetime.now(UTC), got {time.isoformat()}"
        )
    return time.astimezone(UTC)


def dump(label: Label, *, file: str, sha256: str, size_bytes: int, limit_bytes: int) -> bytes:
    """The record as JSON, at most `limit_bytes`: without the arguments where they make it longer.

    ASCII, so that any string survives. Raises `UsageError` for arguments or metadata that JSON can't hold,
    and where it is too long without the arguments.
    """
    record: dict[str, Any] = {
        "tool_id": label.tool_id,
        "arguments": None if label.arguments is None else dict(label.arguments),
        "time": label.time.isoformat(),
        "mime": label.mime,
        "sha256": sha256,
        "size_bytes": size_bytes,
        "file": file,
        "tags": list(label.tags),
        "title": None if label.title is None else label.title[:TITLE_CHARS],
    }
    if label.metadata is not None:
        record["metadata"] = dict(label.metadata)
    text = _encoded(record)
    if len(text) > limit_bytes:
        record["arguments"] = None
        record["arguments_left_out_bytes"] = len(text)
        text = _encoded(record)
    if len(text) > limit_bytes:
        raise UsageError(
            f"the record of an output of {label.tool_id!r} has {len(text)} bytes without its arguments;"
            f" {limit_bytes} are allowed (Limits.record_bytes): give it less metadata, or fewer tags"
        )
    return text


def _encoded(record: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=True, allow_nan=False, indent=1).encode("ascii") + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"arguments and metadata of a saved output must be JSON: {error}") from error


def load(text: bytes, *, id: str, sidecar_path: Path) -> SavedOutput:
    """A record as it was written. Raises `BrokenRecordError`, saying what is wrong."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenRecordError(f"not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise BrokenRecordError("expected a JSON object")
    file = _field(raw, "file", str)
    sha256 = _field(raw, "sha256", str)
    # Records are files that anybody may have put there: the name must not lead anywhere else.
    if not DATA_FILE.fullmatch(file) or not file.startswith(sha256 + "."):
        raise BrokenRecordError("'file' is no name of a saved output")
    tags = _field(raw, "tags", list)
    if not all(isinstance(tag, str) for tag in tags):
        raise BrokenRecordError("'tags' are not texts")
    size_bytes = _field(raw, "size_bytes", int)
    try:
        time = check_time(datetime.fromisoformat(_field(raw, "time", str)))
    except (ValueError, UsageError) as error:
        raise BrokenRecordError(f"'time': {error}") from error
    return SavedOutput(
        id=id,
        path=sidecar_path.with_name(file),
        sidecar_path=sidecar_path,
        tool_id=_field(raw, "tool_id", str),
        arguments=_optional(raw, "arguments", dict),
        time=time,
        mime=_field(raw, "mime", str),
        sha256=sha256,
        size_bytes=size_bytes,
        tags=tuple(tags),
        title=_optional(raw, "title", str),
        metadata=_optional(raw, "metadata", dict),
    )


def _field(raw: Mapping[str, Any], name: str, kind: type) -> Any:
    value = raw.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise BrokenRecordError(f"{name!r} is missing or of the wrong type")
    return value


def _optional(raw: Mapping[str, Any], name: str, kind: type) -> Any:
    return None if raw.get(name) is None else _field(raw, name, kind)
