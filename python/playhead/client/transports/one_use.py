"""A transport's connection as a context that is entered once, and left in a hurry or not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Generic, TypeVar

from playhead.errors import ClosedError

Streams = TypeVar("Streams")


class OneUse(Generic[Streams]):
    """Around the context manager that opens the connection and closes it again."""

    def __init__(self, open_it: Callable[[], AbstractAsyncContextManager[Streams]], *, again: str) -> None:
        """`again` is what `ClosedError` says to whoever enters a second time."""
        self._open = open_it
        self._again = again
        self._manager: AbstractAsyncContextManager[Streams] | None = None
        self.quick = False
        """Whether it is left by a cancellation or by Ctrl-C: then nothing is waited for."""

    async def enter(self) -> Streams:
        """Open. Raises `ClosedError` where that was done before, else what opening raises."""
        if self._manager is not None:
            raise ClosedError(self._again)
        self._manager = self._open()
        return await self._manager.__aenter__()

    async def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close; `quick` is known from here on."""
        assert self._manager is not None
        # Cancelled, KeyboardInterrupt and groups that hold one are no `Exception`: a person is waiting.
        self.quick = error is not None and not isinstance(error, Exception)
        return await self._manager.__aexit__(kind, error, trace)
