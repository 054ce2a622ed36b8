"""A blob that joins its HTTP answer last.

The SDK validates, dumps and encodes each result, a third of what a page of 100 KiB costs its server. So a
handler that finds a `LateBlob` in its request leaves the blob there and returns a mark in its place, and
`LateBlobs` replaces the mark in the JSON. The mark is random: no client can send it.

In a session the SDK routes answers by their id, which a client may use twice: there, results stay whole.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_EXTENSION: Final = "playhead.late_blob"


@dataclass(slots=True)
class LateBlob:
    """The blob of one answer."""

    base64: bytes = b""
    mark: bytes = b""

    @classmethod
    def of(cls, context: ServerRequestContext[Any, Any]) -> LateBlob | None:
        """The place for the blob of this answer; None if its result has to be whole."""
        scope = getattr(context.request, "scope", {})
        found = (scope.get("extensions") or {}).get(_EXTENSION)
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return found if is_modern and isinstance(found, cls) else None

    def leave(self, base64: str) -> str:
        """Leave the blob here, and return the mark that stands for it."""
        mark = secrets.token_hex(16)
        self.base64, self.mark = base64.encode(), mark.encode()
        return mark


class LateBlobs:
    """ASGI middleware: a `LateBlob` for each request, and its blob for the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        blob = LateBlob()
        start: Message = {}

        async def join(message: Message) -> None:
            nonlocal start
            if not blob.mark:
                await send(message)
            elif message["type"] == "http.response.start":
                start = message  # until the length is known
            else:
                body = message["body"].replace(blob.mark, blob.base64)
                MutableHeaders(raw=start["headers"])["content-length"] = str(len(body))
                await send(start)
                await send({**message, "body": body})

        extensions = {**(scope.get("extensions") or {}), _EXTENSION: blob}
        await self._app({**scope, "extensions": extensions}, receive, join)
