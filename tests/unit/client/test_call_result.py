"""The result of a call, from real servers over each transport."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
import trio.testing

from playhead.client import BytesMedia, CallResult, ResourceMedia, connect
from playhead.config.servers import ServerConfig
from playhead.content.formats import as_string
from playhead.errors import Base64Error, LimitError
from playhead.limits import Limits
from playhead.results.plan import PlayAudio, Policy, Respond
from playhead.stream.options import StreamOptions
from tests.servers.counted_http import counted_http
from tests.servers.raw_http import Exchange, raw_http
from tests.servers.sample import FLAC, PIXEL, SAMPLE_COMMAND, WAVE, encoded, sample_server


async def check_mixed(result: CallResult) -> None:
    assert [type(item) for item in result.media] == [BytesMedia, BytesMedia, BytesMedia, ResourceMedia]
    assert [item.size_bytes for item in result.media] == [len(WAVE), len(FLAC), len(FLAC), len(WAVE)]
    for item, data in zip(result.media, (WAVE, FLAC, FLAC, WAVE), strict=True):
        async with item.open() as stream:
            assert await stream.read_all() == data
    assert [item.uri for item in result.links] == ["resource://plain/wave", "resource://plain/notes"]
    assert list(result.resources) == [*result.media, result.links[1]]
    assert [(image.mime_type, image.data()) for image in result.images] == [("image/png", PIXEL)]
    assert result.text == "here they are:"
    assert (result.errors, result.is_error, result.turn.decision) == ((), False, "stop")
    kinds = [type(item) for item in result.plan.dispositions]
    assert kinds.index(Respond) == 4
    assert result.plan.dispositions[1].block is result.blocks[1]
    assert isinstance(result.plan.dispositions[1], PlayAudio)


def check_for_model(result: CallResult) -> None:
    text = result.text_for_model
    said = [text.index(part) for part in ("here they are:", "audio/wav", "audio/flac", "image/png", "third")]
    assert said == sorted(said), "in the order of the blocks"
    for data in (WAVE, FLAC, PIXEL):
        assert encoded(data)[:24] not in text
    assert result.model_text is result.model_text, "made once"


@pytest.mark.requirement("MCP-26", "MCP-27", "TR-32")
@pytest.mark.requirement("TR-49")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("json_response", [True, False], ids=["json", "sse"])
async def test_a_mixed_result_keeps_its_order_over_http(mode: str, json_response: bool) -> None:
    async with (
        counted_http(sample_server(), json_response=json_response) as server,
        connect(server.url, mode=mode) as session,
    ):
        result = await session.call_tool("mixed")
        await check_mixed(result)
        check_for_model(result)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_mixed_result_keeps_its_order_over_stdio(mode: str) -> None:
    async with connect(SAMPLE_COMMAND, mode=mode) as session:
        result = await session.call_tool("mixed")
        await check_mixed(result)
        check_for_model(result)


@pytest.mark.requirement("TR-34")
@pytest.mark.requirement("TR-48")
async def test_a_structured_response_of_an_untrusted_tool_is_plain_text(tmp_path: Path) -> None:
    wary = Policy(trust_structured=False)
    async with connect(sample_server()) as session:
        result = await session.call_tool("mixed", policy=wary)
        assert len(result.media) == 3
        assert '"tool_name"' in result.text
    async with connect(sample_server(), policy=wary) as session:
        assert len((await session.call_tool("mixed")).media) == 3
        assert len((await session.call_tool("mixed", policy=Policy())).media) == 4
    entry = {
        "command": SAMPLE_COMMAND[0],
        "args": SAMPLE_COMMAND[1:],
        "playhead": {"trust_structured": False},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"relay": entry}}), encoding="utf-8")
    async with connect("relay", config=tmp_path / "mcp.json") as session:
        assert len((await session.call_tool("mixed")).media) == 3


# --- results that no SDK would send ------------------------------------------------------------------


async def answered(
    *blocks: Mapping[str, object], limits: Limits | None = None, is_error: bool = False
) -> CallResult:
    """Classify a result with these blocks. Its session is over."""

    async def handle(exchange: Exchange) -> None:
        await exchange.result({"content": list(blocks), "isError": is_error})

    config = ServerConfig(url="", mode="legacy")
    async with raw_http(handle) as server:
        config = ServerConfig(url=server.url, mode="legacy")
        async with connect(config, limits=limits or Limits()) as session:
            return await session.call_tool("x")


SOUND = {"type": "audio", "data": encoded(WAVE), "mimeType": "audio/wav"}
IMAGE = {"type": "image", "data": encoded(PIXEL), "mimeType": "image/png"}


@pytest.mark.requirement("TR-42")
async def test_of_an_error_result_nothing_plays_and_everything_can_be_opened() -> None:
    blob = {"type": "resource", "resource": {"uri": "x:log", "blob": encoded(b"log")}}
    said = {"type": "text", "text": "the tape is torn"}
    result = await answered(said, SOUND, blob, is_error=True)
    assert result.errors == ("the tape is torn",)
    assert result.media == ()
    assert [item.size_bytes for item in result.resources] == [len(WAVE), 3]
    assert result.turn.decision == "continue"


async def test_a_link_that_holds_its_sound_itself_is_bytes_and_not_read_from_the_server() -> None:
    uri = f"data:audio/wav;base64,{encoded(WAVE)}"
    result = await answered({"type": "resource_link", "uri": uri, "name": "Dawn"})
    (sound,) = result.media
    assert isinstance(sound, BytesMedia)
    assert (sound.title, sound.size_bytes) == ("Dawn", len(WAVE))


@pytest.mark.parametrize("size", [1, 2, 3, 2999, 3000, 3001])
async def test_held_bytes_are_read_in_pages_wherever_these_are_cut(size: int) -> None:
    data = random.Random(size).randbytes(size)
    media = BytesMedia(title="x", mime_type=None, base64=encoded(data), block_bytes=size)
    async with media.open(StreamOptions(page_bytes=1000)) as stream:
        assert b"".join([chunk async for chunk in stream]) == data


async def test_held_bytes_that_are_not_base64_are_refused_when_they_are_opened() -> None:
    media = BytesMedia(title="x", mime_type=None, base64="QUJD" * 999 + "QU*D", block_bytes=9000)
    with pytest.raises(Base64Error):
        async with media.open():
            pass


async def test_an_error_response_is_among_the_errors() -> None:
    fields = {"type": "error", "success": False, "timestamp": 1, "tool_name": "x", "error": "no such song"}
    result = await answered({"type": "text", "text": "fine"}, {"type": "text", "text": json.dumps(fields)})
    assert (result.errors, result.is_error, result.text) == (("no such song",), False, "fine")


async def test_a_block_with_a_wrong_field_is_among_the_findings() -> None:
    result = await answered({"type": "resource_link", "uri": "resource://song.mp3"})
    assert [finding.path for finding in result.findings] == ["$.content[0].name"]
    assert [item.title for item in result.media] == ["resource://song.mp3"]


@pytest.mark.requirement("MCP-22")
@pytest.mark.parametrize(
    ("result", "paths"),
    [
        ({"content": [], "structuredContent": {"owls": 2}}, []),
        ({"content": [], "structuredContent": {"owls": "two"}}, ["$.structuredContent.owls"]),
        ({"content": []}, ["$.structuredContent"]),
        ({"content": [], "isError": True}, []),
    ],
)
async def test_structured_content_is_held_against_the_schema_of_a_listed_tool(
    result: dict[str, object], paths: list[str]
) -> None:
    schema = {"type": "object", "properties": {"owls": {"type": "integer"}}}
    tool = {"name": "count", "inputSchema": {"type": "object"}, "outputSchema": schema}

    async def handle(exchange: Exchange) -> None:
        await exchange.result({"tools": [tool]} if exchange.method == "tools/list" else result)

    async with raw_http(handle) as server, connect(server.url) as session:
        assert (await session.call_tool("count")).findings == ()
        await session.list_tools()
        found = await session.call_tool("count")
        assert [finding.path for finding in found.findings] == paths
        assert found.raw == result


async def test_a_long_text_for_the_model_is_cut_and_the_whole_is_at_hand() -> None:
    text = "head " + "x" * 5000 + " tail"
    result = await answered({"type": "text", "text": text}, limits=Limits(model_text_chars=1000))
    assert len(result.text_for_model) <= 1000
    assert result.text_for_model.startswith("head ")
    assert result.text_for_model.endswith(" tail")
    assert result.model_text.cut
    assert text in result.model_text.whole
    assert result.text == text


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_an_image_is_saved_whole_or_not_at_all(tmp_path: Path) -> None:
    (image,) = (await answered(IMAGE)).images
    await image.save(tmp_path / "cover.png")
    assert (tmp_path / "cover.png").read_bytes() == PIXEL
    with trio.CancelScope() as scope:
        scope.cancel()
        await image.save(tmp_path / "late.png")
    assert names_in(tmp_path) == ["cover.png"]


async def test_an_image_past_the_limit_is_refused_before_decoding(tmp_path: Path) -> None:
    (image,) = (await answered(IMAGE, limits=Limits(block_bytes=57))).images
    assert image.size_bytes == len(PIXEL) == 58
    with pytest.raises(LimitError) as caught:
        image.data()
    assert (caught.value.limit, caught.value.got) == ("block_bytes", 58)
    with pytest.raises(LimitError):
        await image.save(tmp_path / "big.png")
    assert names_in(tmp_path) == []


async def test_broken_base64_is_an_error_of_its_block_alone() -> None:
    broken = {"type": "audio", "data": "AAA", "mimeType": "audio/wav"}
    result = await answered(broken, SOUND)
    assert len(result.resources) == 2
    with pytest.raises(Base64Error):
        async with result.resources[0].open():
            raise AssertionError("opened")
    async with result.resources[1].open() as stream:
        assert await stream.read_all() == WAVE


async def test_no_media_shows_its_bytes_in_its_repr() -> None:
    result = await answered(SOUND, IMAGE)
    for item in (*result.media, *result.images):
        assert base64.b64encode(WAVE[:30]).decode() not in repr(item)
        assert encoded(PIXEL)[:20] not in repr(item)


# --- a long blob, which stays where it is in its message ----------------------------------------------------

LONG = random.Random(7).randbytes(3_000_001)
LONG_BLOB = {"type": "resource", "resource": {"uri": "x:long.wav", "blob": encoded(LONG)}}


async def test_a_long_blob_is_read_from_its_message_and_the_raw_result_is_plain_json() -> None:
    result = await answered({"type": "text", "text": "here"}, LONG_BLOB, SOUND)
    long, short = result.media
    assert isinstance(long, BytesMedia)
    assert isinstance(short, BytesMedia)
    assert isinstance(long.payload, memoryview)
    assert isinstance(short.payload, str), "a view would keep the whole message"
    async with long.open() as stream:
        assert await stream.read_all() == LONG
    assert encoded(LONG)[:40] not in result.text_for_model
    assert result.raw["content"] == [{"type": "text", "text": "here"}, LONG_BLOB, SOUND]
    assert json.loads(json.dumps(result.raw)) == result.raw
    assert [block.raw for block in result.blocks] == result.raw["content"]
    assert result.blocks[1].raw is result.raw["content"][1]
    assert long.base64 == encoded(LONG)


async def test_a_long_image_is_decoded_from_its_message() -> None:
    result = await answered({"type": "image", "data": encoded(LONG), "mimeType": "image/png"})
    (image,) = result.images
    assert isinstance(image.payload, memoryview)
    assert (image.size_bytes, image.data(), image.base64) == (len(LONG), LONG, encoded(LONG))


async def test_a_request_that_the_caller_sends_itself_gets_strings() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.result({"content": [LONG_BLOB]})

    async with raw_http(handle) as server, connect(ServerConfig(url=server.url, mode="legacy")) as session:
        result = await session.request("tools/call", {"name": "x"})
    assert result == {"content": [LONG_BLOB]}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 3000, 3001])
@pytest.mark.parametrize("page_bytes", [1, 2, 3, 1000])
async def test_bytes_in_a_message_are_cut_where_the_reader_asks(size: int, page_bytes: int) -> None:
    data = random.Random(size).randbytes(size)
    view = memoryview(encoded(data).encode())
    media = BytesMedia(title="x", mime_type=None, base64=as_string(view), block_bytes=size)
    async with media.open(StreamOptions(page_bytes=page_bytes, page_bytes_max=page_bytes)) as stream:
        assert b"".join([chunk async for chunk in stream]) == data
