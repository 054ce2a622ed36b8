"""A page joins its HTTP answer last, and the answer is the one that the SDK would have sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.server import Server
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from playhead.servers.http_sessions import streamable_http_app
from playhead.servers.late_blob import LateBlob, LateBlobs
from playhead.servers.ranged_resource import ranged_resource

URI = "music://song"
MODERN, HANDSHAKE = "2026-07-28", "2025-06-18"


class Recorder:
    """Middleware of the SDK's server: the results as they leave the handlers."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    async def __call__(self, ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        self.results.append(result)
        return result


def song_server() -> Server[Any]:
    server: Server[Any] = Server("songs", version="1")
    ranged_resource(server, URI, bytes(range(256)) * 40)
    return server


@asynccontextmanager
async def client_of(app: Starlette) -> AsyncIterator[httpx2.AsyncClient]:
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
            yield http


async def ask(
    http: httpx2.AsyncClient, version: str, method: str, params: dict[str, Any], **headers: str
) -> httpx2.Response:
    fields = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version, **headers}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    if version == MODERN:
        body["params"] = params | {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        }
        fields |= {"mcp-method": method, "mcp-name": params["uri"]}
    return await http.post("/mcp", json=body, headers=fields)


async def read(http: httpx2.AsyncClient, version: str, uri: str) -> httpx2.Response:
    if version == MODERN:
        return await ask(http, version, "resources/read", {"uri": uri})
    about = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "one", "version": "1"}}
    opened = await ask(http, version, "initialize", about)
    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
    return await ask(http, version, "resources/read", {"uri": uri}, **session)


@pytest.mark.parametrize("version", [MODERN, HANDSHAKE])
@pytest.mark.parametrize("uri", [f"{URI}?start=0&end=9000", f"{URI}?start=10240&end=10250", f"{URI}?start=5"])
async def test_the_answer_is_the_one_of_the_sdk(version: str, uri: str) -> None:
    theirs = song_server().streamable_http_app(json_response=True)
    async with (
        client_of(streamable_http_app(song_server(), "/mcp", sessions=5)) as http,
        client_of(theirs) as plain,
    ):
        answer, expected = await read(http, version, uri), await read(plain, version, uri)
    assert (answer.status_code, answer.content) == (expected.status_code, expected.content)
    assert int(answer.headers["content-length"]) == len(answer.content)


async def test_only_without_a_session_the_result_has_a_mark_in_place_of_the_page() -> None:
    server, recorder = song_server(), Recorder()
    server.middleware.append(recorder)
    async with client_of(streamable_http_app(server, "/mcp", sessions=5)) as http:
        for version in (MODERN, HANDSHAKE):
            assert (await read(http, version, f"{URI}?start=0&end=9000")).status_code == 200
    late, *_, whole = (result["contents"][0]["blob"] for result in recorder.results if "contents" in result)
    assert len(late) < 100
    assert len(whole) == 12_000


async def test_an_answer_that_does_not_hold_the_mark_is_sent_as_it_is() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        (blob,) = scope["extensions"].values()
        assert isinstance(blob, LateBlob)
        blob.leave("AAAA")
        headers = [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 500, "headers": headers})
        await send({"type": "http.response.body", "body": b"error"})

    transport = httpx2.ASGITransport(app=LateBlobs(failing))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
        answer = await http.get("/")
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (500, b"error", "5")
