"""Streamable HTTP's bodies held against JSON-RPC: what is no message has one answer on every transport.

The SDK's answer depends on the era: -32602, with its parser's whole account, where a session is spoken in.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from playhead.servers.http_body import whole_then
from playhead.servers.websocket import DEFAULT_OPTIONS
from playhead.servers.websocket_messages import Refusal, decode, structure_limits

_LIMITS: Final = structure_limits(
    json_depth=DEFAULT_OPTIONS.json_depth, json_values=DEFAULT_OPTIONS.json_values
)


class OnlyMessages:
    """ASGI middleware: HTTP 400 with a JSON-RPC error to a POST on `path` whose body is no message.

    For an application below `WholeBody` (as `serve_app` runs it), which bounds the body.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        body = bytearray()
        whole = False
        while not whole:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            whole = not message.get("more_body", False)
        found = decode(body.decode("utf-8", "replace"), _LIMITS)
        if isinstance(found, Refusal):
            text = found.answer.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(text, status_code=400, media_type="application/json")(scope, receive, send)
        else:
            await self._app(scope, whole_then(bytes(body), receive), send)
