"""The handshake, which sets the protocol revision of a connection.

The mode `auto` probes with `server/discover` (revision 2026-07-28) and falls back to `initialize`. The probe
may take a third of the handshake's time, so that an old server that ignores it has enough time left to start.

There are three exceptions. A server that receives the probe late may have switched to the new revision, and
refuses `initialize` with -32022; then `server/discover` is sent again. A server that exits on the unknown
method is started again and gets only `initialize` (supervisor.py). A server that refuses the revision of
`initialize` in words, although the specification requires it to offer another, gets `initialize` again with
the oldest revision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import trio

from playhead.client.transports.rpc_errors import says
from playhead.errors import (
    AccessDeniedError,
    HttpStatusError,
    ProtocolError,
    RemoteError,
    ServerError,
    UsageError,
)
from playhead.protocol.exchange import Exchange
from playhead.protocol.messages import UNSUPPORTED_PROTOCOL_VERSION, RpcError
from playhead.protocol.revisions import CLIENT_INFO, NEWEST, NEWEST_INITIALIZED, OLDEST, REVISIONS

PROBE_SHARE: Final = 1 / 3
"""The share of the handshake's time that the probe may take."""

_WITHOUT_INITIALIZE: Final = tuple(name for name, row in REVISIONS.items() if not row.has_initialize)

_REVISION_REFUSED: Final = re.compile(
    r"(unsupported|invalid)( mcp| protocol)+ version|version .{0,40}not supported", re.IGNORECASE
)
"""Matches the refusals of known servers."""


def check_mode(mode: str) -> None:
    """Raise `UsageError` unless `mode` is `auto`, `legacy` or a revision without a handshake."""
    if mode not in ("auto", "legacy", *_WITHOUT_INITIALIZE):
        allowed = ", ".join(("auto", "legacy", *_WITHOUT_INITIALIZE))
        raise UsageError(f"expected mode to be one of {allowed}, got {mode!r}")


class Negotiating(Protocol):
    """The parts of a connection that the handshake uses."""

    server: str
    exchange: Exchange
    handshake: Mapping[str, Any] | None

    async def request(
        self, method: str, params: Mapping[str, Any], *, silent_seconds: float, total_seconds: float
    ) -> dict[str, Any]: ...

    async def notify(self, method: str) -> None: ...


async def negotiate(connection: Negotiating, *, mode: str, seconds: float) -> None:
    """Set the revision of `connection`. The caller limits the time; `seconds` is that limit.

    Raises `TransportError` if no answer arrived, `AccessDeniedError` for HTTP 401 and 403, and `RemoteError`
    if both sides have no revision in common.
    """
    if mode == "legacy":
        await _initialize(connection)
    elif mode != "auto":
        connection.exchange.revision = REVISIONS[mode]
    elif not await _probed(connection, seconds=seconds * PROBE_SHARE):
        try:
            await _initialize(connection)
        except _RevisionRefusedError:
            await _discover(connection)


class _RevisionRefusedError(ProtocolError):
    """The server answered -32022: it supports other revisions, and should name them in `supported`."""

    def __init__(self, message: str, *, supported: list[str] | None) -> None:
        super().__init__(message)
        self.supported = supported


async def _probed(connection: Negotiating, *, seconds: float) -> bool:
    """Probe with `server/discover`. Returns False if `initialize` is worth trying."""
    with trio.move_on_after(seconds):
        try:
            await _discover(connection)
        except _RevisionRefusedError as refused:
            if refused.supported is not None and not any(map(_has_initialize, refused.supported)):
                raise
            return False
        except AccessDeniedError:
            raise
        except (HttpStatusError, RemoteError):
            return False  # old servers answer an unknown method with an error, some with HTTP 500
        return True
    return False


async def _discover(connection: Negotiating) -> None:
    connection.exchange.revision = NEWEST
    try:
        result = await _request(connection, "server/discover", {})
    except _RevisionRefusedError as refused:
        if NEWEST.name not in (refused.supported or ()):
            raise
        result = await _request(connection, "server/discover", {})
    _check(connection, "server/discover", result, "capabilities", "supportedVersions")
    supported: list[str] = result["supportedVersions"]
    if NEWEST.name not in supported:
        raise ProtocolError(f"{connection.server} supports the revisions {supported}, but not {NEWEST.name}")
    connection.handshake = result


async def _initialize(connection: Negotiating) -> None:
    connection.exchange.revision = NEWEST_INITIALIZED
    params = {
        "protocolVersion": NEWEST_INITIALIZED.name,
        "capabilities": connection.exchange.capabilities,
        "clientInfo": CLIENT_INFO,
    }
    try:
        result = await _request(connection, "initialize", params)
    except ServerError as error:
        if not says(RpcError(error.code, error.server_message, error.data), _REVISION_REFUSED):
            raise
        connection.exchange.count("revisions_refused")
        result = await _request(connection, "initialize", {**params, "protocolVersion": OLDEST.name})
    _check(connection, "initialize", result, "capabilities", "protocolVersion", "serverInfo")
    version: str = result["protocolVersion"]
    if not _has_initialize(version):
        raise ProtocolError(f"{connection.server}: unsupported protocol version from the server: {version}")
    connection.exchange.revision = REVISIONS[version]
    connection.handshake = result
    await connection.notify("notifications/initialized")


async def _request(connection: Negotiating, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return await connection.request(method, params, silent_seconds=math.inf, total_seconds=math.inf)
    except ServerError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        supported = error.data.get("supported") if isinstance(error.data, dict) else None
        names = [name for name in supported if isinstance(name, str)] if isinstance(supported, list) else None
        raise _RevisionRefusedError(
            f"{connection.server} refused {method}: it supports the revisions"
            f" {', '.join(names or ['(none named)'])}",
            supported=names,
        ) from None


def _check(connection: Negotiating, method: str, result: Mapping[str, Any], *fields: str) -> None:
    """Raise `ProtocolError` if any of the `fields` of a result does not have the type that MCP specifies."""
    invalid = [field for field in fields if not _IS_VALID[field](result.get(field))]
    if invalid:
        raise ProtocolError(
            f"{connection.server} returned an invalid {method} result (invalid fields: {', '.join(invalid)})"
        )


_IS_VALID: Final[Mapping[str, Callable[[Any], bool]]] = {
    "capabilities": lambda value: isinstance(value, dict),
    "protocolVersion": lambda value: isinstance(value, str),
    "serverInfo": lambda value: (
        isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("name", "version"))
    ),
    "supportedVersions": lambda value: (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    ),
}


def _has_initialize(name: str) -> bool:
    row = REVISIONS.get(name)
    return row is not None and row.has_initialize
