"""A URL that somebody else chose never reaches the private network: a canary on loopback sees no request."""

from __future__ import annotations

import socket
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpcore2
import pytest
import trio

from playhead.client.transports.http_client import HttpClient, HttpRequest, anywhere, guarded_client
from playhead.errors import BlockedAddressError
from playhead.net_guard import REDIRECTS, Origin
from playhead.web_address import WebAddress
from tests.servers.raw_origin import RawOrigin, raw_origin


class Names(trio.abc.HostnameResolver):
    """A resolver that answers from a table and counts the questions."""

    def __init__(self, table: dict[str, list[str]]) -> None:
        self._table = table
        self.asked: list[str] = []

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        self.asked.append(name)
        if name not in self._table:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in self._table[name]
        ]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


async def get(client: HttpClient, url: str) -> bytes:
    request = HttpRequest(method="GET", url=WebAddress.parse(url))
    response = await client.send(request, redirect=anywhere, redirects=REDIRECTS)
    try:
        return b"%d " % response.status + await response.read(1000)
    finally:
        await response.aclose()


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"


def redirect(target: str) -> bytes:
    head = f"HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    return head.encode()


def canary(answer: bytes = OK) -> AbstractAsyncContextManager[RawOrigin]:
    """An origin on loopback that gives the same answer to every request."""

    async def handle(_origin: RawOrigin, stream: trio.SocketStream, _head: bytes) -> None:
        await stream.send_all(answer)

    return raw_origin(handle)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "0177.0.0.1",
        "0.0.0.0",
        "localhost",
        "LOCALHOST",
        "user@127.0.0.1",
        "example.com\\@127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
    ],
)
async def test_no_form_of_a_loopback_address_gets_through(host: str) -> None:
    async with canary() as bird, guarded_client() as client:
        with pytest.raises((BlockedAddressError, ValueError)):
            await get(client, f"http://{host}:{bird.port}/")
        assert bird.connections == 0


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:7f00:1"], ["10.1.1.1"]]
)
async def test_a_name_that_resolves_to_a_private_address_is_refused_with_name_address_and_remedy(
    addresses: list[str],
) -> None:
    trio.socket.set_custom_hostname_resolver(Names({"music.example": addresses}))
    async with canary() as bird, guarded_client() as client:
        with pytest.raises(BlockedAddressError) as caught:
            await get(client, f"http://music.example:{bird.port}/song")
        message = str(caught.value)
        assert f"http://music.example:{bird.port}/song" in message
        assert addresses[-1] in message
        assert f"Allow the origin http://music.example:{bird.port}" in message
        assert bird.connections == 0


async def test_a_name_is_resolved_once_and_the_connection_goes_to_the_checked_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names({"music.example": ["93.184.216.34"]})
    trio.socket.set_custom_hostname_resolver(names)
    connected: list[str] = []

    async def open_tcp_stream(host: str, port: int, **_: Any) -> trio.SocketStream:
        connected.append(host)
        raise OSError("unreachable in this test")

    monkeypatch.setattr(trio, "open_tcp_stream", open_tcp_stream)
    async with guarded_client() as client:
        with pytest.raises(httpcore2.ConnectError):
            await get(client, "http://music.example/song")
    assert names.asked == ["music.example"]
    assert connected == ["93.184.216.34"]


async def test_an_unknown_name_is_a_connection_error_and_not_a_blocked_address() -> None:
    trio.socket.set_custom_hostname_resolver(Names({}))
    async with guarded_client() as client:
        with pytest.raises(httpcore2.ConnectError, match=r"nowhere\.example"):
            await get(client, "http://nowhere.example/")


async def test_an_allowed_origin_is_reached_and_sees_the_name_in_the_host_header() -> None:
    trio.socket.set_custom_hostname_resolver(Names({"music.example": ["127.0.0.1"]}))
    async with canary() as bird:
        origin = Origin.parse(f"http://music.example:{bird.port}")
        async with guarded_client(allow_origins=[origin]) as client:
            assert await get(client, f"http://music.example:{bird.port}/song") == b"200 ok"
        assert f"host: music.example:{bird.port}".encode() in bird.heads[0].lower()


@pytest.mark.parametrize(
    "other", ["https://127.0.0.1:{port}/", "http://localhost:{port}/", "http://127.0.0.1:1/"]
)
async def test_another_scheme_host_or_port_than_the_allowed_one_is_refused(other: str) -> None:
    async with canary() as bird:
        origin = Origin.parse(f"http://127.0.0.1:{bird.port}")
        async with guarded_client(allow_origins=[origin]) as client:
            with pytest.raises(BlockedAddressError):
                await get(client, other.format(port=bird.port))
        assert bird.connections == 0


@pytest.mark.requirement("MCP-40")
@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://2130706433:{port}/",
        "//127.0.0.1:{port}/",
        "http://user@127.0.0.1:{port}/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:{port}/",
        "data:text/plain,hello",
    ],
)
async def test_a_redirect_from_an_allowed_origin_to_a_private_address_is_refused(target: str) -> None:
    async with canary() as bird, canary(redirect(target.format(port=bird.port))) as allowed:
        origin = Origin.parse(f"http://127.0.0.1:{allowed.port}")
        async with guarded_client(allow_origins=[origin]) as client:
            with pytest.raises(BlockedAddressError):
                await get(client, f"http://127.0.0.1:{allowed.port}/song")
        assert len(allowed.heads) == 1
        assert bird.connections == 0


async def test_a_proxy_from_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with canary() as bird:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{bird.port}")
        trio.socket.set_custom_hostname_resolver(Names({}))
        async with guarded_client() as client:
            with pytest.raises(httpcore2.ConnectError):
                await get(client, "http://music.example/")
        assert bird.connections == 0
