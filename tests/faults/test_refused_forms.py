"""A mistyped URI, and a form that the server refuses: the next form, one more round, then what was tried."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, ResourceLink

from playhead.client import connect
from playhead.errors import DeadlineError, ServerError
from playhead.stream.options import StreamOptions
from tests.servers.moods import Mood, RpcError, truth
from tests.servers.moody_server import PIECES, Form, MoodyHost
from tests.unit.raw_server import RawServer

PIECE = Mood(size_bytes=300_000, delay_seconds=0.05)
MISTYPED = ResourceLink(
    type="resource_link", uri=f"{PIECES}nothing", name="nothing", description="http://127.0.0.1/nothing"
)
FAILS_WITHIN_SECONDS = 3.0


class MoodyInProcess(RawServer):
    """A moody host behind memory streams, so that a simulated clock runs the whole session."""

    def __init__(self, *, honours: Form, offers: Form, listing_seconds: float = 0) -> None:
        super().__init__({}, capabilities={"tools": {}, "resources": {}})
        self.listing_seconds = listing_seconds
        self.host = MoodyHost(moods={"piece": PIECE}, honours=honours, offers=offers, log=None)
        self.reads: list[dict[str, Any]] = []

    async def _answer(self, request: JSONRPCRequest, write_stream: Any) -> None:
        params = request.params or {}
        if request.method == "resources/read":
            self.reads.append(params)
        if request.method == "resources/templates/list":
            await trio.sleep(self.listing_seconds)
        answer = await self.host.answer(request.method, params)
        reply: JSONRPCMessage
        if isinstance(answer, RpcError):
            error = ErrorData(code=answer.code, message=answer.message)
            reply = JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
        else:
            assert isinstance(answer, dict)
            reply = JSONRPCResponse(jsonrpc="2.0", id=request.id, result=answer)
        await write_stream.send(SessionMessage(reply))


@pytest.mark.parametrize("honours", ["uri-template", "arguments"])
async def test_a_form_that_is_refused_makes_room_for_the_next(
    autojump_clock: trio.testing.MockClock, honours: Form
) -> None:
    server = MoodyInProcess(honours=honours, offers="both")
    async with connect(server) as session:
        (link,) = (await session.call_tool("link")).links
        async with session.open(link) as stream:
            assert await stream.read_all() == truth(PIECE)
            assert stream.statistics().strategy == honours


@pytest.mark.parametrize("offers", ["both", "uri-template", "arguments"])
async def test_a_mistyped_uri_fails_within_three_seconds_with_every_form_that_was_tried(
    autojump_clock: trio.testing.MockClock, offers: Form
) -> None:
    server = MoodyInProcess(honours="both", offers=offers)
    async with connect(server) as session:
        await session.list_resource_templates()
        before = trio.current_time()
        mistyped = session.media(f"{PIECES}nothing" if offers == "uri-template" else MISTYPED)
        with pytest.raises(ServerError) as caught:
            async with session.open(mistyped) as stream:
                await stream.read_all()
    assert trio.current_time() - before <= FAILS_WITHIN_SECONDS
    tried = ["uri-template", "arguments"] if offers == "both" else [offers]
    assert all(form in str(caught.value) for form in tried), str(caught.value)
    assert "-32002" in str(caught.value)
    small_reads = 3  # of the forms that nothing announces
    assert len(server.reads) <= 2 * (3 * (len(tried) + 1) + small_reads), (
        "two rounds of each form, with a first burst of three"
    )


async def test_a_form_that_nothing_announces_is_tried_after_a_refusal(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = MoodyInProcess(honours="arguments", offers="uri-template")
    async with connect(server) as session:
        (link,) = (await session.call_tool("link")).links
        async with session.open(link) as stream:
            assert await stream.read_all() == truth(PIECE)
            assert stream.statistics().strategy == "arguments"


async def test_a_strategy_named_by_the_caller_waits_for_the_listing_that_it_needs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = MoodyInProcess(honours="uri-template", offers="both", listing_seconds=20)
    async with connect(server) as session:
        (link,) = (await session.call_tool("link")).links
        async with session.open(link, options=StreamOptions(strategy="uri-template")) as stream:
            assert await stream.read_all() == truth(PIECE)


async def test_a_strategy_whose_listing_never_comes_fails_with_the_error_of_the_listing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = MoodyInProcess(honours="uri-template", offers="both", listing_seconds=3600)
    async with connect(server) as session:
        (link,) = (await session.call_tool("link")).links
        with pytest.raises(DeadlineError, match="resources/templates/list"):
            async with session.open(link, options=StreamOptions(strategy="uri-template")):
                pass


async def test_without_a_named_strategy_reading_starts_before_a_slow_listing_has_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = MoodyInProcess(honours="both", offers="both", listing_seconds=20)
    async with connect(server) as session:
        (link,) = (await session.call_tool("link")).links
        before = trio.current_time()
        async with session.open(link) as stream:
            await stream.receive_some(1)
            assert stream.statistics().strategy == "arguments"
    assert trio.current_time() - before <= 2.5


async def test_templates_that_arrive_late_are_a_second_chance_after_a_refusal(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = MoodyInProcess(honours="uri-template", offers="both", listing_seconds=8)
    async with connect(server) as session:
        (link,) = (await session.call_tool("link")).links
        async with session.open(link) as stream:
            assert await stream.read_all() == truth(PIECE)
            statistics = stream.statistics()
    assert statistics.strategy == "uri-template"
    assert "refused before: arguments (-32602" in statistics.strategy_reason
