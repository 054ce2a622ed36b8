"""The audio server: `serve` runs it, and `open_audio_server` opens it in process.

The server runs over stdio, Streamable HTTP or WebSocket, with the HTTP origin of its library. Over HTTP and
WebSocket it also offers its resource as a file (`file` form), at the same address.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from mcp.server import Server
from starlette.applications import Starlette
from starlette.routing import Route

from playhead.client.transports.http_client import guarded_client
from playhead.net_guard import Origin, parse_origins
from playhead.servers.access import Access
from playhead.servers.audio import AudioServerOptions
from playhead.servers.audio.audio_tools import AudioTools
from playhead.servers.audio.library import Library
from playhead.servers.audio.media_links import KEY_BYTES, MediaLinks, load_key
from playhead.servers.audio.mixer import MemoryMixer, Mixer, SystemMixer
from playhead.servers.audio.origin import serve_origin
from playhead.servers.dial import check_endpoint, dial
from playhead.servers.file_downloads import FileDownloads
from playhead.servers.http import base_url, bind, serve_until_sigterm, tls_context
from playhead.servers.http_sessions import streamable_http_app
from playhead.servers.stdio import serve_stdio
from playhead.servers.websocket import websocket_endpoint, websocket_routes

MCP_PATH: Final = "/mcp"


async def serve(
    options: AudioServerOptions, *, task_status: trio.TaskStatus[str | None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until stdin ends (stdio), SIGTERM arrives (HTTP, WebSocket) or it is cancelled.

    Over HTTP and WebSocket it writes one line with the server's URL to stderr, and the URL is the task
    status. Over stdio it writes only MCP messages, and the task status is None, as with `dial`. If cancelled,
    it closes every connection at once. On SIGTERM (in the main thread only), the requests in flight have 30 s
    to finish.

    Raises:
        UsageError: the server cannot listen on the address, or the library, an origin, the certificate or the
            token cannot be used.
        ConfigError: the library's `library.json` is invalid.
        ConnectError: the endpoint of `options.dial` refuses this server.
    """
    # Check the options before a nursery opens, which would wrap an error in a group.
    if options.dial is not None:
        check_endpoint(options.dial)
    origins = parse_origins(options.allow_origins)
    access = Access.for_host(options.host, web_origins=options.web_origins, token=options.token)
    tls = tls_context(options.tls_certificate, options.tls_key)
    library = await trio.to_thread.run_sync(Library.scan, options.library)
    if options.dial is not None:
        async with open_audio_server(options, library=library, origins=origins) as server:
            endpoint = websocket_endpoint(server)
            await dial(endpoint, options.dial, name="playhead audio server", task_status=task_status)
        return
    if options.transport == "stdio":
        async with open_audio_server(options, library=library, origins=origins) as server:
            await serve_stdio(server, limits=options.limits, task_status=task_status)
        return
    scheme = options.transport if tls is None else f"{options.transport}s"
    with bind(options.host, options.port) as sock:
        url = base_url(sock, scheme=scheme) + MCP_PATH
        files = FileDownloads()
        async with open_audio_server(options, library=library, origins=origins, files=files) as server:
            # A link has its own signature, and clients fetch it without other credentials.
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
    return streamable_http_app(server, MCP_PATH, sessions=options.sessions, routes=[downloads])


@asynccontextmanager
async def open_audio_server(
    options: AudioServerOptions,
    *,
    library: Library | None = None,
    origins: frozenset[Origin] | None = None,
    files: FileDownloads | None = None,
) -> AsyncIterator[Server[dict[str, Any]]]:
    """Open the audio server as an SDK server, and run its origin: for `serve`, or to connect in this process.

    It ignores the transport options. By default it makes `library` and `origins` from the options. With
    `files`, which the caller serves, it offers the resource as a file. The end of the context stops the
    origin, and closes every connection to it at once.

    Raises:
        UsageError, ConfigError: as `serve`.
    """
    if library is None:
        library = await trio.to_thread.run_sync(Library.scan, options.library)
    links = MediaLinks(library, key=await _signing_key(options.state_directory))
    if origins is None:
        origins = parse_origins(options.allow_origins)
    mixer: Mixer = MemoryMixer()
    if options.mixer == "system":
        mixer = SystemMixer(environment=options.mixer_environment)
    limits = replace(options.limits, page_seconds=options.origin_seconds)
    async with trio.open_nursery() as nursery:
        origin = await nursery.start(serve_origin, links)
        async with guarded_client(allow_origins=origins, limits=limits) as client:
            yield AudioTools(
                library=library,
                links=links,
                origin=origin,
                client=client,
                mixer=mixer,
                meta_key=options.meta_key,
                limits=limits,
                files=files,
            ).server()
        nursery.cancel_scope.cancel()


async def _signing_key(directory: Path | None) -> bytes:
    """Return the user's key, or a key for this process only if the user has none."""
    if directory is not None:
        try:
            return await trio.to_thread.run_sync(load_key, directory)
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            sys.stderr.write(
                "playhead audio server: links end with this process, because the key in"
                f" {directory} cannot be used: {reason}\n"
            )
    return secrets.token_bytes(KEY_BYTES)
