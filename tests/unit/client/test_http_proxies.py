"""Proxies of the environment: which URLs they serve, as httpx2 does, and one of each kind on loopback."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import httpcore2
import httpx2
import pytest
import trio
import trustme
from hypothesis import example, given
from hypothesis import strategies as st

from playhead.client import connect
from playhead.client.transports.http_client import HttpClient, HttpRequest
from playhead.client.transports.http_errors import connection_error
from playhead.client.transports.http_proxies import Proxies, environment_proxies
from playhead.errors import ConfigError
from playhead.web_address import WebAddress
from tests.servers.loopback import tcp_server
from tests.servers.raw_http import Exchange, raw_http

ENTRIES = [
    *("example.com", ".example.com", "*.example.com", "example.com:8080", "EXAMPLE.com", "com", "localhost"),
    *(
        "10.0.0.0/8",
        "10.1.2.3",
        "10.1.2.3:8080",
        "10.0.0.0/99",
        "fd00::/8",
        "fd00::1",
        "[fd00::1]",
        "[fd00::1]:8080",
    ),
    *(
        "http://example.com",
        "https://example.com",
        "https://*.example.com",
        "all://example.com",
        "a/b",
        "",
        "%zz",
    ),
]
URLS = [
    f"{scheme}://{host}{port}/x"
    for scheme in ("http", "https")
    for host in ("example.com", "www.example.com", "wwwexample.com", "10.1.2.3", "[fd00::1]", "other.org")
    for port in ("", ":8080")
]


def chosen_by_httpx2(settings: dict[str, str], url: str) -> str | None:
    """Its own choice, from attributes that it does not document: no public one tells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx2._utils.getproxies", lambda: settings)
        client = httpx2.Client(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    with client:
        pool = client._transport_for_url(httpx2.URL(url))._pool  # type: ignore[attr-defined]
    proxy = getattr(pool, "_proxy_url", None)
    return None if proxy is None else bytes(proxy).decode()


@given(
    st.lists(st.sampled_from(ENTRIES), max_size=3),
    st.sampled_from(URLS),
    st.sets(st.sampled_from(["http", "https", "all"]), min_size=1),
)
@example(["*"], URLS[0], {"all"})
def test_a_url_goes_through_the_proxy_that_httpx2_chooses(
    entries: list[str], url: str, named: set[str]
) -> None:
    settings = {scheme: f"http://{scheme}-proxy:3128" for scheme in named} | {"no": ", ".join(entries)}
    proxy = Proxies.of(settings).proxy_for(WebAddress.parse(url))
    assert (None if proxy is None else f"{proxy.url}/") == chosen_by_httpx2(settings, url)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "music.localhost"])
def test_this_machine_is_reached_without_a_proxy(host: str) -> None:
    assert Proxies.of({"all": "http://proxy"}).proxy_for(WebAddress.parse(f"http://{host}:8000/")) is None


@pytest.mark.parametrize("url", ["gopher://proxy", "http://", "http://proxy:port", "me:hush-hush@proxy:x"])
def test_a_proxy_that_cannot_be_used_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError, match="environment") as caught:
        Proxies.of({"http": url})
    assert "hush" not in str(caught.value)


def test_variables_of_either_case_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    url = WebAddress.parse("http://example.com/")
    assert environment_proxies().proxy_for(url) is None
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    proxy = environment_proxies().proxy_for(url)
    assert proxy is not None
    assert str(proxy.url) == "http://proxy:3128"
    monkeypatch.setenv("no_proxy", "example.com")
    assert environment_proxies().proxy_for(url) is None


# --- proxies on loopback -----------------------------------------------------------------------------


@dataclass
class Proxy:
    heads: list[bytes] = field(default_factory=list)
    refuses: bool = False
    port: int = 0


