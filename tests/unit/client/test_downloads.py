"""Whole resources from their origin: shared bodies, versions, and URLs that expire."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

import httpx2
import pytest
import trio
from trio.testing import MockClock

from playhead import errors
from playhead.client.session.downloads import (
    Download,
    download_from,
)
from playhead.client.session.http_range_reader import HttpRangeReader
from playhead.client.transports.http_client import guarded_client
from playhead.content.types import FileValue
from playhead.net_guard import parse_origins
from playhead.stream.options import StreamOptions
from playhead.stream.reader import open_stream
from tests.servers.raw_origin import RawOrigin, answer, bounds, raw_origin
from tests.unit.client.test_http_range import BODY, client, page, ranged, reading

URL = "https://files.example/song.flac?signature=one"


@dataclass
class CountedOrigin:
    """Serves `body` in ranges, as `respond` says; remembers every request."""

    respond: Callable[[httpx2.Request], httpx2.Response] = ranged
    requests: list[httpx2.Request] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return self.respond(request)

    @property
    def starts(self) -> list[int]:
        return [int(each.headers["range"][6:].partition("-")[0]) for each in self.requests]


# --- shared bodies ----------------------------------------------------------------------------------------


async def test_consecutive_pages_share_one_get() -> None:
    origin = CountedOrigin()
    async with reading(origin, URL) as reader:
        got = [b""] * 4
        async with trio.open_nursery() as nursery:

            async def read(index: int) -> None:
                got[index] = await page(reader, index * 3000, index * 3000 + 3000)

            for index in range(4):
                nursery.start_soon(read, index)
                await trio.lowlevel.checkpoint()
    assert b"".join(got) == BODY
    assert origin.starts == [0]


async def test_a_page_that_does_not_continue_a_body_sends_a_new_request() -> None:
    origin = CountedOrigin()
    async with reading(origin, URL) as reader:
        assert await page(reader, 0, 100) == BODY[:100]
        assert await page(reader, 9000, 9100) == BODY[9000:9100]
        assert await page(reader, 100, 200) == BODY[100:200]
        assert await page(reader, 9100, 9200) == BODY[9100:9200]
    assert origin.starts == [0, 9000]


async def test_a_page_across_two_gets_is_one_page() -> None:
    origin = CountedOrigin()
    async with reading(origin, URL, run_bytes=1000) as reader:
        assert await page(reader, 0, 900) == BODY[:900]
        assert await page(reader, 900, 2500) == BODY[900:2500]
    assert origin.starts == [0, 1000, 2000]
    assert [each.headers["range"] for each in origin.requests] == [
        "bytes=0-999",
        "bytes=1000-1999",
        "bytes=2000-2999",
    ]


async def test_an_origin_with_pages_of_its_own_is_asked_for_the_rest() -> None:
    def capped(request: httpx2.Request) -> httpx2.Response:
        first = int(request.headers["range"][6:].partition("-")[0])
        part = BODY[first : first + 700]
        return httpx2.Response(
            206, headers={"content-range": f"bytes {first}-{first + len(part) - 1}/{len(BODY)}"}, content=part
        )

    async with reading(capped, URL) as reader:
        assert await page(reader, 0, 2000) == BODY[:2000]
        assert await page(reader, 2000, len(BODY) + 10) == BODY[2000:]


async def test_a_cancelled_page_does_not_disturb_the_one_before_it_nor_the_one_after() -> None:
    released = trio.Event()

    async def slowly(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        start, _ = bounds(head)
        lines = [
            "HTTP/1.1 206 OK",
            f"content-length: {len(BODY) - start}",
            f"content-range: bytes {start}-{len(BODY) - 1}/{len(BODY)}",
        ]
        await stream.send_all("\r\n".join(lines).encode() + b"\r\n\r\n" + BODY[start : start + 10])
        if start == 0:
            await released.wait()
        await stream.send_all(BODY[start + 10 :])

    got: dict[int, bytes] = {}
    async with (
        raw_origin(slowly) as origin,
        guarded_client(allow_origins=parse_origins([origin.url])) as http,
    ):
        reader = HttpRangeReader(http, origin.url)

        async def read(start: int, end: int) -> None:
            got[start] = await page(reader, start, end)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, 0, 3000)
            await trio.testing.wait_all_tasks_blocked()
            async with trio.open_nursery() as given_up:
                given_up.start_soon(read, 3000, 6000)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(read, 6000, 9000)
                await trio.testing.wait_all_tasks_blocked()
                given_up.cancel_scope.cancel()
            released.set()
        await reader.aclose()
        with trio.fail_after(5):
            await origin.closed.wait()
    assert got == {0: BODY[:3000], 6000: BODY[6000:9000]}


async def test_an_answer_cut_off_while_unread_is_requested_again() -> None:
    async def cuts(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        start, _ = bounds(head)
        place = f"content-range: bytes {start}-{len(BODY) - 1}/{len(BODY)}"
        whole = BODY[start:]
        if start == 0:
            await stream.send_all(
                f"HTTP/1.1 206 OK\r\ncontent-length: {len(whole)}\r\n{place}\r\n\r\n".encode() + whole[:100]
            )
            raise trio.BrokenResourceError
        await answer(stream, "206 Partial Content", whole, place)

    async with raw_origin(cuts) as origin, guarded_client(allow_origins=parse_origins([origin.url])) as http:
        reader = HttpRangeReader(http, origin.url)
        assert await page(reader, 0, 100) == BODY[:100]
        assert await page(reader, 100, 300) == BODY[100:300]
        await reader.aclose()
    assert len(origin.heads) == 2


async def test_a_link_that_cuts_every_answer_is_an_error() -> None:
    async def cuts(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        await stream.send_all(
            b"HTTP/1.1 206 OK\r\ncontent-length: 50\r\ncontent-range: bytes 0-49/100\r\n\r\n"
        )
        raise trio.BrokenResourceError

    async with raw_origin(cuts) as origin, guarded_client(allow_origins=parse_origins([origin.url])) as http:
        with pytest.raises(errors.ConnectionLostError):
            await HttpRangeReader(http, origin.url)(0, 10)
    assert len(origin.heads) == 1


# --- versions ---------------------------------------------------------------------------------------------


async def test_ranges_are_conditional_on_the_first_version() -> None:
    origin = CountedOrigin()
    async with reading(origin, URL, run_bytes=100) as reader:
        await reader(0, 100)
        await reader(100, 200)
    assert [each.headers.get("if-range") for each in origin.requests] == [None, '"v1"']


async def test_an_entity_tag_beyond_ascii_is_compared_and_not_sent() -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        found = ranged(request)
        return httpx2.Response(
            206,
            headers=[*((k, v) for k, v in found.headers.raw if k != b"etag"), (b"etag", tag)],
            content=found.content,
        )

    tag = b'"\xe9"'
    origin = CountedOrigin(respond)
    async with reading(origin, URL, run_bytes=100) as reader:
        assert await page(reader, 0, 200) == BODY[:200]
        tag = b'"\xe8"'
        with pytest.raises(errors.ResourceChangedError, match="entity tag"):
            await reader(200, 300)
    assert [each.headers.get("if-range") for each in origin.requests] == [None, None, None]


@pytest.mark.parametrize(
    "second",
    [
        lambda request: ranged(request, etag='"v2"'),
        lambda request: ranged(request, body=BODY + b"more"),
        lambda _: httpx2.Response(200, content=BODY),
        lambda _: httpx2.Response(200, content=BODY[:50]),
        lambda _: httpx2.Response(416, headers={"content-range": "bytes */50"}),
        lambda _: httpx2.Response(416),
    ],
)
async def test_an_answer_of_another_version_is_refused(
    second: Callable[[httpx2.Request], httpx2.Response],
) -> None:
    origin = CountedOrigin()
    async with reading(origin, URL, run_bytes=100) as reader:
        await reader(0, 100)
        origin.respond = second
        with pytest.raises(errors.ResourceChangedError) as caught:
            await reader(100, 200)
    assert caught.value.offset == 100


async def test_an_origin_without_ranges_sends_what_is_played_once() -> None:
    origin = CountedOrigin(lambda _: httpx2.Response(200, content=BODY))
    async with reading(origin, URL, run_bytes=1000) as reader:
        for start in range(0, len(BODY), 500):
            assert await page(reader, start, start + 500) == BODY[start : start + 500]
    assert len(origin.requests) == 1


async def test_a_shorter_body_without_a_length_is_a_change_and_not_an_end() -> None:
    async def chunks(body: bytes) -> AsyncIterator[bytes]:
        yield body

    def respond(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=chunks(body))

    body = BODY
    async with reading(respond, URL, run_bytes=1000) as reader:
        assert await page(reader, 0, 1000) == BODY[:1000]
        body = BODY[:300]
        with pytest.raises(errors.ResourceChangedError, match="300 bytes in place of 1000 or more"):
            await reader(5000, 6000)


@dataclass
class ChangingOrigin:
    """A file that is replaced after some requests, on an origin with one kind of validator."""

    rng: random.Random
    requests: int = 0

    def __post_init__(self) -> None:
        size = self.rng.randrange(20_000, 60_000)
        self.old = self.rng.randbytes(size)
        self.shows = self.rng.choice(["etag", "weak", "date", "total"])
        may_keep_its_size = self.shows != "total" and self.rng.random() < 0.5
        self.new = self.rng.randbytes(size if may_keep_its_size else self.rng.randrange(1, size))
        self.changes_after = self.rng.randrange(1, 12)
        self.honours_if_range = self.rng.random() < 0.7

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        is_new = self.requests > self.changes_after
        body, validators = self.new if is_new else self.old, self.validators(is_new=is_new)
        condition = request.headers.get("if-range")
        if self.honours_if_range and condition is not None and condition not in validators.values():
            return httpx2.Response(200, headers=validators, content=body)
        found = ranged(request, body=body)
        found.headers.pop("etag", None)
        found.headers.update(validators)
        return found

    def validators(self, *, is_new: bool) -> dict[str, str]:
        match self.shows:
            case "etag":
                return {"etag": f'"{is_new}"'}
            case "weak":
                return {"etag": f'W/"{is_new}"'}
            case "date":
                day = "06" if is_new else "05"
                return {
                    "last-modified": f"Mon, {day} Jan 2026 10:00:00 GMT",
                    "date": "Thu, 08 Jan 2026 10:00:00 GMT",
                }
            case _:
                return {}


async def test_a_file_that_changes_while_it_is_read_is_never_mixed() -> None:
    outcomes = {"changed": 0, "whole": 0}
    for seed in range(200):
        rng = random.Random(seed)
        origin = ChangingOrigin(rng)
        got = b""
        async with client(origin) as http:
            reader = HttpRangeReader(http, URL, run_bytes=rng.choice([1000, 5000, 20_000]))
            try:
                async with open_stream(reader, options=StreamOptions(profile="save")) as stream:
                    async for chunk in stream:
                        got += chunk
            except errors.ResourceChangedError:
                outcomes["changed"] += 1
                assert origin.old.startswith(got) or origin.new.startswith(got), seed
            else:
                outcomes["whole"] += 1
                assert got in (origin.old, origin.new), seed
            finally:
                await reader.aclose()
    assert min(outcomes.values()) > 20, outcomes


# --- URLs that a server authorises ------------------------------------------------------------------------


class Authority:
    """Returns `urls` in turn, and remembers when it was asked."""

    def __init__(self, *urls: str, headers: Mapping[str, str] | None = None) -> None:
        self._urls = urls
        self._headers = dict(headers or {})
        self.asked_at: list[float] = []

    async def __call__(self) -> Download:
        await trio.lowlevel.checkpoint()
        self.asked_at.append(trio.current_time())
        url = self._urls[min(len(self.asked_at), len(self._urls)) - 1]
        return Download(url=url, headers=self._headers)


def only(*signatures: str) -> Callable[[httpx2.Request], httpx2.Response]:
    """Refuse URLs with another signature."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        if httpx2.URL(request.url).params["signature"] in signatures:
            return ranged(request)
        return httpx2.Response(403)

    return respond


