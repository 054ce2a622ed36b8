"""The media port: the addresses of audio over HTTP, with ranges, and the page to look at.

| path | who may | answer |
|---|---|---|
| `/media/ADDRESS` | who has the address | audio, or bytes of no type; a browser never renders them |
| `/` and its files, `/events` | who has the cookie, which `/?token=…` sets | the page and its state |
| `POST /control` | who has the cookie and sends the token in a header | 204 |

The token is made anew by each process. The cookie is `SameSite=Strict`, and a form of another origin has
neither it nor the header.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

import trio
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Message, Receive, Scope, Send

from playhead.errors import PlayheadError
from playhead.playback.player import Player
from playhead.playback.player_tools import PLAYER_TOOLS
from playhead.servers.file_downloads import FileReply, headers_of
from playhead.servers.proxy.result_audio import ADDRESS_META
from playhead.servers.ranged_resource import RangedResource

COOKIE: Final = "playhead"
TOKEN_HEADER: Final = "x-playhead-token"
RESULTS_SHOWN: Final = 20
RESULT_CHARS: Final = 2_000
REFRESH_SECONDS: Final = 1.0
"""The interval of the page's position while audio plays."""
STREAMS: Final = 32
"""Limits the pages that are open at once."""

_PAGE_TYPES: Final = {"page.html": "text/html", "page.js": "text/javascript", "page.css": "text/css"}
_POLICY: Final = "default-src 'self'; frame-ancestors 'none'; form-action 'none'; base-uri 'none'"


@dataclass(slots=True, kw_only=True)
class MediaPort:
    """The application of the media port."""

    player: Player | None
    media: RangedResource
    """The audio by its address, as `ranged_resource` added it to the proxy."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    results: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=RESULTS_SHOWN))
    _changed: trio.Event = field(default_factory=trio.Event)
    _streams: int = 0

    def app(self) -> Starlette:
        """Return the application."""
        pages = [Route(f"/{name}", self._file) for name in ("page.js", "page.css")]
        return Starlette(
            routes=[
                Mount("/media", self._serve_media),
                Route("/", self._page),
                *pages,
                Route("/events", self._events),
                Route("/control", self._control, methods=["POST"]),
            ]
        )

    def note(self, server: str, tool: str, result: Mapping[str, Any]) -> None:
        """Show a tool's result on the page."""
        blocks = result.get("content")
        texts = [
            str(block.get("text")) for block in blocks or () if isinstance(block, dict) and block.get("text")
        ]
        meta = result.get("_meta")
        addresses = meta.get(ADDRESS_META) if isinstance(meta, Mapping) else None
        self.results.appendleft(
            {
                "server": server,
                "tool": tool,
                "text": "\n".join(texts)[:RESULT_CHARS],
                "error": result.get("isError") is True,
                "audio": [f"/media/{each.rpartition('/')[2]}" for each in addresses or ()],
            }
        )
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # --- media -------------------------------------------------------------------------------------

    async def _serve_media(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                is_ok = message["status"] < 400
                headers = [
                    (name, b"application/octet-stream" if is_ok and _is_other(name, value) else value)
                    for name, value in message["headers"]
                ]
                message["headers"] = [*headers, (b"content-security-policy", b"sandbox; default-src 'none'")]
            await send(message)

        if scope["type"] != "http":
            return
        reply = FileReply(method=scope["method"], headers=headers_of(scope), send=guarded)
        if reply.method not in ("GET", "HEAD"):
            await reply.refuse(405, "expected GET or HEAD", (b"allow", b"GET, HEAD"))
            return
        try:
            await reply.serve(self.media, {"address": scope["path"].rpartition("/")[2]})
        except MCPError as error:
            if not reply.started:
                await reply.refuse(404 if error.data else 502, error.message)

    # --- the page ----------------------------------------------------------------------------------

    def _allows(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def _refusal(self, request: Request) -> Response | None:
        if self._allows(request.cookies.get(COOKIE)):
            return None
        return PlainTextResponse("open the address that the proxy printed when it started", status_code=401)

    async def _page(self, request: Request) -> Response:
        if self._allows(request.query_params.get("token")):
            response: Response = RedirectResponse("/", status_code=303)
            response.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            return response
        return self._refusal(request) or _static("page.html", self.token)

    async def _file(self, request: Request) -> Response:
        return self._refusal(request) or _static(request.url.path.lstrip("/"), self.token)

    async def _events(self, request: Request) -> Response:
        refusal = self._refusal(request)
        if refusal is None and self._streams >= STREAMS:
            refusal = PlainTextResponse(f"expected at most {STREAMS} open pages", status_code=503)
        if refusal is not None:
            return refusal
        return StreamingResponse(self._states(), media_type="text/event-stream", headers=_HEADERS)

    async def _states(self) -> AsyncIterator[str]:
        """Iterate over the states as server-sent events: after each change, and each second of playing."""
        self._streams += 1
        try:
            while True:
                yield f"data: {json.dumps(self._state())}\n\n"
                with trio.move_on_after(REFRESH_SECONDS):
                    await self._changed.wait()
        finally:
            self._streams -= 1

    def _state(self) -> dict[str, Any]:
        if self.player is None:
            return {"status": "none", "queue": [], "results": list(self.results)}
        now = self.player.snapshot()
        return {
            "status": str(now.status),
            "title": now.title,
            "position": now.position_seconds,
            "duration": now.duration_seconds,
            "volume": now.volume,
            "index": now.index,
            "error": None if now.last_error is None else str(now.last_error),
            "queue": list(self.player.queue_titles()),
            "results": list(self.results),
        }

    async def _control(self, request: Request) -> Response:
        refusal = self._refusal(request)
        if refusal is None and not self._allows(request.headers.get(TOKEN_HEADER)):
            refusal = PlainTextResponse(f"expected the token in {TOKEN_HEADER}", status_code=403)
        if refusal is not None:
            return refusal
        try:
            order = json.loads(await request.body())
            tool, arguments = PLAYER_TOOLS[order["tool"]], dict(order.get("arguments") or {})
        except (ValueError, KeyError, TypeError):
            return PlainTextResponse("expected the JSON of a player tool and its arguments", status_code=400)
        if self.player is None:
            return PlainTextResponse("nothing plays here: the proxy has --sink none", status_code=409)
        try:
            response = await tool.call(self.player, arguments)
        except PlayheadError as error:
            return PlainTextResponse(str(error), status_code=409)
        self._announce()
        return Response(status_code=204) if response.success else PlainTextResponse("", status_code=409)


_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def _static(name: str, token: str) -> Response:
    text = files("playhead.servers.proxy").joinpath(name).read_text("utf-8")
    if name == "page.html":
        text = text.replace("{token}", token)
    return Response(text, media_type=_PAGE_TYPES[name], headers=_HEADERS)


def _is_other(name: bytes, value: bytes) -> bool:
    """Return whether a header gives a type other than audio."""
    return name == b"content-type" and not value.strip().lower().startswith(b"audio/")
