"""A form that the server refuses, or whose listing is late, makes room for the next one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from playhead.client import ResourceMedia, Session, connect
from playhead.errors import DeadlineError
from playhead.stream.options import StreamOptions
from tests.servers.moods import Mood, RpcError, truth
from tests.servers.moody_server import Form, MoodyHost
from tests.unit.raw_server import RawServer

PIECE = Mood(size_bytes=300_000, delay_seconds=0.05)


class MoodyInProcess(RawServer):
    """A moody host behind memory streams, so that a simulated clock runs the whole session."""

    def __init__(self, *, honours: Form, offers: Form, listing_seconds: float = 0) -> None:
        super().__init__({}, capabilities={"tools": {}, "resources": {}})
        self.listing_seconds = listing_seconds
        self.host = MoodyHost(moods={"piece": PIECE}, honours=honours, offers=offers, log=None)

    async def _answer(self, request: JSONRPCRequest, write_stream: Any) -> None:
        params = request.params or {}
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


@asynccontextmanager
async def session_and_link(
    honours: Form, offers: Form = "both", *, listing_seconds: float = 0
) -> AsyncIterator[tuple[Session, ResourceMedia]]:
    server = MoodyInProcess(honours=honours, offers=offers, listing_seconds=listing_seconds)
    async with connect(server) as session:
        (link,) = (await session.call_tool("link")).links
        yield session, link


@pytest.mark.parametrize(
    ("honours", "offers", "listing_seconds", "named"),
    [
        pytest.param("uri-template", "both", 0, None, id="the template is refused"),
        pytest.param("arguments", "both", 0, None, id="the arguments are refused"),
        pytest.param("arguments", "uri-template", 0, None, id="a form that nothing announces"),
        pytest.param("uri-template", "both", 20, "uri-template", id="a named form waits for its listing"),
        pytest.param("uri-template", "both", 8, None, id="templates that arrive late are a second chance"),
    ],
)
async def test_a_form_that_is_refused_makes_room_for_one_that_works(
    autojump_clock: trio.testing.MockClock,
    honours: Form,
    offers: Form,
    listing_seconds: float,
    named: str | None,
) -> None:
    async with (
        session_and_link(honours, offers, listing_seconds=listing_seconds) as (session, link),
        session.open(link, options=StreamOptions(strategy=named)) as stream,
    ):
        assert await stream.read_all() == truth(PIECE)
        statistics = stream.statistics()
    assert statistics.strategy == honours
    if listing_seconds and named is None:
        assert "refused before: arguments (-32602" in statistics.strategy_reason


async def test_a_strategy_whose_listing_never_comes_fails_with_the_error_of_the_listing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with session_and_link("uri-template", listing_seconds=3600) as (session, link):
        with pytest.raises(DeadlineError, match="resources/templates/list"):
            async with session.open(link, options=StreamOptions(strategy="uri-template")):
                pass


async def test_without_a_named_strategy_reading_starts_before_a_slow_listing_has_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with session_and_link("both", listing_seconds=20) as (session, link):
        before = trio.current_time()
        async with session.open(link) as stream:
            await stream.receive_some(1)
            assert stream.statistics().strategy == "arguments"
    assert trio.current_time() - before <= 2.5
