"""The `tls` keys of a servers file, against a real TLS server with a certificate of a private authority."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpcore2
import pytest
import trio
import trustme
from mcp.server.mcpserver import MCPServer

from playhead.agent.conversation import ModelRequest
from playhead.agent.models.openai_chat import CompatibleModel
from playhead.client import connect
from playhead.client.transports import tls
from playhead.client.transports.http_client import HttpClient, HttpRequest
from playhead.client.transports.tls import tls_reason
from playhead.client.web import Web, origin_of
from playhead.config.auth import ClientCredentials
from playhead.config.servers import ServerConfig, load_servers
from playhead.errors import ConfigError, ConnectError, ModelError
from playhead.servers.http import tls_context
from playhead.web_address import WebAddress
from tests.loop_kit import user
from tests.servers.counted_http import CountedServer, counted_http
from tests.servers.raw_origin import RawOrigin, answer, raw_origin


class Files:
    """A private authority, the server's certificate and a client's, as a user would have them."""

    def __init__(self, folder: Path) -> None:
        self.authority = folder / "authority.pem"
        self.server = folder / "server.pem"
        self.client = folder / "client.pem"
        self.client_key = folder / "client.key"
        self.stranger = folder / "stranger.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.authority)
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(self.server)
        mine = authority.issue_cert("listener@example.org")
        mine.cert_chain_pems[0].write_to_path(self.client)
        mine.private_key_pem.write_to_path(self.client_key)
        other = trustme.CA().issue_cert("stranger@example.org")
        other.private_key_and_cert_chain_pem.write_to_path(self.stranger)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@asynccontextmanager
async def tls_server(files: Files, *, wants_client: bool = False) -> AsyncIterator[CountedServer]:
    tls = tls_context(files.server)
    assert tls is not None
    if wants_client:
        tls.load_verify_locations(files.authority)
        tls.verify_mode = ssl.CERT_REQUIRED
    async with counted_http(MCPServer("tls", log_level="CRITICAL"), json_response=True, tls=tls) as server:
        yield server


def entry(folder: Path, url: str, tls: dict[str, Any]) -> ServerConfig:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"it": {"url": url, "tls": tls}}}), encoding="utf-8")
    return load_servers(path)["it"]


async def said_when_refused(config: ServerConfig) -> str:
    with pytest.raises(ConnectError) as caught:
        async with connect(config):
            raise AssertionError("connected")
    return str(caught.value)


async def test_behaviour_22_the_authorities_of_ssl_cert_file_are_trusted(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tls_server(files) as server:
        before = await said_when_refused(entry(tmp_path, server.url, {}))
        monkeypatch.setenv(
            "SSL_CERT_FILE", str(files.authority)
        )  # after another session has loaded the others
        async with connect(entry(tmp_path, server.url, {})) as session:
            assert session.server_info is not None
    assert "certificate" in before


async def test_a_certificate_of_an_unknown_authority_is_refused_with_the_key_to_set(
    files: Files, tmp_path: Path
) -> None:
    async with tls_server(files) as server:
        said = await said_when_refused(entry(tmp_path, server.url, {}))
        assert server.queries == []
    assert "certificate" in said
    assert "tls.authorities" in said


async def test_the_certificate_of_an_authorization_server_is_refused_with_the_key_to_set(
    files: Files, tmp_path: Path
) -> None:
    async with tls_server(files) as authority:

        async def refuse(_origin: RawOrigin, stream: trio.SocketStream, _head: bytes) -> None:
            where = f'www-authenticate: Bearer resource_metadata="{authority.url}"'
            await answer(stream, "401 Unauthorized", b"", where)

        async with raw_origin(refuse) as origin:
            config = ServerConfig(
                name="it",
                url=f"{origin.url}/mcp",
                auth=ClientCredentials(token_folder=tmp_path, client_id="jukebox", client_secret="hush"),
                allow_origins=(authority.url.removesuffix("/mcp"),),
            )
            said = await said_when_refused(config)
        assert authority.queries == []
    assert "which authorization needs: certificate verification failed" in said
    assert "set tls.authorities" in said


async def play_url(url: str) -> None:
    async with aclosing(Web(allow_origins={origin_of(url)})) as web:
        await web.ask(url)


async def ask_model(url: str) -> None:
    model = CompatibleModel("m", base_url=url, max_retries=0)
    async with model, model.stream(ModelRequest(messages=(user("Play"),))):
        raise AssertionError("answered")


@pytest.mark.parametrize("reach", [play_url, ask_model])
async def test_without_a_servers_file_ssl_cert_file_is_named_and_helps(
    reach: Callable[[str], Awaitable[None]], files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tls_server(files) as server:
        with pytest.raises(ConnectError, match=r"certificate verification failed \(.+\); set SSL_CERT_FILE"):
            await reach(server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
        with suppress(ModelError):  # it answers, but is no model
            await reach(server.url)


async def test_a_certificate_for_another_name_is_refused(files: Files, tmp_path: Path) -> None:
    async with tls_server(files) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        said = await said_when_refused(entry(tmp_path, url, {"authorities": str(files.authority)}))
    assert "certificate" in said


async def test_a_server_that_wants_a_client_certificate_gets_it(files: Files, tmp_path: Path) -> None:
    tls = {
        "authorities": str(files.authority),
        "certificate": str(files.client),
        "key": str(files.client_key),
    }
    async with (
        tls_server(files, wants_client=True) as server,
        connect(entry(tmp_path, server.url, tls)) as session,
    ):
        assert session.server_info is not None


@pytest.mark.parametrize("certificate", ["none", "stranger"])
async def test_without_the_right_client_certificate_nothing_is_connected(
    files: Files, tmp_path: Path, certificate: str
) -> None:
    tls = {"authorities": str(files.authority)}
    if certificate == "stranger":
        tls["certificate"] = str(files.stranger)
    async with tls_server(files, wants_client=True) as server:
        said = await said_when_refused(entry(tmp_path, server.url, tls))
        assert server.queries == []
    assert "tls.certificate" in said


async def test_verify_false_still_gives_the_client_certificate(files: Files, tmp_path: Path) -> None:
    tls = {"verify": False, "certificate": str(files.client), "key": str(files.client_key)}
    async with (
        tls_server(files, wants_client=True) as server,
        connect(entry(tmp_path, server.url, tls)) as session,
    ):
        assert session.server_info is not None


@pytest.mark.parametrize("key", ["authorities", "certificate"])
async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, key: str) -> None:
    path = tmp_path / "none.pem"
    for content in (None, "not a certificate"):
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConfigError, match=f"tls\\.{key}.*none\\.pem"):
            async with connect(entry(tmp_path, "https://127.0.0.1:1/mcp", {key: str(path)})):
                raise AssertionError("connected")


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ({"key": "x"}, "tls.certificate"),
        ({"verify": False, "authorities": "x"}, "either"),
        ({"verify": "no"}, "expected true or false"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(tmp_path: Path, tls: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        entry(tmp_path, "https://host/mcp", tls)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[ssl.SSLContext]:
    """The contexts for which the system's authorities were loaded, each of which takes 40 ms."""
    loaded: list[ssl.SSLContext] = []
    load = httpcore2.default_ssl_context

    def counted(**options: bool) -> ssl.SSLContext:
        loaded.append(load(**options))
        return loaded[-1]

    monkeypatch.setattr(httpcore2, "default_ssl_context", counted)
    tls._load_authorities.cache_clear()
    return loaded


async def test_a_session_over_plain_http_loads_no_authorities(
    loads: list[ssl.SSLContext], tmp_path: Path
) -> None:
    async with (
        counted_http(MCPServer("plain", log_level="CRITICAL"), json_response=True) as server,
        connect(entry(tmp_path, server.url, {})) as session,
    ):
        assert session.server_info is not None
    assert loads == []


async def test_sessions_over_https_share_one_context(
    files: Files, loads: list[ssl.SSLContext], tmp_path: Path
) -> None:
    async with tls_server(files) as server:
        for _attempt in range(2):
            assert "certificate" in await said_when_refused(entry(tmp_path, server.url, {}))
    assert len(loads) == 1


async def test_what_a_server_without_tls_redirects_to_is_verified_all_the_same(
    files: Files, loads: list[ssl.SSLContext], tmp_path: Path
) -> None:
    context = tls.tls_context(entry(tmp_path, "http://example.org/mcp", {}))
    assert loads == []
    async with tls_server(files) as server, HttpClient(tls=context) as client:
        with pytest.raises(httpcore2.ConnectError) as caught:
            await client.send(HttpRequest(method="GET", url=WebAddress.parse(server.url)))
    assert "certificate" in (tls_reason(caught.value) or "")
    assert len(loads) == 1
