"""Streams of one session share the reads in flight of one resource."""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from mcp_types import JSONRPCRequest
from trio.testing import wait_all_tasks_blocked

from playhead.client import Session, connect
from playhead.client.session.arrivals import Arrivals
from playhead.client.session.shared_reads import SessionReads, SharedReads
from playhead.errors import ClosedError, ServerError
from playhead.stream.answer import Page
from playhead.stream.in_flight import READ_SCOPE
from playhead.stream.options import StreamOptions
from tests.unit.raw_server import RawServer

DATA = random.Random(17).randbytes(200_000)
PARAMS = StreamOptions(strategy="params")


# --- by itself ----------------------------------------------------------------------------------------------


class HeldReads:
    """Counts the reads that are sent, and answers them when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []
        self.cancelled = self.running = 0
        self.may_answer = trio.Event()
        self.error: ServerError | None = None
        self.too_long = 0

    async def send(self, start: int, end: int, _: Arrivals) -> Page:
        self.sent.append((start, end))
        self.running += 1
        try:
            for _look in range(3):  # a socket looks for a cancellation before it waits
                await trio.lowlevel.checkpoint_if_cancelled()
                await trio.lowlevel.cancel_shielded_checkpoint()
            await self.may_answer.wait()
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error
        return Page(blobs=(base64.b64encode(DATA[start : end + self.too_long]).decode(),))


class Readers:
    """Streams of one session."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.held = HeldReads()
        self.session = SessionReads(cache=None, server=None, credentials=None)
        self.pages: dict[int, Page | BaseException] = {}

    def stream(self, resource: str = "x") -> SharedReads:
        return SharedReads(self.held.send, session=self.session, resource=resource, arrivals=Arrivals())

    def start(
        self, number: int, start: int, end: int, *, stream: SharedReads | None = None
    ) -> trio.CancelScope:
        scope = trio.CancelScope()
        self._nursery.start_soon(self._read, scope, number, start, end, stream or self.stream())
        return scope

    async def begin(
        self, number: int, start: int, end: int, *, stream: SharedReads | None = None
    ) -> trio.CancelScope:
        """Start, and wait until all that can run has run."""
        scope = self.start(number, start, end, stream=stream)
        await wait_all_tasks_blocked()
        return scope

    async def answer(self) -> None:
        self.held.may_answer.set()
        await wait_all_tasks_blocked()

    async def _read(
        self, scope: trio.CancelScope, number: int, start: int, end: int, stream: SharedReads
    ) -> None:
        READ_SCOPE.set(scope)
        with scope:
            try:
                self.pages[number] = await stream(start, end)
            except (ServerError, ClosedError) as error:
                self.pages[number] = error

    def bytes_of(self, number: int) -> bytes:
        page = self.pages[number]
        assert isinstance(page, Page)
        return b"".join(blob if isinstance(blob, bytes) else base64.b64decode(blob) for blob in page.blobs)


@asynccontextmanager
async def readers() -> AsyncIterator[Readers]:
    async with trio.open_nursery() as nursery:
        yield Readers(nursery)
        nursery.cancel_scope.cancel()


async def test_a_range_in_flight_is_read_once() -> None:
    async with readers() as them:
        for number in range(5):
            them.start(number, 1000, 9000)
        await wait_all_tasks_blocked()
        assert them.held.sent == [(1000, 9000)]
        await them.answer()
        assert [them.bytes_of(number) for number in range(5)] == [DATA[1000:9000]] * 5


async def test_a_read_that_is_over_is_not_shared() -> None:
    async with readers() as them:
        them.held.may_answer.set()
        await them.begin(1, 0, 10)
        await them.begin(2, 0, 10)
        assert them.held.sent == [(0, 10), (0, 10)]


async def test_other_resources_and_other_offsets_are_read() -> None:
    async with readers() as them:
        them.start(1, 0, 10)
        them.start(2, 0, 10, stream=them.stream("y"))
        await them.begin(3, 5, 10)
        assert len(them.held.sent) == 3


