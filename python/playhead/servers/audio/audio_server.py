"""Run the audio server over stdio, Streamable HTTP or WebSocket, with the HTTP origin of its library.

Over HTTP and WebSocket it offers its resource as a file too (`file` form), at the same address.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import trio
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route

from playhead.errors import UsageError
from playhead.net_guard import Origin, guarded_client, parse_origins
from playhead.servers.access import Access
from playhead.servers.audio import AudioServerOptions
from playhead.servers.audio.library import Library, media_url, serve_origin
from playhead.servers.audio.mixer import MemoryMixer, Mixer, SystemMixer
from playhead.servers.audio.tools import AudioTools
from playhead.servers.file_downloads import FileDownloads
from playhead.servers.http import DEFAULT_OPTIONS, base_url, bind, serve_until_sigterm, tls_context
from playhead.servers.stdio import serve_stdio
from playhead.servers.websocket import websocket_routes

MCP_PATH = "/mcp"


async def serve(
    options: AudioServerOptions, *, task_status: trio.TaskStatus[str | None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until stdin ends (stdio), SIGTERM arrives (HTTP, WebSocket) or it is cancelled.

    Over HTTP and WebSocket one line with the server's URL goes to stderr, and the URL is the task status;
    over stdio nothing is written but MCP messages, and the task status is None. Cancelled, it closes every
    connection at once. On SIGTERM (received in the main thread only) requests in flight have 30 s to finish.

    Raises:
        UsageError: the server cannot listen on the address, or the library, an origin, the certificate or the
            token cannot be used.
        ConfigError: the library's `library.json` is invalid.
    """
    # The user's mistakes are found before a nursery would wrap the error in a group.
    origins = parse_origins(options.allow_origins)
    access = Access.for_host(options.host, web_origins=options.web_origins, token=options.token)
    if options.tls_key is not None and options.tls_certificate is None:
        raise UsageError("got --tls-key without --tls-certificate; give the certificate that it belongs to")
    tls = tls_context(options.tls_certificate, options.tls_key) if options.tls_certificate else None
    library = await trio.to_thread.run_sync(Library.scan, options.library)
    if options.transport == "stdio":
        async with open_audio_server(options, library=library, origins=origins) as server:
            await serve_stdio(server, limits=options.limits, task_status=task_status)
        return
    scheme = options.transport if tls is None else f"{options.transport}s"
    with bind(options.host, options.port) as sock:
        url = base_url(sock, scheme=scheme) + MCP_PATH
        files = FileDownloads()
        async with open_audio_server(options, library=library, origins=origins, files=files) as server:
            # A link has its own signature, and is fetched without other credentials.
            app = access.protect(_app(server, options, files), without_token=[f"{files.path}/"])
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(serve_until_sigterm, app, sock, tls=tls))
                sys.stderr.write(f"playhead audio server: {url}\n")
                sys.stderr.flush()
                task_status.started(url)


def _app(server: Server[dict[str, Any]], options: AudioServerOptions, files: FileDownloads) -> Starlette:
    downloads = Route(f"{files.path}/{{link:path}}", files)
    if options.transport == "ws":
        return Starlette(routes=[downloads, *websocket_routes(server, MCP_PATH)])
    return server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        json_response=True,  # a page does not need an event stream
        max_request_body_size=DEFAULT_OPTIONS.body_bytes,
        max_sessions=options.sessions,
        # `Access` checks Host and Origin.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        custom_starlette_routes=[downloads],
    )


@asynccontextmanager
async def open_audio_server(
    options: AudioServerOptions,
    *,
    library: Library | None = None,
    origins: frozenset[Origin] | None = None,
    files: FileDownloads | None = None,
) -> AsyncIterator[Server[dict[str, Any]]]:
    """The audio server as an SDK server, with its origin running: for `serve`, and to connect in process.

    The transport options are ignored. `library` and `origins` are made from the options by default. With
    `files`, which the caller serves, the resource is offered as a file. Leaving the context stops the origin
    and closes every connection to it, at once.

    Raises:
        UsageError, ConfigError: as `serve`.
    """
    if library is None:
        library = await trio.to_thread.run_sync(Library.scan, options.library)
    if origins is None:
        origins = parse_origins(options.allow_origins)
    mixer: Mixer = MemoryMixer()
    if options.mixer == "system":
        mixer = SystemMixer(environment=options.mixer_environment)
    limits = replace(options.limits, page_seconds=options.origin_seconds)
    async with trio.open_nursery() as nursery:
        own = await nursery.start(partial(serve_origin, library))
        async with guarded_client(allow_origins=origins | {Origin.parse(own)}, limits=limits) as client:
            # The first request of a process imports and connects for 20 ms and more, which would delay the
            # first sound; so it is made here.
            await client.head(media_url(own, library.tracks[0]))
            yield AudioTools(
                library=library,
                origin=own,
                client=client,
                mixer=mixer,
                meta_key=options.meta_key,
                limits=limits,
                files=files,
            ).server()
        nursery.cancel_scope.cancel()
