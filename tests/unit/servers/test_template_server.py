"""The template server's listings, resources and prompts, and its error codes in each revision."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import trio

from playhead.servers.template import TemplateServerOptions
from playhead.servers.template.resources import MOST_BYTES
from tests.servers.template import Json, Wire, connected, wire

MUSIC = Path(__file__).parents[3] / "python/playhead/servers/audio/music/first-light.mp3"
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
HELLO: Json = {"capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}


# --- listings -----------------------------------------------------------------------------------------


async def listing(wire: Wire, what: str) -> list[list[Json]]:
    """The pages of a listing."""
    method = {"resourceTemplates": "resources/templates/list"}.get(what, f"{what}/list")
    pages, cursor = [], None
    while True:
        result = await wire.result(method, {} if cursor is None else {"cursor": cursor})
        pages.append(result[what])
        cursor = result.get("nextCursor")
        if cursor is None:
            return pages


@pytest.mark.parametrize(
    ("what", "count"), [("tools", 4), ("resources", 27), ("resourceTemplates", 2), ("prompts", 2)]
)
@pytest.mark.parametrize("items", [1, 2, 10, 27])
async def test_a_listing_gives_everything_once_in_pages_of_the_size_asked_for(
    what: str, count: int, items: int
) -> None:
    async with connected(options=TemplateServerOptions(page_items=items)) as wire:
        pages = await listing(wire, what)
    names = [each["name"] for page in pages for each in page]
    assert len(names) == len(set(names)) == count
    assert [len(page) for page in pages[:-1]] == [items] * (len(pages) - 1)
    assert 0 < len(pages[-1]) <= items


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "!!!", "é", base64.b64encode(b"tools:10").decode(), "cmVzb3VyY2VzOjEx", "cmVzb3VyY2VzOjMw"],
)
async def test_a_cursor_that_no_listing_gave_is_refused(cursor: str) -> None:
    async with connected() as wire:
        error = await wire.error("resources/list", {"cursor": cursor})
    assert error["code"] == -32602
    assert "cursor" in error["message"]


# --- resources ----------------------------------------------------------------------------------------


async def test_every_listed_resource_is_read_and_has_the_size_it_was_listed_with() -> None:
    async with connected() as wire:
        for listed in [each for page in await listing(wire, "resources") for each in page]:
            (contents,) = (await wire.result("resources/read", {"uri": listed["uri"]}))["contents"]
            assert (contents["uri"], contents["mimeType"]) == (listed["uri"], listed["mimeType"])
            data = contents["text"].encode() if "text" in contents else base64.b64decode(contents["blob"])
            assert len(data) == listed["size"]


async def read(wire: Wire, uri: str, **beside: Any) -> bytes:
    params = {"uri": uri} | ({"arguments": beside} if beside else {})
    (contents,) = (await wire.result("resources/read", params))["contents"]
    return base64.b64decode(contents["blob"], validate=True)


async def test_the_music_is_the_same_whole_and_in_ranges_and_ends_with_an_empty_blob() -> None:
    whole = MUSIC.read_bytes()
    async with connected() as wire:
        assert await read(wire, "music://first-light") == whole
        got = b""
        for start in range(0, len(whole), 100_000):
            got += await read(wire, f"music://first-light?start={start}&end={start + 100_000}")
        assert got == whole
        assert await read(wire, "music://first-light", start=5, end=25) == whole[5:25]
        assert await read(wire, f"music://first-light?start={len(whole)}&end={len(whole) + 1}") == b""
        assert await read(wire, f"music://first-light?start=1&end={MOST_BYTES * 2}") == whole[1:]


@pytest.mark.parametrize(
    "query", ["start=5&end=5", "start=6&end=5", "start=-1&end=5", "start=0", "end=5", "start=x&end=5",
              "start=0&end=99999999999999999"]
)  # fmt: skip
async def test_a_range_that_is_none_is_refused(query: str) -> None:
    async with connected() as wire:
        error = await wire.error("resources/read", {"uri": f"music://first-light?{query}"})
    assert error["code"] == -32602
    assert "0 <= start < end" in error["message"]


# --- prompts ------------------------------------------------------------------------------------------


async def test_a_prompt_asks_with_its_arguments() -> None:
    async with connected() as wire:
        asked = {"name": "research", "arguments": {"question": " why? ", "depth": "a line"}}
        (message,) = (await wire.result("prompts/get", asked))["messages"]
        assert message["content"]["text"].startswith("Answer this question in a line: why?\n")
        shown = {"name": "explain_page", "arguments": {"page": "opus"}}
        _, page = (await wire.result("prompts/get", shown))["messages"]
        assert page["content"]["resource"]["uri"] == "pages://opus"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("research", {}, "needs the argument question"),
        ("research", {"question": "  "}, "needs the argument question"),
        ("research", {"question": "x" * 501}, "500 are allowed"),
        ("research", {"question": "x", "mood": "y"}, "unknown argument 'mood'; expected question, depth"),
        ("explain_page", {"page": "nothing"}, "resources/list"),
    ],
)
async def test_wrong_arguments_of_a_prompt_are_refused(
    name: str, arguments: dict[str, str], said: str
) -> None:
    async with connected() as wire:
        error = await wire.error("prompts/get", {"name": name, "arguments": arguments})
    assert error["code"] == -32602
    assert said in error["message"]


# --- error codes by revision --------------------------------------------------------------------------


CODES: dict[str, tuple[str, Json, tuple[int, int, int]]] = {
    # method, params: the code in 2024-11-05, until 2025-11-25, since 2026-07-28
    "tool": ("tools/call", {"name": "nothing"}, (-32003, -32602, -32602)),
    "prompt": ("prompts/get", {"name": "nothing"}, (-32004, -32602, -32602)),
    "page": ("resources/read", {"uri": "pages://nothing"}, (-32002, -32002, -32602)),
    "scheme": ("resources/read", {"uri": "file:///etc/passwd"}, (-32002, -32002, -32602)),
    "completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "research"}, "argument": {"name": "depth", "value": ""}},
        (-32001, -32601, -32601),
    ),
    "logging": ("logging/setLevel", {"level": "info"}, (-32001, -32601, -32601)),
    "subscription": ("resources/subscribe", {"uri": "pages://bach"}, (-32001, -32601, -32601)),
    "method": ("nothing/here", {}, (-32601, -32601, -32601)),
    "params": ("tools/call", {"name": 7}, (-32602, -32602, -32602)),
}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("case", CODES)
async def test_an_error_has_the_code_of_the_revision_that_is_spoken(case: str, revision: str) -> None:
    method, params, (first, handshake, modern) = CODES[case]
    expected = {"2024-11-05": first, "2026-07-28": modern}.get(revision, handshake)
    async with connected(revision) as wire:
        error = await wire.error(method, params)
        assert error["code"] == expected
        assert error["message"]
        # The connection goes on.
        assert len((await wire.result("tools/list"))["tools"]) == 4


@pytest.mark.parametrize("asked", ["1.0", "", "latest", "2024-11-05 "])
async def test_a_version_that_is_no_revision_at_all_is_refused_and_the_next_try_works(asked: str) -> None:
    async with wire() as raw:
        error = await raw.error("initialize", {"protocolVersion": asked, **HELLO})
        assert error["code"] == -32000
        assert "2024-11-05" in error["data"]["supported"]
        agreed = await raw.result("initialize", {"protocolVersion": "2024-11-05", **HELLO})
        assert agreed["protocolVersion"] == "2024-11-05"


@pytest.mark.parametrize("asked", ["1999-01-01", "2099-12-31", "2025-11-25-draft"])
async def test_a_revision_that_nobody_speaks_is_answered_with_one_that_is_spoken(asked: str) -> None:
    async with wire() as raw:
        agreed = await raw.result("initialize", {"protocolVersion": asked, **HELLO})
        assert agreed["protocolVersion"] == "2025-11-25"


async def test_a_revision_without_handshake_that_is_not_served_is_named_with_those_that_are() -> None:
    async with wire() as raw:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2099-01-01",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        error = await raw.error("tools/list", {"_meta": meta})
    assert error["code"] == -32022
    assert "2026-07-28" in error["data"]["supported"]


@pytest.mark.parametrize("notification", ["initialized", "notifications/initialized"])
async def test_the_handshake_ends_with_either_name_of_the_notification(notification: str) -> None:
    async with wire() as raw:
        await raw.notify(notification)  # alone it opens the connection, and so shows that it was taken
        await trio.testing.wait_all_tasks_blocked()
        assert (await raw.result("tools/list"))["tools"]


@pytest.mark.parametrize(
    ("method", "params", "where"),
    [
        ("tools/call", {}, "tools/call: params.name: "),
        ("tools/call", {"name": "calculator", "arguments": []}, "tools/call: params.arguments: "),
        ("resources/read", {"uri": 5}, "resources/read: params.uri: "),
    ],
)
async def test_params_of_the_wrong_shape_are_told_by_their_place(
    method: str, params: Json, where: str
) -> None:
    async with connected() as wire:
        error = await wire.error(method, params)
    assert error["code"] == -32602
    assert error["message"].startswith(where)
