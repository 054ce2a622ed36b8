"""A queue tool as a source of bytes: it is called until its answer, `{chunks: [{index, …}], done}`, says
done.

The tool hands out each chunk once, while it still produces the next. So a call is never repeated, chunks are
not read in parallel, and seeking is impossible. `index` shows whether a chunk is missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from playhead.content.formats import decoded_bytes
from playhead.errors import (
    ChunkGapError,
    PlayheadError,
    ProtocolError,
    StreamBrokenError,
    TransportError,
)
from playhead.limits import Limits, check_block
from playhead.retry import was_not_begun
from playhead.stream.answer import Page
from playhead.stream.negotiation import is_refusal
from playhead.stream.result_pages import DATA_FIELDS, MIME_FIELDS, first_string, structured_content

FIRST_POLL_SECONDS = 0.025
"""Pause after an empty answer before the first chunk: the listener is waiting for it."""
POLL_SECONDS = 0.05
"""Pause after an empty answer later, while audio plays."""


class QueueReader:
    """Reads one queue. A `playhead.stream.answer.ReadRange` that ignores its range."""

    def __init__(
        self, call: Callable[[], Awaitable[Mapping[str, Any]]], *, tool: str, limits: Limits, server: str
    ) -> None:
        """`call` calls the tool once, and returns its raw result."""
        self._call = call
        self._tool = tool
        self._limits = limits
        self._server = server
        self._next_index: int | None = None
        self._offset = 0
        self._is_done = False
        self._lost: str | None = None
        """The reason why the chunks of an earlier call may be lost: its answer did not arrive, or was
        invalid."""

    async def __call__(self, start: int, end: int) -> Page:
        """Wait for the next chunks. An empty page is the end.

        Raises `ChunkGapError` if a chunk is missing, `ProtocolError` for an answer that is not a queue's, and
        `StreamBrokenError` if a call failed that may have taken chunks; another failed call raises its own
        error. Cancelled in the middle of a call, or after an answer with invalid chunks, the reader is
        broken.
        """
        while not self._is_done:
            fields = await self._answer()
            try:
                page = self._page(fields)
            except PlayheadError as error:
                if fields.get("chunks"):  # the server does not hand them out again
                    self._lost = str(error)
                raise
            if page.blobs:
                return page
            if not self._is_done:
                await trio.sleep(FIRST_POLL_SECONDS if not self._offset else POLL_SECONDS)
        return Page(blobs=())

    async def _answer(self) -> Mapping[str, Any]:
        if self._lost is not None:
            raise self._broken(self._lost)
        self._lost = "an earlier call was not answered"
        try:
            result = await self._call()
            fields = structured_content(result, tool=self._tool, server=self._server)
        except PlayheadError as error:
            may_have_run = isinstance(error, TransportError) or self._offset or not is_refusal(error)
            if may_have_run and not was_not_begun(error):
                raise self._broken(str(error)) from error
            self._lost = None
            raise
        self._lost = None
        return fields

    def _broken(self, why: str) -> StreamBrokenError:
        return StreamBrokenError(
            f"{self._server}: expected the chunks from byte {self._offset} on from tool {self._tool!r}, got"
            f" none: {why}; a queue hands out each chunk once, so the call is not repeated",
            offset=self._offset,
        )

    def _page(self, fields: Mapping[str, Any]) -> Page:
        chunks, is_done = fields.get("chunks"), fields.get("done")
        if not isinstance(chunks, list) or not isinstance(is_done, bool):
            raise ProtocolError(
                f"{self._server}: expected a list of chunks and done from tool {self._tool!r}, got"
                f" {', '.join(fields) or 'no structured content'}"
            )
        blobs: list[str | bytes] = []
        mime_type = None
        page_bytes = 0
        for chunk in chunks:
            members = chunk if isinstance(chunk, dict) else {}
            data = first_string(members, DATA_FIELDS)
            if data is None:
                raise ProtocolError(
                    f"{self._server}: expected base64 in each chunk of tool {self._tool!r} (in one of"
                    f" {', '.join(DATA_FIELDS)}), got {', '.join(members) or 'nothing'}"
                )
            if self._is_new(members.get("index"), self._offset + page_bytes) and data:
                blobs.append(data)
                page_bytes += decoded_bytes(data)
            mime_type = mime_type or first_string(members, MIME_FIELDS)
        check_block(page_bytes, allowed=self._limits.block_bytes, what=f"a page from {self._server}")
        self._offset += page_bytes
        self._is_done = is_done
        return Page(blobs=tuple(blobs), mime_type=mime_type)

    def _is_new(self, index: object, offset: int) -> bool:
        """Return False for a chunk that was received before. A chunk without an index follows the last."""
        if isinstance(index, bool) or not isinstance(index, int):
            return True
        expected = self._next_index
        if expected is None:
            expected = min(index, 1)  # servers count from 0 or from 1
        if index > expected:
            raise ChunkGapError(
                f"{self._server}: expected chunk {expected} of tool {self._tool!r} at byte {offset}, got"
                f" chunk {index}; those between are lost: start it again, with a single reader",
                offset=offset,
                expected=expected,
                got=index,
            )
        self._next_index = expected + 1 if index == expected else expected
        return index == expected
