"""A model's connections: kept from round to round inside its context, made for each reply without one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from playhead.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType

ClientT = TypeVar("ClientT", bound=AbstractAsyncContextManager[object])


class KeepsClient(ABC, Generic[ClientT]):
    """What the models over HTTP have in common: a name, and the HTTP client that their context keeps."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._kept: ClientT | None = None
        self._open: AsyncExitStack | None = None

    @property
    def name(self) -> str:
        """The model's name at its provider."""
        return self._model

    async def __aenter__(self) -> Self:
        if self._open is not None:
            raise UsageError(f"{self!r} is already open: a model's context is entered once at a time")
        self._open = AsyncExitStack()
        self._kept = self._make_client()
        await self._open.enter_async_context(self._kept)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stack, self._open, self._kept = self._open, None, None
        if stack is not None:
            await stack.aclose()

    async def _client(self, stack: AsyncExitStack) -> ClientT:
        """The client that is kept; without one, a new one that `stack` closes."""
        if self._kept is not None:
            return self._kept
        client = self._make_client()
        await stack.enter_async_context(client)
        return client

    @abstractmethod
    def _make_client(self) -> ClientT: ...