@pytest.mark.parametrize("end", [1001, 1002, 1003, 5000, 8999])
async def test_a_shorter_range_is_cut_from_a_longer_one(end: int) -> None:
    async with readers() as them:
        await them.begin(1, 1000, 9000)
        await them.begin(2, 1000, end)
        await them.answer()
        assert them.held.sent == [(1000, 9000)]
        assert them.bytes_of(2) == DATA[1000:end]


async def test_a_longer_range_is_read_by_itself() -> None:
    async with readers() as them:
        await them.begin(1, 0, 100)
        await them.begin(2, 0, 101)
        assert them.held.sent == [(0, 100), (0, 101)]


async def test_an_answer_of_another_length_is_given_as_it_is() -> None:
    async with readers() as them:
        them.held.too_long = 7
        await them.begin(1, 0, 100)
        await them.begin(2, 0, 50)
        await them.answer()
        assert them.bytes_of(1) == them.bytes_of(2) == DATA[:107], "its length is evidence for each reader"


async def test_a_second_read_of_one_stream_is_sent() -> None:
    async with readers() as them:
        stream = them.stream()
        await them.begin(1, 0, 10, stream=stream)
        await them.begin(2, 0, 10, stream=stream)
        assert them.held.sent == [(0, 10), (0, 10)], "a hedge that waits for the late read is none"


async def test_a_cancelled_reader_does_not_cancel_the_read_of_the_others() -> None:
    async with readers() as them:
        first = await them.begin(1, 0, 10)
        await them.begin(2, 0, 10)
        first.cancel()
        await wait_all_tasks_blocked()
        assert them.held.cancelled == 0
        await them.answer()
        assert them.bytes_of(2) == DATA[:10]
        assert 1 not in them.pages


async def test_the_read_is_cancelled_with_its_last_reader() -> None:
    async with readers() as them:
        scopes = [them.start(number, 0, 10) for number in range(3)]
        await wait_all_tasks_blocked()
        for scope in scopes:
            scope.cancel()
        await wait_all_tasks_blocked()
        assert them.held.cancelled == 1
        await them.begin(4, 0, 10)
        assert len(them.held.sent) == 2, "the cancelled read is not waited for"


async def test_an_error_reaches_every_reader() -> None:
    async with readers() as them:
        them.held.error = ServerError("no", code=-32603)
        them.start(1, 0, 10)
        them.start(2, 0, 10)
        await them.answer()
        assert them.pages == {1: them.held.error, 2: them.held.error}


async def test_a_read_that_was_just_cancelled_is_not_waited_for() -> None:
    async with readers() as them:
        first = await them.begin(1, 0, 10)
        them.start(2, 0, 10)
        first.cancel()  # noticed after the second reader has found the read
        await wait_all_tasks_blocked()
        await them.answer()
        assert them.bytes_of(2) == DATA[:10]
        assert them.held.cancelled == len(them.held.sent) - 1


async def test_nothing_outlives_the_session() -> None:
    async with readers() as them:
        first = await them.begin(1, 0, 10)
        await them.begin(2, 0, 10)
        first.cancel()
    assert them.held.cancelled == 1


async def test_the_bytes_of_a_shared_answer_are_noticed_by_every_stream() -> None:
    session = SessionReads(cache=None, server=None, credentials=None)
    may_answer = trio.Event()

    async def send(start: int, end: int, arrivals: Arrivals) -> Page:
        arrivals.note(12.5)
        await may_answer.wait()
        arrivals.note(13.5)
        return Page(blobs=())

    streams = [SharedReads(send, session=session, resource="x", arrivals=Arrivals()) for _ in range(3)]
    async with trio.open_nursery() as nursery:
        for stream in streams:
            nursery.start_soon(stream, 0, 10)
        await wait_all_tasks_blocked()
        assert [stream.arrivals.last_received() for stream in streams] == [12.5] * 3
        may_answer.set()
    assert [stream.arrivals.last_received() for stream in streams] == [13.5] * 3


