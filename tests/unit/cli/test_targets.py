"""The media that `playhead play` and `playhead read` choose from a tool's result."""

from __future__ import annotations

import pytest

from playhead.cli.parameters import GivenArguments
from playhead.cli.targets import (
    arguments_for,
    call_tool,
    connected,
    find_media,
    limits_for,
    options_for,
    stream_options,
)
from playhead.cli.terminal import Terminal
from playhead.client import connect
from playhead.config.servers import ServerConfig
from playhead.errors import ProtocolError, ServerError, ToolFailedError, UsageError
from playhead.limits import DEFAULT_LIMITS
from playhead.stream.options import StreamEvent
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.sample import sample_server

TERMINAL = Terminal(json_output=True)


@pytest.mark.parametrize(
    ("is_played", "names", "expected"),
    [
        (False, ("notes", "flac", "wave"), ("notes", "flac", "wave")),
        (True, ("notes", "flac", "wave"), ("flac", "wave")),
        (True, ("notes", "notes"), ("notes",)),
    ],
)
async def test_play_takes_all_audio_in_order_or_else_the_first_item_and_read_takes_every_item(
    is_played: bool, names: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    uris = GivenArguments(values={"uris": [f"resource://plain/{name}" for name in names]})
    async with connect(sample_server()) as session:
        media = await find_media(session, "links", uris, TERMINAL, playable=is_played)
        assert [each.uri for each in media] == [f"resource://plain/{name}" for name in expected]


async def test_an_answer_without_anything_to_open_says_what_came() -> None:
    async with connect(sample_server()) as session:
        with pytest.raises(ProtocolError, match=r"a resource link or a blob.*got text"):
            await find_media(session, "what_was_read", GivenArguments(), TERMINAL, playable=False)


async def test_a_uri_takes_no_arguments() -> None:
    async with connect(sample_server()) as session:
        with pytest.raises(UsageError, match="is a URI, which takes no arguments; --arg passes one"):
            await find_media(
                session, "resource://x", GivenArguments(texts={"start": "1"}), TERMINAL, playable=False
            )


async def test_arguments_are_checked_before_the_tool_is_called_and_not_at_all_without_a_listing() -> None:
    async with raw_http(three_tools) as server, connect(server.url, mode="legacy") as session:
        given = GivenArguments(texts={"quary": "1"})
        with pytest.raises(UsageError, match=r"tool 'find' has no argument 'quary'; did you mean 'query'\?$"):
            await find_media(session, "find", given, TERMINAL, playable=True)
        assert "tools/call" not in server.methods
        assert await arguments_for(session, "find", given, force=True) == {"quary": 1}
        assert await arguments_for(session, "find", GivenArguments(texts={"query": "1"})) == {"query": "1"}
        assert await arguments_for(session, "hidden", given) == {"quary": 1}
        listings = server.methods.count("tools/list")
        assert await arguments_for(session, "find", GivenArguments()) == {}
        assert server.methods.count("tools/list") == listings, "nothing to ask about"
    async with raw_http(no_listing) as server, connect(server.url, mode="legacy") as session:
        assert await arguments_for(session, "find", given) == {"quary": 1}


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("fnd", r"-32602: Unknown tool: fnd; did you mean 'find'\?$"),
        ("xylophone", r"Unknown tool: xylophone; `playhead tools` lists the tools$"),
        ("result", r"tool result failed: Unknown tool; `playhead tools` lists the tools$"),
        ("find", r"-32602: Unknown tool: find$"),
    ],
)
async def test_the_error_about_a_tool_that_is_not_listed_names_near_ones(tool: str, said: str) -> None:
    async with raw_http(three_tools) as server, connect(server.url, mode="legacy") as session:
        with pytest.raises((ServerError, ToolFailedError), match=said):
            await call_tool(session, tool, {}, TERMINAL, timeout=None)


async def three_tools(exchange: Exchange) -> None:
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    match exchange.method:
        case "tools/list":
            names = ("find", "sing", "stop")
            await exchange.result({"tools": [{"name": name, "inputSchema": schema} for name in names]})
        case "tools/call" if exchange.message["params"]["name"] == "result":
            text = {"type": "text", "text": "Unknown tool"}
            await exchange.result({"content": [text], "isError": True})
        case "tools/call":
            await exchange.error(-32602, f"Unknown tool: {exchange.message['params']['name']}")
        case _:
            await exchange.result({})


async def no_listing(exchange: Exchange) -> None:
    await exchange.error(-32601, "Method not found")


def nobody(event: StreamEvent) -> None: ...


async def test_what_is_given_goes_before_the_servers_own_settings_and_those_before_the_defaults() -> None:
    async with raw_http(nothing) as server:
        config = ServerConfig(url=server.url, page_size_bytes=4096, in_flight=3, mode="legacy")
        async with connected(config, TERMINAL, timeout=7.0) as session:
            asked = stream_options(in_flight=5, patience=9.0, size="1MB")
            options = options_for(session, asked, profile="save", on_event=nobody)
    assert (options.page_bytes, options.page_bytes_max, options.in_flight) == (4096, 4096, 5)
    assert (options.patience_seconds, options.size_bytes, options.timeout) == (9.0, 10**6, 7.0)
    assert (options.profile, options.on_event) == ("save", nobody)
    assert options.capacity_bytes is None


def test_a_page_size_that_is_given_is_the_largest_page() -> None:
    assert stream_options(page_size="64KiB") == {"page_bytes": 65536, "page_bytes_max": 65536}


def test_timeout_is_the_silence_allowed_to_any_answer() -> None:
    limits = limits_for(5.0)
    assert (limits.connect_seconds, limits.handshake_seconds) == (5.0, 5.0)
    assert (limits.page_seconds, limits.tool_seconds) == (5.0, 5.0)
    assert limits_for(None) == DEFAULT_LIMITS


async def nothing(exchange: Exchange) -> None:
    raise AssertionError(f"asked for {exchange.method}")
