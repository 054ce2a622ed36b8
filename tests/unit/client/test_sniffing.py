"""Links that say nothing of themselves: a look at their first bytes, bounded in every way."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing
from mcp.server.mcpserver import MCPServer
from mcp_types import ResourceLink

from playhead.client import CallResult, Session, connect
from playhead.content.audio import is_playable_audio
from playhead.limits import Limits
from playhead.results.plan import KeepReference, Policy
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.sample import link, sample_server


async def reads(session: Session) -> list[str]:
    found: list[str] = json.loads((await session.call_tool("what_was_read")).text)
    return found


def reason_of(result: CallResult, index: int) -> str:
    item = result.plan.dispositions[index]
    assert isinstance(item, KeepReference)
    return item.reason


@pytest.mark.parametrize(
    ("head", "sound"),
    [
        (b"RIFF\x24\x08\x00\x00WAVEfmt ", True),
        (b"ID3\x04" + bytes(60), True),
        (b"\xff\xfb\x90\x64" + bytes(60), True),
        (b"\x00\x00\x00\x20ftypM4A \x00\x00\x02\x00", True),
        (b"\x00\x00\x00\x20ftypisom\x00\x00\x02\x00", False),
        (b"\x1aE\xdf\xa3" + bytes(60), False),
        ("\ufeffwords in UTF-16".encode("utf-16-le"), False),
        (b"words, words", False),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), False),
        (b"", False),
    ],
)
def test_a_link_whose_first_bytes_can_only_be_audio_is_played(head: bytes, sound: bool) -> None:
    assert is_playable_audio(head) is sound


@pytest.mark.requirement("TR-37")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_link_without_a_type_is_identified_by_its_first_bytes(mode: str) -> None:
    async with connect(sample_server(), mode=mode) as session:
        names = ("flac", "notes", "wave")
        result = await session.call_tool("links", {"uris": [f"resource://plain/{name}" for name in names]})
        assert [item.title for item in result.media] == ["flac", "wave"]
        assert [item.title for item in result.links] == ["flac", "notes", "wave"]
        assert result.turn.decision == "stop"
        assert set(await reads(session)) == set(names)


async def test_a_link_with_a_label_is_not_read() -> None:
    async with connect(sample_server()) as session:
        result = await session.call_tool("mixed")
        assert len(result.links) == 2
        assert await reads(session) == []


async def test_sniffing_can_be_switched_off() -> None:
    quiet = Policy(sniff_links=False)
    async with connect(sample_server(), policy=quiet) as session:
        result = await session.call_tool("links", {"uris": ["resource://plain/flac"]})
        assert (result.media, len(result.links), result.turn.decision) == ((), 1, "continue")
        assert await reads(session) == []


@pytest.mark.requirement("TR-38")
async def test_a_link_that_can_not_be_read_stays_a_link_with_the_reason() -> None:
    async with connect(sample_server()) as session:
        uris = ["resource://elsewhere/flac", "resource://plain/flac"]
        result = await session.call_tool("links", {"uris": uris})
        assert [item.uri for item in result.media] == uris[1:]
        assert [item.uri for item in result.links] == uris
        assert "could not be read" in reason_of(result, 0)


async def test_only_so_many_links_of_a_result_are_looked_at() -> None:
    async with connect(sample_server(), limits=Limits(candidates=2)) as session:
        result = await session.call_tool("links", {"uris": ["resource://plain/flac"] * 5})
        assert (len(result.media), len(result.links)) == (2, 5)
        assert "Limits.candidates" in reason_of(result, 4)


def one_link() -> dict[str, object]:
    block = {"type": "resource_link", "uri": "x:song", "name": "song"}
    return {"content": [block], "isError": False}


async def test_a_server_that_keeps_silent_costs_a_stated_time(autojump_clock: trio.testing.MockClock) -> None:
    async def handle(exchange: Exchange) -> None:
        if exchange.method == "tools/call":
            await exchange.result(one_link())
        elif exchange.method == "resources/read":
            await trio.sleep_forever()
        else:
            await exchange.error(-32601, "Method not found")

    limits = Limits(sniff_seconds=3)
    async with raw_http(handle) as server, connect(server.url, mode="legacy", limits=limits) as session:
        began = trio.current_time()
        result = await session.call_tool("x")
        assert "within 3 s" in reason_of(result, 0)
        assert 3 <= trio.current_time() - began < 4


async def test_cancelling_a_call_that_looks_leaves_nothing_running() -> None:
    asked, cancelled = trio.Event(), trio.Event()
    server: MCPServer = MCPServer("slow", log_level="CRITICAL")

    @server.tool()
    def song() -> list[ResourceLink]:
        return [link("resource://slow/song")]

    @server.resource("resource://slow/{name}")
    async def slow(name: str) -> bytes:
        asked.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with connect(server) as session:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.call_tool, "song")
                await asked.wait()
                nursery.cancel_scope.cancel()
            await cancelled.wait()
