"""The server's own HTTP origin: its tracks, with ranges, on loopback.

A real origin on a real socket, so that the demo exercises the whole way of the data without a network. URLs
hold ids, never paths; the ranges are Starlette's `FileResponse` (206, 416, HEAD, ETag, If-Range), which
streams a file in pieces of 64 KiB.
"""

from __future__ import annotations

import trio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from playhead.servers.audio.library import Library, Track
from playhead.servers.http import base_url, bind, serve_app

LOOPBACK = "127.0.0.1"


def media_url(origin: str, track: Track) -> str:
    """Where a track is read."""
    return f"{origin}/media/{track.id}"


def origin_app(library: Library) -> Starlette:
    """The application alone; `serve_origin` puts it on a socket."""

    async def media(request: Request) -> Response:
        track = library.get(request.path_params["track_id"])
        if track is None or not await trio.Path(track.path).is_file():
            return PlainTextResponse("no such track", status_code=404)
        return FileResponse(track.path, media_type=track.mime_type)

    return Starlette(
        routes=[Route("/media/{track_id}", media, methods=["GET", "HEAD"])],
        # A page in a browser whose name was pointed at 127.0.0.1 comes with its own Host header.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost"])],
    )


async def serve_origin(
    library: Library, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serves a library on a free port of loopback until cancelled; the task status is its base URL."""
    sock = bind(LOOPBACK, 0)
    url = base_url(sock)
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_app, origin_app(library), sock)
        task_status.started(url)
