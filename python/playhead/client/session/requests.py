"""Requests in the form that the SDK sends unchanged, and lenient readers of their results.

Results are read like those of tools: blobs are never copied, and invalid blocks and items affect nothing
else. Servers of 2024-11-05 send a list of blocks, or a plain string, in the place of a prompt message's one
block; both are read as blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from mcp_types import (
    GetPromptRequest,
    GetPromptRequestParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    Request,
    TextContent,
)
from pydantic import BaseModel, ValidationError

from playhead.content import Block, parse_blocks
from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits
from playhead.stream.strategies import ResourceRequest


class RangedReadParams(ReadResourceRequestParams):
    """`resources/read` with the members that carry a range (not in any MCP revision)."""

    arguments: dict[str, Any] | None = None
    offset: int | None = None
    length: int | None = None


class RangedReadRequest(Request[RangedReadParams, Literal["resources/read"]]):
    """Declared again because the stock request dumps its params by their declared type, which silently drops
    the members of a range."""

    method: Literal["resources/read"] = "resources/read"
    params: RangedReadParams


class RawRequest(Request[dict[str, Any] | None, str]):
    """Any method with any parameters, sent exactly as given.

    A stock request is dumped without its nulls: `{"arguments": {"city": null}}` would lose its argument.
    """

    @classmethod
    def of(cls, method: str, params: Mapping[str, Any] | None) -> RawRequest:
        return cls(method=method, params=None if params is None else dict(params))

    def model_dump(self, **_how: Any) -> dict[str, Any]:
        """The message for the SDK. A copy, because the SDK writes its `_meta` into it."""
        given = {"method": self.method}
        return given if self.params is None else given | {"params": copy.deepcopy(self.params)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """One message of a prompt."""

    role: str
    """`user` or `assistant`, or whatever the server says; empty if it says nothing."""
    blocks: tuple[Block, ...]
    """One, by the specification; some servers send several."""
    raw: object = field(repr=False)
    """The raw message."""

    @property
    def text(self) -> str:
        """The text blocks, one per line."""
        return "\n".join(
            block.content.text for block in self.blocks if isinstance(block.content, TextContent)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResult:
    """The result of `prompts/get`."""

    messages: tuple[PromptMessage, ...]
    description: str | None
    raw: Mapping[str, Any] = field(repr=False)
    """The raw result."""


def prompt_request(name: str, arguments: Mapping[str, str] | None) -> GetPromptRequest:
    given = dict(arguments) if arguments is not None else None
    return GetPromptRequest(params=GetPromptRequestParams(name=name, arguments=given))


def prompt_from(raw: Mapping[str, Any], *, limits: Limits, server: str) -> PromptResult:
    """The prompt in `raw`.

    Raises `ProtocolError` without a list of messages, and `LimitError` past `Limits.result_items`
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
            f"expected at most {limits.result_items} messages in a prompt (Limits.result_items), got"
            f" {len(messages)} from {server}",
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


ModelT = TypeVar("ModelT", bound=BaseModel)


ListingRequest = Callable[..., Request[Any, Any]]
"""A request class of the SDK whose `params` are a `PaginatedRequestParams`, or None for the first page."""


async def list_all(
    send: Callable[[Request[Any, Any]], Awaitable[dict[str, Any]]],
    kind: ListingRequest,
    *,
    key: str,
    model: type[ModelT],
    limits: Limits,
    server: str,
) -> list[ModelT]:
    """List all pages with requests of the class `kind`; items that are not valid for `model` are left out.

    Raises `LimitError` past `Limits.listing_pages` or `Limits.listed_items`, `ProtocolError` if a page has no
    list or repeats a cursor, and what `send` raises.
    """
    found: list[ModelT] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _page in range(limits.listing_pages):
        params = PaginatedRequestParams(cursor=cursor) if cursor is not None else None
        result = await send(kind(params=params))
        items = result.get(key)
        if not isinstance(items, list):
            raise ProtocolError(f"{server} answered a listing without a list of {key}")
        if len(found) + len(items) > limits.listed_items:
            raise LimitError(
                f"expected at most {limits.listed_items} {key} from {server} (Limits.listed_items), got more",
                limit="listed_items",
                allowed=limits.listed_items,
                got=len(found) + len(items),
            )
        found.extend(item for item in (_valid(model, raw) for raw in items) if item is not None)
        following = result.get("nextCursor")
        if following is None:
            return found
        if not isinstance(following, str) or following in seen:
            raise ProtocolError(f"{server} returned a repeated or non-string cursor in its list of {key}")
        seen.add(following)
        cursor = following
    raise LimitError(
        f"expected at most {limits.listing_pages} pages of {key} (Limits.listing_pages), got more"
        f" from {server}",
        limit="listing_pages",
        allowed=limits.listing_pages,
        got=limits.listing_pages + 1,
    )


def _valid(model: type[ModelT], raw: object) -> ModelT | None:
    try:
        return model.model_validate(raw, by_name=False)
    except ValidationError:
        return None


def read_request(request: ResourceRequest) -> RangedReadRequest:
    return RangedReadRequest(params=RangedReadParams.model_validate(request.params()))
