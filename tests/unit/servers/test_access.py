"""The CORS headers that browsers get for allowed pages, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
import trio

from playhead.servers.audio import AudioServerOptions
from playhead.servers.audio.audio_server import serve
from tests.servers.loopback import started
from tests.servers.messages import request

PAGE = "https://app.example"
ALLOWED = "access-control-allow-origin"
ACCEPT = {"accept": "application/json, text/event-stream"}


@asynccontextmanager
async def audio_server(token: str | None = None) -> AsyncIterator[tuple[str, httpx2.AsyncClient]]:
    options = AudioServerOptions(
        transport="http", port=0, mixer="memory", web_origins=("HTTPS://App.example:443/",), token=token
    )
    with trio.fail_after(30):
        async with started(serve, options) as url, httpx2.AsyncClient() as http:
            yield url, http


def preflight(origin: str) -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,mcp-session-id",
    }


async def test_an_allowed_page_may_ask_with_its_token_and_read_the_answer() -> None:
    async with audio_server() as (url, http):
        asked = await http.options(url, headers=preflight(PAGE))
        assert asked.status_code == 200
        assert asked.headers[ALLOWED] == PAGE
        assert "authorization" in asked.headers["access-control-allow-headers"]
        assert "POST" in asked.headers["access-control-allow-methods"]
        assert "access-control-allow-credentials" not in asked.headers
        answered = await http.post(url, json=request("ping"), headers={"origin": PAGE, **ACCEPT})
        assert answered.headers[ALLOWED] == PAGE
        assert "mcp-session-id" in answered.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "https://app.example.evil.example", "http://app.example", "null"]
)
async def test_another_page_may_neither_ask_nor_read(origin: str) -> None:
    async with audio_server() as (url, http):
        assert ALLOWED not in (await http.options(url, headers=preflight(origin))).headers
        headers = {"origin": origin, **ACCEPT}
        refused = await http.post(url, json=request("ping"), headers=headers)
        assert refused.status_code == 403
        assert ALLOWED not in refused.headers


async def test_a_page_of_the_server_itself_is_one_with_its_scheme_and_port() -> None:
    async with audio_server() as (url, http):
        port = httpx2.URL(url).port
        statuses = {
            origin: (
                await http.post(url, json=request("ping"), headers={"origin": origin, **ACCEPT})
            ).status_code
            == 403
            for origin in (
                f"http://127.0.0.1:{port}",
                f"http://LOCALHOST:{port}",
                f"https://127.0.0.1:{port}",
                f"http://127.0.0.1:{(port or 0) ^ 1}",
                "http://127.0.0.1",
                f"http://127.0.0.1:{port}9",
                f"http://127.0.0.1:{port}@evil.example",
                "http://",
            )
        }
        assert [*statuses.values()] == [False, False, True, True, True, True, True, True], statuses


async def test_a_notification_with_the_id_null_learns_that_a_notification_has_none() -> None:
    async with audio_server() as (url, http):
        notification = {"jsonrpc": "2.0", "id": None, "method": "notifications/initialized"}
        answered = await http.post(url, json=notification, headers=ACCEPT)
        assert answered.status_code == 400
        assert "a notification has no" in answered.json()["error"]["message"]


async def test_an_allowed_page_can_read_why_it_was_refused() -> None:
    async with audio_server(token="s3cret") as (url, http):
        refused = await http.post(url, json=request("ping"), headers={"origin": PAGE, **ACCEPT})
        assert (refused.status_code, refused.headers[ALLOWED]) == (401, PAGE)
        assert (await http.options(url, headers=preflight(PAGE))).status_code == 200  # browsers send none


async def test_a_page_of_an_allowed_origin_needs_one_of_the_servers_names_too() -> None:
    async with audio_server() as (url, http):
        rebound = {"origin": PAGE, "host": "evil.example", **ACCEPT}
        assert (await http.post(url, json=request("ping"), headers=rebound)).status_code == 421
