"""The HTTP origin of a library on loopback, for clients that fetch a link themselves.

Starlette's `FileResponse` answers ranges (206, 416, HEAD, ETag, If-Range) and streams a file in pieces of 64
KiB. The MCP server does not use this origin, because it reads the files.
"""

from __future__ import annotations

import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from playhead.servers.audio.media_links import LOOPBACK, MediaLinks
from playhead.servers.byte_sources import file_version
from playhead.servers.http import base_url, bind, serve_app


def origin_app(links: MediaLinks) -> Starlette:
    """Return the application, which `serve_origin` puts on a socket."""

    async def media(request: Request) -> Response:
        signed = links.open(request.url.path)
        try:
            status = None if signed is None else await trio.Path(signed.track.path).stat()
        except OSError:
            status = None
        if signed is None or status is None:
            return PlainTextResponse("no such track, or a link with another signature", status_code=404)
        if file_version(status) != signed.etag:
            return PlainTextResponse("the file has changed since this link was made", status_code=410)
        return FileResponse(
            signed.track.path,
            media_type=signed.track.mime_type,
            headers={"etag": signed.etag},
            stat_result=status,
        )

    return Starlette(
        routes=[Route("/media/{link:path}", media, methods=["GET", "HEAD"])],
        # A web page whose name points to 127.0.0.1 (DNS rebinding) sends that name as Host.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"])],
    )


async def serve_origin(
    links: MediaLinks, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve a library on a free port of loopback until cancelled; the task status is its base URL."""
    sock = bind(LOOPBACK, 0)
    url = base_url(sock)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_app, origin_app(links), sock)
        task_status.started(url)
