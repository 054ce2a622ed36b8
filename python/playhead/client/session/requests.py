"""Lenient readers of the raw results of listings and prompts.

As in results of tools, blobs are never copied, and an invalid block or item does not affect the others.
Servers of 2024-11-05 send a list of blocks, or a plain string, in place of a prompt message's one block; both
are read as blocks. The SDK's types are imported only when a program reads them, because their import takes
longer than the rest of a start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Required, TypeAlias, TypedDict, TypeVar

from playhead.content.blocks import Block, items_of, parse_blocks
from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits

if TYPE_CHECKING:
    from pydantic import BaseModel

    from playhead.client.session.arrivals import Arrivals
    from playhead.stream.source import Playable

    ModelT = TypeVar("ModelT", bound=BaseModel)

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Awaited with a call's progress, its total and a message; the last two are None if the server gives none."""
OnMedia: TypeAlias = "Callable[[Playable], Awaitable[None]]"
"""Awaited with each audio that a call's progress names, which can be played at once."""


class SendOptions(TypedDict, total=False):
    """The options of `Connection.request`."""

    silent_seconds: Required[float]
    total_seconds: Required[float]
    on_progress: OnProgress | None
    on_link: Callable[[object], None] | None
    arrivals: Arrivals | None


Send = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Sends a request, by its method and parameters, and returns its raw result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """One message of a prompt."""

    role: str
    """`user`, `assistant` or another string that the server sent; empty without one."""
    blocks: tuple[Block, ...]
    """The content. The specification allows one block; some servers send several."""
    raw: object = field(repr=False)
    """The raw message."""

    @property
    def text(self) -> str:
        """The text blocks, one per line."""
        fields = (block.fields or {} for block in self.blocks)
        return "\n".join(each["text"] for each in fields if each.get("type") == "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptResult:
    """The result of `prompts/get`."""

    messages: tuple[PromptMessage, ...]
    description: str | None
    raw: Mapping[str, Any] = field(repr=False)
    """The raw result."""


def prompt_from(raw: Mapping[str, Any], *, limits: Limits, server: str) -> PromptResult:
    """Read the prompt in `raw`.

    Raises `ProtocolError` without a list of messages, `LimitError` past `Limits.result_items` messages, and
    otherwise as `parse_blocks` for each message.
    """
    messages = items_of(raw, "messages", method="prompts/get", limits=limits, server=server)
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


LISTS: Final = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""The listing methods, each with the member of its result that has the items."""


async def list_all(send: Send, method: str, *, limits: Limits, server: str) -> list[dict[str, Any]]:
    """Return the items of all pages of a listing, raw. Items that are not objects are left out.

    Raises `LimitError` past `Limits.listing_pages` or `Limits.listed_items`, `ProtocolError` if a page has no
    list or repeats a cursor, and the errors of `send`.
    """
    key = LISTS[method]
    listed: list[dict[str, Any]] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _page in range(limits.listing_pages):
        result = await send(method, {} if cursor is None else {"cursor": cursor})
        items = result.get(key)
        if not isinstance(items, list):
            raise ProtocolError(f"{server} answered a listing without a list of {key}")
        if len(listed) + len(items) > limits.listed_items:
            raise LimitError(
                f"expected at most {limits.listed_items} {key} from {server} (Limits.listed_items), got more",
                limit="listed_items",
                allowed=limits.listed_items,
                got=len(listed) + len(items),
            )
        listed.extend(item for item in items if isinstance(item, dict))
        cursor = result.get("nextCursor")
        if cursor is None:
            return listed
        if not isinstance(cursor, str) or cursor in seen:
            raise ProtocolError(f"{server} returned a repeated or non-string cursor in its list of {key}")
        seen.add(cursor)
    raise LimitError(
        f"expected at most {limits.listing_pages} pages of {key} (Limits.listing_pages), got more"
        f" from {server}",
        limit="listing_pages",
        allowed=limits.listing_pages,
        got=limits.listing_pages + 1,
    )


def typed(model: type[ModelT], items: Iterable[Mapping[str, Any]]) -> list[ModelT]:
    """Return the `items` as instances of `model`. Invalid items are left out."""
    from pydantic import ValidationError

    valid: list[ModelT] = []
    for item in items:
        with suppress(ValidationError):
            valid.append(model.model_validate(item, by_name=False))
    return valid
