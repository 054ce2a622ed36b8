"""The audio server's one prompt: what a person picks to hear music without writing a sentence."""

from __future__ import annotations

from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

PLAY_MUSIC: Final = types.Prompt(
    name="play_music",
    title="Play music",
    description="Asks for a piece of music, or for any that fits.",
    arguments=[
        types.PromptArgument(
            name="wish", description="a title or a mood; anything by default", required=False
        )
    ],
)
WISH_CHARS: Final = 500
"""Of a wish: longer ones are no title and no mood."""


def prompt_messages(name: str, arguments: dict[str, str]) -> types.GetPromptResult:
    """The messages of a prompt. Raises `MCPError` (-32602) for one that is not here, or a wish too long."""
    if name != PLAY_MUSIC.name:
        raise MCPError(-32602, f"no prompt {name[:80]!r} here; there is play_music")
    wish = arguments.get("wish", "").strip()
    if len(wish) > WISH_CHARS:
        raise MCPError(-32602, f"wish has {len(wish)} characters; {WISH_CHARS} are allowed")
    asked = f"Play this: {wish}." if wish else "Play some music."
    text = f"{asked} Use musicPlayer, and say nothing while it plays."
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.GetPromptResult(description=PLAY_MUSIC.description, messages=[message])
