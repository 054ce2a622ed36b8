"""The HTTP client against origins on bare sockets: connections, bodies, redirects, cookies, authorization."""

from __future__ import annotations

import gzip
import hashlib
import logging
import re
import zlib
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpcore2
import httpx2
import pytest
import trio
from mcp.client.auth import OAuthFlowError

from playhead.client.transports.http_client import HttpClient, HttpRequest, HttpResponse, within_origin
from playhead.errors import AccessDeniedError, LimitError
from playhead.web_address import WebAddress
from tests.servers.loopback import tcp_server
from tests.servers.raw_http import Exchange as Asked
from tests.servers.raw_http import Handler, RawServer, raw_http

MIB = 1024 * 1024


@asynccontextmanager
async def origin(handler: Handler) -> AsyncIterator[RawServer]:
    async with raw_http(handler) as server:
        server.greet = nothing
        server.url = server.url.removesuffix("/mcp")
        yield server


async def nothing(_asked: Asked) -> bool:
    return False


async def answer(asked: Asked, body: bytes = b"", *headers: str, status: int = 200) -> None:
    await asked.body(body, status=status, headers="".join(f"{each}\r\n" for each in headers))


def get(url: str) -> HttpRequest:
    return HttpRequest(method="GET", url=WebAddress.parse(url))


def post(url: str, content: bytes) -> HttpRequest:
    return HttpRequest(method="POST", url=WebAddress.parse(url), content=content)


async def whole(response: HttpResponse, allowed: int = MIB) -> bytes:
    try:
        return await response.read(allowed)
    finally:
        await response.aclose()


async def says_target(asked: Asked) -> None:
    await answer(asked, asked.target.encode())


# --- connections -------------------------------------------------------------------------------------


async def test_requests_in_turn_share_a_connection_and_requests_at_once_do_not() -> None:
    async with origin(says_target) as served, HttpClient() as client:
        for number in range(5):
            assert await whole(await client.send(get(f"{served.url}/{number}"))) == b"/%d" % number
        assert served.connections == 1
        first, second = await client.send(get(served.url)), await client.send(get(served.url))
        assert (await whole(first), await whole(second)) == (b"/", b"/")
        assert served.connections == 2


async def test_a_connection_that_the_server_has_closed_is_not_reused() -> None:
    async def close(asked: Asked) -> None:
        await answer(asked, b"here")
        await asked.stream.aclose()

    async with origin(close) as served, HttpClient() as client:
        for _ in range(3):
            assert await whole(await client.send(get(served.url))) == b"here"
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert served.connections == 3


async def test_a_fresh_request_has_a_new_connection_and_those_that_were_idle_are_closed() -> None:
    async with origin(says_target) as served, HttpClient() as client:
        old = [await client.send(get(served.url)) for _ in range(2)]
        for response in old:
            await whole(response)
        await whole(await client.send(replace(get(served.url), is_fresh=True)))
        assert served.connections == 3
        again = [await client.send(get(served.url)) for _ in range(2)]
        for response in again:
            await whole(response)
        assert served.connections == 4


async def test_an_answer_that_is_closed_early_costs_its_connection_and_a_drained_one_does_not() -> None:
    async with origin(says_target) as served, HttpClient() as client:
        await (await client.send(get(f"{served.url}/one"))).aclose()
        await (await client.send(get(f"{served.url}/two"))).drain()
        await whole(await client.send(get(f"{served.url}/three")))
        assert served.connections == 2


async def test_no_more_connections_are_open_than_allowed_and_the_others_wait() -> None:
    open_now, most, go_on = 0, 0, trio.Event()

    async def slow(asked: Asked) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await go_on.wait()
        open_now -= 1
        await answer(asked, b"x")

    async with origin(slow) as served, HttpClient(connections=2) as client, trio.open_nursery() as nursery:

        async def fetch() -> None:
            assert await whole(await client.send(get(served.url))) == b"x"

        for _ in range(6):
            nursery.start_soon(fetch)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(served.headers) == 2
        go_on.set()
    assert (most, len(served.headers)) == (2, 6)


async def test_an_idle_connection_makes_room_for_another_origin() -> None:
    async with (
        origin(says_target) as one,
        origin(says_target) as other,
        HttpClient(connections=1) as client,
    ):
        for served in (one, other, one):
            assert await whole(await client.send(get(served.url))) == b"/"
        assert (one.connections, other.connections) == (2, 1)


async def test_a_request_cancelled_while_it_waits_for_its_answer_frees_its_place() -> None:
    async def never(asked: Asked) -> None:
        if asked.target == "/never":
            await trio.sleep_forever()
        await answer(asked, b"x")

    async with origin(never) as served, HttpClient(connections=1) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, get(f"{served.url}/never"))
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        assert await whole(await client.send(get(served.url))) == b"x"


