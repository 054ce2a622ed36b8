"""A blob that bypasses the SDK, because the HTTP answer gets it last.

The SDK validates, dumps and encodes each result, which is a third of a server's cost for a page of 100 KiB.
So a handler leaves the blob in the `LateBlob` of its request, and returns a mark in its place. `LateBlobs`
replaces the mark in the JSON. The mark is random, so no client can send it.

Results in a session contain their blob, because there the SDK routes answers by their id, which a client may
use twice.
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
        """Return the `LateBlob` of the request; None if the result must contain the blob."""
        scope = getattr(context.request, "scope", {})
        blob = (scope.get("extensions") or {}).get(_EXTENSION)
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return blob if is_modern and isinstance(blob, cls) else None

    def leave(self, base64: str) -> str:
        """Leave the blob here, and return the mark that stands for it."""
        mark = secrets.token_hex(16)
        self.base64, self.mark = base64.encode(), mark.encode()
        return mark


class LateBlobs:
    """ASGI middleware that gives each request a `LateBlob`, and puts its blob into the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        blob = LateBlob()
        start: Message = {}

        async def send_with_blob(message: Message) -> None:
            nonlocal start
            if not blob.mark:
                await send(message)
            elif message["type"] == "http.response.start":
                start = message  # it is sent later, when the length is known
            else:
                body = message["body"].replace(blob.mark, blob.base64)
                MutableHeaders(raw=start["headers"])["content-length"] = str(len(body))
                await send(start)
                await send({**message, "body": body})

        extensions = {**(scope.get("extensions") or {}), _EXTENSION: blob}
        await self._app({**scope, "extensions": extensions}, receive, send_with_blob)
