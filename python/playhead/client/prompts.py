"""Prompts: texts that a server has ready for its user, as a list of messages.

Read as leniently as the results of tools: each message keeps what came. Servers of 2024-11-05 send a list of
blocks in place of a message's one, or a plain text; all of those are read as blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_types import GetPromptRequest, GetPromptRequestParams, TextContent

from playhead.content import Block, parse_blocks
from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """One message of a prompt."""

    role: str
    """`user` or `assistant`; whatever the server says is kept, and empty where it says nothing."""
    blocks: tuple[Block, ...]
    """One by the specification; some servers send several."""
    raw: object = field(repr=False)
    """As it came on the wire."""

    @property
    def text(self) -> str:
        """The text blocks, one a line."""
        return "\n".join(
            block.content.text for block in self.blocks if isinstance(block.content, TextContent)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResult:
    """What `prompts/get` gave."""

    messages: tuple[PromptMessage, ...]
    description: str | None
    raw: Mapping[str, Any] = field(repr=False)
    """The result as it came on the wire."""


def prompt_request(name: str, arguments: Mapping[str, str] | None) -> GetPromptRequest:
    given = dict(arguments) if arguments is not None else None
    return GetPromptRequest(params=GetPromptRequestParams(name=name, arguments=given))


def prompt_from(raw: Mapping[str, Any], *, limits: Limits, server: str) -> PromptResult:
    """The prompt in `raw`.

    Raises `ProtocolError` where there is no list of messages, and `LimitError` past `Limits.result_items`
    messages, or past what `parse_blocks` bounds in one of them.
    """
    messages = raw.get("messages")
    if not isinstance(messages, list):
        raise ProtocolError(
            f"{server} answered prompts/get without a list of messages"
            f" (it holds: {', '.join(raw) or 'nothing'})"
        )
    if len(messages) > limits.result_items:
        raise LimitError(
            f"{server} sent {len(messages)} messages in one prompt; {limits.result_items} are allowed"
            " (Limits.result_items)",
            limit="result_items",
            allowed=limits.result_items,
            got=len(messages),
        )
    description = raw.get("description")
    return PromptResult(
        messages=tuple(_message(message, limits=limits, server=server) for message in messages),
        description=description if isinstance(description, str) else None,
        raw=raw,
    )


def _message(raw: object, *, limits: Limits, server: str) -> PromptMessage:
    fields = raw if isinstance(raw, dict) else {}
    role = fields.get("role")
    content = _as_blocks(fields.get("content", raw))
    return PromptMessage(
        role=role if isinstance(role, str) else "",
        blocks=parse_blocks({"content": content}, limits=limits, server=server),
        raw=raw,
    )


def _as_blocks(content: object) -> Sequence[object]:
    match content:
        case list():
            return content
        case str():
            return [{"type": "text", "text": content}]
        case _:
            return [content]
