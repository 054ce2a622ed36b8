"""The template server over HTTP and WebSocket, on loopback."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
import trio
import trustme
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Tool
from prometheus_client.parser import text_string_to_metric_families

import playhead
from playhead.check.options import CheckOptions
from playhead.check.run import check_server
from playhead.client.transports.sdk_websocket import websocket_transport
from playhead.errors import ConnectError, UpgradeRefusedError, UsageError
from playhead.servers.serving import Shutdown
from playhead.servers.template import TemplateServerOptions
from playhead.servers.template.handlers import TemplateServer
from playhead.servers.template.metrics import Metrics
from playhead.servers.template.pager import Pager
from playhead.servers.template.resources import Resources, ShippedPages
from playhead.servers.template.serve import open_template_server, serve
from playhead.servers.template.tools import Arguments, TemplateTool
from tests.servers.loopback import started


@asynccontextmanager
async def served(
    *, shutdown: Shutdown | None = None, **options: Any
) -> AsyncIterator[tuple[str, httpx2.AsyncClient]]:
    """A running server: its URL, and a client whose paths begin there."""
    given = TemplateServerOptions(port=0, **{"transport": "http", **options})
    async with started(serve, given, shutdown=shutdown) as url:
        base = url.removesuffix("/mcp").replace("ws", "http", 1) if url.startswith("ws") else url[:-4]
        async with httpx2.AsyncClient(base_url=base) as http:
            yield url, http


# --- the endpoints ------------------------------------------------------------------------------------


async def test_the_root_says_who_answers_and_where() -> None:
    async with served() as (_, http):
        about = (await http.get("/")).json()
    assert about["name"] == "playhead-template"
    assert about["version"] == version("playhead")
    assert about["description"]
    assert about["endpoints"] == {
        "mcp": "/mcp",
        "health": "/health",
        "ready": "/ready",
        "metrics": "/metrics",
    }
    assert about["protocol_version"] == about["protocol_versions"][-1] == "2026-07-28"
    assert about["protocol_versions"][0] == "2024-11-05"


async def test_health_says_that_the_process_lives_since_when_and_what_it_can() -> None:
    async with served() as (_, http):
        first, second = [(await http.get("/health")).json() for _ in range(2)]
    assert (first["status"], first["name"]) == ("healthy", "playhead-template")
    assert datetime.now(UTC) - datetime.fromisoformat(first["time"]) < timedelta(minutes=1)
    assert 0 <= first["uptime"] <= second["uptime"] < 60
    assert set(first["capabilities"]) == {"tools", "resources", "prompts"}


async def test_ready_turns_503_when_the_end_is_asked_for_while_calls_go_on() -> None:
    shutdown = Shutdown()
    async with served(shutdown=shutdown, drain_seconds=60) as (url, http):
        ready = await http.get("/ready")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
        shutdown.request()
        leaving = await http.get("/ready")
        assert (leaving.status_code, leaving.json()) == (503, {"status": "shutting_down"})
        assert (await http.get("/health")).status_code == 200
        async with playhead.connect(url) as session:
            assert (
                await session.call_tool("calculator", {"expression": "2"})
            ).text == "2\n" + '{"result": 2}'


async def test_the_server_returns_once_it_is_drained() -> None:
    shutdown = Shutdown()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            options = TemplateServerOptions(port=0, drain_seconds=0)
            url = await nursery.start(partial(serve, options, shutdown=shutdown))
            async with playhead.connect(url) as session:
                assert await session.list_tools()
                shutdown.request()


@pytest.mark.parametrize("path", ["/nothing", "/mcp/", "/health/x"])
async def test_an_unknown_path_is_not_found(path: str) -> None:
    async with served() as (_, http):
        assert (await http.get(path)).status_code in (404, 307)
        assert (await http.post("/health")).status_code == 405


@pytest.mark.parametrize("path", ["/nothing", "/", "/health", "/mcp/"])
async def test_a_websocket_at_another_path_is_not_found(path: str) -> None:
    async with served(transport="ws") as (url, _):
        with pytest.raises(UpgradeRefusedError) as caught:
            async with websocket_transport(url.removesuffix("/mcp") + path):
                pass
    assert caught.value.status == 404


# --- malformed messages -------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("body", "code", "answered"),
    [
        ("{no json", -32700, None),
        ("[]", -32600, None),
        ('{"jsonrpc": "2.0", "id": 5}', -32600, 5),
        ('{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600, None),
        ("[" * 1000, -32600, None),
    ],
)
async def test_a_body_that_is_no_message_has_the_same_answer_in_every_revision(
    revision: str, body: str, code: int, answered: int | None
) -> None:
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": revision,
    }
    async with served() as (_, http):
        answer = await http.post("/mcp", content=body, headers=headers)
    assert answer.status_code == 400
    assert (answer.json()["error"]["code"], answer.json()["id"]) == (code, answered)


# --- metrics ------------------------------------------------------------------------------------------


async def counted(http: httpx2.AsyncClient) -> dict[tuple[str, ...], float]:
    """Each sample outside a histogram's buckets, by its name and its labels' values in
    the order of the labels' names."""
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_sum", "_created"))
    }


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_requests_and_tool_calls_are_counted_by_what_became_of_them(
    mode: Literal["legacy", "auto"],
) -> None:
    async with served() as (url, http):
        async with Client(url, mode=mode) as client:
            for arguments in ({"expression": "1"}, {"expression": "2"}, {"expression": "1 / 0"}):
                assert isinstance(await client.call_tool("calculator", arguments), CallToolResult)
            for name in ("nothing", "nothing else"):
                with pytest.raises(Exception, match="unknown tool"):
                    await client.call_tool(name, {})
        counts = await counted(http)
    assert counts["mcp_tool_calls_total", "ok", "calculator"] == 2
    assert counts["mcp_tool_calls_total", "failed", "calculator"] == 1
    assert counts["mcp_tool_calls_total", "refused", "other"] == 2
    assert counts["mcp_requests_total", "tools/call", "ok"] == 3
    assert counts["mcp_requests_total", "tools/call", "-32602"] == 2
    assert counts["mcp_request_duration_seconds_count", "tools/call"] == 5


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_bug_in_a_tool_is_an_internal_error_told_to_the_operator_alone(
    mode: Literal["legacy", "auto"], capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(arguments: Arguments) -> CallToolResult:
        raise RuntimeError("the password is abc\x1b[2J")

    definition = Tool(name="broken", input_schema={"type": "object", "properties": {}})
    tools = {"broken": TemplateTool(definition=definition, run=broken)}
    metrics = Metrics(tools)
    pages = ShippedPages(pages=())
    parts = TemplateServer(
        tools=tools, resources=Resources(pages=pages, music=b""), prompts={}, pager=Pager(items=10)
    )
    async with Client(parts.server(metrics), mode=mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("broken", {})
    assert (caught.value.code, "abc" in caught.value.message) == (-32603, False)
    log = capsys.readouterr().err
    assert "RuntimeError: the password is abc\\x1b[2J" in log
    lines = metrics.text().decode().splitlines()
    assert 'mcp_requests_total{method="tools/call",outcome="-32603"} 1.0' in lines
    assert 'mcp_tool_calls_total{outcome="refused",tool="broken"} 1.0' in lines


async def test_methods_that_a_client_makes_up_make_no_new_series() -> None:
    async with served() as (_, http):
        for number in range(5):
            meta = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            method = f"made/up/{number}"
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta}}
            headers = {
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": method,
            }
            assert (await http.post("/mcp", json=body, headers=headers)).json()["error"]["code"] == -32601
        assert (await counted(http))["mcp_requests_total", "other", "-32601"] == 5


