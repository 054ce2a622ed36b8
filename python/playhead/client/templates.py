"""What a server offers as resource templates: listed once, in the background, never on the way to a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from mcp_types import ResourceTemplate

from playhead.errors import PlayheadError

WAIT_SECONDS = 2.0
"""How long opening a stream waits for a listing that is still under way. It was sent before anything else, so
only a stream opened just after connecting waits at all, for about a round trip."""

DESCRIBED_WAIT_SECONDS = 1.0
"""The same for a link whose description is a URL: most servers take that as `arguments`, but one that offers
only a template does not, and would fail at once."""


class Templates:
    """The templates of one session's server, as far as they are known."""

    def __init__(self) -> None:
        self._found: tuple[str, ...] = ()
        self._settled = trio.Event()

    async def learn(self, listing: Callable[[], Awaitable[list[ResourceTemplate]]] | None) -> None:
        """Ask `listing` once; None for a server that says it has no resources.

        What goes wrong leaves the list empty: a stream then uses another strategy, or fails with an error of
        its own.
        """
        try:
            if listing is not None:
                self._found = tuple(template.uri_template for template in await listing())
        except PlayheadError:
            return
        finally:
            self._settled.set()

    async def known(self, *, described: bool) -> tuple[str, ...]:
        """The templates, after a short wait where they are still being listed.

        `described` says that the link carries a URL in its description, which is a way to ask as well.
        """
        with trio.move_on_after(DESCRIBED_WAIT_SECONDS if described else WAIT_SECONDS):
            await self._settled.wait()
        return self._found