async def test_an_expired_url_is_authorised_once_for_all_reads_and_reading_goes_on() -> None:
    authority = Authority(URL, URL.replace("one", "two"))
    origin = CountedOrigin(only("one"))
    async with reading(origin, authority, run_bytes=500) as reader:
        assert await page(reader, 0, 500) == BODY[:500]
        origin.respond = only("two")
        got: dict[int, bytes] = {}

        async def read(start: int) -> None:
            got[start] = await page(reader, start, start + 500)

        async with trio.open_nursery() as nursery:
            for start in (500, 1000, 1500):
                nursery.start_soon(read, start)
    assert got == {start: BODY[start : start + 500] for start in (500, 1000, 1500)}
    assert len(authority.asked_at) == 2


async def test_a_url_is_authorised_again_at_most_once_in_thirty_seconds(autojump_clock: MockClock) -> None:
    authority = Authority(URL)
    origin = CountedOrigin(only("one"))
    async with reading(origin, authority, run_bytes=500) as reader:
        await reader(0, 500)
        origin.respond = only("none")
        for wait in (30.0, 20.0):
            with pytest.raises(errors.HttpStatusError) as caught:
                await reader(500, 600)
            assert caught.value.retry_after_seconds == pytest.approx(wait)
            assert caught.value.status == 403
            await trio.sleep(10)
        await trio.sleep(10)
        origin.respond = only("one")
        assert await page(reader, 500, 600) == BODY[500:600]
    assert len(authority.asked_at) == 2