@pytest.mark.parametrize("seed", range(40))
async def test_whichever_stream_is_cancelled_the_others_get_their_pages(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams read the same few ranges, and are cancelled, in an order that the seed draws."""
    draw = random.Random(seed)
    monkeypatch.setattr("trio._core._run._r", random.Random(seed))  # it shuffles each batch of tasks
    async with readers() as them:
        wanted: dict[int, tuple[int, int]] = {}
        scopes: dict[int, trio.CancelScope] = {}
        for number in range(30):
            match draw.randrange(5):
                case 0 if scopes:
                    scopes.pop(draw.choice(sorted(scopes))).cancel()
                case 1:
                    await them.answer()
                    them.held.may_answer = trio.Event()
                case _:
                    start = draw.choice([0, 1000])
                    wanted[number] = start, start + draw.choice([9, 99, 999])
                    scopes[number] = them.start(number, *wanted[number])
            for _ in range(draw.randrange(4)):
                await trio.lowlevel.checkpoint()
        await them.answer()
        assert {number: them.bytes_of(number) for number in scopes} == {
            number: DATA[slice(*wanted[number])] for number in scopes
        }
        assert them.session.in_flight == {}
        assert them.held.running == 0


# --- in a session -------------------------------------------------------------------------------------------


class HeldServer(RawServer):
    """Serves `DATA` by `offset` and `length`, once the test lets it."""

    def __init__(self) -> None:
        super().__init__({"resources/read": self.read}, capabilities={"resources": {}})
        self.reads: list[tuple[int, int]] = []
        self.may_answer = trio.Event()

    async def _answer(self, request: JSONRPCRequest, write_stream: Any) -> None:
        if request.method == "resources/read":
            params = request.params or {}
            self.reads.append((params["offset"], params["length"]))
            await self.may_answer.wait()
        await super()._answer(request, write_stream)

    def read(self, params: Mapping[str, Any]) -> dict[str, Any]:
        part = DATA[params["offset"] : params["offset"] + params["length"]]
        return {"contents": [{"uri": params["uri"], "blob": base64.b64encode(part).decode()}]}


async def whole(session: Session, uri: str, found: list[bytes]) -> None:
    async with session.media(uri).open(PARAMS) as stream:
        found.append(await stream.read_all())


async def test_streams_of_one_resource_share_their_first_reads() -> None:
    server, found = HeldServer(), list[bytes]()
    async with connect(server, mode="legacy") as session, trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(whole, session, "x:piece", found)
        await wait_all_tasks_blocked()
        assert len(server.reads) == len(set(server.reads)) == 3, "the first burst of one stream"
        server.may_answer.set()
    assert found == [DATA] * 4


async def test_a_stream_that_is_closed_takes_no_page_from_another() -> None:
    server, found = HeldServer(), list[bytes]()
    async with connect(server, mode="legacy") as session, trio.open_nursery() as nursery:
        async with session.media("x:piece").open(PARAMS):
            await wait_all_tasks_blocked()
            nursery.start_soon(whole, session, "x:piece", found)
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        reads = len(server.reads)
        server.may_answer.set()
    assert reads == 3, "the second stream waits for the reads of the first"
    assert found == [DATA]


async def test_streams_of_other_resources_share_nothing() -> None:
    server, found = HeldServer(), list[bytes]()
    async with connect(server, mode="legacy") as session, trio.open_nursery() as nursery:
        nursery.start_soon(whole, session, "x:one", found)
        nursery.start_soon(whole, session, "x:two", found)
        await wait_all_tasks_blocked()
        assert len(server.reads) == 6
        server.may_answer.set()
    assert found == [DATA] * 2


async def test_a_stream_that_outlives_its_session_is_closed() -> None:
    server = HeldServer()
    server.may_answer.set()
    async with connect(server, mode="legacy") as session:
        media = session.media("x:piece")
    with pytest.raises(ClosedError, match=r"the session with .* was closed"):
        async with media.open(PARAMS) as stream:
            await stream.read_all()
