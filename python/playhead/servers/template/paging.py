"""Listings in pages: the cursor says where the next one begins, and a client must not look into it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pager:
    """Cuts listings that do not change while the server runs, so that a cursor stays right."""

    items: int
    """In a page."""

    def page(
        self, listing: str, everything: Sequence[_Item], params: PaginatedRequestParams | None
    ) -> tuple[list[_Item], str | None]:
        """One page of the listing of this name, and the cursor of the next.

        Raises `MCPError` (-32602) for a cursor that this listing did not give.
        """
        start = 0
        if params is not None and params.cursor is not None:
            start = _offset(listing, params.cursor)
            if start % self.items or not 0 < start < len(everything):
                raise _unknown(params.cursor)
        end = start + self.items
        return list(everything[start:end]), _cursor(listing, end) if end < len(everything) else None


def _cursor(listing: str, offset: int) -> str:
    return base64.urlsafe_b64encode(f"{listing}:{offset}".encode()).decode()


def _offset(listing: str, cursor: str) -> int:
    try:
        name, _, offset = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii").partition(":")
    except (binascii.Error, ValueError):
        raise _unknown(cursor) from None
    if name != listing or not offset.isdecimal() or len(offset) > 9:
        raise _unknown(cursor)
    return int(offset)


def _unknown(cursor: str) -> MCPError:
    return MCPError(
        INVALID_PARAMS, f"no listing gave the cursor {cursor[:80]!r}; begin again without a cursor"
    )