async def test_a_url_that_never_worked_is_refused_after_one_more_try() -> None:
    authority = Authority(URL)
    async with client(CountedOrigin(only("none"))) as http:
        with pytest.raises(errors.AccessDeniedError):
            await HttpRangeReader(http, authority)(0, 500)
    assert len(authority.asked_at) == 2


async def test_a_link_to_the_web_is_refused_at_once() -> None:
    origin = CountedOrigin(only("none"))
    async with client(origin) as http:
        with pytest.raises(errors.AccessDeniedError):
            await HttpRangeReader(http, URL)(0, 500)
    assert len(origin.requests) == 1


async def test_another_file_under_the_same_handle_is_a_change() -> None:
    files = iter([FileValue(uri="mcp-file://a", size=5), FileValue(uri="mcp-file://a", size=6)])

    async def authorize() -> Download:
        await trio.lowlevel.checkpoint()
        return Download(url=URL, file=next(files))

    origin = CountedOrigin(only("one"))
    async with reading(origin, authorize, run_bytes=500) as reader:
        await reader(0, 500)
        origin.respond = only("two")
        with pytest.raises(errors.ResourceChangedError, match="size 6 in place of 5"):
            await reader(500, 600)


async def test_the_headers_of_a_download_go_to_its_own_origin_only() -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "files.example":
            return httpx2.Response(302, headers={"location": "https://cdn.example/moved"})
        return ranged(request)

    origin = CountedOrigin(respond)
    async with reading(origin, Authority(URL, headers={"x-ticket": "canary"})) as reader:
        assert await page(reader, 0, 10) == BODY[:10]
    assert [each.headers.get("x-ticket") for each in origin.requests] == ["canary", None]
    assert all("range" in each.headers for each in origin.requests)


