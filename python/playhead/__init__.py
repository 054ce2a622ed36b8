"""playhead: MCP tool results, played, shown and routed while they are still arriving.

The names here are the ones that most programs need; `playhead.playback` has the player and its sinks,
`playhead.stream` the ranged reads by themselves, `playhead.testing` the suites and peers for your own tests.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from playhead import errors
from playhead.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from playhead.client import CallResult, Session, connect
    from playhead.client.hub import Hub, open_hub
    from playhead.config.servers import ServerConfig
    from playhead.stream.options import StreamOptions
    from playhead.stream.reader import RangeStream, open_stream

__all__ = [
    "DEFAULT_LIMITS",
    "CallResult",
    "Hub",
    "Limits",
    "RangeStream",
    "ServerConfig",
    "Session",
    "StreamOptions",
    "connect",
    "errors",
    "open_hub",
    "open_stream",
]

_HOMES: Final = {
    "CallResult": "playhead.client",
    "Hub": "playhead.client.hub",
    "RangeStream": "playhead.stream.reader",
    "ServerConfig": "playhead.config.servers",
    "Session": "playhead.client",
    "StreamOptions": "playhead.stream.options",
    "connect": "playhead.client",
    "open_hub": "playhead.client.hub",
    "open_stream": "playhead.stream.reader",
}
"""Imported when first asked for: the MCP SDK takes half a second that `playhead --help` need not pay."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
