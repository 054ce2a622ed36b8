"""Byte ranges over HTTP: what each kind of answer means."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpcore2
import httpx2
import pytest
import trio
from trio.testing import MockClock

from playhead import errors
from playhead.client.session.arrivals import Arrivals
from playhead.client.session.downloads import Download
from playhead.client.session.http_range import ResourceVersion, fetch_range
from playhead.client.session.http_range_reader import HttpRangeReader
from playhead.client.transports.http_client import HttpClient
from playhead.limits import Limits
from tests.servers.answering_network import Answer, answering_client
from tests.servers.raw_origin import raw_origin, says_nothing

URL = "https://music.example/song.mp3"
BODY = bytes(range(256)) * 40


def bounds(request: httpx2.Request) -> tuple[int, int]:
    first, last = request.headers["range"].removeprefix("bytes=").split("-")
    return int(first), int(last) + 1


def ranged(request: httpx2.Request, *, etag: str = '"v1"', body: bytes = BODY) -> httpx2.Response:
    start, end = bounds(request)
    if start >= len(body):
        return httpx2.Response(416, headers={"content-range": f"bytes */{len(body)}"})
    part = body[start:end]
    place = f"bytes {start}-{start + len(part) - 1}/{len(body)}"
    headers = {"content-range": place, "etag": etag, "content-type": "audio/mpeg"}
    return httpx2.Response(206, headers=headers, content=part)


def whole(_: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, content=BODY)


def status(code: int, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 10

    return lambda _: httpx2.Response(code, headers=named, content=body())


client = answering_client


@asynccontextmanager
async def reading(
    answer: Answer, url: str | Callable[[], Awaitable[Download]], **how: Any
) -> AsyncIterator[HttpRangeReader]:
    async with client(answer) as http, aclosing(HttpRangeReader(http, url, **how)) as reader:
        yield reader


async def read(answer: Answer, start: int, end: int) -> bytes:
    async with reading(answer, URL) as reader:
        return await page(reader, start, end)


async def page(reader: HttpRangeReader, start: int, end: int) -> bytes:
    return b"".join(blob for blob in (await reader(start, end)).blobs if isinstance(blob, bytes))


async def test_a_partial_answer_is_the_page_with_the_total_and_the_type() -> None:
    async with reading(ranged, URL) as reader:
        found = await reader(100, 5000)
    assert found.blobs == (BODY[100:5000],)
    assert found.total_bytes == len(BODY)
    assert found.mime_type == "audio/mpeg"


async def test_without_a_total_the_read_past_the_end_is_the_proof_of_the_end() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        found = ranged(request)
        found.headers["content-range"] = found.headers["content-range"].replace(f"/{len(BODY)}", "/*")
        return found

    got = b""
    async with reading(answer, URL) as reader:
        while len(got) < len(BODY):
            got += await page(reader, len(got), len(got) + 3000)
        with pytest.raises(errors.RangePastEndError):
            await reader(len(got), len(got) + 3000)
    assert got == BODY


async def test_an_origin_that_ignores_ranges_is_read_from_its_whole_body() -> None:
    assert await read(whole, 0, 100) == BODY[:100]
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
    assert await read(answer, 0, 10) == BODY[:10]
    with pytest.raises(errors.RangePastEndError):
        await read(answer, len(BODY) + 1, len(BODY) + 2)


async def test_the_end_of_a_whole_body_without_a_length_is_the_total() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield BODY

    async with reading(lambda _: httpx2.Response(200, content=chunks()), URL) as reader:
        found = await reader(0, len(BODY) + 1)
    assert found.total_bytes == len(BODY)


async def test_one_range_is_cut_out_of_a_whole_body() -> None:
    async with client(whole) as http:
        assert (await fetch_range(http, URL, 10, 20)).body == BODY[10:20]


async def test_a_range_longer_than_a_block_is_not_read() -> None:
    async with client(ranged) as http:
        with pytest.raises(errors.LimitError) as caught:
            await fetch_range(http, URL, 0, 6000, limits=Limits(block_bytes=5000))
        assert (caught.value.limit, caught.value.got) == ("block_bytes", 6000)
        assert len((await fetch_range(http, URL, 5000, 9000, limits=Limits(block_bytes=5000))).body) == 4000
    async with client(whole) as http:
        with pytest.raises(errors.LimitError):  # what is before the range would have to be read, too
            await fetch_range(http, URL, 5000, 9000, limits=Limits(block_bytes=5000))


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
        (status(206, content_range="bytes 5-100/100"), errors.ProtocolError, "past its own total"),
        (status(206, content_range="bytes 5-9/100"), errors.ProtocolError, "sent more"),
        (status(206, content_range="bytes 7-16/100"), errors.RangeNotHonouredError, "asked for byte 5"),
        (
            status(206, content_range="bytes 5-24/100"),
            errors.ConnectionLostError,
            "promised the bytes up to 25",
        ),
        (status(416, content_range="bytes */100"), errors.ProtocolError, "100 bytes"),
        (status(416), errors.RangePastEndError, "416"),
        (status(200, content_encoding="gzip"), errors.ProtocolError, "gzip"),
        (status(302, location="/again"), errors.ProtocolError, "5 redirects"),
    ],
)
async def test_every_other_answer_has_its_own_error(
    answer: Answer, error: type[errors.PlayheadError], word: str
) -> None:
    with pytest.raises(error, match=word) as caught:
        await read(answer, 5, 25)
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
        reader = HttpRangeReader(http, URL, arrivals=arrivals)
        await reader(0, 20)
        await reader(20, 30)
    assert [at - began for at in seen] == pytest.approx([5, 10, 15])


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (httpcore2.ConnectError("refused"), errors.ConnectError),
        (httpcore2.ConnectTimeout(""), errors.ConnectError),
        (httpcore2.ReadTimeout(""), errors.DeadlineError),
        (httpcore2.ReadError(""), errors.ConnectionLostError),
        (httpcore2.RemoteProtocolError("cut off"), errors.ConnectionLostError),
    ],
)
async def test_a_failed_connection_is_reported_with_its_cause(
    cause: Exception, error: type[errors.PlayheadError]
) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        raise cause

    with pytest.raises(error):
        await read(answer, 0, 10)


async def test_no_compression_is_asked_for() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["accept-encoding"] == "identity"
        return ranged(request)

    await read(answer, 0, 10)


async def test_messages_show_no_query_value_of_a_signed_url() -> None:
    async with client(status(404)) as http:
        with pytest.raises(errors.HttpRefusedError) as caught:
            await fetch_range(http, f"{URL}?signature=canary", 0, 10)
    assert "canary" not in str(caught.value)
    assert "signature=" in str(caught.value)


async def test_a_cancelled_read_closes_its_connection() -> None:
    async with raw_origin(says_nothing) as origin, HttpClient() as http:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch_range, http, origin.url, 0, 10)
            await origin.asked.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(5):
            await origin.closed.wait()


# --- versions ---------------------------------------------------------------------------------------------

MONDAY, TUESDAY = "Mon, 05 Jan 2026 10:00:00 GMT", "Tue, 06 Jan 2026 10:00:00 GMT"


def version(*, is_partial: bool = True, total_bytes: int | None = None, **headers: str) -> ResourceVersion:
    named = httpx2.Headers({name.replace("_", "-"): value for name, value in headers.items()})
    return ResourceVersion.of(named, total_bytes=total_bytes, is_partial=is_partial)


@pytest.mark.parametrize(
    ("found", "if_range"),
    [
        (version(etag='"a"', last_modified=MONDAY, date=TUESDAY), '"a"'),
        (version(etag='W/"a"', last_modified=MONDAY, date=TUESDAY), MONDAY),
        (version(last_modified=MONDAY, date=MONDAY), None),
        (version(last_modified=MONDAY), None),
        (version(last_modified="yesterday", date=TUESDAY), None),
        (version(last_modified="Mon, 01 Jan 99999999999999999999 00:00:00 GMT", date=TUESDAY), None),
        (version(last_modified=MONDAY, date=TUESDAY.replace("GMT", "+99999999999999")), None),
        (version(etag='W/"a"'), None),
    ],
)
def test_a_range_is_conditional_on_a_strong_validator_only(
    found: ResourceVersion, if_range: str | None
) -> None:
    assert found.if_range == if_range


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        (version(etag='"a"'), version(etag='"b"'), 'entity tag "b" in place of "a"'),
        (version(etag='W/"a"'), version(etag='W/"b"'), "entity tag"),
        (version(last_modified=MONDAY), version(last_modified=TUESDAY), "Last-Modified"),
        (version(etag='W/"a"', last_modified=MONDAY), version(last_modified=TUESDAY), "Last-Modified"),
        (version(total_bytes=5), version(total_bytes=6), "total bytes 6 in place of 5"),
        (version(etag='"a"', total_bytes=5), version(etag='"a"', total_bytes=6), "total bytes"),
        (version(), version(is_partial=False), "HTTP 200"),
        (version(etag='"a"'), version(is_partial=False), "HTTP 200"),
    ],
)
def test_two_versions_are_distinguished(first: ResourceVersion, second: ResourceVersion, word: str) -> None:
    with pytest.raises(errors.ResourceChangedError, match=word) as caught:
        first.joined(second, url=URL, start=7)
    assert caught.value.offset == 7


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (version(etag='"a"', last_modified=MONDAY), version(etag='"a"', last_modified=TUESDAY)),
        (version(etag='W/"a"'), version(etag='"a"')),
        (version(etag='"a"', total_bytes=5), version()),
        (version(etag='"a"'), version(etag='"a"', is_partial=False)),
        (version(is_partial=False), version(is_partial=False)),
        (version(is_partial=False), version()),
    ],
)
def test_answers_that_may_be_of_one_version_are_joined(
    first: ResourceVersion, second: ResourceVersion
) -> None:
    joined = first.joined(second, url=URL, start=7)
    assert joined.if_range == (first.if_range or second.if_range)
    assert joined.total_bytes == (first.total_bytes or second.total_bytes)
