"""The listing of a server's resource templates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from playhead.errors import PlayheadError

WAIT_SECONDS = 2.0
"""Limits the wait for a listing when a stream is opened. The templates are listed right after the handshake,
so usually only a stream that is opened just then has to wait, for about a round trip."""

DESCRIBED_WAIT_SECONDS = 1.0
"""Limits this wait if the link's description is a URL. Most servers accept a URL as an argument, so the
templates matter less. A server that offers only a template would refuse it, so there is a wait."""


class Templates:
    """The resource templates of a server, listed once in the background, so that no page waits for them."""

    def __init__(self) -> None:
        self._templates: tuple[str, ...] = ()
        self._error: PlayheadError | None = None
        self._settled = trio.Event()

    async def learn(self, listing: Callable[[], Awaitable[Sequence[str]]] | None) -> None:
        """Run `listing`, which is None for a server that declares no resources. `listed` raises its error."""
        try:
            if listing is not None:
                self._templates = tuple(await listing())
        except PlayheadError as error:
            self._error = error.with_traceback(None)
        finally:
            self._settled.set()

    async def known(self, *, within_seconds: float) -> tuple[str, ...] | None:
        """Return the templates; None if they are still being listed after `within_seconds`.

        Empty if the listing failed, so that a stream uses another form.
        """
        with trio.move_on_after(within_seconds):
            await self._settled.wait()
        return self._templates if self._settled.is_set() else None

    async def listed(self) -> tuple[str, ...]:
        """Wait until the templates are listed, and return them. Raises the error of a failed listing, which
        has its own deadline."""
        await self._settled.wait()
        if self._error is not None:
            raise self._error
        return self._templates
