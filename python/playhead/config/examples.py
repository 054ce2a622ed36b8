"""Example configurations. Import them in a tool configuration file with
`modules = ["playhead.config.examples"]`.

`youtube-transcript` is a server whose `get_transcript` returns long text. The configuration saves it, shows
one line to the user, and passes all of it to the model. For another tool, pass `summarise` to
`create_tool_config(SERVER, TOOL, response_handler=summarise, send_result_to_ai=True)`, or write
`response_handler = "playhead.config.examples:summarise"` in a file.

`evm-mcp-server` is a server whose tools are not known in advance. It has some twenty tools that read
blockchains, and more with each version. All of them return text for a model, so the results go to the model.
"""

from __future__ import annotations

from textwrap import shorten
from typing import Final

from playhead.config.tools import ToolContent, ToolResponse, create_dynamic_config, create_tool_config

OPENING_CHARS: Final = 60
"""The length of the beginning to show. With the word count, it fits on one line of a terminal."""


def summarise(content: ToolContent) -> ToolResponse:
    """Summarise the text in one line for the user; pass the text itself to the model."""
    text = content.text
    words = len(text.split())
    count = "1 word" if words == 1 else f"{words:,} words"
    opening = shorten(text, OPENING_CHARS, placeholder="…")
    return ToolResponse(
        f"Transcript of {count}: {opening}" if words else "The transcript is empty.",
        text,
        text_for_model=text,
    )


TOOL_CONFIGS: Final = (
    create_tool_config(
        "youtube-transcript",
        "get_transcript",
        description="Get the whole transcript of a video. Call it once a video: the text is long.",
        system_prompt="Answer from a transcript only with what it says, and quote it where that is short.",
        save_output=True,
        send_result_to_ai=True,
        response_handler=summarise,
        metadata={"tags": ["transcript"]},
    ),
    create_dynamic_config("evm-mcp-server"),
)
