"""Listings page by page, bounded, with every item kept although another one is invalid."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcp_types import PaginatedRequestParams, Request
from pydantic import BaseModel, ValidationError

from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits

ModelT = TypeVar("ModelT", bound=BaseModel)


ListingRequest = Callable[..., Request[Any, Any]]
"""A request class of the SDK whose `params` are a `PaginatedRequestParams`, or None for the first page."""


async def list_through(
    ask: Callable[[Request[Any, Any]], Awaitable[dict[str, Any]]],
    kind: ListingRequest,
    *,
    key: str,
    model: type[ModelT],
    limits: Limits,
    server: str,
) -> list[ModelT]:
    """`list_all` by requests of the class `kind`, each sent through `ask`, whose errors are raised too."""

    async def fetch(cursor: str | None) -> dict[str, Any]:
        return await ask(kind(params=PaginatedRequestParams(cursor=cursor) if cursor is not None else None))

    return await list_all(fetch, key=key, model=model, limits=limits, server=server)


async def list_all(
    fetch: Callable[[str | None], Awaitable[dict[str, Any]]],
    *,
    key: str,
    model: type[ModelT],
    limits: Limits,
    server: str,
) -> list[ModelT]:
    """Every valid item of a listing; items that aren't what `model` says are left out.

    Raises `LimitError` past `Limits.listing_pages` or `Limits.listed_items`, `ProtocolError` where a page
    has no list, or its cursor has been there before.
    """
    found: list[ModelT] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _page in range(limits.listing_pages):
        result = await fetch(cursor)
        items = result.get(key)
        if not isinstance(items, list):
            raise ProtocolError(f"{server} answered a listing without a list of {key}")
        if len(found) + len(items) > limits.listed_items:
            raise LimitError(
                f"{server} lists more than {limits.listed_items} {key} (Limits.listed_items)",
                limit="listed_items",
                allowed=limits.listed_items,
                got=len(found) + len(items),
            )
        found.extend(item for item in (_valid(model, raw) for raw in items) if item is not None)
        following = result.get("nextCursor")
        if following is None:
            return found
        if not isinstance(following, str) or following in seen:
            raise ProtocolError(f"{server} gives the same cursor of its {key} twice, or none that is a text")
        seen.add(following)
        cursor = following
    raise LimitError(
        f"{server} has more than {limits.listing_pages} pages of {key} (Limits.listing_pages)",
        limit="listing_pages",
        allowed=limits.listing_pages,
        got=limits.listing_pages + 1,
    )


def _valid(model: type[ModelT], raw: object) -> ModelT | None:
    try:
        return model.model_validate(raw, by_name=False)
    except ValidationError:
        return None