async def test_a_redirect_cancelled_while_it_is_read_frees_its_place() -> None:
    async def handle(asked: Asked) -> None:
        if asked.target == "/old":
            head = b"HTTP/1.1 307 X\r\nlocation: /new\r\ncontent-length: 5\r\n\r\n"
            await asked.stream.send_all(head)
            await trio.sleep_forever()
        await answer(asked, b"x")

    async with origin(handle) as served, HttpClient(connections=1) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, get(f"{served.url}/old"))
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        assert await whole(await client.send(get(served.url))) == b"x"


async def test_an_answer_that_outlives_its_client_closes_its_connection() -> None:
    ended = trio.Event()

    async def handle(asked: Asked) -> None:
        await answer(asked, b"late")
        assert not await asked.stream.receive_some()
        ended.set()
        await asked.stream.aclose()

    async with origin(handle) as served:
        async with HttpClient() as client:
            response = await client.send(get(served.url))
        assert await whole(response) == b"late"
        await ended.wait()


async def test_a_post_is_one_write() -> None:
    received: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        received.append(await stream.receive_some())
        await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async with tcp_server(serve) as port, HttpClient() as client:
        await whole(await client.send(post(f"http://127.0.0.1:{port}/mcp", b"{}")))
    assert received[0].startswith(b"POST /mcp HTTP/1.1\r\n")
    assert received[0].endswith(b"content-length: 2\r\n\r\n{}")


async def test_silence_longer_than_the_time_limit_of_reads_is_an_error(autojump_clock: object) -> None:
    async def never(asked: Asked) -> None:
        await trio.sleep_forever()

    async with origin(never) as served, HttpClient(time_limits={"read": 5.0}) as client:
        with pytest.raises(httpcore2.ReadTimeout):
            await client.send(get(served.url))


# --- bodies ------------------------------------------------------------------------------------------


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        (
            "gzip",
            lambda body: (
                gzip.compress(body[:99]) + gzip.compress(b"") * 2000 + gzip.compress(body[99:]) + b"\0"
            ),
        ),
        ("deflate", zlib.compress),
        ("deflate", bare_deflate),
        ("identity", bytes),
    ],
)
async def test_a_body_that_was_compressed_unasked_is_decoded(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = bytes(range(256)) * 9000

    async def packed(asked: Asked) -> None:
        await answer(asked, pack(body), f"content-encoding: {encoding}")

    async with origin(packed) as served, HttpClient() as client:
        for _ in range(2):
            assert await whole(await client.send(get(served.url)), 3 * MIB) == body
        assert served.connections == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}", id="plain"),
        pytest.param(gzip.compress(b"{}")[:-1], id="cut"),
        pytest.param(gzip.compress(b"{}") + b"\x1f\x8b", id="begun-again"),
    ],
)
async def test_a_body_that_is_not_what_it_says_is_a_protocol_error(body: bytes) -> None:
    async def lie(asked: Asked) -> None:
        await answer(asked, body, "content-encoding: gzip")

    async with origin(lie) as served, HttpClient() as client:
        with pytest.raises(httpcore2.RemoteProtocolError, match="gzip"):
            await whole(await client.send(get(served.url)))


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_past_the_limit_is_cut_before_it_is_held(announced: bool) -> None:
    async def flood(asked: Asked) -> None:
        if announced:
            await asked.stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n")
        else:
            await asked.stream.send_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            while True:
                await asked.stream.send_all(b"2710\r\n" + b"x" * 10_000 + b"\r\n")

    async with origin(flood) as served, HttpClient() as client:
        with pytest.raises(LimitError) as caught:
            await whole(await client.send(get(served.url)), 100_000)
    assert caught.value.limit == "message_bytes"


async def test_a_small_body_that_stands_for_a_large_one_is_cut() -> None:
    bomb = gzip.compress(b"\0" * (64 * MIB))

    async def send_bomb(asked: Asked) -> None:
        await answer(asked, bomb, "content-encoding: gzip")

    async with origin(send_bomb) as served, HttpClient() as client:
        with pytest.raises(LimitError) as caught:
            await whole(await client.send(get(served.url)), 2 * MIB)
    assert caught.value.got <= 3 * MIB


# --- redirects ---------------------------------------------------------------------------------------


def redirecting(status: int, to: str) -> Handler:
    async def handle(asked: Asked) -> None:
        if asked.target.startswith("/old"):
            await answer(asked, b"moved", f"location: {to}", status=status)
        else:
            await answer(asked, asked.verb.encode() + b" " + asked.target.encode() + b" " + asked.content)

    return handle


