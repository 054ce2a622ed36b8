"""The included examples do what their pages say."""

from __future__ import annotations

import pytest

from playhead.config.examples import summarise
from playhead.config.tools import (
    Delivery,
    Layer,
    ToolContent,
    create_tool_config,
    get_tool_configs,
    run_handler,
)
from playhead.content.blocks import parse_block

EXAMPLES = get_tool_configs("playhead.config.examples", entry_points=False)


def content(text: str) -> ToolContent:
    return ToolContent(blocks=(parse_block({"type": "text", "text": text}),))


async def test_a_transcript_is_saved_told_in_a_line_and_given_to_the_model_whole() -> None:
    found = EXAMPLES.resolve("youtube-transcript", "get_transcript")
    assert (found.delivery, found.save_output) == (Delivery.MODEL, True)
    assert found.config is not None
    text = "Good evening.\nTonight we talk about tea, " + "and about tea, " * 20_000
    answer = await run_handler(found.config, content(text))
    assert (
        answer.message
        == "Transcript of 60,007 words: Good evening. Tonight we talk about tea, and about tea, and…"
    )
    assert len(answer.message) <= 100
    assert (answer.text_for_model, answer.raw_content) == (text, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [(" \n", "The transcript is empty."), ("Hello", "Transcript of 1 word: Hello")],
)
async def test_a_transcript_of_little_is_told_as_it_is(text: str, message: str) -> None:
    config = create_tool_config("any", "other", response_handler=summarise)
    assert (await run_handler(config, content(text))).message == message


@pytest.mark.requirement("CF-25")
def test_a_dynamic_servers_results_go_to_the_model_unless_a_tool_says_otherwise() -> None:
    found = EXAMPLES.resolve("evm-mcp-server", "get_balance")
    assert (found.layer, found.delivery) == (Layer.DYNAMIC, Delivery.MODEL)