async def head_of(stream: trio.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and (chunk := await stream.receive_some()):
        head += chunk
    return head


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """A proxy that forwards to `port` on loopback, whatever host is asked for."""
    proxy = Proxy()

    async def pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        async for chunk in source:
            await sink.send_all(chunk)
        await sink.send_eof()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            head = await head_of(stream)
            if not head:
                return
            proxy.heads.append(head)
            if proxy.refuses:
                await stream.send_all(
                    b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
                )
                return
            origin = await trio.open_tcp_stream("127.0.0.1", port)
            async with origin, trio.open_nursery() as nursery:
                if head.startswith(b"CONNECT"):
                    await stream.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    await origin.send_all(head)
                nursery.start_soon(pump, stream, origin)
                await pump(origin, stream)
                nursery.cancel_scope.cancel()

    async with tcp_server(serve) as proxy.port:
        yield proxy


def origin(tls: ssl.SSLContext | None) -> AbstractAsyncContextManager[int]:
    """The port of an origin that answers `here` to every request."""

    async def serve(stream: trio.SocketStream) -> None:
        talk: trio.abc.Stream = (
            stream if tls is None else trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
        )
        head = b""
        while True:
            while b"\r\n\r\n" not in head:
                try:
                    chunk = await talk.receive_some()
                except trio.BrokenResourceError:
                    return
                if not chunk:
                    return
                head += chunk
            head = b""
            await talk.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhere")

    return tcp_server(serve)


async def fetch(client: HttpClient, url: str) -> bytes:
    response = await client.send(HttpRequest(method="GET", url=WebAddress.parse(url)))
    body = await response.read(100)
    await response.aclose()
    return body


async def test_http_is_forwarded_with_the_credentials_of_the_proxy_url() -> None:
    async with origin(None) as port, proxy_to(port) as proxy:
        proxies = Proxies.of({"http": f"http://me:a%20b@127.0.0.1:{proxy.port}"})
        async with HttpClient(proxies=proxies) as client:
            for _ in range(2):
                assert await fetch(client, "http://music.example/song?x=1") == b"here"
    (head,) = proxy.heads  # and the second request on the same connection
    assert head.startswith(b"GET http://music.example/song?x=1 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic " + base64.b64encode(b"me:a b") in head
    assert b"host: music.example\r\n" in head


async def test_https_is_tunnelled_and_verified_for_the_origins_name() -> None:
    authority = trustme.CA()
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("music.example").configure_cert(theirs)
    authority.configure_trust(ours)
    async with origin(theirs) as port, proxy_to(port) as proxy:
        proxies = Proxies.of({"https": f"http://127.0.0.1:{proxy.port}"})
        async with HttpClient(proxies=proxies, tls=ours) as client:
            for _ in range(2):
                assert await fetch(client, "https://music.example/") == b"here"
            with pytest.raises(httpcore2.ConnectError) as caught:
                await fetch(client, "https://other.example/")
            assert "certificate" in str(connection_error(caught.value, "https://other.example/"))
    assert [head.split(b"\r\n")[0] for head in proxy.heads] == [
        b"CONNECT music.example:443 HTTP/1.1",
        b"CONNECT other.example:443 HTTP/1.1",
    ]


async def test_a_proxy_that_refuses_is_named_as_the_reason() -> None:
    async with origin(None) as port, proxy_to(port) as proxy:
        proxy.refuses = True
        async with HttpClient(proxies=Proxies.of({"all": f"http://127.0.0.1:{proxy.port}"})) as client:
            with pytest.raises(httpcore2.ProxyError) as caught:
                await fetch(client, "https://music.example/")
    said = str(connection_error(caught.value, "https://music.example/"))
    assert (
        said
        == "the proxy refused the connection to https://music.example/: 407 Proxy Authentication Required"
    )


async def test_a_socks_proxy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playhead.client.transports.http_proxies.find_spec", lambda _name: None)
    async with HttpClient(proxies=Proxies.of({"all": "socks5://me:hush-hush@127.0.0.1:1080"})) as client:
        with pytest.raises(ConfigError, match="pip install socksio") as caught:
            await fetch(client, "https://music.example/")
    assert "hush" not in str(caught.value)


async def test_a_session_goes_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no(_exchange: Exchange) -> None:
        raise AssertionError("a handshake is all that is sent")

    async with raw_http(no) as server:
        server.host = "music.example"
        port = int(server.url.split(":")[2].partition("/")[0])
        async with proxy_to(port) as proxy:
            for name in ("no_proxy", "NO_PROXY", "REQUEST_METHOD"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
            async with connect("http://music.example/mcp", mode="legacy") as session:
                assert session.protocol_version == "2025-11-25"
    assert server.methods[:2] == ["initialize", "notifications/initialized"]
    assert proxy.heads[0].startswith(b"POST http://music.example/mcp HTTP/1.1\r\n")
