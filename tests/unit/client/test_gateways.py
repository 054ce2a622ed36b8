"""Gateways that join two servers of one kind, each in its own form of renaming, around scripted servers.

The names, the rewriting and the refusals are those of the programs: FastMCP 4.1 (`transforms/namespace.py`),
Envoy AI Gateway of 2026-08 (`mcpproxy/handlers.go`) and endara-relay (`resource_uri.rs`, `registry.rs`).
"""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
import trio.testing

from playhead.client import connect
from playhead.errors import ServerError, UsageError
from playhead.limits import MIB
from playhead.stream.options import StreamOptions
from tests.servers.pages import PagesServer, parser
from tests.servers.sdk_proxy import sdk_proxy
from tests.unit.raw_server import RawServer, Refusal

Json = dict[str, Any]

PIECES = {name: random.Random(name).randbytes(300_000) for name in ("music", "radio")}
LINK = "resource://read_from_http"
TEMPLATE = LINK + "{?url,start,end}"
DESCRIPTION = "http://127.0.0.1:8000/piece?x=1&y=2"


def read_inner(server: str, uri: str) -> Json | Refusal:
    """Answer a read as the audio server behind the gateway would; `arguments` have not survived."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(uri).query).items()}
    if not uri.startswith(LINK) or query.get("url") != DESCRIPTION:
        return Refusal(-32602, f"Resource not found: {uri!r}")
    start, end = int(query["start"]), int(query["end"])
    blob = PIECES[server][start:end] or b"[DONE]"
    return {"contents": [{"uri": uri, "blob": base64.b64encode(blob).decode("ascii")}]}


class Gateway(RawServer):
    """Two servers behind a gateway. A subclass says how it renames and finds them."""

    separator = "__"

    def __init__(self) -> None:
        super().__init__(
            {
                "tools/list": {
                    "tools": [{"name": self.tool(server), "inputSchema": {}} for server in PIECES]
                },
                "tools/call": self._call,
                "resources/list": {"resources": []},
                "resources/templates/list": {
                    "resourceTemplates": [
                        {"name": "reader", "uriTemplate": self.outer_template(server, TEMPLATE)}
                        for server in PIECES
                    ]
                },
                "resources/read": self._read,
            },
            capabilities={"tools": {}, "resources": {}},
        )

    def tool(self, server: str) -> str:
        return f"{server}{self.separator}musicPlayer"

    def _call(self, params: Mapping[str, Any]) -> Json:
        server = params["name"].removesuffix(f"{self.separator}musicPlayer")
        link = {
            "type": "resource_link",
            "uri": self.outer_link(server),
            "name": "piece",
            "description": DESCRIPTION,
            "mimeType": "audio/mpeg",
        }
        return {"content": [link]}

    def outer_template(self, server: str, template: str) -> str:
        raise NotImplementedError

    def outer_link(self, server: str) -> str:
        return LINK

    def _read(self, params: Mapping[str, Any]) -> Json | Refusal:
        raise NotImplementedError


class FastMcpNamespace(Gateway):
    separator = "_"

    def outer_template(self, server: str, template: str) -> str:
        return template.replace("://", f"://{server}/")

    def _read(self, params: Mapping[str, Any]) -> Json | Refusal:
        uri = params["uri"]
        scheme, _, rest = uri.partition("://")
        server, _, inner = rest.partition("/")
        if server not in PIECES or not inner:
            return Refusal(-32602, f"Resource not found: {uri!r}")
        return read_inner(server, f"{scheme}://{inner}")


class Envoy(Gateway):
    def outer_template(self, server: str, template: str) -> str:
        return f"{server}+{template}"

    def _read(self, params: Mapping[str, Any]) -> Json | Refusal:
        uri = params["uri"]
        server, plus, inner = uri.partition("+")
        if not plus or server not in PIECES:
            # The program answers with HTTP 400 and this as plain text.
            return Refusal(-32600, f"invalid resource name {uri}: invalid resource URI: {uri}")
        return read_inner(server, inner)


class NewerEnvoy(Envoy):
    """Renames links in results, too."""

    def outer_link(self, server: str) -> str:
        return f"{server}+{LINK}"


class EndaraRelay(Gateway):
    """Encodes all but RFC 3986's unreserved characters; the braces of a template stay, what they hold not."""

    def outer_template(self, server: str, template: str) -> str:
        return f"mcp-relay://{server}/" + quote(template, safe="{}")

    def outer_link(self, server: str) -> str:
        return f"mcp-relay://{server}/" + quote(LINK, safe="")

    def _read(self, params: Mapping[str, Any]) -> Json | Refusal:
        uri = params["uri"]
        if not uri.startswith("mcp-relay://"):
            why = f"invalid wrapped resource URI: missing 'mcp-relay://' scheme prefix in '{uri}'"
            return Refusal(-32603, f"invalid resource URI '{uri}': {why}")
        server, _, inner = uri.removeprefix("mcp-relay://").partition("/")
        if server not in PIECES:
            return Refusal(-32603, f"no adapter found for endpoint '{server}'")
        return read_inner(server, unquote(inner))