@pytest.mark.parametrize("where", ["url", "redirect"])
async def test_an_authorised_download_is_not_read_over_http(where: str) -> None:
    plain = "http://files.example/song.flac"
    origin = CountedOrigin(lambda _: httpx2.Response(302, headers={"location": plain}))
    async with client(origin) as http:
        url = plain if where == "url" else URL
        reader = HttpRangeReader(http, Authority(url), allow_origins=parse_origins(["https://files.example"]))
        with pytest.raises(errors.BlockedAddressError, match="https"):
            await reader(0, 10)
    assert len(origin.requests) == (where == "redirect")


async def test_an_allowed_origin_may_serve_a_download_over_http() -> None:
    async with client(ranged) as http:
        reader = HttpRangeReader(
            http,
            Authority("http://localhost:8080/song"),
            allow_origins=parse_origins(["http://localhost:8080"]),
        )
        assert await page(reader, 0, 10) == BODY[:10]
        await reader.aclose()


def test_a_download_is_read_from_the_answer() -> None:
    found = download_from(
        {
            "file": {"uri": "mcp-file://a", "size": 7, "mimeType": "audio/flac"},
            "download": {
                "transport": "https",
                "method": "GET",
                "url": URL,
                "headers": {"X-Ticket": "t", "Range": "bytes=0-1", "Host": "other"},
                "expiresAt": "2026-01-01T00:00:00Z",
            },
        },
        uri="mcp-file://a",
        server="files",
    )
    assert found.url == URL
    assert found.headers == {"x-ticket": "t"}
    assert found.expires_at == 1767225600.0
    assert found.has_expired
    assert found.file == FileValue(uri="mcp-file://a", size=7, mimeType="audio/flac")
    assert "signature" not in repr(found)


@pytest.mark.parametrize(
    ("download", "word"),
    [
        (None, "expected a download with a url"),
        ({"url": 7}, "expected a download with a url"),
        ({"url": URL, "transport": "s3"}, "transport 'https'"),
        ({"url": URL, "method": "POST"}, "method 'GET'"),
        ({"url": URL, "headers": ["a"]}, "headers of a download as an object"),
        ({"url": URL, "headers": {"a": "b\r\nc: d"}}, "printable header"),
        ({"url": URL, "headers": {"a b": "c"}}, "printable header"),
    ],
)
def test_an_answer_without_a_usable_download_is_refused(download: object, word: str) -> None:
    with pytest.raises(errors.ProtocolError, match=word) as caught:
        download_from({"download": download}, uri="mcp-file://a", server="files")
    assert "signature" not in str(caught.value)
