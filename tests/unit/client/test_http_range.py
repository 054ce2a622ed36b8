"""Byte ranges over HTTP: what each kind of answer means."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx2
import pytest
import trio
from trio.testing import MockClock

from playhead import errors
from playhead.client.session.http_range import HttpRangeReader, fetch_range
from playhead.client.session.response_tap import Arrivals
from playhead.limits import Limits
from tests.servers.raw_origin import raw_origin, says_nothing

URL = "https://music.example/song.mp3"
BODY = bytes(range(256)) * 40
Answer = Callable[[httpx2.Request], httpx2.Response]


def bounds(request: httpx2.Request) -> tuple[int, int]:
    first, last = request.headers["range"].removeprefix("bytes=").split("-")
    return int(first), int(last) + 1


def ranged(request: httpx2.Request, *, etag: str = '"v1"') -> httpx2.Response:
    start, end = bounds(request)
    if start >= len(BODY):
        return httpx2.Response(416, headers={"content-range": f"bytes */{len(BODY)}"})
    part = BODY[start:end]
    place = f"bytes {start}-{start + len(part) - 1}/{len(BODY)}"
    headers = {"content-range": place, "etag": etag, "content-type": "audio/mpeg"}
    return httpx2.Response(206, headers=headers, content=part)


def whole(_: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, content=BODY)


def status(code: int, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 10

    return lambda _: httpx2.Response(code, headers=named, content=body())


def client(answer: Answer) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


async def read(answer: Answer, start: int, end: int, *, limits: Limits | None = None) -> bytes:
    async with client(answer) as http:
        page = await HttpRangeReader(http, URL, limits=limits or Limits())(start, end)
    return b"".join(blob for blob in page.blobs if isinstance(blob, bytes))


async def test_a_partial_answer_is_the_page_with_the_total_and_the_type() -> None:
    async with client(ranged) as http:
        page = await HttpRangeReader(http, URL)(100, 5000)
    assert page.blobs == (BODY[100:5000],)
    assert page.total_bytes == len(BODY)
    assert page.mime_type == "audio/mpeg"


async def test_pages_joined_are_the_resource_and_past_its_end_is_the_proof_of_the_end() -> None:
    got = b""
    async with client(ranged) as http:
        reader = HttpRangeReader(http, URL)
        while len(got) < len(BODY):
            (blob,) = (await reader(len(got), len(got) + 3000)).blobs
            assert isinstance(blob, bytes)
            got += blob
        with pytest.raises(errors.RangePastEndError):
            await reader(len(got), len(got) + 3000)
    assert got == BODY


async def test_an_origin_that_ignores_ranges_gives_its_whole_body_at_offset_zero_and_never_again() -> None:
    assert await read(whole, 0, 100) == BODY
    assert await read(whole, 100, 300) == BODY[100:300]
    assert await read(whole, len(BODY) - 5, len(BODY) + 100) == BODY[-5:]
    with pytest.raises(errors.RangePastEndError):
        await read(whole, len(BODY), len(BODY) + 100)


async def test_a_whole_body_without_a_length_is_cut_all_the_same() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(BODY), 333):
            yield BODY[at : at + 333]

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=chunks())

    assert await read(answer, 1000, 2000) == BODY[1000:2000]
    assert await read(answer, 0, 10) == BODY
    with pytest.raises(errors.RangePastEndError):
        await read(answer, len(BODY) + 1, len(BODY) + 2)


async def test_without_the_caller_s_leave_a_whole_body_is_cut_also_at_offset_zero() -> None:
    async with client(whole) as http:
        assert (await fetch_range(http, URL, 0, 10)).body == BODY[:10]


async def test_a_body_longer_than_a_block_may_be_stops_at_the_limit() -> None:
    drawn = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal drawn
        while True:
            drawn += 1
            yield bytes(1000)

    with pytest.raises(errors.LimitError) as caught:
        await read(lambda _: httpx2.Response(200, content=endless()), 0, 10, limits=Limits(block_bytes=5000))
    assert caught.value.limit == "block_bytes"
    assert drawn == 6
    with pytest.raises(errors.LimitError):
        await read(whole, 0, 10, limits=Limits(block_bytes=5000))


@pytest.mark.parametrize(
    ("answer", "error", "word"),
    [
        (status(500), errors.HttpStatusError, "500"),
        (status(503), errors.HttpStatusError, "503"),
        (status(408), errors.HttpStatusError, "408"),
        (status(425), errors.HttpStatusError, "425"),
        (status(429), errors.HttpStatusError, "429"),
        (status(404), errors.HttpRefusedError, "404"),
        (status(410), errors.HttpRefusedError, "410"),
        (status(401), errors.AccessDeniedError, "401"),
        (status(403), errors.AccessDeniedError, "403"),
        (status(304), errors.HttpRefusedError, "304"),
        (status(206), errors.ProtocolError, "Content-Range"),
        (status(206, content_range="bytes 9-3/100"), errors.ProtocolError, "Content-Range"),
        (status(206, content_range="bytes 7-16/100"), errors.RangeNotHonouredError, "asked for byte 5"),
        (status(206, content_range="bytes 5-24/100"), errors.ConnectionLostError, "promised 20"),
        (status(416, content_range="bytes */100"), errors.ProtocolError, "100 bytes"),
        (status(416), errors.RangePastEndError, "416"),
        (status(200, content_encoding="gzip"), errors.ProtocolError, "gzip"),
    ],
)
async def test_every_other_answer_has_its_own_error(
    answer: Answer, error: type[errors.PlayheadError], word: str
) -> None:
    with pytest.raises(error, match=word) as caught:
        await read(answer, 5, 15)
    assert type(caught.value) is error


async def test_the_status_and_what_the_origin_asks_to_wait_are_data() -> None:
    with pytest.raises(errors.HttpStatusError) as busy:
        await read(status(503, retry_after="12"), 5, 15)
    assert (busy.value.status, busy.value.retry_after_seconds) == (503, 12.0)
    with pytest.raises(errors.HttpRefusedError) as gone:
        await read(status(410), 5, 15)
    assert gone.value.status == 410


async def test_each_piece_of_a_body_is_noted_when_it_arrives(autojump_clock: MockClock) -> None:
    arrivals = Arrivals()
    seen: list[float] = []

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, 30, 10):
            await trio.sleep(5)
            yield BODY[at : at + 10]
            seen.append(arrivals.last_received())

    def answer(_: httpx2.Request) -> httpx2.Response:
        headers = {"content-range": f"bytes 0-29/{len(BODY)}"}
        return httpx2.Response(206, headers=headers, content=pieces())

    async with client(answer) as http:
        began = trio.current_time()
        await HttpRangeReader(http, URL, arrivals=arrivals)(0, 30)
    assert [at - began for at in seen] == pytest.approx([5, 10, 15])


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (httpx2.ConnectError("refused"), errors.ConnectError),
        (httpx2.ConnectTimeout(""), errors.ConnectError),
        (httpx2.ReadTimeout(""), errors.DeadlineError),
        (httpx2.ReadError(""), errors.ConnectionLostError),
        (httpx2.RemoteProtocolError("cut off"), errors.ConnectionLostError),
        (httpx2.TooManyRedirects("6"), errors.ProtocolError),
    ],
)
async def test_a_failed_connection_is_told_by_what_failed(
    cause: Exception, error: type[errors.PlayheadError]
) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        raise cause

    with pytest.raises(error):
        await read(answer, 0, 10)


async def test_a_resource_that_changes_between_pages_is_refused() -> None:
    tags = iter(['"v1"', '"v1"', '"v2"'])
    asked: list[str | None] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers.get("if-range"))
        return ranged(request, etag=next(tags))

    async with client(answer) as http:
        reader = HttpRangeReader(http, URL)
        await reader(0, 10)
        await reader(10, 20)
        with pytest.raises(errors.ContradictionError) as caught:
            await reader(20, 30)
    assert caught.value.offset == 20
    assert asked == [None, '"v1"', '"v1"']


async def test_no_compression_is_asked_for() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["accept-encoding"] == "identity"
        return ranged(request)

    await read(answer, 0, 10)


async def test_a_cancelled_read_closes_its_connection() -> None:
    async with raw_origin(says_nothing) as origin, httpx2.AsyncClient() as http:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch_range, http, origin.url, 0, 10)
            await origin.asked.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            await origin.closed.wait()
