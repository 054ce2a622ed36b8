"""The baseline of the reference system: how it reads, on the plain SDK.

It sends one request after another, 100 KiB each, in the `arguments` form, and decodes base64 with the
standard library. A page shorter than requested, empty or `[DONE]` ends the resource. Music is decoded from
the first page on.
"""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import mcp_types as types
import miniaudio
import trio
from mcp import Client, StdioServerParameters

from playhead.client.transports.sdk_websocket import websocket_transport

PAGE_BYTES = 100 * 1024
PAGE_SECONDS = 30.0


class RangedReadParams(types.ReadResourceRequestParams):
    """The stock params class drops `arguments` when it is dumped, so the request is declared anew too."""

    arguments: dict[str, Any] | None = None


class RangedReadRequest(types.Request[RangedReadParams, Literal["resources/read"]]):
    method: Literal["resources/read"] = "resources/read"
    params: RangedReadParams


@asynccontextmanager
async def sdk_client(target: str | Sequence[str]) -> AsyncIterator[Client]:
    """A session of the plain SDK with a URL or a command; over WebSocket on our transport."""
    server: Any
    if isinstance(target, str):
        server = websocket_transport(target) if target.startswith("ws") else target
    else:
        server = StdioServerParameters(command=target[0], args=list(target[1:]))
    async with Client(server) as client:
        yield client


async def link_of(client: Client) -> types.ResourceLink:
    result = await client.call_tool("link", {})
    (link,) = result.content
    assert isinstance(link, types.ResourceLink)
    return link


async def page(client: Client, link: types.ResourceLink, offset: int) -> bytes:
    """Read one page; empty once the server says that the resource is over."""
    arguments = {"url": link.description, "start": offset, "end": offset + PAGE_BYTES}
    request = RangedReadRequest(params=RangedReadParams(uri=str(link.uri), arguments=arguments))
    result = await client.session.send_request(
        request, types.ReadResourceResult, request_read_timeout_seconds=PAGE_SECONDS
    )
    if not result.contents:
        return b""
    content = result.contents[0]
    assert isinstance(content, types.BlobResourceContents)
    data = base64.b64decode(content.blob)
    return b"" if data == b"[DONE]" else data


async def pages(client: Client, link: types.ResourceLink) -> AsyncIterator[bytes]:
    """The resource, page after page, as the reference reads it."""
    offset = 0
    while data := await page(client, link, offset):
        yield data
        if len(data) < PAGE_BYTES:
            return
        offset += len(data)


async def pages_at_once(
    client: Client, link: types.ResourceLink, in_flight: int, take: Callable[[bytes], object]
) -> None:
    """The same loop with several pages in flight; `take` gets them in order."""
    requested = position = 0
    over = False
    arrived: dict[int, bytes] = {}

    async def ask() -> None:
        nonlocal requested, position, over
        while not over:
            offset, requested = requested, requested + PAGE_BYTES
            arrived[offset] = await page(client, link, offset)
            if len(arrived[offset]) < PAGE_BYTES:
                over = True
            while data := arrived.pop(position, b""):
                take(data)
                position += len(data)

    async with trio.open_nursery() as nursery:
        for _ in range(in_flight):
            nursery.start_soon(ask)


class _FirstPage(miniaudio.StreamableSource):  # type: ignore[misc]  # miniaudio has no types
    """A decoder's view of the page that is there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, num_bytes: int) -> bytes:
        chunk = self._data[self._at : self._at + num_bytes]
        self._at += len(chunk)
        return chunk

    def seek(self, offset: int, origin: miniaudio.SeekOrigin) -> bool:
        if origin == miniaudio.SeekOrigin.END:
            return offset == 0
        self._at = offset if origin == miniaudio.SeekOrigin.START else self._at + offset
        return True


async def first_audio_seconds(client: Client, link: types.ResourceLink) -> float:
    """Measure from the first request to the first decoded frames of MP3. The cost of a sink is not
    counted."""
    started = time.perf_counter()
    reading = pages(client, link)
    data = await anext(reading)
    decoded = miniaudio.stream_any(
        _FirstPage(data),
        source_format=miniaudio.FileFormat.MP3,
        nchannels=2,
        sample_rate=44_100,
        frames_to_read=1024,
    )
    frames = next(decoded)
    spent = time.perf_counter() - started
    assert len(frames) > 0
    decoded.close()
    await reading.aclose()  # type: ignore[attr-defined]  # an async generator behind its abstract type
    return spent