class OlderEndaraRelay(EndaraRelay):
    """Leaves the links in results as they are."""

    def outer_link(self, server: str) -> str:
        return LINK


class ContextForge(Gateway):
    """Renames the tools and not the URIs (`services/resource_service.py` of 2026-08)."""

    separator = "-"

    def outer_template(self, server: str, template: str) -> str:
        return template

    def _read(self, params: Mapping[str, Any]) -> Json | Refusal:
        uri = params["uri"]
        why = f"Resource URI '{uri}' is ambiguous across multiple servers; use /servers/{{id}}/mcp."
        return Refusal(-32602, why)


@pytest.mark.parametrize("server", list(PIECES))
@pytest.mark.parametrize("kind", [FastMcpNamespace, Envoy, NewerEnvoy, EndaraRelay, OlderEndaraRelay])
async def test_a_link_is_read_from_its_own_server_behind_a_gateway(kind: type[Gateway], server: str) -> None:
    gateway = kind()
    async with connect(gateway) as session:
        result = await session.call_tool(gateway.tool(server))
        async with result.media[0].open() as stream:
            assert await stream.read_all() == PIECES[server]
        statistics = stream.statistics()
    assert statistics.strategy == "uri-template"
    listed = gateway.outer_template(server, TEMPLATE)
    assert statistics.strategy_reason in {
        f"the gateway lists the template {listed!r} for its server {server!r}, which begins the name of the "
        f"tool {gateway.tool(server)!r}",
        f"the server lists the template {listed!r}",  # and the link is renamed in the same way
    }


async def test_a_bare_uri_that_two_servers_serve_is_not_guessed() -> None:
    """Typed by a person, it has no tool whose name would tell."""
    options = StreamOptions(extra_arguments={"url": DESCRIPTION})
    gateway = FastMcpNamespace()
    async with connect(gateway) as session:
        with pytest.raises(UsageError, match=r"2 servers behind the gateway.*: resource://music/read_from_"):
            async with session.open(LINK, options=options):
                pass
        async with session.open("resource://radio/read_from_http", options=options) as stream:
            assert await stream.read_all() == PIECES["radio"], "as the message says"


async def test_a_gateway_that_cannot_tell_its_servers_apart_is_an_error_with_its_words_and_the_setting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    gateway = ContextForge()
    async with connect(gateway) as session:
        result = await session.call_tool(gateway.tool("music"))
        with pytest.raises(ServerError, match="ambiguous across multiple servers") as caught:
            async with result.media[0].open() as stream:
                await stream.read_all()
    said = str(caught.value)
    assert "uri-template (" in said
    assert "arguments (" in said
    assert "/servers/{id}/mcp" in said
    assert "set the server's url to the endpoint that the gateway has for one of them" in said


async def test_pages_grow_up_to_the_largest_message_that_a_gateway_passes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    inner = PagesServer(parser().parse_args(["--size", str(24 * MIB), "--no-size"]))
    async with sdk_proxy(inner.server, message_bytes=2 * MIB) as (proxy, counts), connect(proxy) as session:
        result = await session.call_tool("link")
        options = StreamOptions(page_bytes=4 * MIB, page_bytes_max=4 * MIB, capacity_bytes=64 * MIB)
        async with session.open(result.links[0], options=options) as stream:
            digest = hashlib.sha256()
            async for chunk in stream:
                digest.update(chunk)
    assert digest.hexdigest() == inner.script.payload.sha256()
    assert 0 < len(counts.refused) < 16, "the pages in flight, and no other"
    assert max(counts.answered) > MIB, "halved, and no further"
