"""Prompts, read as leniently as servers in the field need it."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
from mcp.server import Server
from mcp.shared.exceptions import MCPError

from playhead import connect
from playhead.client.session.requests import prompt_from
from playhead.content import UnknownBlock
from playhead.errors import LimitError, ProtocolError, ServerError
from playhead.limits import DEFAULT_LIMITS, Limits


def read(*messages: object, limits: Limits = DEFAULT_LIMITS) -> Any:
    return prompt_from({"messages": list(messages)}, limits=limits, server="s").messages


def test_a_message_of_one_block_is_read() -> None:
    (message,) = read({"role": "user", "content": {"type": "text", "text": "hello"}})
    assert (message.role, message.text, len(message.blocks)) == ("user", "hello", 1)


def test_a_message_of_several_blocks_keeps_them_all_in_order() -> None:
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    (message,) = read(
        {"role": "user", "content": [{"type": "text", "text": "a"}, image, {"type": "text", "text": "b"}]}
    )
    assert message.text == "a\nb"
    assert message.blocks[1].raw == image


def test_a_message_that_is_a_plain_text_is_a_text_block() -> None:
    assert read({"role": "assistant", "content": "hello"})[0].text == "hello"


@pytest.mark.parametrize("content", [{"type": "hologram", "x": 1}, None, 3])
def test_an_unknown_block_is_passed_on_unchanged(content: object) -> None:
    (message,) = read({"role": "user", "content": content})
    assert isinstance(message.blocks[0].content, UnknownBlock)
    assert message.blocks[0].raw == content


@pytest.mark.parametrize("raw", [{"role": 7, "content": []}, {"content": []}, {}, "x", None])
def test_a_message_without_a_role_is_kept(raw: object) -> None:
    (message,) = read(raw)
    assert (message.role, message.raw) == ("", raw)


def test_a_prompt_without_a_list_of_messages_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"without a list of messages \(it holds: text\)"):
        prompt_from({"text": "hello"}, limits=DEFAULT_LIMITS, server="s")


def test_a_prompt_of_too_many_messages_is_refused() -> None:
    with pytest.raises(LimitError, match="at most 2 messages"):
        read("a", "b", "c", limits=Limits(result_items=2))


def prompter() -> Server[Any]:
    async def listed(
        _context: object, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        second = params is not None and params.cursor == "more"
        return types.ListPromptsResult(
            prompts=[types.Prompt(name="second" if second else "first")],
            next_cursor=None if second else "more",
        )

    async def got(_context: object, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name != "first":
            raise MCPError(-32602, "no such prompt")
        text = f"hello {(params.arguments or {}).get('who')}"
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description="greets", messages=[message])

    return Server("prompter", on_list_prompts=listed, on_get_prompt=got)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_prompts_are_listed_over_all_pages_and_got_with_their_arguments(mode: str) -> None:
    async with connect(prompter(), mode=mode) as session:
        assert [prompt.name for prompt in await session.list_prompts()] == ["first", "second"]
        result = await session.get_prompt("first", {"who": "you"})
        assert (result.description, result.messages[0].text) == ("greets", "hello you")
        with pytest.raises(ServerError, match="no such prompt"):
            await session.get_prompt("third")
