"""A tool that returns a long text: it is saved, the user gets one line of it, the model all of it.

For the server `youtube-transcript` and its `get_transcript`; for another, pass `summarise` to
`create_tool_config(SERVER, TOOL, response_handler=summarise, send_result_to_ai=True)`, or write
`response_handler = "playhead.config.examples.transcript:summarise"` in a file.
"""

from __future__ import annotations

from textwrap import shorten
from typing import Final

from playhead.config.tools import ToolContent, ToolResponse, create_tool_config

OPENING_CHARS: Final = 60
"""What fits on a terminal's line beside the number of words."""


def summarise(content: ToolContent) -> ToolResponse:
    """One line about the text for the user, the text itself for the model."""
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
