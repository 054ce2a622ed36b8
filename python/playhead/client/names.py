"""Names of tools: the id people write, and the name a model is offered.

A tool's key is the pair `(server, tool)`. Its *id* `server__tool` is for people and configuration files, and
is never taken apart: a tool's name may hold `__`, so the tool `c` of a server `a__b` and the tool `b__c` of a
server `a` have the same id. Its *model name* is what every provider accepts: 1 to 64 characters of
`[A-Za-z0-9_-]`, the first one a letter or `_`, and no two tools share one.

The model name is the id wherever that is allowed and can mean only this tool; else a readable part of it and
a hash of the key. So it depends on the names in the servers file and on the tool itself, not on the order in
which servers answer, nor on who is connected: a model's history stays true over a reconnection.

These are the strictest rules of the providers' (OpenAI: `^[a-zA-Z0-9_-]{1,64}$`; Gemini: first a letter
or `_`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from playhead.config.tools import create_tool_id

MODEL_NAME_CHARS: Final = 64
HASH_DIGITS: Final = 10
"""40 bits: among 10,000 tools whose readable parts are equal too, two collide once in 20,000 times; the
registry then gives the later key another hash."""

ToolKey = tuple[str, str]
"""`(server, tool)`, each as it is written in the servers file and in the server's listing."""

_ALLOWED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]+")


def model_name(server: str, tool: str, *, servers: Iterable[str] = (), salt: int = 0) -> str:
    """The name under which a model is offered `tool` of `server`.

    `servers` are all names in the servers file: they tell whether the id could be another server's too.
    `salt` gives another name to a key whose name is taken (`ToolNames` counts it up).
    """
    whole = create_tool_id(server, tool)
    owners = {name for name in servers if whole.startswith(create_tool_id(name, ""))} | {server}
    looks_hashed = re.search(rf"_[0-9a-f]{{{HASH_DIGITS}}}\Z", whole) is not None
    if salt == 0 and _ALLOWED.fullmatch(whole) and len(owners) == 1 and not looks_hashed:
        return whole
    return _readable(whole) + "_" + _hash(server, tool, salt)


def _readable(whole: str) -> str:
    readable = _FOREIGN.sub("_", whole)
    if not _ALLOWED.match(readable):
        readable = f"_{readable}"
    return readable[: MODEL_NAME_CHARS - HASH_DIGITS - 1]


def _hash(server: str, tool: str, salt: int) -> str:
    # The length keeps ("ab", "c") and ("a", "bc") apart. JSON may bring lone surrogates; they have bytes too.
    key = f"{salt}:{len(server)}:{server}{tool}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(key).hexdigest()[:HASH_DIGITS]


@dataclass(frozen=True, slots=True)
class ToolNames:
    """The names of a set of tools, both ways. Made by `name_tools`."""

    names: Mapping[ToolKey, str] = field(default_factory=dict)
    keys: Mapping[str, ToolKey] = field(default_factory=dict)
    """The other way round: model name → key."""
    by_id: Mapping[str, tuple[ToolKey, ...]] = field(default_factory=dict)
    """Every key that has an id: more than one only where a server's name begins with another's and `__`."""


def name_tools(tools: Iterable[ToolKey], *, servers: Iterable[str] = ()) -> ToolNames:
    """Name every tool of `tools` (a key that comes twice is one tool), the same way in whatever order.

    `servers` as in `model_name`; the servers of `tools` are added.
    """
    every = sorted(set(tools))
    known = frozenset(servers) | {server for server, _ in every}
    names: dict[ToolKey, str] = {}
    keys: dict[str, ToolKey] = {}
    by_id: dict[str, tuple[ToolKey, ...]] = {}
    for key in every:
        salt = 0
        while (name := model_name(*key, servers=known, salt=salt)) in keys:
            salt += 1
        names[key], keys[name] = name, key
        by_id[create_tool_id(*key)] = (*by_id.get(create_tool_id(*key), ()), key)
    return ToolNames(names=names, keys=keys, by_id=by_id)
