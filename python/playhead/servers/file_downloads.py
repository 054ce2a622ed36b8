"""Files over HTTP for ranged resources: links that expire, and the application that serves them (SEP-2631).

docs/ranged-resources.md shows the messages. A link contains all that the application needs to serve it, so
nothing is stored, and the number of links has no limit.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlsplit

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from playhead.errors import UsageError
from playhead.limits import KIB, MIB
from playhead.servers.byte_sources import ResourceBytes
from playhead.servers.ranged_resource import RESOURCE_NOT_FOUND, RangedResource

__all__ = ["FileDownloads"]

LINK_SECONDS: Final = 300.0
"""The lifetime of a link. A leaked link is soon useless, and a client can request another one."""

_FIRST_CHUNK_BYTES: Final = 256 * KIB
_CHUNK_BYTES: Final = MIB
_RANGE: Final = re.compile(r"bytes=[ \t]*(\d{0,18})-(\d{0,18})[ \t]*", re.ASCII | re.IGNORECASE)
_EXPIRY: Final = struct.Struct(">Q")
_SIGNATURE_BYTES: Final = 32

Send = Callable[[dict[str, Any]], Awaitable[None]]


class FileDownloads:
    """Offers ranged resources as files over HTTP (`file` form, SEP-2631).

    This ASGI application serves the links that `files/authorizeDownload` returns. A link is signed and
    expires. It needs no other credentials, and serves only the resource that it was made for, with ranges
    (206, 416), `If-Range`, `If-None-Match` and HEAD.

        files = FileDownloads()
        ranged_resource(server, "music://song.mp3", Path("song.mp3"), files=files)
        app = server.streamable_http_app()
        app.mount(files.path, files)

    The server announces SEP-2631's capability, and answers that method, on connections over HTTP or
    WebSocket, because a link needs an address. Over stdio it does so only if `url` is given.
    """

    def __init__(
        self,
        *,
        path: str = "/files",
        url: str | None = None,
        key: bytes | None = None,
        link_seconds: float = LINK_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Args:
            path: the path at which the application is mounted.
            url: the URL under which clients reach it, `https://music.example.org/files`. By default the
                scheme and host of the client's own request with `path`, which is wrong behind a proxy that
                terminates TLS.
            key: signs the links. It is random by default, so that a restart ends every link. Servers that
                serve each other's links share one.
            link_seconds: the lifetime of a link.
            now: Unix time, for tests.

        Raises:
            UsageError: `path` does not begin with a slash, `url` is not an http or https URL, or `key` has
                fewer than 16 bytes.
        """
        if not path.startswith("/"):
            raise UsageError(f"expected a path that begins with /, got {path!r}")
        if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
            raise UsageError(f"expected an http or https URL, got {url!r}")
        if key is not None and len(key) < 16:
            raise UsageError(f"expected a key of 16 bytes or more, got {len(key)}")
        self.path = path.rstrip("/")
        self.resources: list[RangedResource] = []
        """The resources to serve. `ranged_resource` adds to them."""
        self._url = url
        self._key = key or secrets.token_bytes(32)
        self._link_seconds = link_seconds
        self._now = now

    def base_url(self, request: object) -> str | None:
        """Return the URL under which a client reaches the application; None if there is none.

        `request` is the HTTP request or WebSocket (of Starlette) that brought a message, or None.
        """
        if self._url is not None:
            return self._url.rstrip("/")
        url = getattr(request, "url", None)
        if url is None or not url.netloc:
            return None
        scheme = "https" if url.scheme in ("https", "wss") else "http"
        return f"{scheme}://{url.netloc}{self.path}"

    async def authorize(
        self, resource: RangedResource, values: Mapping[str, str], *, base_url: str
    ) -> dict[str, Any]:
        """Return the result of `files/authorizeDownload` for a resource.

        Raises:
            MCPError: as `RangedResource.file`.
        """
        file = await resource.file(**values)
        expiry = int(self._now() + self._link_seconds)
        name = quote(file["name"].rpartition("/")[2] or "file", safe="")
        return {
            "file": file,
            "download": {
                "transport": urlsplit(base_url).scheme,
                "method": "GET",
                "url": f"{base_url}/{self._token(file['uri'], expiry)}/{name}",
                "expiresAt": datetime.fromtimestamp(expiry, UTC).isoformat().replace("+00:00", "Z"),
            },
        }

    async def __call__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Send,
    ) -> None:
        """Serve one request. If cancelled, the answer is incomplete, which its length shows to the client."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        reply = FileReply(method=scope["method"], headers=headers_of(scope), send=send)
        if reply.method not in ("GET", "HEAD"):
            await reply.refuse(405, "expected GET or HEAD", (b"allow", b"GET, HEAD"))
            return
        token = scope["path"].rpartition("/")[0].rpartition("/")[2]  # the part before the file's name
        signed = self._read_token(token)
        if signed is None:
            await reply.refuse(403, "this link is invalid; ask for another with files/authorizeDownload")
            return
        expiry, uri = signed
        if expiry < self._now():
            await reply.refuse(410, "this link has expired; ask for another with files/authorizeDownload")
            return
        for resource in self.resources:
            matched = resource.match(uri)
            if matched is not None:
                try:
                    await reply.serve(resource, resource.known(matched, {}))
                except MCPError as error:
                    if not reply.started:
                        missing = error.code in (INVALID_PARAMS, RESOURCE_NOT_FOUND)
                        await reply.refuse(404 if missing else 502, error.message)
                return
        await reply.refuse(404, "this resource is no longer offered")

    def _token(self, uri: str, expiry: int) -> str:
        signed = _EXPIRY.pack(expiry) + uri.encode()
        return base64.urlsafe_b64encode(self._signature(signed) + signed).decode().rstrip("=")

    def _read_token(self, token: str) -> tuple[int, str] | None:
        """Return the expiry and the URI of a token; None unless this server has signed it."""
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        signature, signed = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._signature(signed)):
            return None
        return _EXPIRY.unpack(signed[: _EXPIRY.size])[0], signed[_EXPIRY.size :].decode()

    def _signature(self, signed: bytes) -> bytes:
        return hmac.digest(self._key, signed, "sha256")


class FileReply:
    """The answer to one HTTP request for a file."""

    def __init__(self, *, method: str, headers: Mapping[str, str], send: Send) -> None:
        self.method = method
        self.started = False
        self._headers = headers
        self._send = send

    async def serve(self, resource: RangedResource, values: Mapping[str, str]) -> None:
        """Answer with the resource or the requested range of it (RFC 9110, sections 13 and 14).

        For a list of ranges, the answer is the whole resource, as the RFC allows. If the resource changes
        meanwhile, the answer stays incomplete, because it has the bytes of one version only.
        """
        requested = await self._requested_range(resource, values)
        start, last = requested or (0, None)
        stop = start + _FIRST_CHUNK_BYTES if last is None else min(last + 1, start + _FIRST_CHUNK_BYTES)
        piece = await resource.read(start, stop, values)
        expected = self._headers.get("if-range")
        if requested is not None and expected is not None and not _matches_strongly(piece.etag, expected):
            requested = None
            piece = piece if start == 0 else await resource.read(0, _FIRST_CHUNK_BYTES, values)
        total = piece.total_bytes
        fields = _common_headers(resource, piece)
        if piece.etag is not None and piece.etag in self._headers.get("if-none-match", ""):
            await self._send_head(304, fields)
            await self._send_body(b"")
        elif requested is not None and not piece.data:
            if total is None:
                total = (await resource.read(0, 1, values)).total_bytes
            size = [(b"content-range", f"bytes */{total}".encode())] if total is not None else []
            await self.refuse(416, "the file ends before this range", *size)
        elif requested is not None:
            end = start + len(piece.data) if total is None else total
            if last is not None:
                end = min(end, last + 1)
            content_range = f"bytes {start}-{end - 1}/{'*' if total is None else total}"
            await self._send_head(
                206, [*fields, (b"content-range", content_range.encode())], length=end - start
            )
            await self._send_pieces(resource, values, piece, start=start, end=end)
        else:
            await self._send_head(200, fields, length=total)
            if self.method == "HEAD":
                await self._send_body(b"")
            else:
                await self._send_pieces(resource, values, piece, start=0, end=total)

    async def refuse(self, status: int, reason: str, *fields: tuple[bytes, bytes]) -> None:
        """Answer with a status and a line of text."""
        body = f"{reason}\n".encode()
        plain = (b"content-type", b"text/plain; charset=utf-8")
        await self._send_head(status, [plain, *fields], length=len(body))
        await self._send_body(b"" if self.method == "HEAD" else body)

    async def _requested_range(
        self, resource: RangedResource, values: Mapping[str, str]
    ) -> tuple[int, int | None] | None:
        """Return the first and the last byte (None: the end) of the range; None for the whole file."""
        match = _RANGE.fullmatch(self._headers.get("range", ""))
        if self.method != "GET" or match is None or not (match[1] or match[2]):
            return None
        if match[1]:
            first, last = int(match[1]), int(match[2]) if match[2] else None
            return None if last is not None and last < first else (first, last)
        size = (await resource.read(0, 1, values)).total_bytes
        if size is None:
            return None  # the last bytes can't be located without a size
        return max(size - int(match[2]), 0), None

    async def _send_pieces(
        self,
        resource: RangedResource,
        values: Mapping[str, str],
        piece: ResourceBytes,
        *,
        start: int,
        end: int | None,
    ) -> None:
        etag, at = piece.etag, start
        while piece.data and piece.etag == etag:
            data = piece.data if end is None else piece.data[: end - at]
            at += len(data)
            if at == end:
                await self._send_body(data)
                return
            await self._send_body(data, more=True)
            piece = await resource.read(
                at, at + _CHUNK_BYTES if end is None else min(end, at + _CHUNK_BYTES), values
            )
        if piece.etag == etag and end in (None, at):
            await self._send_body(b"")

    async def _send_head(
        self, status: int, fields: list[tuple[bytes, bytes]], *, length: int | None = None
    ) -> None:
        self.started = True
        sized = [] if length is None else [(b"content-length", str(length).encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": [*fields, *sized]})

    async def _send_body(self, data: bytes, *, more: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _common_headers(resource: RangedResource, piece: ResourceBytes) -> list[tuple[bytes, bytes]]:
    """Return the headers of every answer with bytes. They make a browser save the file and never run it."""
    etag = [] if piece.etag is None else [(b"etag", piece.etag.encode("latin-1", "replace"))]
    return [
        (b"content-type", (piece.mime_type or resource.mime_type).encode("latin-1", "replace")),
        (b"accept-ranges", b"bytes"),
        (b"cache-control", b"private, no-store"),
        (b"content-disposition", b"attachment"),
        (b"x-content-type-options", b"nosniff"),
        *etag,
    ]


def _matches_strongly(etag: str | None, expected: str) -> bool:
    """Compare by the strong rules of RFC 9110, 8.8.3.2. A date never matches, because it is too coarse."""
    return etag is not None and etag == expected and not etag.startswith("W/")