async def test_open_websockets_are_counted() -> None:
    async with served(transport="ws") as (url, http):
        assert (await counted(http))["mcp_connections",] == 0
        async with Client(websocket_transport(url)) as client:
            await client.list_tools()
            assert (await counted(http))["mcp_connections",] == 1


# --- one path for both ways of connecting -------------------------------------------------------------


@pytest.mark.parametrize("transport", ["ws", "http"])
async def test_whichever_is_printed_both_websocket_and_http_are_answered_at_the_same_path(
    transport: str,
) -> None:
    async with served(transport=transport) as (url, _):
        assert url.partition(":")[0] == transport
        place = url.partition("://")[2]
        for scheme in ("ws", "http"):
            async with playhead.connect(f"{scheme}://{place}") as session:
                result = await session.call_tool("calculator", {"operation": "power", "a": 2, "b": 10})
                assert result.text.startswith("1024\n")


# --- who may ask --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "https://app.example"}, 200),
        ({}, 200),
    ],
)
async def test_a_foreign_host_or_page_is_refused_on_every_endpoint(
    headers: dict[str, str], status: int
) -> None:
    async with served(web_origins=("https://app.example",)) as (_, http):
        for path in ("/", "/health", "/ready", "/metrics"):
            assert (await http.get(path, headers=headers)).status_code == status


async def test_a_token_is_asked_for_everywhere_but_by_whoever_watches_the_process() -> None:
    async with served(token="s3cret", transport="ws") as (url, http):
        statuses = {
            path: (await http.get(path)).status_code
            for path in ("/", "/metrics", "/mcp", "/health", "/ready")
        }
        assert statuses == {"/": 401, "/metrics": 401, "/mcp": 401, "/health": 200, "/ready": 200}
        right = {"authorization": "Bearer s3cret"}
        assert (await http.get("/metrics", headers=right)).status_code == 200
        with pytest.raises(ConnectError, match="401"):
            async with playhead.connect(url):
                pass


async def test_over_tls_the_url_is_https_and_the_server_is_reached(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    given = TemplateServerOptions(port=0, transport="ws", tls_certificate=tmp_path / "both.pem")
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    async with started(serve, given) as url, httpx2.AsyncClient(verify=trusted) as http:
        assert url.startswith("wss://127.0.0.1:")
        health = url.replace("wss", "https", 1).replace("/mcp", "/health")
        assert (await http.get(health)).status_code == 200


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tls_key": Path("key.pem")}, "certificate"),
        ({"search_url": "https://search.example/"}, r"\{query\}"),
        ({"search_origins": ("nonsense",)}, "nonsense"),
        ({"web_origins": ("nonsense",)}, "nonsense"),
        ({"token": "two words"}, "token"),
    ],
)
async def test_options_that_cannot_be_right_are_a_usage_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await serve(TemplateServerOptions(port=0, **options))


# --- the checker --------------------------------------------------------------------------------------


async def test_the_checker_finds_nothing_wrong() -> None:
    async with open_template_server() as server:
        report = await check_server(server, CheckOptions(depth="full"))
    failed = [(test.subject, test.title, test.error) for test in report.tests if test.status == "failed"]
    assert failed == []
    assert len(report.tests) > 40
