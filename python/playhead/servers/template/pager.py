"""`Pager` cuts the listings of the template server into pages, each with a cursor to the next page."""

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
    """Cuts listings into pages. A cursor stays valid, because no listing changes while the server runs."""

    items: int
    """The number of items per page."""

    def page(
        self, listing: str, everything: Sequence[_Item], params: PaginatedRequestParams | None
    ) -> tuple[list[_Item], str | None]:
        """Return the page that `params` ask for, and the cursor of the next page; None for the last page.

        `everything` is the whole listing, and `listing` its name, which its cursors contain.

        Raises:
            MCPError: -32602, for a cursor of another listing or one that this method never returned.
        """
        start = 0
        if params is not None and params.cursor is not None:
            start = _offset_in(listing, params.cursor)
            if start % self.items or not 0 < start < len(everything):
                raise _unknown_cursor(params.cursor)
        end = start + self.items
        next_cursor = _cursor(listing, end) if end < len(everything) else None
        return list(everything[start:end]), next_cursor


def _cursor(listing: str, offset: int) -> str:
    return base64.urlsafe_b64encode(f"{listing}:{offset}".encode()).decode()


def _offset_in(listing: str, cursor: str) -> int:
    try:
        name, _, offset = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii").partition(":")
    except (binascii.Error, ValueError):
        raise _unknown_cursor(cursor) from None
    if name != listing or not offset.isdecimal() or len(offset) > 9:
        raise _unknown_cursor(cursor)
    return int(offset)


def _unknown_cursor(cursor: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"unknown cursor {cursor[:80]!r}; start again without a cursor")
