"""The identity of a tool call, for which an approval is valid, and the rule that allows a tool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from playhead.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKey:
    """The identity of a call. An approval is valid for calls with the same key only."""

    server: str
    tool: str
    arguments_sha256: str


def call_key(server: str, tool: str, arguments: Mapping[str, Any]) -> CallKey:
    """Return the key of a call. Raises `UsageError` for arguments that are not JSON, or nested past Python's
    limit.

    The canonical form has sorted keys and no spaces; `1` and `1.0` differ.
    """
    return key_of(server, tool, canonical(arguments))


def key_of(server: str, tool: str, canonical: str) -> CallKey:
    """Return the key of a call with arguments in canonical form."""
    digest = hashlib.sha256(canonical.encode("ascii")).hexdigest()
    return CallKey(server=server, tool=tool, arguments_sha256=digest)


def canonical(arguments: Mapping[str, Any]) -> str:
    """Return arguments in canonical form. Raises `UsageError` as `call_key`."""
    try:
        return json.dumps(arguments, sort_keys=True, separators=(",", ":"), default=_as_dict)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the arguments of a call: expected JSON values, got others ({error})") from error


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__}")


def allowing_rule(server: str, tool: str, *, file: str = "your tool configuration") -> str:
    """Return advice for a call without an approval: the rule to add to the configuration `file`."""
    names = f"server = {json.dumps(server)}, tool = {json.dumps(tool)}"
    return f'put {{ {names}, action = "allow" }} first in approvals.rules of {file}'
