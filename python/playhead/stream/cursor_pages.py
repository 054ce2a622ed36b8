"""A cursor tool as a source of bytes: each answer is `{data, next_cursor}`, and the last has no cursor.

A cursor is opaque, so only the next page can be read. Pages are not read in parallel, and seeking is
impossible.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from playhead.errors import LimitError, ProtocolError
from playhead.limits import Limits
from playhead.stream.answer import Page
from playhead.stream.polling import QueueReader
from playhead.stream.result_pages import (
    CURSOR_FIELDS,
    MIME_FIELDS,
    first_string,
    structured_content,
    tool_data,
)


class CursorReader(QueueReader):
    """Reads the pages of one tool, as a `playhead.stream.answer.ReadRange` that ignores its range."""

    def __init__(
        self,
        call: Callable[[object], Awaitable[Mapping[str, Any]]],
        *,
        first: object,
        is_repeatable: bool,
        tool: str,
        limits: Limits,
        server: str,
    ) -> None:
        """`call(cursor)` calls the tool once. `first` is the cursor of the first page; None to send none. A
        failed call may be sent again only if it `is_repeatable`."""
        super().__init__(lambda: call(self._cursor), tool=tool, limits=limits, server=server)
        self._cursor = first
        self._is_repeatable = is_repeatable
        self._empty_pages = 0

    async def _answer(self) -> Mapping[str, Any]:
        if not self._is_repeatable:
            return await super()._answer()
        return structured_content(await self._call(), tool=self._tool, server=self._server)

    def _page(self, fields: Mapping[str, Any]) -> Page:
        tool, server, limits = self._tool, self._server, self._limits
        data, n_bytes = tool_data(fields, tool=tool, start=self._offset, limits=limits, server=server)
        cursors = (fields.get(name) for name in CURSOR_FIELDS)
        cursor = next((each for each in cursors if each not in (None, "", False)), None)
        has_more = fields.get("hasMore", cursor is not None)
        if has_more is True and (cursor is None or cursor == self._cursor):
            raise ProtocolError(
                f"{server}: expected a new cursor from tool {tool!r} at byte {self._offset}, got"
                f" {'the same again' if cursor is not None else 'hasMore without one'}"
            )
        self._empty_pages = 0 if data else self._empty_pages + 1
        if self._empty_pages > limits.stagnant_pages:
            raise LimitError(
                f"{server}: expected bytes from tool {tool!r} at byte {self._offset}, got"
                f" {self._empty_pages} empty pages in a row, each with a cursor",
                limit="stagnant_pages",
                allowed=limits.stagnant_pages,
                got=self._empty_pages,
            )
        self._cursor, self._is_done = cursor, has_more is not True
        self._offset += n_bytes
        return Page(blobs=(data,) if data else (), mime_type=first_string(fields, MIME_FIELDS))
