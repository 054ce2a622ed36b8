"""What the results of tools bring along: sound is decoded, links are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from playhead.check.probes.audio import probe_sound, sounds_like
from playhead.check.probes.reads import probe_link
from playhead.check.results import TestResult
from playhead.check.target import Target

MOST_SOUNDS: Final = 3
MOST_LINKS: Final = 3
"""Of one tool: what is wrong with one is wrong with the next, and a link is read more than once."""


async def probe_media(
    target: Target,
    results: Sequence[Mapping[str, Any]],
    found: Callable[[TestResult], None],
    *,
    tool: str,
) -> None:
    """Judge the sound and the links in `results`, the results of calls to `tool` as they came (errors too:
    they are passed over). To be called once a tool: the same link is read once."""
    blocks = [
        block
        for result in results
        if result.get("isError") is not True and isinstance(result.get("content"), list)
        for block in result["content"]
        if isinstance(block, dict)
    ]
    sounds: dict[str, tuple[str | None, str | None]] = {}
    links: dict[tuple[str, object], Mapping[str, Any]] = {}
    for block in blocks:
        inner = block.get("resource")
        match block.get("type"):
            case "audio" if isinstance(block.get("data"), str):
                sounds.setdefault(block["data"], (_text(block.get("mimeType")), None))
            case "resource" if isinstance(inner, dict) and isinstance(inner.get("blob"), str):
                if sounds_like(inner, _text(inner.get("uri"))):
                    sounds.setdefault(inner["blob"], (_text(inner.get("mimeType")), _text(inner.get("uri"))))
            case "resource_link" if isinstance(block.get("uri"), str):
                links.setdefault((block["uri"], block.get("description")), block)
    for base64, (mime_type, uri) in list(sounds.items())[:MOST_SOUNDS]:
        await probe_sound(
            target,
            found,
            base64=base64,
            mime_type=mime_type,
            subject=f"tool {tool}",
            title=f"its sound ({mime_type})",
            tool=tool,
            uri=uri,
        )
    for link in list(links.values())[:MOST_LINKS]:
        await probe_link(target, link, found, tool=tool)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
