"""`playhead call` exits with an error after it showed an answer that cannot be used."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from playhead.cli.tools import raise_errors
from playhead.client import CallResult, connect
from playhead.errors import ProtocolError, ToolFailedError
from tests.servers.raw_http import Exchange, raw_http

BROKEN_AUDIO = {"type": "audio", "mimeType": "audio/mpeg", "data": "!!!!"}
EMPTY_AUDIO = {"type": "audio", "mimeType": "audio/mpeg", "data": ""}
BROKEN_IMAGE = {"type": "image", "mimeType": "image/png", "data": "!!!!"}
BROKEN_BLOB = {"type": "resource", "resource": {"uri": "x:", "mimeType": "audio/mpeg", "blob": "!!!"}}
TEXT = {"type": "text", "text": "hi"}
AUDIO = {"type": "audio", "mimeType": "audio/mpeg", "data": b64encode(b"ID3" + bytes(50)).decode()}
UNKNOWN = {"type": "hologram"}


async def called(result: dict[str, Any]) -> CallResult:
    async def answer(exchange: Exchange) -> None:
        await exchange.result(result)

    async with raw_http(answer) as server, connect(server.url, mode="legacy") as session:
        return await session.call_tool("t")


@pytest.mark.parametrize(
    "blocks", [[BROKEN_AUDIO], [EMPTY_AUDIO], [BROKEN_IMAGE], [BROKEN_BLOB], [BROKEN_AUDIO, BROKEN_IMAGE]]
)
async def test_content_of_which_nothing_can_be_used_is_a_failure(blocks: list[dict[str, Any]]) -> None:
    result = await called({"content": blocks})
    with pytest.raises(
        ProtocolError, match=r"expected a usable result from tool t, got only block 0 \("
    ) as it:
        raise_errors("t", result)
    assert str(it.value).count("block") == len(blocks)


@pytest.mark.parametrize(
    "result",
    [
        {"content": [BROKEN_AUDIO, TEXT]},
        {"content": [BROKEN_IMAGE, AUDIO]},
        {"content": [BROKEN_AUDIO], "structuredContent": {"a": 1}},
        {"content": [UNKNOWN]},
        {"content": []},
    ],
)
async def test_what_can_be_used_in_part_or_is_only_unknown_is_none(result: dict[str, Any]) -> None:
    raise_errors("t", await called(result))


async def test_a_tool_that_says_that_it_failed_comes_first() -> None:
    result = await called({"content": [BROKEN_AUDIO], "isError": True})
    with pytest.raises(ToolFailedError):
        raise_errors("t", result)
