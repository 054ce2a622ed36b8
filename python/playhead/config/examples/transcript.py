"""Example for a tool that returns long text: save it, show one line to the user, pass all of it to the model.

For the server `youtube-transcript` and its `get_transcript`; for another, pass `summarise` to
`create_tool_config(SERVER, TOOL, response_handler=summarise, send_result_to_ai=True)`, or write
`response_handler = "playhead.config.examples.transcript:summarise"` in a file.
"""

from __future__ import annotations

from textwrap import shorten
from typing import Final

from playhead.config.tools import ToolContent, ToolResponse, create_tool_config

OPENING_CHARS: Final = 60
"""Fits on one terminal line along with the word count."""


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


TOOL_CONFIGS: Final = create_tool_config(
    "youtube-transcript",
    "get_transcript",
    description="Get the whole transcript of a video. Call it once a video: the text is long.",
    system_prompt="Answer from a transcript only with what it says, and quote it where that is short.",
    save_output=True,
    send_result_to_ai=True,
    response_handler=summarise,
    metadata={"tags": ["transcript"]},
)