@pytest.mark.parametrize(
    ("status", "follows"), [(307, True), (308, True), (301, False), (302, False), (303, False)]
)
async def test_a_post_is_sent_again_where_the_redirect_keeps_its_method(status: int, follows: bool) -> None:
    async with origin(redirecting(status, "/new")) as served, HttpClient() as client:
        response = await client.send(post(f"{served.url}/old", b"body"))
        assert await whole(response) == (b"POST /new body" if follows else b"moved")
        assert response.status == (200 if follows else status)
        assert served.connections == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_get_follows_every_redirect(status: int) -> None:
    async with origin(redirecting(status, "/new?a=b")) as served, HttpClient() as client:
        assert await whole(await client.send(get(f"{served.url}/old"))) == b"GET /new?a=b "


async def test_the_query_is_kept_where_the_redirect_has_none() -> None:
    async with origin(redirecting(307, "/new")) as served, HttpClient() as client:
        assert await whole(await client.send(get(f"{served.url}/old?key=1"))) == b"GET /new?key=1 "


@pytest.mark.parametrize(
    "to", ["http://localhost:1/new", "http://user:secret@{host}/new", "ftp://{host}/new", "http://[/"]
)
async def test_a_redirect_away_from_the_origin_is_not_followed(to: str) -> None:
    async def handle(asked: Asked) -> None:
        await redirecting(307, to.format(host=asked.headers.get("host")))(asked)

    async with origin(handle) as served, HttpClient() as client:
        response = await client.send(get(f"{served.url}/old"))
        assert (response.status, await whole(response)) == (307, b"moved")


@pytest.mark.parametrize(
    ("was", "to", "follows"),
    [
        ("http://h/a", "https://h/a/", True),
        ("http://h:8080/a", "https://h/a", False),
        ("http://h/a", "https://h:8443/a", False),
        ("https://h/a", "http://h/a", False),
        ("http://h/a", "http://H:80/b", True),
        ("http://h/a", "http://h.example/a", False),
        ("http://u@h/a", "http://u@h/b", True),
        ("http://u@h/a", "http://v@h/b", False),
        ("http://h/a", "http://u@h/b", False),
    ],
)
def test_the_origin_may_only_be_left_for_https_on_the_default_ports(was: str, to: str, follows: bool) -> None:
    answer = httpcore2.Response(307, headers=[(b"location", to.encode())], content=b"")
    request = post(was, b"body")
    response = HttpResponse(request, answer, connection=None, give_back=print)  # type: ignore[arg-type]
    assert response.location is not None
    following = within_origin(request, response, response.location)
    assert (following is not None) == follows
    assert following is None or (following.method, following.content) == ("POST", b"body")


async def test_a_circle_of_redirects_ends() -> None:
    async with origin(redirecting(307, "/old")) as served, HttpClient() as client:
        response = await client.send(get(f"{served.url}/old"))
        assert (response.status, await whole(response)) == (307, b"moved")
        assert (len(served.headers), served.connections) == (21, 1)


# --- cookies -----------------------------------------------------------------------------------------


async def test_cookies_are_sent_back_to_their_origin_until_they_are_deleted() -> None:
    async def balance(asked: Asked) -> None:
        set_cookie = {
            "/set": ["set-cookie: node=7; Path=/", "set-cookie: other=x; Path=/set; HttpOnly"],
            "/end": ["set-cookie: node=; Path=/; Max-Age=0"],
        }.get(asked.target, [])
        await answer(asked, (asked.headers.get("cookie") or "none").encode(), *set_cookie)

    async with origin(balance) as served, HttpClient() as client:
        found = [
            await whole(await client.send(get(served.url + path))) for path in ("/", "/set", "/", "/end", "/")
        ]
    assert found == [b"none", b"none", b"node=7", b"node=7", b"none"]


async def test_a_cookie_of_the_caller_precedes_the_jar() -> None:
    async def balance(asked: Asked) -> None:
        await answer(asked, (asked.headers.get("cookie") or "none").encode(), "set-cookie: node=7")

    async with origin(balance) as served, HttpClient() as client:
        await whole(await client.send(get(served.url)))
        request = HttpRequest(
            method="GET", url=WebAddress.parse(served.url), headers=[(b"cookie", b"mine=1")]
        )
        assert await whole(await client.send(request)) == b"mine=1"


# --- authorization -----------------------------------------------------------------------------------


def digest_origin() -> Handler:
    """RFC 7616 with MD5 and one nonce per answer: every request needs its own signature."""
    nonce = 0

    async def handle(asked: Asked) -> None:
        nonlocal nonce
        given = dict(re.findall(r'(\w+)="?([^",]*)"?', asked.headers.get("authorization") or ""))
        ha1 = hashlib.md5(b"me:files:secret").hexdigest()
        ha2 = hashlib.md5(f"{asked.verb}:{asked.target}".encode()).hexdigest()
        middle = f"{given.get('nonce')}:{given.get('nc')}:{given.get('cnonce')}:auth"
        if given.get("response") == hashlib.md5(f"{ha1}:{middle}:{ha2}".encode()).hexdigest():
            await answer(asked, b"for you: " + asked.content)
            return
        nonce += 1
        challenge = f'www-authenticate: Digest realm="files", nonce="n{nonce}", qop="auth", algorithm=MD5'
        await answer(asked, b"no", challenge, status=401)

    return handle


async def test_a_digest_signs_each_request_with_its_body_sent_again() -> None:
    auth = httpx2.DigestAuth("me", "secret")
    async with origin(digest_origin()) as served, HttpClient(auth=auth) as client:
        for target in ("/a?q=1", "/b"):
            assert await whole(await client.send(post(served.url + target, b"x"))) == b"for you: x"
        assert len(served.headers) == 3
        assert served.connections == 1


class BodyAuth(httpx2.Auth):
    """Reads the answer and sends what it says; the answer stays readable."""

    requires_request_body = True
    requires_response_body = True

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        request.headers["x-length"] = str(len(request.content))
        response = yield request
        if response.status_code == 401:
            request.headers["x-word"] = response.text
            response = yield request
            assert response.content


async def test_a_cookie_of_a_refusal_is_sent_with_the_signed_request() -> None:
    async def handle(asked: Asked) -> None:
        if asked.headers.get("x-word") == "open":
            await answer(asked, (asked.headers.get("cookie") or "").encode())
        else:
            await answer(asked, b"open", "set-cookie: node=7", status=401)

    async with origin(handle) as served, HttpClient(auth=BodyAuth()) as client:
        assert await whole(await client.send(get(served.url))) == b"node=7"


async def test_a_flow_may_read_bodies_in_both_directions() -> None:
    async def handle(asked: Asked) -> None:
        if asked.headers.get("x-word") == "open":
            await answer(asked, gzip.compress(b"welcome"), "content-encoding: gzip")
        else:
            await answer(asked, b"open", status=401)

    async with origin(handle) as served, HttpClient(auth=BodyAuth()) as client:
        assert await whole(await client.send(post(served.url, b"12345"))) == b"welcome"
        assert served.headers[0]["x-length"] == "5"
        assert served.connections == 1


async def test_the_answer_that_a_flow_reads_has_a_limit() -> None:
    async def flood(asked: Asked) -> None:
        await answer(asked, b"x" * 10_000, status=401)

    async with origin(flood) as served, HttpClient(auth=BodyAuth(), body_bytes=1000) as client:
        with pytest.raises(LimitError):
            await client.send(get(served.url))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert served.connections == 1


class FailingAuth(httpx2.Auth):
    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response]:
        yield request
        raise OAuthFlowError("token hush-42 was refused")


async def test_a_failed_flow_of_the_sdk_is_a_denied_access_without_its_text() -> None:
    async with origin(says_target) as served, HttpClient(auth=FailingAuth()) as client:
        with pytest.raises(AccessDeniedError, match="OAuthFlowError") as caught:
            await client.send(get(f"{served.url}/mcp?key=hush-42"))
    assert "hush" not in str(caught.value)


async def test_each_redirect_is_authorized_anew() -> None:
    async def handle(asked: Asked) -> None:
        if asked.target == "/old":
            await answer(asked, b"", "location: /new", status=308)
        else:
            await answer(asked, (asked.headers.get("authorization") or "").encode())

    async with origin(handle) as served, HttpClient(auth=httpx2.BasicAuth("me", "pw")) as client:
        assert await whole(await client.send(post(f"{served.url}/old", b"x"))) == b"Basic bWU6cHc="


async def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with origin(says_target) as served, HttpClient() as client:
        headers = [(b"authorization", b"Bearer hush-42")]
        url = WebAddress.parse(f"{served.url}/mcp?key=hush-42")
        response = await client.send(HttpRequest(method="POST", url=url, headers=headers, content=b"hush-42"))
        assert await whole(response) == b"/mcp?key=hush-42"
        assert "hush-42" not in repr(HttpRequest(method="GET", url=url, headers=headers))
    assert "hush-42" not in caplog.text
